"""The cheapest action that gives a stream another parallelism."""

from __future__ import annotations

from dataclasses import dataclass

from firesteel.humanize import plural
from firesteel.scheduler.streaming.commands import Action
from firesteel.scheduler.streaming.events import StreamPlan

_ENDS = (
    "its trigger (availableNow or once) ends the query by itself, and a restart would read what came meanwhile too: the "
    "next run begins with what is wanted then"
)


@dataclass(frozen=True, slots=True)
class Choice:
    action: Action
    reason: str
    refusal: str = ""
    """Why it cannot be done; then nothing is touched."""


def choose(plan: StreamPlan, before: int, wanted: int, *, pinned: bool) -> Choice:
    """``pinned``: the checkpoint holds state of ``before`` partitions."""
    if wanted == before:
        return Choice(Action.NOTHING, f"{plural(before, 'partition')} as it is")
    refusal = plan.refusal or ("" if plan.continuous else _ENDS)
    if refusal:
        return Choice(Action.NOTHING, refusal, refusal)
    if not plan.stateful:
        return Choice(Action.RESTART, "no stateful operator: the new number counts from the next start")
    if not pinned:
        return Choice(Action.RESTART, "no batch has begun, so that no state is there to rewrite")
    return Choice(Action.REPARTITION, f"the state of {', '.join(plan.stateful)} is rewritten")
