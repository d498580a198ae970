"""Policies: what follows from what happens to a job. Each is one small class that overrides a few hooks; ``scheduler.policies`` lists them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Concatenate, ParamSpec, TypeVar

from firesteel.model.arrays import Ints

if TYPE_CHECKING:
    from firesteel.scheduler.kernel.commands import Placement
    from firesteel.scheduler.kernel.events import Event, ExecutionsDeploying, ExecutorChanged
    from firesteel.scheduler.kernel.waits import Wait
    from firesteel.scheduler.slots.allocators import ExecutionDeploymentOption
    from firesteel.scheduler.topology.execution_graph import ExecutionJobVertex, IntermediateResult
    from firesteel.scheduler.topology.executions import Rows

P = ParamSpec("P")
T = TypeVar("T")


class Policy:
    """Nothing follows. Rows are distinct, and of one vertex, as are subtasks."""

    answers: ClassVar[Mapping[type[Event], str]] = {}
    """Events that are addressed to this policy alone, and the method for each. One that returns True has made nothing possible that was not
    before, so that nothing is to be decided or deployed."""

    def started(self) -> None:
        """The job runs."""

    def initialized(self, vertices: Sequence[int]) -> None:
        """These vertices have executions, results, groups and regions now."""

    def launched(self, vertex: ExecutionJobVertex, rows: Rows, places: Ints, event: ExecutionsDeploying) -> None:
        """Spark launched these, which stand at ``places`` in the event, on nodes that the table knows if anybody does."""

    def finished(self, vertex: ExecutionJobVertex, subtasks: Ints, rows: Rows) -> None:
        """The results of these were admitted."""

    def ended(self, rows: Rows) -> None:
        """These are over, or will not run."""

    def rejected(self, vertex: ExecutionJobVertex, rows: Rows, nodes: Sequence[str]) -> None:
        """Blocked nodes rejected these; they are CANCELED now."""

    def replaced(self, vertex: ExecutionJobVertex, rows: Rows, cause: str) -> bool:
        """Executions ended without having begun, through no fault of theirs. Returns whether others were made in their places."""
        return False

    def withdrawn(self, result: IntermediateResult, partitions: Ints) -> None:
        """These partitions cannot be read any more: released, lost, or made again."""

    def restarting(self, tasks: Mapping[int, Ints]) -> None:
        """These subtasks, whole regions, are about to be reset: some of them had finished."""

    def executors_changed(self, changes: Sequence[ExecutorChanged]) -> None:
        """Executors came and went."""

    def placement(self, option: ExecutionDeploymentOption) -> Placement | None:
        """Where executions should run that open a round, and are deployed now."""

    def ask(self) -> None:
        """Asks for slots for all that could run, and deploys what gets one. Called in rounds, until nothing more is free."""

    def act(self) -> None:
        """After an event that may have made something possible, in the order of the list."""

    def event_handled(self) -> None:
        """All that an event has led to was done."""

    def job_ends(self) -> None:
        """Called just before the command that tells of the job's end."""

    def waiting_for(self) -> list[Wait]:
        """What the job waits for."""
        return []

    def validate(self) -> None:
        """Raises AssertionError where an invariant is broken. Slow: for tests."""


class Hooks:
    """The methods that policies override, each list in the order of the policies: what nobody overrides costs an empty loop."""

    def __init__(self, policies: Sequence[Policy] = ()) -> None:
        self.started = _overridden(policies, Policy.started)
        self.initialized = _overridden(policies, Policy.initialized)
        self.launched = _overridden(policies, Policy.launched)
        self.finished = _overridden(policies, Policy.finished)
        self.ended = _overridden(policies, Policy.ended)
        self.rejected = _overridden(policies, Policy.rejected)
        self.replaced = _overridden(policies, Policy.replaced)
        self.withdrawn = _overridden(policies, Policy.withdrawn)
        self.restarting = _overridden(policies, Policy.restarting)
        self.executors_changed = _overridden(policies, Policy.executors_changed)
        self.placement = _overridden(policies, Policy.placement)
        self.ask = _overridden(policies, Policy.ask)
        self.act = _overridden(policies, Policy.act)
        self.event_handled = _overridden(policies, Policy.event_handled)
        self.job_ends = _overridden(policies, Policy.job_ends)
        self.waiting_for = _overridden(policies, Policy.waiting_for)
        self.validate = _overridden(policies, Policy.validate)


def _overridden(policies: Sequence[Policy], hook: Callable[Concatenate[Policy, P], T]) -> list[Callable[P, T]]:
    name = hook.__name__
    return [getattr(policy, name) for policy in policies if getattr(type(policy), name) is not hook]
