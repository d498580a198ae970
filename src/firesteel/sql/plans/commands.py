"""SQL commands that write what a query gives: read by Spark's parser, the query in them replaced.

Java does it where an error is possible, which is then no one's: Spark says it when it runs the command itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from firesteel.spark.session.versions import dataframe_of_plan
from firesteel.sql.plans.java import object_of
from firesteel.sql.plans.versions import checked_version

_SOURCE = r"""
public Object parsed(Object state, String text) {
    try {
        return ((org.apache.spark.sql.internal.SessionState) state).sqlParser().parsePlan(text);
    } catch (Throwable error) {
        return null;
    }
}

public Object analysed(Object state, Object plan) {
    try {
        org.apache.spark.sql.execution.QueryExecution execution = ((org.apache.spark.sql.internal.SessionState) state).executePlan(
            (org.apache.spark.sql.catalyst.plans.logical.LogicalPlan) plan,
            org.apache.spark.sql.execution.CommandExecutionMode.SKIP());
        execution.assertAnalyzed();
        return execution.analyzed();
    } catch (Throwable error) {
        return null;
    }
}

public String names(Object product) {
    StringBuilder names = new StringBuilder();
    for (int i = 0; i < ((scala.Product) product).productArity(); i++) names.append(fieldName(product, i)).append(' ');
    return names.toString();
}
"""
_QUERY = {"CreateTableAsSelect": "query", "InsertIntoStatement": "query", "InsertIntoDir": "child"}
"""The field with the query, by the class of the parsed command."""


@dataclass(frozen=True, slots=True)
class Command:
    """``plan``: as it was parsed, without common table expressions around it; these are in ``query``, which is not analysed."""

    session: Any
    plan: Any
    query: Any
    _java: Any

    def analysed(self) -> Any:
        """The command as Spark would run it; None: it is wrong."""
        return self._java.analysed(self.session._jsparkSession.sessionState(), self._with(self.query))

    def frame(self) -> Any:
        """The query as a DataFrame."""
        return dataframe_of_plan(self.query, self.session)

    def run_over(self, frame: Any) -> Any:
        """Runs the command over these rows instead. The DataFrame that Spark gives for a command."""
        return dataframe_of_plan(self._with(frame._jdf.queryExecution().analyzed()), self.session)

    def _with(self, query: Any) -> Any:
        return _copied(self._java, self.plan, _QUERY[class_of(self.plan)], query)


def read_command(session: Any, text: str) -> Command | None:
    """None: the text is not a command with a query, or not one that is known. Raises Unsupported for a Spark that is not read."""
    java = object_of(_SOURCE + checked_version(session).field_name, session)
    plan = java.parsed(session._jsparkSession.sessionState(), text)
    if plan is None:
        return None
    around = plan if class_of(plan) == "UnresolvedWith" else None
    plan = plan if around is None else around.child()
    name = _QUERY.get(class_of(plan))
    if name is None:
        return None
    query = getattr(plan, name)()
    return Command(session, plan, query if around is None else _copied(java, around, "child", query), java)


def class_of(plan: Any) -> str:
    return str(plan.getClass().getSimpleName())


def _copied(java: Any, product: Any, name: str, value: Any) -> Any:
    """A case class with one field changed."""
    names = java.names(product).split()
    return product.copy(*(value if field == name else product.productElement(i) for i, field in enumerate(names)))
