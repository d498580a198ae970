"""Decisions of a stream's scheduler outside of a running query, as they are written down."""

from __future__ import annotations

from collections.abc import Iterable

from firesteel.model.slot_sharing_group import SlotSharingGroup
from firesteel.options import Options
from firesteel.scheduler.failover.restart_strategies import RestartStrategy, Verdict
from firesteel.scheduler.kernel.recorder import Recorder
from firesteel.scheduler.slots.resource_profile import ResourceProfile
from firesteel.scheduler.streaming.events import QueryFailed, QueryStarted
from firesteel.scheduler.streaming.records import StreamPlanned
from firesteel.scheduler.streaming.wanted.parallelism import Wish
from firesteel.scheduler.streaming.wanted.requirements import ResourceRequirements
from firesteel.scheduler.streaming.wanted.slots import Resources, kept_by


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
