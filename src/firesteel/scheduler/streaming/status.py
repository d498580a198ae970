"""The live view of a stream, and what it waits for in plain words."""

from __future__ import annotations

from typing import Any

from firesteel.humanize import format_seconds, plural
from firesteel.scheduler.streaming.records import StreamStatus
from firesteel.scheduler.streaming.rescaling.manager import RescaleManager
from firesteel.scheduler.streaming.rescaling.rescales import RescaleInProgress, Rescales
from firesteel.scheduler.streaming.running import RunningQuery
from firesteel.scheduler.streaming.states import Phase, SchedulerState
from firesteel.scheduler.streaming.wanted.assessment import Assessment
from firesteel.scheduler.streaming.wanted.requirements import ResourceRequirements
from firesteel.scheduler.streaming.wanted.slots import Resources

WAITS_FOR = {
    SchedulerState.CREATING_EXECUTION_GRAPH: "the query to start",
    SchedulerState.STOP_WITH_SAVEPOINT: "the running batch, then it stops",
    SchedulerState.CANCELING: "the query to stop",
}
"""In states where there is nothing more to say."""


def waits_while_executing(assessment: Assessment, manager: RescaleManager, now: float, failure: str = "") -> str:
    """A sentence; empty: for nothing. ``failure``: of the last rescale."""
    wish = assessment.wish
    if not assessment.is_wanted:
        return f"nothing: {wish.reason}" if wish.rule == "the partitions still suffice" else ""
    aim = f"{plural(wish.parallelism, 'partition')} instead of {assessment.running}"
    if assessment.refused:
        return f"nothing: {aim} is not possible: {assessment.refused}"
    if assessment.awaits_word:
        return f"your confirmation for {aim}: {assessment.awaits_word}"
    if not wish.sufficient:
        return f"more slots: {wish.reason}"
    again = f"; the last rescale failed: {failure.splitlines()[0]}" if failure else ""
    return f"{_first(assessment, manager, now)}, then {aim}{again}"


def _first(assessment: Assessment, manager: RescaleManager, now: float) -> str:
    if manager.phase is Phase.COOLDOWN:
        end = f"the end of the cooldown{_left(manager.cooldown_until, now, 'in')}"
        if not assessment.wish.desired:
            return f"{end}, then a checkpoint once no more slots come"
        return f"{end}, then a checkpoint" if manager.waits_after_cooldown else end
    if manager.phase is Phase.STABILIZING and not assessment.wish.desired:
        return f"more slots{_left(manager.stabilized_at, now, 'at most another')}, then a checkpoint"
    return f"a checkpoint{_left(manager.rescales_at, now, 'at most another')}"


def _left(until: float | None, now: float, word: str) -> str:
    return "" if until is None else f" ({word} {format_seconds(max(0.0, until - now))})"


def waits_for_slots(there: int, needed: int, until: float | None, now: float) -> str:
    left = "" if until is None else f", for at most another {format_seconds(max(0.0, until - now))}"
    if there >= needed:
        return f"more slots: {there} are there and enough{left}"
    return f"slots: {there} there, {needed} needed{left}"


def waits_while_rescaling(current: RescaleInProgress | None) -> str:
    if current is None:
        return ""
    step = "" if current.step is None else f", step '{current.step.value}'"
    return f"{plural(current.requested, 'partition')} instead of {current.before}{step}"


def waits_for_restart(until: float | None, now: float, cause: str) -> str:
    first = cause.splitlines()[0] if cause else "a failure"
    return f"a restart{_left(until, now, 'in')} after: {first}"


def stream_status(
    query: RunningQuery, rescales: Rescales, needs: ResourceRequirements, there: Resources, **others: Any
) -> StreamStatus:
    """``others``: what these do not know."""
    last = query.last
    return StreamStatus(
        parallelism=query.parallelism,
        lower=needs.lower,
        upper=needs.upper,
        cores=there.cores,
        executors=there.executors,
        run=query.run,
        batches=query.batches,
        batch=query.batch,
        input_rate=0.0 if last is None or query.idle else last.input_rate,
        processed_rate=0.0 if last is None or query.idle else last.processed_rate,
        state_rows=0 if last is None else last.state_rows,
        state_bytes=query.state_bytes or 0,
        backlog=None if last is None else last.backlog,
        rescales=rescales.made,
        last_rescale=rescales.last,
        **others,
    )
