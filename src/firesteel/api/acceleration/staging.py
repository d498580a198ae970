"""Rows that our tasks have computed, as a Spark DataFrame with the very schema of the query they stand for.

A command or writer of Spark's gets it in the place of the query, and does all else as ever.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from firesteel.api.steps.actions import Computed
from firesteel.api.steps.pipeline import Pipeline
from firesteel.errors import UsageError
from firesteel.model.runner import Choice
from firesteel.spark.session.versions import check_frames, dataframe_of_plan, spark_schema
from firesteel.sql.plans.versions import checked_version

_AROUND = ("Repartition", "RepartitionByExpression", "RebalancePartitions")
"""Operators that only say in how many files, and which, rows are written: Spark applies them to what we have computed."""


@dataclass(slots=True)
class Staged:
    """``frame``: the rows; they go with ``close``."""

    frame: Any
    computed: Computed

    def close(self) -> None:
        self.computed.close()


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

    def staged(self, pipeline: Pipeline, name: str, runner: Choice) -> Staged:
        """Computes the rows. Raises UsageError, before it, where they cannot be given back as what they were."""
        session = self.frame.sparkSession
        check_frames(session)
        kinds = [one.dataType.simpleString() for one in self.frame.schema.fields]
        if kinds != [one.dataType.simpleString() for one in spark_schema(pipeline.schema).fields]:
            raise UsageError("it has columns of types that only Spark writes")
        computed = Computed(pipeline, name, runner)
        try:
            plan = _relation(session, self.frame._jdf.queryExecution().analyzed(), computed.to_dataframe())
            for operator in reversed(self.around):
                plan = operator.withNewChildren(_sequence(session, plan))
            return Staged(dataframe_of_plan(plan, session), computed)
        except BaseException:
            computed.close()
            raise


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
