"""``firesteel.accelerate``: what a PySpark script asks of its DataFrames is computed by our own tasks, where that gives Spark's answer.

While a session is accelerated, PySpark's actions, writers and ``spark.sql`` ask here first. A query that is not taken over whole, that is
small, or that fails here is Spark's, as if nothing were there; each is noted with its reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from firesteel.api.acceleration import hooks
from firesteel.api.acceleration.hooks import SPARKS, Action, sparks
from firesteel.api.acceleration.in_process import CANCELLING, INTERRUPTING
from firesteel.api.acceleration.record import Record, script_name
from firesteel.api.acceleration.takeover import Takeover
from firesteel.api.acceleration.writes import OVERWRITE, WRITES, WRITES_TO, check_overlap
from firesteel.errors import UsageError, failure
from firesteel.plan.expr import Unsupported
from firesteel.sql.plans.commands import Command, class_of, read_command
from firesteel.users_line import caller_place

if TYPE_CHECKING:
    from firesteel.api.acceleration.takeover import Takeover


@dataclass(frozen=True, slots=True)
class Query:
    """One action. ``left``: why Spark computed it; empty: it was taken over. ``seconds``: planning and computing here.

    ``job``: the id of the job that computed it; empty where it was left to Spark, or only looked at. ``check``: ``same``, ``differs`` or
    ``skipped`` where ``firesteel.sql.verify`` has drawn it. ``unchecked``: why its check was skipped.
    """

    action: str
    place: str
    left: tuple[str, ...]
    seconds: float
    job: str = ""
    check: str = ""
    unchecked: str = ""


class Acceleration:
    """The handle of :func:`accelerate`. ``queries``: what was asked so far, in order."""

    def __init__(
        self, spark: Any = None, options: Mapping[str, Any] | None = None, *, dry_run: bool = False, name: str = ""
    ) -> None:
        self._dry_run = dry_run
        self._record = Record(name or script_name(caller_place()), dry_run=dry_run)
        quiet = {"firesteel.progress": False, **(options or {})}
        self._takeover = Takeover(spark, quiet, self._record, dry_run=dry_run)
        hooks.begin(self._takeover, _hooks())

    @property
    def queries(self) -> list[Query]:
        asked = self._record.queries
        return [
            Query(each.action, each.place, tuple(each.left), each.seconds, each.job, each.check, each.unchecked)
            for each in asked
        ]

    def explain(self, dataframe: Any = None, *, rules: bool = False) -> str:
        """A line for each query: who computed it, how long that took, and why it was left to Spark.

        ``dataframe``: who would compute its rows, and why; nothing is run. ``rules``: also what each rule changed in its plan, before and
        after.
        """
        if dataframe is not None:
            return self._takeover.explain(dataframe, rules=rules)
        if rules:
            raise UsageError("explain(rules=True) wants a DataFrame.", hint="Write explain(dataframe, rules=True).")
        from firesteel.report.explain import query_lines

        return "\n".join(query_lines(self._record.queries, dry_run=self._dry_run))

    def release(self, exit_code: int = 0) -> None:
        """From now on every action is Spark's again. ``exit_code``: that of a script which ends here, for the journal."""
        if hooks.end(self._takeover):
            self._record.close("CANCELED" if exit_code >= 128 else "FAILED" if exit_code else "FINISHED")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def accelerate(spark: Any, options: Mapping[str, Any] | None = None) -> Acceleration:
    """Computes what the DataFrames of a session are asked for by Firesteel's tasks, where that gives Spark's very answer.

    The actions that bring rows, their number or their text to the driver, ``foreach``, ``write`` and ``writeTo``, and the SQL commands that
    write what a query gives. Rows, types and errors are Spark's; only ORDER BY promises an order. Until ``release()``, or the end of the
    ``with`` block. Raises UsageError.
    """
    if spark is None:
        raise UsageError("accelerate wants a Spark session, not None.", hint="Write accelerate(spark).")
    return Acceleration(spark, options)


def _hooks() -> dict[tuple[type, str], Action]:
    """Our functions, by the class of PySpark's and the name of the method that each stands for."""
    from pyspark import SparkContext
    from pyspark.sql.readwriter import DataFrameWriter, DataFrameWriterV2
    from pyspark.sql.session import SparkSession

    try:
        from pyspark.sql.classic.dataframe import DataFrame
    except ImportError:  # before Spark 4
        from pyspark.sql import DataFrame
    tables: dict[type, dict[str, Action]] = {
        DataFrame: ACTIONS,
        DataFrameWriter: WRITES,
        DataFrameWriterV2: WRITES_TO,
        SparkSession: COMMANDS | INTERRUPTING,
        SparkContext: CANCELLING,
    }
    return {(owner, name): action for owner, table in tables.items() for name, action in table.items()}


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


def _quantiles(
    active: Takeover,
    _original: Action,
    frame: Any,
    col: Any,
    probabilities: Any,
    relativeError: Any,  # noqa: N803 - PySpark's name
) -> Any:
    """Exact quantiles. Spark raises the errors of wrong arguments."""
    if relativeError != 0:
        active.leave("approxQuantile", "approxQuantile with an error above 0 is Spark's own")
        return SPARKS

    from pyspark.sql import functions as F  # noqa: N812 - everybody's name
    from pyspark.sql.types import NumericType

    names = [col] if isinstance(col, str) else col

    def query() -> Any:
        if not names or not all(isinstance(frame.schema[name].dataType, NumericType) for name in names):
            raise UsageError("Spark says what is wrong with it")
        doubles = [frame[name].cast("double") for name in names]
        known = [F.when(~F.isnan(one), one) for one in doubles]
        return frame.select(
            *(F.percentile_approx(one, list(probabilities), _EXACT).alias(f"q{i}") for i, one in enumerate(known))
        )

    def lists(table: pa.Table) -> Any:
        found = [column[0].as_py() or [] for column in table.columns]
        return found[0] if isinstance(col, str) else found

    return active.answer(frame, "approxQuantile", lists, query)


_EXACT = (1 << 31) - 1
"""The accuracy with which Spark's summaries keep each of up to half as many values."""


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
    "approxQuantile": _quantiles,
    "foreach": _each("foreach"),
    "foreachPartition": _each("foreachPartition"),
    **{name: sparks(name) for name in _ALWAYS_SPARKS},
}


_MAY_BE_ONE = re.compile(r"\b(insert|create)\b", re.IGNORECASE)
"""All other texts are not parsed twice."""


def _sql(
    active: Takeover,
    _original: Action,
    session: Any,
    sqlQuery: Any,  # noqa: N803 - PySpark's name
    args: Any = None,
    **kwargs: Any,
) -> Any:
    if not isinstance(sqlQuery, str) or not _MAY_BE_ONE.search(sqlQuery):
        return SPARKS
    try:
        command = read_command(session, sqlQuery)
        plan = None if command is None else command.analysed()
    except Unsupported:  # a Spark of another kind, whose commands are its own
        return SPARKS
    except Exception as error:
        active.leave("sql", f"the command could not be read here: {failure(error)}")
        return SPARKS
    if command is None:
        return SPARKS
    name = _said(command)
    if plan is None or args or kwargs:
        active.leave(
            name, "commands with parameters are Spark's" if args or kwargs else "Spark says what is wrong with it"
        )
        return SPARKS

    def check(read: Sequence[str]) -> None:
        _check(session, plan, read)

    with active.staged(command.frame, name, check) as rows:
        return SPARKS if rows is None else command.run_over(rows)


def _said(command: Command) -> str:
    return "create table as select" if class_of(command.plan) == "CreateTableAsSelect" else "insert"


def _check(session: Any, plan: Any, read: Sequence[str]) -> None:
    """Raises UsageError with the reason where Spark has to look at what the command writes to first."""
    kind = class_of(plan)
    if kind == "CreateDataSourceTableAsSelectCommand":
        if session._jsparkSession.sessionState().catalog().tableExists(plan.table().identifier()):
            raise UsageError("the table exists already: Spark looks at that first")
    elif kind == "InsertIntoHadoopFsRelationCommand":
        if str(plan.mode().toString()) == OVERWRITE:
            check_overlap(str(plan.outputPath().toString()), read)
    elif kind == "InsertIntoDataSourceDirCommand":
        place = plan.storage().locationUri()
        if not place.isDefined():
            raise UsageError("it says no path")
        check_overlap(str(place.get().toString()), read)
    else:
        raise UsageError(f"the command {kind} is not known")


COMMANDS: dict[str, Action] = {"sql": _sql}
