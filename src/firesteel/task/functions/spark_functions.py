"""Functions of PySpark's DataFrames (UDFs, ``mapInArrow``, ``applyInPandas`` ...), called by PySpark's own code for its workers.

That code turns pickled functions into one from Arrow batches to Arrow batches, with every conversion and check of PySpark's. It is fed
here by our tasks instead of the JVM. Whatever it raises, and an answer of other types than were declared, which the JVM would look at,
leaves the query to Spark.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from firesteel.errors import EngineStop, Stop, error_words
from firesteel.results.plain import one_chunk
from firesteel.task.batches import coalesce, take_rows
from firesteel.task.functions.user_code import Boundary
from firesteel.task.operators.grouping import Groups, grouped, paired
from firesteel.task.program import Batches, TaskContext, UnitInput

PICKLED_ROWS = 100
"""PySpark's number of UDFs whose rows are pickled: all others take batches."""

Call = Callable[[Iterator[Any]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class PickledFunction:
    """``commands``: pickled functions, each called on what the one before gave. ``arguments``, ``named``: numbers of its columns."""

    commands: tuple[bytes, ...]
    arguments: tuple[int, ...] = ()
    named: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class SparkFunctions:
    """Functions that are called together.

    ``kind``: PySpark's number of the kind (its eval type). ``settings``, ``evaluation``: what the JVM tells its worker besides.
    ``gives``: the columns of the answer, with what Spark takes for not null. ``struct_in``, ``struct_out``: the columns of a batch
    for the functions, or of their answer, are parts of one struct.
    """

    name: str
    kind: int
    functions: tuple[PickledFunction, ...]
    gives: pa.Schema
    settings: Mapping[str, str]
    evaluation: Mapping[str, str] = field(default_factory=dict)
    struct_in: bool = False
    struct_out: bool = False
    by_name: bool = False
    """The names in the answer are those declared."""
    max_rows: int = 10_000
    max_bytes: int = 1 << 26
    """The most that a batch for the function has."""
    broadcasts: tuple[tuple[int, bytes], ...] = ()
    """(number, pickled value) of each broadcast variable."""

    def answers(self, inputs: Iterator[Any], ctx: TaskContext) -> Iterator[pa.RecordBatch]:
        """The batches of ``gives`` that the functions make of ``inputs``. Raises what the inputs raise, and EngineStop."""
        source = Boundary(inputs)
        try:
            for answer in self._made(ctx)(source):
                yield self._checked(answer)
        except GeneratorExit:  # nobody wants more
            raise
        except EngineStop:
            raise
        except BaseException as error:  # sys.exit() too
            if source.error is not None:
                raise source.error from None
            raise left_to_spark(self.name, f"raised {error_words(error)}") from error
        if source.error is not None:  # swallowed by the function: its answer lacks rows
            raise source.error

    def _made(self, ctx: TaskContext) -> Call:
        from pyspark import worker
        from pyspark.serializers import CPickleSerializer
        from pyspark.worker_message import UDFInfo

        _register(self.broadcasts, ctx.scratch)
        read: Any = worker.read_udfs
        infos = [
            UDFInfo(
                udfs=[memoryview(c) for c in one.commands],
                args=list(one.arguments),
                kwargs=dict(one.named),
                result_id=0,
            )
            for one in self.functions
        ]
        settings, evaluation = worker.RunnerConf(dict(self.settings)), worker.EvalConf(dict(self.evaluation))
        function = read(CPickleSerializer(), infos, self.kind, settings, evaluation)[0]
        if self.kind == PICKLED_ROWS:
            return lambda inputs: answers_by_rows(partial(function, ctx.subtask), inputs, self.gives)
        return partial(function, ctx.subtask)

    def _checked(self, answer: pa.RecordBatch) -> pa.RecordBatch:
        """The answer as the JVM reads it: its columns by position."""
        names, columns = answer.schema.names, answer.columns
        if self.struct_out:
            struct: Any = answer.column(0)
            names, columns = [part.name for part in struct.type], struct.flatten()
        if len(columns) != len(self.gives) or (self.by_name and names != self.gives.names):
            raise left_to_spark(self.name, f"gave the columns {', '.join(names)}")
        return pa.RecordBatch.from_arrays(
            [self._column(column, part) for column, part in zip(columns, self.gives, strict=True)], schema=self.gives
        )

    def _column(self, column: Any, declared: pa.Field) -> Any:
        if not _same(column.type, declared.type):
            raise left_to_spark(self.name, f"gave {column.type} where {declared.type} is declared")
        if not declared.nullable and column.null_count:
            raise left_to_spark(self.name, "gave nulls where none are declared")
        return column if column.type == declared.type else column.cast(declared.type)

    def cut(self, batches: Batches) -> Batches:
        """The same rows in batches that are not too large."""
        for batch in batches:
            rows = self.max_rows
            if batch.nbytes > self.max_bytes:
                rows = min(rows, max(batch.num_rows * self.max_bytes // batch.nbytes, 1))
            for offset in range(0, batch.num_rows, rows):
                yield batch.slice(offset, rows)

    def shown(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch as the function's kind wants it."""
        return pa.RecordBatch.from_arrays([batch.to_struct_array()], ["_0"]) if self.struct_in else batch


def viewed(batch: pa.RecordBatch, names: tuple[str, ...], schema: pa.Schema) -> pa.RecordBatch:
    """These columns under the names that the function sees, timestamps in the session's zone."""
    columns = [batch.column(name) for name in names]
    if not columns:
        return batch.select([])
    return pa.RecordBatch.from_arrays(
        [c if c.type == part.type else c.cast(part.type) for c, part in zip(columns, schema, strict=True)],
        schema=schema,
    )


def _same(got: pa.DataType, declared: pa.DataType) -> bool:
    """The JVM reads the one as the other."""
    types = pa.types
    if types.is_timestamp(got) and types.is_timestamp(declared):
        return got.unit == declared.unit and (got.tz is None) == (declared.tz is None)
    return (
        got == declared
        or (types.is_large_string(got) and types.is_string(declared))
        or (types.is_large_binary(got) and types.is_binary(declared))
    )


def left_to_spark(name: str, did: str) -> EngineStop:
    """The stop for a function's answer, or error, that Spark is to handle."""
    return EngineStop(Stop.VALUE, f"The Python function {name} {did}.")


def _register(broadcasts: tuple[tuple[int, bytes], ...], scratch: Path) -> None:
    """Lets the pickled functions find their broadcast variables."""
    from pyspark.core.broadcast import Broadcast, _broadcastRegistry

    for number, value in broadcasts:
        if number not in _broadcastRegistry:
            path = scratch / f"broadcast-{number}"
            path.write_bytes(value)
            _broadcastRegistry[number] = one = Broadcast(path=str(path))
            one.value  # noqa: B018 - reads the file, which is gone when the task ends


_PLAIN = (bool, int, float, str, bytes, bytearray, Decimal)
"""Python's types that the JVM knows: one of them where another is declared is null."""


def answers_by_rows(function: Callable[[Iterator[Any]], Iterator[Any]], inputs: Iterator[Any], gives: pa.Schema) -> Any:
    """The batches of ``gives`` that a function of rows makes: it gives one value for each row, or, for several columns, a tuple."""
    for batch in inputs:
        found = list(function(iter(_rows(batch))))
        columns = [found] if len(gives) == 1 else zip(*found, strict=True)
        arrays = [_column(values, part.type) for values, part in zip(columns, gives, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=gives)


def _rows(batch: pa.RecordBatch) -> list[Any]:
    if not batch.num_columns:
        return [()] * batch.num_rows
    return list(zip(*map(_values, batch.columns), strict=True))


def _values(column: Any) -> list[Any]:
    if not pa.types.is_timestamp(column.type):
        return column.to_pylist()
    from pyspark.sql.types import TimestampNTZType, TimestampType

    kind = TimestampType() if column.type.tz is not None else TimestampNTZType()
    return [None if value is None else kind.fromInternal(value) for value in column.cast(pa.int64()).to_pylist()]


def _column(values: Any, declared: pa.DataType) -> pa.Array:
    taken = _TAKEN[_kind(declared)]
    return pa.array([value if type(value) in taken else _other(value, declared) for value in values], declared)


def _other(value: Any, declared: pa.DataType) -> Any:
    """A value of another type, as the JVM takes it."""
    if value is None:
        return None
    if type(value) not in _PLAIN or pa.types.is_string(declared) or pa.types.is_temporal(declared):
        raise EngineStop(Stop.VALUE, f"A Python function gave a {type(value).__name__} where {declared} is declared.")
    return value.encode() if type(value) is str and pa.types.is_binary(declared) else None


def _kind(declared: pa.DataType) -> str:
    types = pa.types
    kinds = {
        "integer": types.is_integer,
        "float": types.is_floating,
        "boolean": types.is_boolean,
        "string": types.is_string,
        "binary": types.is_binary,
        "decimal": types.is_decimal,
        "temporal": types.is_temporal,  # PySpark made integers of them
    }
    return next(name for name, found in kinds.items() if found(declared))


_TAKEN: dict[str, tuple[type, ...]] = {
    "integer": (int,),
    "float": (float,),
    "boolean": (bool,),
    "string": (str,),
    "binary": (bytes, bytearray),
    "decimal": (Decimal,),
    "temporal": (int,),
}


@dataclass(frozen=True, slots=True)
class Seen:
    """``columns``: those of the input that the function gets, in order; ``schema``: as it sees them."""

    columns: tuple[str, ...]
    schema: pa.Schema

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return viewed(batch, self.columns, self.schema)


@dataclass(frozen=True, slots=True)
class MapBySpark:
    """``mapInArrow``, ``mapInPandas``: rows to other rows, called once for each subtask, also of no rows."""

    name: str
    functions: SparkFunctions
    seen: Seen
    schema: pa.Schema
    unitwise: ClassVar[bool] = False

    def apply(self, batches: Batches, ctx: TaskContext) -> Batches:
        inputs = (self.functions.shown(self.seen.of(batch)) for batch in self.functions.cut(batches))
        for answer in self.functions.answers(inputs, ctx):
            if answer.num_rows:
                yield relabelled(answer, self.schema)


@dataclass(frozen=True, slots=True)
class EvaluateBySpark:
    """Scalar UDFs: their results as columns behind ``kept`` ones. Called once for each subtask."""

    name: str
    functions: SparkFunctions
    seen: Seen
    kept: tuple[str, ...]
    schema: pa.Schema
    unitwise: ClassVar[bool] = False

    def apply(self, batches: Batches, ctx: TaskContext) -> Batches:
        waiting: deque[pa.RecordBatch] = deque()

        def arguments() -> Iterator[pa.RecordBatch]:
            for batch in self.functions.cut(batches):
                waiting.append(batch.select(list(self.kept)))
                yield self.seen.of(batch)

        for answer in self.functions.answers(arguments(), ctx):
            yield from self._beside(waiting, answer)
        if any(batch.num_rows for batch in waiting):
            raise left_to_spark(self.functions.name, "gave too few rows")

    def _beside(self, waiting: deque[pa.RecordBatch], answer: pa.RecordBatch) -> Batches:
        """The answer's rows beside those they are of: a function of iterators may cut them anew."""
        while answer.num_rows:
            if not waiting:
                raise left_to_spark(self.functions.name, "gave too many rows")
            batch = waiting.popleft()
            n = min(batch.num_rows, answer.num_rows)
            if n < batch.num_rows:
                waiting.appendleft(batch.slice(n))
            columns = [*batch.slice(0, n).columns, *answer.slice(0, n).columns]
            yield pa.RecordBatch.from_arrays(columns, schema=self.schema)
            answer = answer.slice(n)


@dataclass(frozen=True, slots=True)
class _OfGroups:
    name: str
    functions: SparkFunctions
    seen: Seen
    group_keys: tuple[str, ...]
    schema: pa.Schema
    unitwise: ClassVar[bool] = False

    @property
    def keys(self) -> tuple[tuple[str, ...], ...]:
        return (self.group_keys,)


@dataclass(frozen=True, slots=True)
class GroupsBySpark(_OfGroups):
    """``applyInPandas``, ``applyInArrow``: each group to rows."""

    def apply_unit(self, inputs: list[UnitInput], ctx: TaskContext) -> Batches:
        groups = grouped(inputs[0].table(), self.group_keys)
        answers = self.functions.answers(_batches(groups, self.seen, self.functions), ctx)
        return coalesce(relabelled(answer, self.schema) for answer in answers)


def _results(groups: Groups, seen: Seen, functions: SparkFunctions, ctx: TaskContext) -> pa.Table:
    """All that aggregating UDFs give of the groups."""
    return pa.Table.from_batches(list(functions.answers(_batches(groups, seen, functions), ctx)), functions.gives)


@dataclass(frozen=True, slots=True)
class AggregateBySpark(_OfGroups):
    """Aggregating UDFs: a row for each group, of its keys and results. Of no rows there is none, also without keys."""

    def apply_unit(self, inputs: list[UnitInput], ctx: TaskContext) -> Batches:
        groups = grouped(inputs[0].table(), self.group_keys)
        results = _results(groups, self.seen, self.functions, ctx)
        first = groups.starts[groups.codes()]
        if len(first) != results.num_rows:
            raise left_to_spark(self.functions.name, "gave no row for each group")
        keys = take_rows(groups.table.select(list(self.group_keys)), first)
        yield from pa.Table.from_arrays([*keys.columns, *results.columns], schema=self.schema).to_batches()


@dataclass(frozen=True, slots=True)
class WindowBySpark(_OfGroups):
    """Aggregating UDFs over whole partitions: their results behind the ``kept`` columns of each row."""

    kept: tuple[str, ...]

    def apply_unit(self, inputs: list[UnitInput], ctx: TaskContext) -> Batches:
        groups = grouped(inputs[0].table(), self.group_keys)
        results = _results(groups, self.seen, self.functions, ctx)
        if groups.table.num_rows != results.num_rows:
            raise left_to_spark(self.functions.name, "gave no result for each row")
        rows = groups.table.select(list(self.kept))
        yield from pa.Table.from_arrays([*rows.columns, *results.columns], schema=self.schema).to_batches()


@dataclass(frozen=True, slots=True)
class CoGroupsBySpark:
    """``cogroup``: the groups of a key on two sides to rows. A side without the key gives no rows."""

    name: str
    functions: SparkFunctions
    seen: tuple[Seen, Seen]
    keys: tuple[tuple[str, ...], ...]
    schema: pa.Schema
    unitwise: ClassVar[bool] = False

    def apply_unit(self, inputs: list[UnitInput], ctx: TaskContext) -> Batches:
        answers = self.functions.answers(self._pairs(inputs), ctx)
        return coalesce(relabelled(answer, self.schema) for answer in answers)

    def _pairs(self, inputs: list[UnitInput]) -> Iterator[tuple[list[pa.RecordBatch], list[pa.RecordBatch]]]:
        left, right = inputs[0].table(), inputs[1].table()
        lefts, rights, codes = paired(left, right, self.keys)
        sides = lefts, rights
        batches = [seen.of(_one(groups.table)) for groups, seen in zip(sides, self.seen, strict=True)]
        for code in codes:
            a, b = (
                _cut(batch, groups, code, self.functions.max_rows) for groups, batch in zip(sides, batches, strict=True)
            )
            yield a, b


def relabelled(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch's columns, which have these types, under the schema."""
    return pa.RecordBatch.from_arrays(batch.columns, schema=schema)


def _batches(groups: Groups, seen: Seen, functions: SparkFunctions) -> Iterator[Iterator[pa.RecordBatch]]:
    """The batches of each group."""
    batch = functions.shown(seen.of(_one(groups.table)))
    for code in groups.codes():
        yield iter(_cut(batch, groups, code, functions.max_rows))


def _cut(batch: pa.RecordBatch, groups: Groups, code: int, rows: int) -> list[pa.RecordBatch]:
    """The rows of a group; an empty batch of no rows."""
    start, end = int(groups.starts[code]), int(groups.starts[code + 1])
    return [batch.slice(low, min(rows, end - low)) for low in range(start, max(end, start + 1), rows)]


def _one(table: pa.Table) -> Any:
    if not table.num_rows:
        return pa.RecordBatch.from_arrays([pa.array([], part.type) for part in table.schema], schema=table.schema)
    return pa.RecordBatch.from_arrays([one_chunk(column) for column in table.columns], schema=table.schema)
