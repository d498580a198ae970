"""Functions of PySpark's DataFrames (UDFs, ``mapInArrow``, ``applyInPandas`` ...), called by PySpark's own code for its workers.

That code turns pickled functions into one from Arrow batches to Arrow batches, with every conversion and check of PySpark's. It is fed
here by our tasks instead of the JVM. Whatever it raises, and an answer of other types than were declared, which the JVM would look at,
leaves the query to Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from firesteel.errors import EngineStop, Stop, error_words
from firesteel.task.functions.pickled_rows import answers_by_rows
from firesteel.task.functions.user_code import Boundary
from firesteel.task.program import Batches, TaskContext

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
