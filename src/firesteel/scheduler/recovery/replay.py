"""A scheduler rebuilt by its own events: recorded events in, the same decisions out.

No second state machine: the events are handled as they were then, and what was deployed then is held against what would be deployed now.
Whatever differs ends the replay; a right answer never hangs on it, only how much is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from firesteel.scheduler.inputs import SideInputs
from firesteel.scheduler.kernel.commands import Command, DropSizes, Record, StoreSizes, VertexAbsorbed
from firesteel.scheduler.kernel.events import Event
from firesteel.scheduler.recovery.codec import decode
from firesteel.scheduler.recovery.facts import difference, facts_of
from firesteel.scheduler.recovery.outstanding import Outstanding
from firesteel.scheduler.recovery.records import AnyLogRecord, Deployed, NarrowedTo, Told
from firesteel.scheduler.scheduler import Scheduler

_AGAIN = (Record, VertexAbsorbed, StoreSizes, DropSizes)
"""Commands that are carried out in a replay too: the journal is written anew, the driver's own graph changes, its scratch files fill."""


class Diverged(Exception):
    """The scheduler does not do what it did then. The message is a sentence, for people."""


@dataclass(frozen=True)
class Replayed:
    """A scheduler as it was when the last whole frame was written. ``at``: the job's clock then; ``event``: the id of its last event."""

    scheduler: Scheduler
    outstanding: Outstanding
    at: float
    event: int


def replay(
    scheduler: Scheduler,
    frames: Iterable[Sequence[AnyLogRecord]],
    side_inputs: SideInputs,
    *,
    carry_out: Callable[[Command], None],
    narrowed: Callable[[NarrowedTo], None] = lambda _fact: None,
) -> Replayed:
    """Brings a fresh scheduler to where the frames end.

    ``scheduler``: made as the one that the frames tell of, with ``side_inputs``. ``carry_out`` is given the commands that are carried out
    again: Record, VertexAbsorbed, StoreSizes and DropSizes. ``narrowed``: changes the program and splits of a source as they were changed
    then. Raises Diverged where the scheduler does anything else than it did then.
    """
    outstanding = Outstanding()
    for first, *facts in frames:
        if not isinstance(first, Told):
            outstanding.noted(first)
            continue
        event, commands = _handled(scheduler, side_inputs, first)
        outstanding.heard(event)
        for fact in facts:
            if isinstance(fact, NarrowedTo):
                narrowed(fact)
        outstanding.told(commands)
        for command in commands:
            if isinstance(command, _AGAIN):
                carry_out(command)
        _check(scheduler, [fact for fact in facts if isinstance(fact, Deployed)], commands)
    at = max(outstanding.at, scheduler.recorder.at)
    return Replayed(scheduler, outstanding, at, scheduler.recorder.event)


def _handled(scheduler: Scheduler, side_inputs: SideInputs, told: Told) -> tuple[Event, list[Command]]:
    number = scheduler.recorder.event + 1
    try:
        event = decode(told.event)
        with side_inputs.play(told.answers):
            return event, scheduler.handle(event)
    except Exception as error:  # whatever it is: what was recorded does not fit this scheduler
        raise Diverged(f"Event {number} cannot be handled as it was then: {error}") from error


def _check(scheduler: Scheduler, then: list[Deployed], commands: list[Command]) -> None:
    def named(vertex: int) -> str:
        return f"[{vertex}] '{scheduler.job_graph.vertices[vertex].name}'"

    differs = difference(then, facts_of(commands), named)
    if differs is not None:
        raise Diverged(f"Event {scheduler.recorder.event} has led to other deployments: {differs}")
