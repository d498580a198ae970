"""Rows as Python values: a batch as named tuples, and what a user's function gave back as a batch of the declared schema.

A row is a :class:`Row`, as PySpark's: a tuple whose values are also there as ``row.word`` and ``row["word"]``. Nested
values are what ``pyarrow`` makes of them (a struct is a dict). A batch is turned into columns of Python values first
and these into rows, so that nothing of Arrow is asked for per row.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import is_dataclass
from functools import cache
from typing import Any, cast

import numpy as np
import pyarrow as pa

from firesteel.errors import UsageError
from firesteel.results.plain import one_chunk
from firesteel.task.functions.python_values import exact_array, record_fields
from firesteel.task.functions.user_code import UserFunctionError, check_names, complaint
from firesteel.task.program import TaskContext

MOST_SHOWN = 200
"""Characters of a value or a row in a message."""
_WRONG = (pa.ArrowException, OverflowError, UnicodeError, TypeError, ValueError, AttributeError)
"""Errors that pyarrow raises for a value that does not fit a type."""


class Row(tuple[Any, ...]):
    """One row: a tuple of its values, in the order of the columns; ``row.word``, ``row["word"]`` and ``row[0]`` are the same.

    Where a column has the name of a tuple's method (``count``, ``index``), ``row.count`` is the column. Raises
    AttributeError or KeyError for a column that is not there.
    """

    __slots__ = ()
    _fields: tuple[str, ...] = ()

    def __new__(cls, **values: Any) -> Row:
        """``Row(word="a", n=1)``."""
        return row_type(tuple(values))(values.values())

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            try:
                return tuple.__getitem__(self, self._fields.index(key))
            except ValueError:
                raise KeyError(f"There is no column '{key}'; there are {', '.join(self._fields)}.") from None
        return tuple.__getitem__(self, key)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in self._fields:
            raise AttributeError(f"There is no column '{name}'; there are {', '.join(self._fields)}.")
        return tuple.__getitem__(self, self._fields.index(name))

    def as_dict(self) -> dict[str, Any]:
        """The values by column."""
        return dict(zip(self._fields, self, strict=True))

    asDict = as_dict  # noqa: N815

    def __repr__(self) -> str:
        return f"Row({', '.join(f'{name}={value!r}' for name, value in zip(self._fields, self, strict=True))})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _made, (self._fields, tuple(self))


def _made(fields: tuple[str, ...], values: tuple[Any, ...]) -> Row:
    return row_type(fields)(values)


@cache
def row_type(fields: tuple[str, ...]) -> Callable[[Iterable[Any]], Row]:
    """The kind of rows with these columns; called with the values of one."""
    body: dict[str, Any] = {"__slots__": (), "_fields": fields, "__new__": tuple.__new__}
    places = [f"f{k}" for k in range(len(fields))]
    # only its descriptors are wanted, the fastest there are; the class must live until they are taken, for the garbage
    # collector empties the namespace of a class that nobody holds
    template = namedtuple("_Places", places)  # pyright: ignore[reportUntypedNamedTuple]
    for place, name in zip(places, fields, strict=True):
        if not (name.startswith("__") or name in ("_fields", "as_dict", "asDict")):
            body[name] = vars(template)[place]
    return cast(Callable[[Iterable[Any]], Row], type("Row", (Row,), body))


def rows_of(batch: pa.RecordBatch | pa.Table) -> Iterator[Row]:
    """Every row of the batch."""
    make = row_type(tuple(batch.schema.names))
    return map(make, zip(*(_values(column) for column in batch.columns), strict=True))


def _values(column: Any) -> list[Any]:
    array = one_chunk(column)
    kind = array.type
    if array.null_count == 0 and (pa.types.is_integer(kind) or kind in (pa.float32(), pa.float64())):
        return np.asarray(array).tolist()  # five times as fast as to_pylist
    try:
        return array.to_pylist(maps_as_pydicts="strict")
    except KeyError as error:
        raise UsageError(f"A map has a key twice, which no dict of Python has: {error.args[0]}") from None


class RowBatcher:
    """Makes batches of ``schema`` of the rows that the function of step ``name`` gave back.

    A row is a dict or an instance of a dataclass (by column), or a tuple or list (by position; a ``Row`` is a tuple); in a schema of one
    column also any other value, as that column's. Values become Arrow's by its own rules, which lose nothing: 1.0 is an int64 and
    1.5 is none, no number is a string. Raises UserFunctionError that names the row, the value and the column.
    """

    def __init__(self, name: str, schema: pa.Schema) -> None:
        self._name, self._schema = name, schema
        self._names: list[str] = list(schema.names)
        self._wanted = set(self._names)
        self._single = len(self._names) == 1
        self.nulls = (None,) * len(self._names)
        """A row of nothing but nulls."""

    def batch(self, items: Sequence[Any], ctx: TaskContext) -> pa.RecordBatch:
        """``items``: what the function returned, a row each."""
        rows = [self._row(item, ctx) for item in items]
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(self._names)
        arrays = [self._column(values, field, rows, ctx) for values, field in zip(columns, self._schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _row(self, item: Any, ctx: TaskContext) -> Sequence[Any]:
        if isinstance(item, dict):
            if item.keys() != self._wanted:
                check_names(self._name, list(item), self._schema, ctx)
            return [item[name] for name in self._names]
        if isinstance(item, tuple | list):
            if len(item) != len(self._names):
                raise complaint(
                    self._name,
                    f"returned {shown(item)}, which has {len(item)} values where {len(self._names)} are declared"
                    f" ({', '.join(self._names)})",
                    ctx,
                    "A tuple or list is a row; as the value of a column write it in a tuple: (value,)."
                    if self._single
                    else None,
                )
            return item
        if is_dataclass(item) and not isinstance(item, type) and not self._is_value(item):
            return self._row(record_fields(item), ctx)
        if self._single and item is not None:
            return (item,)
        raise complaint(
            self._name,
            f"returned {'nothing (None)' if item is None else shown(item)} instead of a row",
            ctx,
            f"Return a dict or a tuple of {', '.join(self._names)}.",
        )

    def _is_value(self, item: Any) -> bool:
        """The only column is a struct, and this no row but its value."""
        return self._single and item.__dataclass_fields__.keys() != self._wanted

    def _column(self, values: Sequence[Any], field: pa.Field, rows: list[Sequence[Any]], ctx: TaskContext) -> pa.Array:
        try:
            array = exact_array(values, field.type)
        except _WRONG as error:
            raise self._wrong(values, field, rows, error, ctx) from None
        array = one_chunk(array)
        if not field.nullable and array.null_count:
            row = rows[next(k for k, value in enumerate(array) if not value.is_valid)]
            raise complaint(
                self._name, f"returned no value for column '{field.name}', which is not null, in {self._told(row)}", ctx
            )
        return array

    def _wrong(
        self, values: Sequence[Any], field: pa.Field, rows: list[Sequence[Any]], error: Exception, ctx: TaskContext
    ) -> UserFunctionError:
        for value, row in zip(values, rows, strict=True):
            try:
                exact_array([value], field.type)
            except _WRONG as reason:
                return complaint(
                    self._name,
                    f"returned {shown(value)} (a {type(value).__name__}) for column '{field.name}', which is not of type {field.type}"
                    f" ({_short(reason)}), in {self._told(row)}",
                    ctx,
                    "Convert it, or declare what the function returns.",
                )
        return complaint(self._name, f"returned values for column '{field.name}' that do not fit: {_short(error)}", ctx)

    def _told(self, row: Sequence[Any]) -> str:
        return f"the row {shown(row_type(tuple(self._names))(row))}"


def fits(value: Any, type_: pa.DataType) -> bool:
    """Returns True if the Python value is one of this type, losing nothing."""
    try:
        exact_array([value], type_)
    except _WRONG:
        return False
    return True


def check_row_schema(schema: pa.Schema) -> None:
    """Raises UsageError for a column that cannot be made of Python values."""
    for field in schema:
        try:
            pa.array([None], field.type)
        except (pa.ArrowException, TypeError):
            raise UsageError(
                f"Column '{field.name}' is {field.type}, which cannot be made of Python values.",
                hint="Declare the plain type, or use map_in_arrow.",
            ) from None


def shown(value: Any) -> str:
    """A value in a message, cut where it is long."""
    try:
        text = repr(value)
    except Exception:
        text = f"<a {type(value).__name__} that cannot be shown>"
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def _short(error: BaseException) -> str:
    lines = str(error).splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
