"""Commands of a stream's scheduler to the data plane."""

from __future__ import annotations

from enum import Enum

from firesteel.scheduler.kernel.commands import Command


class Action(Enum):
    """The cheapest that is sufficient."""

    NOTHING = "nothing"
    RESTART = "restart"
    """Stateless: a new number at the next start."""
    REPARTITION = "repartition"
    """Stateful: the state is rewritten."""


class StreamCommand(Command, frozen=True, eq=True, kw_only=True):
    """A command of a stream alone; timers and records are commands of the kernel."""


class StartQuery(StreamCommand, frozen=True, kw_only=True):
    """Call ``build`` and start the query, after a crashed rescale in the checkpoint is finished or rolled back.

    Answered by QueryStarted or QueryFailed. ``parallelism`` counts only where the checkpoint pins nothing.
    """

    run: int
    parallelism: int


class SetCommitBarrier(StreamCommand, frozen=True, kw_only=True):
    """Sets the commit barrier (``on``): each commit of the query is told with ``at_barrier`` and waits for an answer; or removes it."""

    run: int
    on: bool


class Continue(StreamCommand, frozen=True, kw_only=True):
    """The answer to a query at its commit barrier: let the next batch begin."""

    run: int
    batch: int


class Rescale(StreamCommand, frozen=True, kw_only=True):
    """Stop at the commit barrier, bring the state to ``parallelism`` partitions, start as ``run``.

    Answered by RescaleStepped for each step and then QueryStarted, or by RescaleFailed and then QueryStarted with the
    old number; where the query itself failed before it was stopped, or its batch when it was replayed, by QueryFailed.
    ``replay``: do not wait for the running batch; stop now and replay it. ``within``: wait no longer than so many seconds
    for it, then stop and replay it; None: as long as it takes. ``run``: of the next start.
    """

    rescale: int
    run: int
    parallelism: int
    action: Action
    replay: bool = False
    within: float | None = None


class StopQuery(StreamCommand, frozen=True, kw_only=True):
    """Answered by QueryStopped. ``savepoint``: at the commit barrier, so that the running batch is committed."""

    run: int
    savepoint: bool


class EndStream(StreamCommand, frozen=True, kw_only=True):
    """The last command. ``cause`` is empty unless it failed."""

    failed: bool
    cause: str = ""
