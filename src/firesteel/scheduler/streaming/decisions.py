"""Decisions of a stream's scheduler outside of a running query, as they are written down."""

from __future__ import annotations

from collections.abc import Iterable

from firesteel.options import Options
from firesteel.scheduler.restart import RestartStrategy, Verdict
from firesteel.scheduler.streaming.events import QueryFailed, QueryStarted
from firesteel.scheduler.streaming.recorder import StreamRecorder
from firesteel.scheduler.streaming.records import StreamPlanned
from firesteel.scheduler.streaming.requirements import ResourceRequirements
from firesteel.scheduler.streaming.wanted import Resources, Wish


def record_plan(
    recorder: StreamRecorder, needs: ResourceRequirements, options: Options, warnings: Iterable[str], **names: str
) -> None:
    """The first line of the journal, and what is wrong with the options. ``names``: of the stream and its checkpoint."""
    recorder.record(
        StreamPlanned(
            at=recorder.at,
            event=recorder.event,
            lower=needs.lower,
            upper=needs.upper,
            options=dict(options.items()),
            **names,
        )
    )
    for warning in warnings:
        recorder.decision("warning", rule="options", reason=warning)


def decide_start(
    recorder: StreamRecorder, resources: Resources, needs: ResourceRequirements, wish: Wish, *, before: int, why: str
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


def decide_restart(recorder: StreamRecorder, strategy: RestartStrategy, event: QueryFailed) -> Verdict:
    """Whether the failure may be followed by a restart."""
    if event.final:
        verdict = Verdict(None, "no restart can help")
    elif event.charged:
        verdict = strategy.charge(recorder.at)
    else:
        verdict = strategy.uncharged("it was not the stream's fault")
    recorder.decision(
        "restart",
        inputs={"batch": event.batch, "charged": event.charged, "final": event.final, "cause": event.cause},
        rule=strategy.name,
        result=verdict.delay,
        reason=f"the query failed: {verdict.reason}" + ("" if verdict.delay is not None else ", so the stream fails"),
    )
    return verdict


def decide_recovery(recorder: StreamRecorder, event: QueryStarted) -> None:
    """What was done to the checkpoint before the start, if anything was."""
    if event.recovered:
        rows = {"replayed rows": event.replayed_rows}
        recorder.decision("recovery", inputs=rows, rule="checkpoint", reason=event.recovered)
