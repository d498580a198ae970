"""``firesteel.accelerate``: what a PySpark script asks of its DataFrames is computed by our own tasks, where that gives Spark's answer.

While a session is accelerated, the actions of PySpark's DataFrame ask here first. A query that is not taken over whole, that is small,
or that fails here is Spark's, as if nothing were there; each is noted with its reason.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa

from firesteel.api.caller import caller_place
from firesteel.api.connectors.dataframes import wholly_taken_over
from firesteel.api.ddl import dataframe_schema
from firesteel.api.environment import ExecutionEnvironment
from firesteel.api.steps.actions import to_arrow
from firesteel.errors import FiresteelError, JobCancelledError, UsageError
from firesteel.humanize import format_bytes, format_seconds
from firesteel.options import SQL_MIN_INPUT_BYTES


@dataclass(frozen=True, slots=True)
class Query:
    """One action. ``left``: why Spark computed it; empty: it was taken over. ``seconds``: planning and computing here."""

    action: str
    place: str
    left: tuple[str, ...]
    seconds: float


class Acceleration:
    """The handle of :func:`accelerate`. ``queries``: what was asked so far, in order."""

    def __init__(self, spark: Any = None, options: Mapping[str, Any] | None = None, *, dry_run: bool = False) -> None:
        self.queries: list[Query] = []
        self._spark, self._dry_run = spark, dry_run
        self._options = {"firesteel.progress": False, **(options or {})}
        self._environments: list[tuple[Any, ExecutionEnvironment]] = []
        self._lock = threading.Lock()
        if spark is not None:
            self._environment(spark)  # a wrong option is told at once
        _begin(self)

    def release(self) -> None:
        """From now on every action is Spark's again."""
        _end(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def explain(self) -> str:
        """A line for each query: who computed it, how long that took, and why it was left to Spark."""
        taken = sum(not query.left for query in self.queries)
        word = "would take over" if self._dry_run else "took over"
        lines = [f"Firesteel {word} {taken} of {len(self.queries)} queries."]
        for number, query in enumerate(self.queries, 1):
            who = f"Spark: {'; '.join(query.left)}" if query.left else f"Firesteel, {format_seconds(query.seconds)}"
            lines.append(f"  {number}. {query.action} at {query.place or 'an unknown place'}: {who}")
        return "\n".join(lines)

    def covers(self, session: Any) -> bool:
        return self._spark is None or session is self._spark

    def rows_of(self, frame: Any, action: str) -> pa.Table | None:
        """The DataFrame's rows; None: Spark is to compute them."""
        begun, place, table = time.monotonic(), caller_place(_pyspark_home()), None
        try:
            environment = self._environment(frame.sparkSession)
            _check_size(frame, environment)
            pipeline = wholly_taken_over(environment, frame, dataframe_schema(frame), place)
            table = None if self._dry_run else to_arrow(pipeline, action)
            left = ()
        except JobCancelledError:
            raise
        except FiresteelError as error:
            left = (error.message,)
        self.queries.append(Query(action, place, left, time.monotonic() - begun))
        return table

    def _environment(self, session: Any) -> ExecutionEnvironment:
        with self._lock:
            for known, environment in self._environments:
                if known is session:
                    return environment
            made = ExecutionEnvironment(spark=session, options=self._options)
            self._environments.append((session, made))
            return made


def accelerate(spark: Any, options: Mapping[str, Any] | None = None) -> Acceleration:
    """Computes what the DataFrames of a session are asked for by Firesteel's tasks, where that gives Spark's very answer.

    ``collect``, ``toArrow``, ``toPandas``, ``count``, ``show``, ``take``, ``head``, ``first``, ``toLocalIterator``; what they return
    is as before. Until ``release()``, or the end of the ``with`` block. Raises UsageError.
    """
    if spark is None:
        raise UsageError("accelerate wants a Spark session, not None.", hint="Write accelerate(spark).")
    return Acceleration(spark, options)


def _pyspark_home() -> str:
    import pyspark

    return os.path.dirname(pyspark.__file__)  # noqa: PTH120 - a prefix of frames' file names


# --- small queries ----------------------------------------------------------------------------------------------------------


def _check_size(frame: Any, environment: ExecutionEnvironment) -> None:
    """Raises UsageError where the query reads so little that a job of ours would take longer than Spark."""
    least: int = environment.options[SQL_MIN_INPUT_BYTES]
    try:
        leaves = frame._jdf.queryExecution().optimizedPlan().collectLeaves()
        total = sum(int(str(leaves.apply(i).stats().sizeInBytes())) for i in range(leaves.size()))
    except Exception as error:  # Spark tells it when it plans the query itself
        raise UsageError("Spark cannot plan this query.") from error
    if total < least:
        raise UsageError(f"it reads {format_bytes(total)}, less than {format_bytes(least)} ({SQL_MIN_INPUT_BYTES.key})")


# --- actions ------------------------------------------------------------------------------------------------------------------

_active: list[Acceleration] = []
_originals: dict[str, tuple[Any, Any]] = {}
"""(what the class itself had, our function), by the method's name."""
_change = threading.Lock()
_within = threading.local()
"""``busy``: this thread computes an action; what that asks of Spark is Spark's."""
_ABSENT = object()


def _begin(acceleration: Acceleration) -> None:
    from pyspark.sql.classic.dataframe import DataFrame

    with _change:
        _active.append(acceleration)
        if not _originals:
            for name, action in _ACTIONS.items():
                ours = _hooked(name, getattr(DataFrame, name), action)
                _originals[name] = (vars(DataFrame).get(name, _ABSENT), ours)
                setattr(DataFrame, name, ours)


def _end(acceleration: Acceleration) -> None:
    from pyspark.sql.classic.dataframe import DataFrame

    with _change:
        if acceleration not in _active:
            return
        _active.remove(acceleration)
        if not _active and all(vars(DataFrame).get(name) is ours for name, (_, ours) in _originals.items()):
            for name, (before, _) in _originals.items():
                if before is _ABSENT:
                    delattr(DataFrame, name)
                else:
                    setattr(DataFrame, name, before)
            _originals.clear()  # else another library holds on to ours, which now do nothing


Action = Callable[..., Any]


def _hooked(name: str, original: Action, action: Action) -> Action:
    @functools.wraps(original)
    def asked(frame: Any, *args: Any, **kwargs: Any) -> Any:
        active = next((each for each in reversed(_active) if each.covers(frame.sparkSession)), None)
        if active is None or getattr(_within, "busy", False):
            return original(frame, *args, **kwargs)
        _within.busy = True
        try:
            found = action(active, frame, *args, **kwargs)
        finally:
            _within.busy = False
        return original(frame, *args, **kwargs) if found is None else found

    return asked


def _rows(frame: Any, table: pa.Table) -> list[Any]:
    """Spark's rows of the table, with the values that its own ``collect`` gives."""
    from pyspark.sql.conversion import ArrowTableToRowsConversion

    as_bytes = frame.sparkSession.conf.get("spark.sql.execution.pyspark.binaryAsBytes", "true") == "true"
    return ArrowTableToRowsConversion.convert(table, frame.schema, binary_as_bytes=as_bytes)  # type: ignore[call-overload, no-any-return]


def _collect(active: Acceleration, frame: Any) -> list[Any] | None:
    table = active.rows_of(frame, "collect")
    return None if table is None else _rows(frame, table)


def _iterate(active: Acceleration, frame: Any, prefetchPartitions: bool = False) -> Iterator[Any] | None:  # noqa: N803 - PySpark's name
    table = active.rows_of(frame, "toLocalIterator")
    if table is None:
        return None
    return (
        row for batch in table.to_batches(max_chunksize=10_000) for row in _rows(frame, pa.Table.from_batches([batch]))
    )


def _count(active: Acceleration, frame: Any) -> int | None:
    table = active.rows_of(frame.groupBy().count(), "count")
    return None if table is None else int(table.column(0)[0].as_py())


def _arrow(active: Acceleration, frame: Any, *args: Any, **kwargs: Any) -> list[pa.RecordBatch] | None:
    """The batches of ``toArrow``, and of ``toPandas`` where Arrow is switched on."""
    table = active.rows_of(frame, "toArrow")
    if table is None:
        return None
    return table.to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]


def _show(
    active: Acceleration, frame: Any, n: int = 20, truncate: bool | int = True, vertical: bool = False
) -> str | None:
    """Spark formats the rows: it looks at one more than it shows."""
    if not isinstance(n, int) or isinstance(n, bool) or n < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
        return None  # Spark says what is wrong
    table = active.rows_of(frame.limit(n + 1), "show")
    if table is None:
        return None
    local = frame.sparkSession.createDataFrame(table, frame.schema)
    return str(local._show_string(n, truncate, vertical))


_ACTIONS: dict[str, Action] = {
    "collect": _collect,
    "toLocalIterator": _iterate,
    "count": _count,
    "_collect_as_arrow": _arrow,
    "_show_string": _show,
}
