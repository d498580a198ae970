"""Rows that our tasks have computed, as a Spark DataFrame with the very schema of the query they stand for.

A command or writer of Spark's gets it in the place of the query, and does all else as ever.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from firesteel.errors import UsageError
from firesteel.spark.session.versions import check_frames, dataframe_of_plan, local_dataframe, spark_schema
from firesteel.sql.plans.versions import checked_version

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
