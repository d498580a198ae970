"""``firesteel.accelerate``: what a PySpark script asks of its DataFrames is computed by our own tasks, where that gives Spark's answer.

While a session is accelerated, PySpark's actions, writers and ``spark.sql`` ask here first. A query that is not taken over whole, that is
small, or that fails here is Spark's, as if nothing were there; each is noted with its reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from firesteel.api.acceleration import hooks
from firesteel.api.acceleration.actions import ACTIONS
from firesteel.api.acceleration.commands import COMMANDS
from firesteel.api.acceleration.hooks import Action
from firesteel.api.acceleration.in_process import CANCELLING, INTERRUPTING
from firesteel.api.acceleration.record import Record, script_name
from firesteel.api.acceleration.takeover import Takeover
from firesteel.api.acceleration.writes import WRITES, WRITES_TO
from firesteel.api.caller import caller_place
from firesteel.errors import UsageError


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
        from firesteel.report.scripts import query_lines

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
