"""Actions: run a stream at once and bring its rows, or something about them, to the driver."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Self

import numpy as np
import pyarrow as pa

from firesteel.api.ddl import check_spark_types
from firesteel.api.steps import keyed
from firesteel.api.steps.common import require_count
from firesteel.api.steps.ordering import limit
from firesteel.api.steps.pipeline import Pipeline
from firesteel.compile.caching import by_spark
from firesteel.compile.compiled import CompiledJob
from firesteel.compile.describe import describe, describe_left_to_spark, describe_rules
from firesteel.compile.stream_graph import CollectStep, StreamNode
from firesteel.errors import FiresteelError, JobExecutionError, Stop, UsageError
from firesteel.humanize import format_bytes, printable
from firesteel.model.runner import Choice
from firesteel.options import MAX_COLLECT_BYTES
from firesteel.task.functions.pandas_conversion import require_pandas
from firesteel.task.functions.pandas_conversion import to_dataframe as pandas_frame
from firesteel.users_line import caller_level, caller_place

_HANDLE = 0


def collected(pipeline: Pipeline, name: str = "collect", runner: Choice | None = None) -> StreamNode:
    """The end of a pipeline whose rows are kept for the driver. ``runner``: why it runs in stages, where there was a choice."""
    pipeline.refuse_sides(name)
    return StreamNode(
        name, CollectStep(_HANDLE, runner=runner), pipeline.schema, (pipeline.edge(),), place=caller_place()
    )


class Computed:
    """The rows of a stream, which a job has computed; they are kept until ``close``.

    Raises what the job failed with, KeyboardInterrupt on Ctrl-C. May be used in a ``with`` block.
    """

    def __init__(self, pipeline: Pipeline, name: str, runner: Choice | None = None) -> None:
        from firesteel.spark.session.sessions import own_interrupts

        self._pipeline, self._name = pipeline, name
        with own_interrupts():
            self._compiled, self._outcome = _run(pipeline, name, runner)

    @property
    def job_id(self) -> str:
        return str(self._outcome.job_id)

    def to_arrow(self) -> pa.Table:
        """Raises JobExecutionError when they are more than ``max-collect-bytes``."""
        schema = self._compiled.schemas[self._compiled.collects[_HANDLE]]
        return pa.Table.from_batches(_rows(self._pipeline, self._name, self._compiled, self._outcome), schema)

    def to_dataframe(self) -> Any:
        """A Spark DataFrame that reads the rows, in order, each time it is evaluated."""
        from firesteel.spark.dataframes import to_dataframe as spark_dataframe

        dataset, outcome = self._compiled.collects[_HANDLE], self._outcome
        session, schema = self._pipeline.env.spark, self._compiled.schemas[dataset]
        return spark_dataframe(session, outcome.store, outcome.persistent[dataset], schema)

    def keep(self) -> None:
        """Lets the rows stay until the process ends."""
        self._outcome.keep()

    def close(self) -> None:
        self._outcome.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def to_arrow(pipeline: Pipeline, name: str = "to_arrow") -> pa.Table:
    """Runs the stream and reads its rows. Raises JobExecutionError when they are more than ``max-collect-bytes``."""
    local = pipeline.env._local  # pyright: ignore[reportPrivateUsage]
    if local is not None:
        return local.tables([collected(pipeline, name)], pipeline.env.options)[0]
    from firesteel.spark.session.sessions import own_interrupts

    with own_interrupts(), Computed(pipeline, name) as computed:
        return computed.to_arrow()


def python_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Maps are dicts. Raises UsageError for a date or a time that Python cannot hold, and for a key that a map has twice."""
    try:
        return table.to_pylist(maps_as_pydicts="strict")
    except (OverflowError, ValueError, KeyError):
        for name, column in zip(table.column_names, table.columns, strict=True):
            try:
                column.to_pylist(maps_as_pydicts="strict")
            except (OverflowError, ValueError, KeyError) as error:
                raise UsageError(
                    f"Column {name!r} has a value that Python cannot hold: {error}.", hint="Read it with to_arrow()."
                ) from None
        raise


def to_pandas(pipeline: Pipeline) -> Any:
    require_pandas("to_pandas")
    return pandas_frame(to_arrow(pipeline, "to_pandas"), per_column=True)


def take(pipeline: Pipeline, n: int, name: str = "take") -> pa.Table:
    return to_arrow(limit(pipeline, n), name)


def count(pipeline: Pipeline) -> int:
    return int(to_arrow(keyed.count(pipeline, ()), "count").column(0)[0].as_py())


def to_dataframe(pipeline: Pipeline) -> Any:
    """The result is kept until the process ends: a Spark DataFrame reads it each time it is evaluated."""
    from firesteel.spark.session.versions import check_frames

    check_spark_types(pipeline.schema, "to_dataframe")
    check_frames(pipeline.env.spark)
    computed = Computed(pipeline, "to_dataframe")
    frame = computed.to_dataframe()
    computed.keep()
    return frame


def explain(pipeline: Pipeline, *, rules: bool) -> str:
    end = collected(pipeline, "collect")
    compiled = pipeline.env._compile([end], "explain")  # pyright: ignore[reportPrivateUsage]
    return describe(compiled) + describe_left_to_spark([end]) + (describe_rules([end]) if rules else "")


def _run(pipeline: Pipeline, name: str, runner: Choice | None) -> tuple[CompiledJob, Any]:
    """The finished job. Raises what the job failed with."""
    ends = [collected(pipeline, name, runner)]
    while True:
        compiled, run, caches = pipeline.env._submit(ends, name)  # pyright: ignore[reportPrivateUsage]
        outcome = run.result()
        caches.settle()
        if outcome.error is None:
            return compiled, outcome
        instead = left_to_spark(ends, outcome.error)
        if instead is not None:
            ends = instead
        elif not caches.lost_by(outcome.error):  # else they are computed in the next round
            raise outcome.error


def left_to_spark(ends: Sequence[StreamNode], error: FiresteelError) -> list[StreamNode] | None:
    """The ends of a job that does by Spark what the engine gave up on, which is warned about; None: it was something else."""
    stop = error.stop if isinstance(error, JobExecutionError) else None
    if stop is None or stop.kind is Stop.INTERRUPTED:
        return None
    instead = by_spark(ends)
    if instead is not None:
        warnings.warn(
            f"Spark computes the DataFrame itself now: {stop.message}", UserWarning, stacklevel=caller_level()
        )
    return instead


def _rows(pipeline: Pipeline, name: str, compiled: CompiledJob, outcome: Any) -> Iterator[Any]:
    from firesteel.results.reader import GateReader

    dataset = compiled.collects[_HANDLE]
    gate = outcome.persistent[dataset]
    whole = np.array([[0, len(gate.attempts), 0, gate.num_subpartitions]], dtype=np.int32)
    schema = compiled.schemas[dataset]
    reader = GateReader(outcome.store, dataset, schema, gate.num_subpartitions, gate.attempts, gate.tokens, whole)
    total = int(reader.bytes_per_subpartition()[1].sum())
    most: int = pipeline.env.options[MAX_COLLECT_BYTES]
    if total > most:
        raise too_much(name, total, most)
    return reader.read()


def too_much(name: str, total: int, most: int) -> JobExecutionError:
    """The rows of an action have ``total`` bytes, more than it may bring."""
    return JobExecutionError(
        f"{name}() would bring {format_bytes(total)} to the driver, above {MAX_COLLECT_BYTES.key} = {format_bytes(most)}.",
        hint=f"Write them with write_parquet, or raise it: options={{'{MAX_COLLECT_BYTES.key}': '{_next_limit(total)}'}}.",
    )


def _next_limit(total: int) -> str:
    """The next whole number of GiB (MiB below one) that suffices."""
    unit, name = (1 << 30, "GiB") if total >= 1 << 30 else (1 << 20, "MiB")
    return f"{-(-total // unit)} {name}"


# --- show ---------------------------------------------------------------------------------------------------------


def show(pipeline: Pipeline, n: int, truncate: int) -> None:
    shown, cut = require_count(n, "show()", 0), require_count(truncate, "truncate", 0)
    table = take(pipeline, shown + 1, "show")
    print(printable(as_text(table.slice(0, shown), cut, more=table.num_rows > shown)))  # noqa: T201 - what show() is for


def show_table(table: pa.Table, heading: str, n: int = 20) -> None:
    """Prints its first ``n`` rows."""
    print(printable(heading))  # noqa: T201
    print(printable(as_text(table.slice(0, n), more=table.num_rows > n)))  # noqa: T201


def print_schema(schema: pa.Schema) -> None:
    print(printable("\n".join(["root", *schema_lines(schema)])))  # noqa: T201 - what print_schema() is for


def as_text(table: pa.Table, truncate: int = 20, *, more: bool = False) -> str:
    """The rows as a table in plain text; numbers to the right. ``truncate``: characters per value, 0 for all."""
    names = [_cut(name, truncate) for name in table.column_names]
    columns = [[_cut(_shown(value), truncate) for value in column.to_pylist()] for column in table.columns]
    widths = [max([len(name), 1, *map(len, column)]) for name, column in zip(names, columns, strict=True)]
    right = [_is_number(field.type) for field in table.schema]

    def line(cells: list[str]) -> str:
        parts = (c.rjust(w) if r else c.ljust(w) for c, w, r in zip(cells, widths, right, strict=True))
        return "| " + " | ".join(parts) + " |"

    rule = "+" + "+".join("-" * (width + 2) for width in widths) + "+"
    rows = [line([column[i] for column in columns]) for i in range(table.num_rows)]
    last = [f"only the first {table.num_rows} rows are shown"] if more else []
    return "\n".join([rule, line(names), rule, *rows, rule, *last])


def schema_lines(fields: Iterable[pa.Field], indent: str = " ") -> list[str]:
    """A line per field and, under it, those of its parts, as PySpark's ``printSchema``."""
    lines: list[str] = []
    for field in fields:
        inner = _parts(field.type)
        kind = str(field.type) if not inner else str(field.type).partition("<")[0]
        lines.append(f"{indent}|-- {field.name}: {kind} (nullable = {str(field.nullable).lower()})")
        lines += schema_lines(inner, f"{indent}|    ")
    return lines


def _parts(type_: pa.DataType) -> list[pa.Field]:
    types = pa.types
    if types.is_struct(type_):
        return list(type_)
    if types.is_map(type_):
        return [type_.key_field.with_name("key"), type_.item_field.with_name("value")]
    if types.is_list(type_) or types.is_large_list(type_) or types.is_fixed_size_list(type_):
        return [type_.value_field.with_name("element")]
    return []


def _shown(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bytes):
        return value.hex(" ")
    return str(value).replace("\n", "\\n").replace("\t", "\\t")


def _cut(text: str, truncate: int) -> str:
    if truncate <= 0 or len(text) <= truncate:
        return text
    return text[:truncate] if truncate < 4 else text[: truncate - 3] + "..."


def _is_number(kind: pa.DataType) -> bool:
    types = pa.types
    return types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
