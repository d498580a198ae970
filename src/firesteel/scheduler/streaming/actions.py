"""The cheapest action that gives a stream another parallelism."""

from __future__ import annotations

from dataclasses import dataclass

from firesteel.humanize import plural
from firesteel.scheduler.streaming.commands import Action
from firesteel.scheduler.streaming.events import StreamPlan


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
    if plan.refusal:
        return Choice(Action.NOTHING, plan.refusal, plan.refusal)
    if not plan.stateful:
        return Choice(Action.RESTART, "no stateful operator: the new number counts from the next start")
    if not pinned:
        return Choice(Action.RESTART, "no batch has begun, so that no state is there to rewrite")
    return Choice(Action.REPARTITION, f"the state of {', '.join(plan.stateful)} is rewritten")
