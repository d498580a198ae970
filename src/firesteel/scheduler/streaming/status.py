"""The live view of a stream, what it waits for in plain words, and the records of what was decided for it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from firesteel.humanize import format_seconds, plural
from firesteel.model.slot_sharing_group import SlotSharingGroup
from firesteel.options import Options
from firesteel.scheduler.failover.restart_strategies import RestartStrategy, Verdict
from firesteel.scheduler.kernel.recorder import Recorder
from firesteel.scheduler.slots.resource_profile import ResourceProfile
from firesteel.scheduler.streaming.events import QueryFailed, QueryStarted
from firesteel.scheduler.streaming.manager import RescaleManager
from firesteel.scheduler.streaming.records import StreamPlanned, StreamStatus
from firesteel.scheduler.streaming.rescales import RescaleInProgress, Rescales
from firesteel.scheduler.streaming.running import RunningQuery
from firesteel.scheduler.streaming.slots import Resources, kept_by
from firesteel.scheduler.streaming.states import Phase, SchedulerState
from firesteel.scheduler.streaming.wish import Assessment, ResourceRequirements, Wish

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


def record_plan(
    recorder: Recorder,
    needs: ResourceRequirements,
    options: Options,
    warnings: Iterable[str],
    group: SlotSharingGroup,
    **names: str,
) -> None:
    """The first line of the journal, what keeps its slots, and what is wrong with the options. ``names``: of the stream and
    its checkpoint."""
    recorder.record(
        StreamPlanned(
            at=recorder.at,
            event=recorder.event,
            lower=needs.lower,
            upper=needs.upper,
            options=dict(options.items()),
            slot_sharing_group=str(group) if group.has_resources else "",
            origins={key: options.origin(key).where for key in options},
            **names,
        )
    )
    if group.has_resources:
        recorder.decision(
            "slots",
            inputs=ResourceProfile.of(group).numbers(),
            rule="one slot sharing group",
            result=str(group),
            reason=f"The whole stream is in slot sharing group {group}. {kept_by(group)}",
        )
    for warning in warnings:
        recorder.decision("warning", rule="options", reason=warning)


def decide_start(
    recorder: Recorder, resources: Resources, needs: ResourceRequirements, wish: Wish, *, before: int, why: str
) -> int:
    """The parallelism to start with. ``before``: that it ran with; 0: it did not."""
    parallelism = before or wish.parallelism
    recorder.decision(
        "parallelism",
        inputs={
            "cores": resources.cores,
            "slots": wish.slots,
            "lower": needs.lower,
            "upper": needs.upper,
            "sufficient": wish.sufficient,
            "desired": wish.desired,
        },
        rule="as before" if before else wish.rule,
        bounds=list(wish.bounds),
        result=parallelism,
        reason=f"{why}: {wish.reason}" + (f"; it ran with {before}" if before else ""),
    )
    return parallelism


def decide_restart(recorder: Recorder, strategy: RestartStrategy, event: QueryFailed) -> Verdict:
    """Decides, and records, whether the failure is followed by a restart."""
    if event.final:
        verdict = Verdict(None, "no restart can help")
    elif event.counted:
        verdict = strategy.count_failure(recorder.at)
    else:
        verdict = strategy.uncounted("it was not the stream's fault")
    recorder.decision(
        "restart",
        inputs={"batch": event.batch, "counted": event.counted, "final": event.final, "cause": event.cause},
        rule=strategy.name,
        result=verdict.delay,
        reason=f"the query failed: {verdict.reason}" + ("" if verdict.delay is not None else ", so the stream fails"),
    )
    return verdict


def decide_recovery(recorder: Recorder, event: QueryStarted) -> None:
    """Records what was done to the checkpoint before the start, if anything was."""
    if event.recovered:
        rows = {"replayed rows": event.replayed_rows}
        recorder.decision("recovery", inputs=rows, rule="checkpoint", reason=event.recovered)
