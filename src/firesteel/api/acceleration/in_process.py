"""Queries of an accelerated session that run in this process, and how Spark's ways to cancel jobs end them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from firesteel.api.acceleration.hooks import SPARKS, Action
from firesteel.api.environment import ExecutionEnvironment
from firesteel.api.steps.actions import too_much
from firesteel.errors import EngineStop, Stop
from firesteel.options import MAX_COLLECT_BYTES
from firesteel.plan.expr import Unsupported
from firesteel.run import in_process as runner
from firesteel.run.choose import Choice, choose
from firesteel.run.engine import TooManyBytes
from firesteel.run.in_process import Answered, Caller
from firesteel.run.statement import Statement, statement_of
from firesteel.sql.takeover import TakenOver

_INSTEAD = (Stop.MEMORY, Stop.INTERNAL)
"""Where the engine of this process stops by itself, stages may still answer."""


def in_process(environment: ExecutionEnvironment, taken: TakenOver, action: str) -> Answered | None:
    """The rows; None: stages are to compute them. Raises what the runner raises, JobExecutionError for too many bytes."""
    from firesteel.spark.session.sessions import own_interrupts
    from firesteel.spark.storage.directories import new_job_id

    chosen = _chosen(environment, taken)
    if chosen is None:
        return None
    statement, choice = chosen
    options, context = environment.options, environment.spark.sparkContext
    caller = Caller(context.getLocalProperty("spark.jobGroup.id"), frozenset(context.getJobTags()))
    try:
        with own_interrupts():
            return runner.run(statement, choice, taken.schema, action, options, new_job_id(), caller)
    except TooManyBytes as error:
        raise too_much(action, error.args[0], options[MAX_COLLECT_BYTES]) from None
    except EngineStop as stop:
        if stop.kind in _INSTEAD:
            return None
        raise


def may_run_here(environment: ExecutionEnvironment, taken: TakenOver) -> bool:
    """Whether the query would run in this process."""
    return _chosen(environment, taken) is not None


def _chosen(environment: ExecutionEnvironment, taken: TakenOver) -> tuple[Statement, Choice] | None:
    from firesteel.spark.session.task_memory import memory_beside_heap

    options = environment.options
    try:
        statement = statement_of(taken.relation, taken.columns)
    except Unsupported:
        return None
    beside = memory_beside_heap(environment.spark.sparkContext)
    choice = choose(options, statement.nbytes, runner.engine_memory(options, beside))
    return (statement, choice) if choice.runner == "in process" else None


def _cancelling(of: Callable[[Caller, Any], bool]) -> Action:
    """``of``: takes the first argument. Spark's own jobs are cancelled as well."""

    def cancel(_active: Any, _original: Action, _target: Any, *args: Any, **kwargs: Any) -> Any:
        named = next(iter((*args, *kwargs.values())), None)
        runner.cancel(lambda caller: of(caller, named))
        return SPARKS

    return cancel


def _of_group(caller: Caller, group: Any) -> bool:
    return caller.group == group


def _of_tag(caller: Caller, tag: Any) -> bool:
    return tag in caller.tags


def _any(_caller: Caller, _: Any) -> bool:
    return True


CANCELLING: dict[str, Action] = {
    "cancelJobGroup": _cancelling(_of_group),
    "cancelJobsWithTag": _cancelling(_of_tag),
    "cancelAllJobs": _cancelling(_any),
}
"""Of a SparkContext."""
