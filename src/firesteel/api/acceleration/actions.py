"""Actions of a DataFrame: the rows, their number or their text, and functions of the user's that see each row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from firesteel.api.acceleration.hooks import SPARKS, Action, sparks
from firesteel.errors import UsageError

if TYPE_CHECKING:
    from firesteel.api.acceleration.takeover import Takeover


def _collect(active: Takeover, _original: Action, frame: Any) -> Any:
    def rows(table: pa.Table) -> list[Any]:
        try:
            return _rows(frame, table)
        except (OverflowError, ValueError) as error:  # Spark says so in its own words
            raise UsageError("Python does not know a year in it") from error

    return active.answer(frame, "collect", rows)


def _iterate(
    active: Takeover,
    _original: Action,
    frame: Any,
    prefetchPartitions: bool = False,  # noqa: N803 - PySpark's name
) -> Any:
    def rows(table: pa.Table) -> Iterator[Any]:
        batches = table.to_batches(max_chunksize=10_000)
        return (row for batch in batches for row in _rows(frame, pa.Table.from_batches([batch])))

    return active.answer(frame, "toLocalIterator", rows)


def _rows(frame: Any, table: pa.Table) -> list[Any]:
    """Spark's rows of the table, with the values that its own ``collect`` gives."""
    from firesteel.spark.session.versions import rows_of_table

    return rows_of_table(table, frame.schema, frame.sparkSession)


def _count(active: Takeover, _original: Action, frame: Any) -> Any:
    def number(table: pa.Table) -> int:
        return int(table.column(0)[0].as_py())

    return active.answer(frame, "count", number, lambda: frame.groupBy().count())


def _is_empty(active: Takeover, _original: Action, frame: Any) -> Any:
    def nothing(table: pa.Table) -> bool:
        return int(table.num_rows) == 0

    return active.answer(frame, "isEmpty", nothing, lambda: frame.limit(1), gaining=True)


def _arrow(active: Takeover, _original: Action, frame: Any, *args: Any, **kwargs: Any) -> Any:
    """The batches of ``toArrow``, and of ``toPandas`` where Arrow is switched on."""

    def batches(table: pa.Table) -> list[pa.RecordBatch]:
        return table.to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]

    return active.answer(frame, "toArrow", batches)


def _show(
    active: Takeover,
    _original: Action,
    frame: Any,
    n: int = 20,
    truncate: bool | int = True,
    vertical: bool = False,
) -> Any:
    """Spark formats the rows: it looks at one more than it shows."""
    if not isinstance(n, int) or isinstance(n, bool) or n < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
        return SPARKS  # it says what is wrong

    from firesteel.spark.session.versions import local_dataframe

    def text(table: pa.Table) -> str:
        local = local_dataframe(table, frame.schema, frame.sparkSession)
        return str(local._show_string(n, truncate, vertical))

    return active.answer(frame, "show", text, lambda: frame.limit(n + 1))


def _each(name: str) -> Action:
    """``foreach`` and ``foreachPartition``: Spark calls the function with rows that we have computed."""

    def each(active: Takeover, original: Action, frame: Any, *args: Any, **kwargs: Any) -> Any:
        with active.staged(lambda: frame, name) as staged:
            return SPARKS if staged is None else original(staged, *args, **kwargs)

    return each


_ALWAYS_SPARKS = (
    "tail",
    "checkpoint",
    "localCheckpoint",
    "describe",
    "summary",
    "approxQuantile",
    "freqItems",
    "crosstab",
)

ACTIONS: dict[str, Callable[..., Any]] = {
    "collect": _collect,
    "toLocalIterator": _iterate,
    "count": _count,
    "isEmpty": _is_empty,
    "_collect_as_arrow": _arrow,
    "_show_string": _show,
    "foreach": _each("foreach"),
    "foreachPartition": _each("foreachPartition"),
    **{name: sparks(name) for name in _ALWAYS_SPARKS},
}
