"""Calling the user's functions: what they raise becomes a :class:`UserFunctionError` that shows only their frames."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa

from firesteel.errors import OURS, FiresteelError, error_words, shortened
from firesteel.humanize import first_of
from firesteel.task.batches import with_null_indices
from firesteel.task.program import TaskContext

_PYSPARK = ("/site-packages/pyspark/", "/dist-packages/pyspark/", "/pyspark.zip/")


class UserFunctionError(FiresteelError):
    """A user function raised, or gave back what was not agreed.

    ``trace``: the user's frames only (empty when the complaint is ours). ``place``: what was being read, in words.
    """

    def __init__(self, message: str, *, trace: str = "", place: str = "", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.trace = trace
        self.place = place


class SetUpError(UserFunctionError):
    """The set-up of a user function raised. ``is_lasting``: for a reason that waiting does not mend, though another node may."""

    def __init__(self, message: str, *, is_lasting: bool, trace: str, place: str, hint: str | None) -> None:
        super().__init__(message, trace=trace, place=place, hint=hint)
        self.is_lasting = is_lasting


_LASTING = (
    FileNotFoundError,
    FileExistsError,
    IsADirectoryError,
    NotADirectoryError,
    PermissionError,
    ImportError,
    NameError,
    AttributeError,
    TypeError,
    NotImplementedError,
    SyntaxError,
)
"""Of files, of what is installed, and of the code. Others (of connections, of values) may pass."""


def user_frames(error: BaseException) -> str:
    """The traceback of ``error`` and of its causes, without the frames of Firesteel and PySpark."""
    exception = traceback.TracebackException.from_exception(error)
    _strip(exception, set())
    return "".join(map(shortened, exception.format()))  # a message is one piece


def _strip(exception: traceback.TracebackException | None, seen: set[int]) -> None:
    if exception is None or id(exception) in seen:
        return
    seen.add(id(exception))
    kept = [frame for frame in exception.stack if not is_foreign(frame.filename)]
    exception.stack = traceback.StackSummary.from_list(kept)
    _strip(exception.__cause__, seen)
    _strip(exception.__context__, seen)


def is_foreign(filename: str) -> bool:
    """The code is Firesteel's, as far as this process has it, or PySpark's."""
    return filename.startswith(OURS) or any(part in filename for part in _PYSPARK)


def user_error(name: str, error: BaseException, ctx: TaskContext) -> UserFunctionError:
    """The error to raise for what the function of step ``name`` raised."""
    where = f" while working on {ctx.place}" if ctx.place else ""
    return UserFunctionError(
        f"The function of step '{name}' raised {error_words(error)}{where}.", trace=user_frames(error), place=ctx.place
    )


def set_up_error(name: str, error: BaseException, ctx: TaskContext) -> SetUpError:
    """The error to raise for what the set-up of step ``name``'s function raised."""
    return SetUpError(
        f"The set-up of step '{name}' raised {error_words(error)}.",
        is_lasting=isinstance(error, _LASTING),
        trace=user_frames(error),
        place=ctx.place,
        hint=_EVERYWHERE if isinstance(error, (FileNotFoundError, ImportError)) else None,
    )


_EVERYWHERE = "It runs in workers, on every node: what it opens or imports must be there under the same name, with an absolute path."


def complaint(name: str, text: str, ctx: TaskContext, hint: str | None = None) -> UserFunctionError:
    """The error for a step that got or gave something wrong; ``text`` starts with a verb ("returned ...")."""
    where = f" while working on {ctx.place}" if ctx.place else ""
    return UserFunctionError(f"Step '{name}' {shortened(text)}{where}.", place=ctx.place, hint=hint)


def call(name: str, ctx: TaskContext, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """``fn(*args, **kwargs)``; what it raises is told as the user's error, our own errors pass."""
    began = 0.0 if ctx.ran is None else perf_counter()
    try:
        return fn(*args, **kwargs)
    except FiresteelError:
        raise
    except BaseException as error:  # sys.exit() too
        raise user_error(name, error, ctx) from error
    finally:
        if ctx.ran is not None:
            _count(ctx.ran, name, perf_counter() - began)


def _count(ran: dict[str, float], name: str, seconds: float) -> None:
    ran[name] = ran.get(name, 0.0) + seconds


class Boundary:
    """Carries an error of the input through the user's frames, so that it is not taken for the user's own. ``waited``: seconds for rows."""

    def __init__(self, batches: Iterator[Any]) -> None:
        self._batches = batches
        self.error: BaseException | None = None
        self.waited = 0.0

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        began = perf_counter()
        try:
            return next(self._batches)
        except StopIteration:
            raise
        except BaseException as error:
            self.error = error
            raise
        finally:
            self.waited += perf_counter() - began


def call_on_batches(
    name: str, ctx: TaskContext, fn: Callable[..., Any], batches: Iterator[Any], kwargs: dict[str, Any]
) -> Iterator[Any]:
    """Yields what ``fn(batches, **kwargs)`` yields.

    An error from the input passes unchanged; one from the function is the user's. The function need not read its
    input to the end. Any iterable is accepted, as PySpark does by default.
    """
    source = Boundary(batches)
    began, taken = perf_counter(), 0.0
    try:
        result = fn(source, **kwargs)
        produced = _as_iterator(name, result, ctx)
        while True:
            try:
                item = next(produced)
            except StopIteration:
                break
            since = perf_counter()
            yield item
            taken += perf_counter() - since
    except GeneratorExit:  # nobody wants more
        raise
    except BaseException as error:  # sys.exit() too
        if source.error is not None:
            raise source.error from None
        if isinstance(error, FiresteelError):
            raise
        raise user_error(name, error, ctx) from error
    finally:
        if ctx.ran is not None:
            _count(ctx.ran, name, perf_counter() - began - taken - source.waited)
    if source.error is not None:  # swallowed by the function: its answer lacks rows
        raise source.error


def _as_iterator(name: str, result: Any, ctx: TaskContext) -> Iterator[Any]:
    if isinstance(result, pa.RecordBatch | pa.Table) or type(result).__name__ == "DataFrame":
        raise complaint(
            name,
            f"returned one {type(result).__name__} instead of an iterator",
            ctx,
            "Write 'yield' instead of 'return'.",
        )
    try:
        return iter(result)
    except TypeError:
        raise complaint(
            name,
            f"returned {_described(result)} instead of an iterator",
            ctx,
            "It takes an iterator of batches and must yield batches.",
        ) from None


def _described(value: Any) -> str:
    return "nothing (None)" if value is None else f"a {type(value).__name__}"


# --- matching what came back with what was declared ---------------------------------------------------------------


class Conformer:
    """Brings Arrow data that a user function returned into the declared schema, as PySpark does.

    ``by_name``: columns, and the fields of structs, are matched by name, and none may be missing or superfluous. Otherwise
    by position, and superfluous columns behind are dropped, as in PySpark's mapInArrow. Types must agree up to what carries the same values in another layout: string and
    large_string, the zone of a timestamp, decimal precision, dictionary or plain, all-null columns.
    """

    def __init__(self, name: str, schema: pa.Schema, *, by_name: bool) -> None:
        self._name = name
        self._schema = schema
        self._by_name = by_name
        self._as_declared = all(field.nullable for field in schema)  # then an equal schema leaves nothing to check

    def batch(self, item: Any, ctx: TaskContext) -> pa.RecordBatch | None:
        """The batch in the declared schema; None when it holds neither rows nor columns."""
        if not isinstance(item, pa.RecordBatch):
            hint = "Yield each batch of table.to_batches()." if isinstance(item, pa.Table) else None
            raise complaint(self._name, f"yielded {_described(item)} instead of a pyarrow.RecordBatch", ctx, hint)
        item = with_null_indices(item)
        if self._as_declared and item.schema.equals(self._schema):
            return item
        if item.num_columns == 0 and item.num_rows == 0:
            return None
        return pa.RecordBatch.from_arrays(self._columns(item, ctx), schema=self._schema)

    def table(self, item: Any, ctx: TaskContext) -> pa.Table | None:
        if not isinstance(item, pa.Table):
            raise complaint(self._name, f"returned {_described(item)} instead of a pyarrow.Table", ctx)
        item = with_null_indices(item)
        if self._as_declared and item.schema.equals(self._schema):
            return item
        if item.num_columns == 0 and item.num_rows == 0:
            return None
        return pa.Table.from_arrays(self._columns(item, ctx), schema=self._schema)

    def _columns(self, item: Any, ctx: TaskContext) -> list[Any]:
        columns = self._by_names(item, ctx) if self._by_name else self._by_position(item, ctx)
        wrong = [
            f"column '{field.name}' (expected {field.type}, got {column.type})"
            for field, column in zip(self._schema, columns, strict=True)
            if not _same_values(column.type, field.type, self._by_name)
        ]
        if wrong:
            raise complaint(
                self._name,
                f"returned the wrong types: {', '.join(wrong)}",
                ctx,
                "Cast them, or declare what it returns.",
            )
        return [self._converted(column, field, ctx) for column, field in zip(columns, self._schema, strict=True)]

    def _converted(self, column: Any, field: pa.Field, ctx: TaskContext) -> Any:
        try:
            column = _relabelled(column, field.type, self._by_name)
        except pa.ArrowException as error:
            text = f"returned column '{field.name}' as {column.type}, which does not fit {field.type} ({error})"
            raise complaint(self._name, text, ctx) from None
        check_nulls(self._name, column, field, ctx)
        return column

    def _by_names(self, item: Any, ctx: TaskContext) -> list[Any]:
        check_names(self._name, list(item.schema.names), self._schema, ctx)
        return [item.column(item.schema.get_field_index(name)) for name in self._schema.names]

    def _by_position(self, item: Any, ctx: TaskContext) -> list[Any]:
        got, expected = list(item.schema.names), self._schema.names
        if len(got) < len(expected):
            raise complaint(
                self._name,
                f"returned {len(got)} columns ({first_of(got)}) where {len(expected)} are declared ({first_of(expected)})",
                ctx,
            )
        return [item.column(i) for i in range(len(expected))]


def check_nulls(name: str, column: Any, field: pa.Field, ctx: TaskContext) -> None:
    """Raises when there are nulls in a column declared without."""
    if not field.nullable and column.null_count:
        raise complaint(name, f"returned nulls in column '{field.name}', which is declared as not null", ctx)


def check_names(name: str, got: list[Any], schema: pa.Schema, ctx: TaskContext) -> None:
    """Raises when the names differ from the schema's as a set."""
    declared: list[str] = schema.names
    if got == declared:
        return
    returned, wanted = set(got), set(declared)
    missing, extra = [n for n in declared if n not in returned], [str(n) for n in got if n not in wanted]
    if missing or extra or len(got) != len(declared):
        parts = ([f"missing: {first_of(missing)}"] if missing else []) + (
            [f"unexpected: {first_of(extra)}"] if extra else []
        )
        raise complaint(
            name,
            f"returned columns {first_of(list(map(str, got))) or '(none)'} where {first_of(declared)} are declared"
            + (f" ({'; '.join(parts)})" if parts else " (a name occurs twice)"),
            ctx,
        )


_STRINGS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BINARIES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary)


def _same_values(got: pa.DataType, declared: pa.DataType, by_name: bool) -> bool:  # noqa: PLR0911 - one line per kind
    if got == declared or pa.types.is_null(got):
        return True
    for kind in (_STRINGS, _BINARIES):
        if any(is_(got) for is_ in kind) and any(is_(declared) for is_ in kind):
            return True
    types = pa.types
    if types.is_dictionary(got) or types.is_dictionary(declared):
        return _same_values(_plain(got), _plain(declared), by_name)
    if types.is_timestamp(got) and types.is_timestamp(declared):
        return got.unit == declared.unit and (got.tz is None) == (declared.tz is None)
    if types.is_decimal(got) and types.is_decimal(declared):
        return got.scale == declared.scale
    if types.is_struct(got) and types.is_struct(declared):
        if got.num_fields != declared.num_fields or (by_name and {f.name for f in got} != {f.name for f in declared}):
            return False
        pairs = zip(_children(got, declared, by_name), declared, strict=True)
        return all(_same_values(got[place].type, field.type, by_name) for place, field in pairs)
    if types.is_map(got) and types.is_map(declared):
        same_keys = _same_values(got.key_type, declared.key_type, by_name)
        return same_keys and _same_values(got.item_type, declared.item_type, by_name)
    if _is_list(got) and _is_list(declared):
        return _same_values(got.value_type, declared.value_type, by_name)
    return False


def _children(got: Any, declared: Any, by_name: bool) -> list[int]:
    """Of each field of the declared struct its place in the one that came."""
    return [got.get_field_index(field.name) for field in declared] if by_name else list(range(declared.num_fields))


def _is_list(type_: pa.DataType) -> bool:
    return pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_)


def _plain(type_: pa.DataType) -> pa.DataType:
    return type_.value_type if pa.types.is_dictionary(type_) else type_


def _relabelled(column: Any, type_: pa.DataType, by_name: bool) -> Any:
    """The column as ``type_``. A cast would match structs by name and lose values."""
    if column.type == type_:
        return column
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([_relabelled(chunk, type_, by_name) for chunk in column.chunks], type_)
    if pa.types.is_struct(type_) and pa.types.is_struct(column.type):
        given, places = column.flatten(), _children(column.type, type_, by_name)
        children = [_relabelled(given[i], field.type, by_name) for i, field in zip(places, type_, strict=True)]
        return pa.StructArray.from_arrays(children, fields=list(type_), mask=column.is_null())
    if pa.types.is_list(type_) and pa.types.is_list(column.type):
        return _relabelled_list(column, type_, by_name)
    if pa.types.is_dictionary(column.type) and not pa.types.is_dictionary(type_):
        return column.dictionary_decode().cast(type_)
    return column.cast(type_)


def _relabelled_list(column: Any, type_: pa.DataType, by_name: bool) -> Any:
    values = _relabelled(column.flatten(), type_.value_type, by_name)
    lengths = np.asarray(column.value_lengths().fill_null(0))
    offsets = np.zeros(len(column) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.ListArray.from_arrays(
        pa.array(offsets), values, type=type_, mask=column.is_null() if column.null_count else None
    )
