"""Asks of one accelerated session, or of all: each is computed by our tasks, or left to Spark with the reason."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa

from firesteel.api.acceleration.hooks import SPARKS
from firesteel.api.acceleration.in_process import Chosen
from firesteel.api.acceleration.record import Record
from firesteel.api.acceleration.verifying import Check, is_drawn
from firesteel.api.connectors.dataframes import wholly_taken_over
from firesteel.api.ddl import rows_schema
from firesteel.api.environment import ExecutionEnvironment
from firesteel.api.steps.actions import Computed
from firesteel.api.steps.pipeline import Pipeline
from firesteel.errors import FiresteelError, JobCancelledError, UsageError, failure
from firesteel.humanize import first_of
from firesteel.options import RECOVERY_MODE, RECOVERY_RESUME, RESULTS_REUSE, RETAIN_ON_FAILURE, SQL_VERIFY, Options
from firesteel.options.registry import BY_DEFAULT
from firesteel.plan.dump import explain_rules
from firesteel.plan.expr import Unsupported
from firesteel.run.in_process import Answered
from firesteel.spark.session.versions import check_frames, dataframe_of_plan, local_dataframe, spark_schema
from firesteel.sql.plans.catalyst import Catalyst, read_plan
from firesteel.sql.plans.versions import checked_version
from firesteel.sql.takeover import TakenOver
from firesteel.users_line import caller_place


@dataclass(frozen=True, slots=True)
class _Found:
    """``answer``: what the action returns. ``rows``: those that ``job`` has computed, for a check."""

    answer: Any
    job: str
    rows: Callable[[], pa.Table]


@dataclass(frozen=True, slots=True)
class _Asked:
    """A query of an environment. ``place``: where the user asked."""

    environment: ExecutionEnvironment
    place: str
    plan: Catalyst


class Takeover:
    """``spark``: None stands for every session. ``record``: hears of each ask. ``dry_run``: nothing is computed here."""

    def __init__(self, spark: Any, options: Mapping[str, Any], record: Record, *, dry_run: bool) -> None:
        self._spark, self._options, self._record, self._dry_run = spark, options, record, dry_run
        self._environments: list[tuple[Any, ExecutionEnvironment]] = []
        self._numbers = itertools.count(1)
        """Of queries that are taken over."""
        self._lock = threading.Lock()
        if spark is not None:
            self._environment(spark)  # a wrong option is told at once

    def covers(self, session: Any) -> bool:
        """``session``: or its context."""
        return self._spark is None or session in (self._spark, self._spark.sparkContext)

    def answer(
        self,
        frame: Any,
        action: str,
        convert: Callable[[pa.Table], Any],
        query: Callable[[], Any] | None = None,
        *,
        gaining: bool = False,
    ) -> Any:
        """The answer that ``convert`` makes of the rows of ``query``, else of the DataFrame; SPARKS: Spark is to answer.

        ``gaining``: only where our tasks would do more than pass rows on.
        """

        def computed(taken: TakenOver, asked: _Asked) -> _Found:
            names = asked.plan.names
            here = Chosen.of(asked.environment, asked.plan, taken).run(asked.environment, taken.schema, action)
            if isinstance(here, Answered):
                return _Found(convert(here.rows.rename_columns(names)), here.id, partial(_itself, here.rows))
            with Computed(Pipeline(asked.environment, taken.step(asked.place)), action, here) as rows:
                table = rows.to_arrow().rename_columns(names)
                return _Found(convert(table), rows.job_id, partial(_itself, table))

        return self._taken(query or (lambda: frame), action, computed, _checks_gain if gaining else None)

    @contextmanager
    def staged(
        self, frame: Callable[[], Any], action: str, check: Callable[[Sequence[str]], None] | None = None
    ) -> Generator[Any]:
        """A DataFrame of the same rows, which our tasks have computed, until the block ends; None: Spark is to compute them.

        ``check``: takes the files that the query reads, and raises UsageError with the reason why it is Spark's.
        """
        asked: list[Query] = []

        def query() -> Any:
            asked.append(Query.of(frame()))
            return asked[0].frame

        def checked(plan: Catalyst) -> None:
            _checks_gain(plan)
            if check is not None:
                check(asked[0].frame.inputFiles())

        def computed(taken: TakenOver, here: _Asked) -> _Found:
            asked[0].check(taken.schema)
            chosen = Chosen.of(here.environment, here.plan, taken)
            ran = chosen.run(here.environment, taken.schema, action, written=True)
            if isinstance(ran, Answered):
                return _Found(asked[0].of_table(ran.rows), ran.id, partial(_itself, ran.rows))
            rows = closing.enter_context(Computed(Pipeline(here.environment, taken.step(here.place)), action, ran))
            return _Found(asked[0].over(rows.to_dataframe()), rows.job_id, rows.to_arrow)

        with ExitStack() as closing:
            frame_of_rows = self._taken(query, action, computed, checked)
            yield None if frame_of_rows is SPARKS else frame_of_rows

    def leave(self, action: str, reason: str) -> None:
        """Notes an action that is Spark's, whatever it asks for."""
        self._record.add(self._any_options(), action, caller_place(_pyspark_home()), [reason])

    def _taken(
        self,
        query: Callable[[], Any],
        action: str,
        compute: Callable[[TakenOver, _Asked], _Found],
        check: Callable[[Catalyst], None] | None,
    ) -> Any:
        """The answer of ``compute`` for a query that is taken over; SPARKS: it was left, or failed here.

        No error of ours gets out: Spark then does it all, and says what it has to say. But a check that finds another answer than Spark's
        raises WrongAnswerError.
        """
        begun, place, left, size = time.monotonic(), caller_place(_pyspark_home()), (), 0
        found: _Found | None = None
        verify: Check | None = None
        try:
            frame = query()
            environment = self._environment(frame.sparkSession)
            asked = _Asked(environment, place, _plan_of(frame))
            size = asked.plan.input_bytes
            if check is not None:
                check(asked.plan)
            taken = wholly_taken_over(asked.plan, _schema_of(asked.plan), environment.options)
            if self._dry_run:
                taken.step(place)  # what is wrong with it is told
                Chosen.of(environment, asked.plan, taken)
            else:
                found = compute(taken, asked)
                verify = self._drawn(asked.plan, environment, place)
        except JobCancelledError:
            raise
        except Exception as error:
            left = (_reason(error),)
        seconds = time.monotonic() - begun
        try:
            if found is not None and verify is not None:
                verify.run(found.rows)
        finally:
            outcome = ("", "") if verify is None else (verify.outcome, verify.reason)
            self._record.add(
                self._any_options(),
                action,
                place,
                left,
                job=found.job if found else "",
                bytes=size if size < _UNKNOWN else 0,
                seconds=seconds,
                check=outcome[0],
                unchecked=outcome[1],
            )
        return SPARKS if found is None else found.answer

    def explain(self, frame: Any, *, rules: bool) -> str:
        """Who would compute the rows of a DataFrame, and why. ``rules``: also what each rule changed in its plan."""
        try:
            environment = self._environment(frame.sparkSession)
            plan = _plan_of(frame)
            taken = wholly_taken_over(plan, _schema_of(plan), environment.options)
            chosen = Chosen.of(environment, plan, taken)
            here = chosen.statement if chosen.choice.runner == "in process" else None
            record = taken.step("").rules if here is None else here.rules
        except Exception as error:
            return f"Spark: {_reason(error)}"
        changed = first_of([one.rule.name for one in record if one.changed]) or "none"
        lines = [f"{chosen.choice.runner}: {chosen.choice.reason}", f"rules that changed the plan: {changed}"]
        return "\n".join([*lines, explain_rules(record)] if rules else lines)

    def _drawn(self, plan: Catalyst, environment: ExecutionEnvironment, place: str) -> Check | None:
        """The check of a query that is taken over; None: it was not drawn."""
        number = next(self._numbers)
        drawn = is_drawn(self._record.mark, number, environment.options[SQL_VERIFY])
        return Check(plan, environment.options, place) if drawn else None

    def _any_options(self) -> Any:
        """The options of some session, which say where journals are."""
        with self._lock:
            if self._environments:
                return self._environments[0][1].options
        return ExecutionEnvironment(options=self._options).options

    def _environment(self, session: Any) -> ExecutionEnvironment:
        with self._lock:
            for known, environment in self._environments:
                if known is session:
                    return environment
            made = ExecutionEnvironment(spark=session, options=self._options)
            made.options = _unless_resumed(made.options)
            self._environments.append((session, made))
            return made


_UNKNOWN = (1 << 63) - 1
"""Spark's estimate of what it knows nothing about."""


def _unless_resumed(options: Options) -> Options:
    """Spark does at once what failed here, so nobody goes on with it unless an option asks for that: then nothing of it is kept."""
    if any(map(options.is_set, (RECOVERY_MODE, RECOVERY_RESUME, RESULTS_REUSE))):
        return options
    return Options({RETAIN_ON_FAILURE.key: 0}, BY_DEFAULT).merged(options)


def _pyspark_home() -> str:
    import pyspark

    return os.path.dirname(pyspark.__file__)  # noqa: PTH120 - a prefix of frames' file names


def _itself(table: pa.Table) -> pa.Table:
    return table


def _reason(error: Exception) -> str:
    """Why Spark is to compute it."""
    if isinstance(error, UsageError | Unsupported):
        return str(error)  # with what to do about it
    return error.message if isinstance(error, FiresteelError) else failure(error)


# --- checks -----------------------------------------------------------------------------------------------------------------


def _plan_of(frame: Any) -> Catalyst:
    try:
        return read_plan(frame)
    except Unsupported as reason:
        raise UsageError(str(reason)) from reason


def _schema_of(plan: Catalyst) -> pa.Schema:
    """The schema of the rows, with other names where two of its columns have one. Raises UsageError."""
    from pyspark.sql.types import StructType

    schema = rows_schema(StructType.fromJson(plan.schema), plan.setting("spark.sql.session.timeZone"))
    if len(set(schema.names)) == len(schema):
        return schema
    return pa.schema([field.with_name(f"_{i}") for i, field in enumerate(schema)])


def _checks_gain(plan: Catalyst) -> None:
    if not plan.gains:
        raise UsageError("it only passes rows on: Spark does that without a detour")


_AROUND = ("Repartition", "RepartitionByExpression", "RebalancePartitions")
"""Operators that only say in how many files, and which, rows are written: Spark applies them to what we have computed."""


@dataclass(slots=True)
class Query:
    """A DataFrame. ``frame``: the part that gives its rows, under what only deals them out (``around``, outermost first)."""

    frame: Any
    around: list[Any] = field(default_factory=list[Any])

    @classmethod
    def of(cls, frame: Any) -> Query:
        plan = frame._jdf.queryExecution().analyzed()
        around: list[Any] = []
        while _name(plan) in _AROUND or (_name(plan) == "Sort" and not getattr(plan, "global")()):
            around.append(plan)
            plan = plan.child()
        return cls(dataframe_of_plan(plan, frame.sparkSession) if around else frame, around)

    def check(self, schema: pa.Schema) -> None:
        """Raises UsageError where Spark would get other types from rows of this schema."""
        check_frames(self.frame.sparkSession)
        kinds = [one.dataType.simpleString() for one in self.frame.schema.fields]
        if kinds != [one.dataType.simpleString() for one in spark_schema(schema).fields]:
            raise UsageError("it has columns of types that only Spark writes")

    def of_table(self, rows: pa.Table) -> Any:
        """The query's DataFrame with these rows, which it holds itself."""
        frame = local_dataframe(rows, spark_schema(rows.schema), self.frame.sparkSession)
        return self.over(frame.coalesce(1))

    def over(self, rows: Any) -> Any:
        """The query's DataFrame with the rows of another one."""
        session = self.frame.sparkSession
        plan = _relation(session, self.frame._jdf.queryExecution().analyzed(), rows)
        for operator in reversed(self.around):
            plan = operator.withNewChildren(_sequence(session, plan))
        return dataframe_of_plan(plan, session)


def _name(plan: Any) -> str:
    return str(plan.getClass().getSimpleName())


def _relation(session: Any, plan: Any, rows: Any) -> Any:
    """The rows in the place of a plan: the same attributes, with their nullability and metadata, and the order of a sort."""
    jvm = session._jvm
    nothing, none = _object(jvm.scala.collection.immutable, "Nil$"), _object(jvm.scala, "None$")
    order = plan.order() if _name(plan) == "Sort" else nothing
    unknown = jvm.org.apache.spark.sql.catalyst.plans.physical.UnknownPartitioning(0)
    rdd = rows._jdf.queryExecution().toRdd()
    known = {"isStreaming": False, "fromCheckpoint": False, "session": session._jsparkSession}
    others = [known.get(name, none) for name in checked_version(session).relation]
    return jvm.org.apache.spark.sql.execution.LogicalRDD(plan.output(), rdd, unknown, order, *others)


def _sequence(session: Any, plan: Any) -> Any:
    return session._jvm.PythonUtils.toSeq([plan])


def _object(package: Any, name: str) -> Any:
    """An object of Scala's."""
    return getattr(getattr(package, name), "MODULE$")
