"""Actions: what runs a stream at once and brings its rows, or something about them, to the driver."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from firesteel.api.ddl import check_spark_types
from firesteel.api.place import caller_place
from firesteel.api.steps import require_count
from firesteel.api.stream_base import StreamBase
from firesteel.errors import JobExecutionError
from firesteel.graph.compiled import CompiledJob
from firesteel.graph.describe import describe
from firesteel.graph.stream_graph import CollectStep, StreamNode
from firesteel.humanize import format_bytes, printable
from firesteel.operators.aggregate import Aggregation
from firesteel.operators.pandas_conversion import require_pandas
from firesteel.operators.pandas_conversion import to_dataframe as pandas_frame
from firesteel.options import MAX_COLLECT_BYTES

if TYPE_CHECKING:
    from firesteel.api.data_stream import DataStream

_HANDLE = 0


def collected(stream: Actions, name: str = "collect") -> StreamNode:
    """The end of a pipeline whose rows are kept for the driver."""
    stream._refuse_sides(name)  # pyright: ignore[reportPrivateUsage]
    edge = stream._edge()  # pyright: ignore[reportPrivateUsage]
    return StreamNode(name, CollectStep(_HANDLE), stream.schema, (edge,), place=caller_place())


def to_arrow(stream: Actions, name: str) -> pa.Table:
    """Runs the stream and reads its rows. Raises JobExecutionError when they are more than ``max-collect-bytes``."""
    from firesteel.spark.session import own_interrupts

    with own_interrupts():
        compiled, outcome = _run(stream, name)
        try:
            return pa.Table.from_batches(
                _rows(stream, name, compiled, outcome), compiled.schemas[compiled.collects[_HANDLE]]
            )
        finally:
            outcome.close()


def to_pandas(table: pa.Table) -> Any:
    return pandas_frame(table, per_column=True)


def count(stream: Actions) -> int:
    from firesteel.api.keyed_stream import aggregate

    stream._refuse_sides("count")  # pyright: ignore[reportPrivateUsage]
    rows = aggregate(stream, (), (Aggregation(None, "count", "count"),), caller_place())
    return int(to_arrow(rows, "count").column(0)[0].as_py())


def to_dataframe(stream: Actions) -> Any:
    """The result is kept until the process ends: a Spark DataFrame reads it each time it is evaluated."""
    from firesteel.spark.dataframes import to_dataframe as spark_dataframe
    from firesteel.spark.versions import check_frames

    check_spark_types(stream.schema, "to_dataframe")
    env = stream._env  # pyright: ignore[reportPrivateUsage]
    check_frames(env.spark)
    compiled, outcome = _run(stream, "to_dataframe")
    dataset = compiled.collects[_HANDLE]
    frame = spark_dataframe(env.spark, outcome.store, outcome.persistent[dataset], compiled.schemas[dataset])
    outcome.keep()
    return frame


def _run(stream: Actions, name: str) -> tuple[CompiledJob, Any]:
    """The finished job. Raises what the job failed with."""
    env = stream._env  # pyright: ignore[reportPrivateUsage]
    while True:
        end = collected(stream, name)
        compiled, run, caches = env._submit([end], name)  # pyright: ignore[reportPrivateUsage]
        outcome = run.result()
        caches.settle()
        if outcome.error is None:
            return compiled, outcome
        if not caches.lost_by(outcome.error):  # else they are computed in the next round
            raise outcome.error


def _rows(stream: Actions, name: str, compiled: CompiledJob, outcome: Any) -> Iterator[Any]:
    from firesteel.results.reader import GateReader

    dataset = compiled.collects[_HANDLE]
    gate = outcome.persistent[dataset]
    whole = np.array([[0, len(gate.attempts), 0, gate.num_subpartitions]], dtype=np.int32)
    schema = compiled.schemas[dataset]
    reader = GateReader(outcome.store, dataset, schema, gate.num_subpartitions, gate.attempts, gate.tokens, whole)
    total = int(reader.bytes_per_subpartition()[1].sum())
    limit: int = stream._env.options[MAX_COLLECT_BYTES]  # pyright: ignore[reportPrivateUsage]
    if total > limit:
        raise JobExecutionError(
            f"{name}() would bring {format_bytes(total)} to the driver, above {MAX_COLLECT_BYTES.key} = {format_bytes(limit)}.",
            hint=f"Write them with write_parquet, or raise it: options={{'{MAX_COLLECT_BYTES.key}': '{_next_limit(total)}'}}.",
        )
    return reader.read()


def _next_limit(total: int) -> str:
    """The next whole number of GiB (MiB below one) that suffices."""
    unit, name = (1 << 30, "GiB") if total >= 1 << 30 else (1 << 20, "MiB")
    return f"{-(-total // unit)} {name}"


# --- show ---------------------------------------------------------------------------------------------------------


def show(stream: Actions, n: int, truncate: int) -> None:
    table = to_arrow(stream.limit(n + 1), "show")
    print(printable(as_text(table.slice(0, n), truncate, more=table.num_rows > n)))  # noqa: T201 - what show() is for


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


# --- the steps of a stream ------------------------------------------------------------------------------------------


class Actions(StreamBase):
    """What runs a stream at once."""

    if TYPE_CHECKING:

        def limit(self, n: int) -> DataStream: ...

    def to_arrow(self) -> pa.Table:
        """Runs the pipeline and brings the rows to the driver, at most ``firesteel.max-collect-bytes`` of them."""
        return to_arrow(self, "to_arrow")

    def collect(self) -> list[dict[str, Any]]:
        """As :meth:`to_arrow`, as Python dicts."""
        return to_arrow(self, "collect").to_pylist()

    def to_pandas(self) -> Any:
        """As :meth:`to_arrow`, as a pandas DataFrame with the types of PySpark's ``toPandas``."""
        require_pandas("to_pandas")
        return to_pandas(to_arrow(self, "to_pandas"))

    def to_dataframe(self) -> Any:
        """Runs the pipeline; a Spark DataFrame that reads its result, which is kept until the session or process ends."""
        return to_dataframe(self)

    def take(self, n: int) -> list[dict[str, Any]]:
        """The first ``n`` rows, as Python dicts."""
        return to_arrow(self.limit(n), "take").to_pylist()

    def first(self) -> dict[str, Any] | None:
        """The first row that comes, as a Python dict; None if there is none."""
        rows = to_arrow(self.limit(1), "first").to_pylist()
        return rows[0] if rows else None

    def is_empty(self) -> bool:
        """Whether there is no row."""
        return to_arrow(self.limit(1), "is_empty").num_rows == 0

    def count(self) -> int:
        """The number of rows."""
        return count(self)

    toPandas = to_pandas  # noqa: N815
    isEmpty = is_empty  # noqa: N815

    def print_schema(self) -> None:
        """Prints the columns and their types as a tree. Runs nothing."""
        print(printable("\n".join(["root", *schema_lines(self.schema)])))  # noqa: T201 - what it is for

    printSchema = print_schema  # noqa: N815

    def show(self, n: int = 20, truncate: int = 20) -> None:
        """Prints the first ``n`` rows as a table, values cut to ``truncate`` characters (0: not at all)."""
        show(self, require_count(n, "show()", 0), require_count(truncate, "truncate", 0))

    def explain(self) -> str:
        """The job that this stream would be: its tasks, what is chained in each, and how data travels between them."""
        end = collected(self, "collect")
        return describe(self._env._compile([end], "explain"))
