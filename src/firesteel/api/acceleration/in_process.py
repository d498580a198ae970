"""Queries of an accelerated session that run in this process, and how Spark's ways to cancel jobs end them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from firesteel.api.acceleration.hooks import SPARKS, Action
from firesteel.api.environment import ExecutionEnvironment
from firesteel.api.steps.actions import too_much
from firesteel.errors import EngineStop, UsageError
from firesteel.humanize import format_bytes
from firesteel.model.runner import Choice
from firesteel.options import MAX_COLLECT_BYTES
from firesteel.plan.expr import Unsupported
from firesteel.run import in_process as runner
from firesteel.run.choose import choose
from firesteel.run.engine import TooManyBytes
from firesteel.run.in_process import Answered, Caller
from firesteel.run.statement import Statement, statement_of
from firesteel.sql.plans.catalyst import Catalyst
from firesteel.sql.takeover import TakenOver

_WRITTEN_BYTES = 64 << 20
"""Most bytes of rows that go from this process to Spark's writer."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """Where a query runs. ``statement``: it as one, where it is one."""

    choice: Choice
    statement: Statement | None

    @classmethod
    def of(cls, environment: ExecutionEnvironment, plan: Catalyst, taken: TakenOver) -> Chosen:
        """Raises UsageError with the reason where Spark is to answer."""
        from firesteel.spark.session.sessions import is_local
        from firesteel.spark.session.task_memory import memory_beside_heap

        options, statement, why = environment.options, None, ""
        try:
            statement = statement_of(taken.relation, taken.columns)
        except Unsupported as reason:
            why = str(reason)
        context = environment.spark.sparkContext
        memory, local = runner.engine_memory(options, memory_beside_heap(context)), is_local(context)
        nbytes = None if statement is None else statement.nbytes
        choice = choose(options, nbytes, why, plan.input_bytes, memory, local=local)
        if choice.runner == "Spark":
            raise UsageError(choice.reason)
        return cls(choice, statement)

    def run(
        self, environment: ExecutionEnvironment, schema: pa.Schema, action: str, *, written: bool = False
    ) -> Answered | Choice:
        """The rows, or why stages are to compute them. ``written``: Spark gets the rows again.

        Raises what the runner raises, JobExecutionError for too many bytes.
        """
        from firesteel.spark.session.sessions import own_interrupts
        from firesteel.spark.session.versions import session_tags
        from firesteel.spark.storage.directories import new_job_id

        if self.statement is None or self.choice.runner != "in process":
            return self.choice
        options, context = environment.options, environment.spark.sparkContext
        caller = Caller(
            environment.spark,
            context.getLocalProperty("spark.jobGroup.id"),
            frozenset(filter(None, (context.getLocalProperty("spark.job.tags") or "").split(","))),
            session_tags(environment.spark),
        )
        most = _WRITTEN_BYTES if written else options[MAX_COLLECT_BYTES]
        try:
            with own_interrupts():
                held = {name: rows() for name, rows in self.statement.held.items()}
                statement = replace(self.statement, tables=self.statement.tables | held)
                return runner.run(statement, self.choice, schema, action, options, new_job_id(), caller, most)
        except TooManyBytes as error:
            if written:
                return self._stages("rows", f"its rows are more than {format_bytes(most)}")
            raise too_much(action, error.args[0], options[MAX_COLLECT_BYTES]) from None
        except EngineStop as stop:
            if stop.kind in runner.FOR_STAGES:
                return self._stages("stopped", f"the engine of this process stopped: {stop.message}")
            raise

    def _stages(self, rule: str, reason: str) -> Choice:
        return Choice("stages", rule, reason, self.choice.inputs)


def _cancelling(of: Callable[[Caller, Any, Any], bool]) -> Action:
    """``of``: takes a query's caller, the object that is asked to cancel, and the first argument. Spark's own jobs are cancelled as well."""

    def cancel(_active: Any, _original: Action, target: Any, *args: Any, **kwargs: Any) -> Any:
        named = next(iter((*args, *kwargs.values())), None)
        runner.cancel(lambda caller: of(caller, target, named))
        return SPARKS

    return cancel


CANCELLING: dict[str, Action] = {
    "cancelJobGroup": _cancelling(lambda caller, _, group: caller.group == group),
    "cancelJobsWithTag": _cancelling(lambda caller, _, tag: tag in caller.tags),
    "cancelAllJobs": _cancelling(lambda _caller, _context, _none: True),
}
"""Of a SparkContext."""
INTERRUPTING: dict[str, Action] = {
    "interruptAll": _cancelling(lambda caller, session, _: caller.session is session),
    "interruptTag": _cancelling(lambda caller, session, tag: caller.session is session and tag in caller.session_tags),
}
"""Of a SparkSession."""
