"""The live view of a stream, and the records of what was decided for it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

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
from firesteel.scheduler.streaming.waits import Awaited, StreamWait
from firesteel.scheduler.streaming.wish import Assessment, ResourceRequirements, Wish

IN_STATE = {
    SchedulerState.CREATING_EXECUTION_GRAPH: StreamWait(awaited=Awaited.START),
    SchedulerState.STOP_WITH_SAVEPOINT: StreamWait(awaited=Awaited.LAST_BATCH),
    SchedulerState.CANCELING: StreamWait(awaited=Awaited.STOP),
}
"""In states where there is nothing more to say."""


def while_executing(assessment: Assessment, manager: RescaleManager, now: float, failure: str) -> StreamWait | None:
    """None: for nothing. ``failure``: of the last rescale."""
    wish = assessment.wish
    if not assessment.is_wanted:
        suffices = wish.rule == "the partitions still suffice"
        return StreamWait(awaited=Awaited.NOTHING, reason=wish.reason) if suffices else None
    seconds, reason = None, ""
    if assessment.refused:
        awaited, reason = Awaited.NOTHING_POSSIBLE, assessment.refused
    elif assessment.awaits_word:
        awaited, reason = Awaited.CONFIRMATION, assessment.awaits_word
    elif not wish.sufficient:
        awaited, reason = Awaited.SUFFICIENT_SLOTS, wish.reason
    else:
        awaited, until = _first(manager, desired=wish.desired)
        seconds, reason = left(until, now), failure
    return StreamWait(
        awaited=awaited, seconds=seconds, partitions=wish.parallelism, before=assessment.running, reason=reason
    )


def _first(manager: RescaleManager, *, desired: bool) -> tuple[Awaited, float | None]:
    """What comes before the rescale, and until when."""
    if manager.phase is Phase.COOLDOWN:
        then = Awaited.COOLDOWN_CHECKPOINT if manager.waits_after_cooldown else Awaited.COOLDOWN
        return then if desired else Awaited.COOLDOWN_SLOTS, manager.cooldown_until
    if manager.phase is Phase.STABILIZING and not desired:
        return Awaited.DESIRED_SLOTS, manager.stabilized_at
    return Awaited.CHECKPOINT, manager.rescales_at


def while_rescaling(current: RescaleInProgress | None) -> StreamWait | None:
    if current is None:
        return None
    step = "" if current.step is None else current.step.value
    return StreamWait(awaited=Awaited.RESCALE, partitions=current.requested, before=current.before, step=step)


def left(until: float | None, now: float) -> float | None:
    return None if until is None else max(0.0, until - now)


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
