"""Asks for slots, and deploys what got one (Flink: DefaultExecutionDeployer): one command per vertex, or per set of
vertices that run together."""

from __future__ import annotations

from collections.abc import Callable

from firesteel.scheduler.commands import Deploy, DeployRegions, Placement
from firesteel.scheduler.deployment import DeploymentDescriptorFactory
from firesteel.scheduler.events import Ints
from firesteel.scheduler.numbers import without
from firesteel.scheduler.operations import ExecutionOperations
from firesteel.scheduler.recorder import Recorder
from firesteel.scheduler.slots import (
    DeploymentOption,
    ExecutionDeploymentOption,
    ExecutionSlotAllocator,
    RegionDeploymentOption,
)
from firesteel.scheduler.states import ExecutionState


class ExecutionDeployer:
    def __init__(
        self,
        operations: ExecutionOperations,
        descriptors: DeploymentDescriptorFactory,
        allocator: ExecutionSlotAllocator,
        recorder: Recorder,
        *,
        placement: Callable[[ExecutionDeploymentOption], Placement | None],
        ask_again: Callable[[dict[int, Ints]], None],
    ) -> None:
        """``ask_again`` is given what got no slot, by vertex."""
        self._operations = operations
        self._descriptors = descriptors
        self._allocator = allocator
        self._recorder = recorder
        self._placement = placement
        self._ask_again = ask_again

    def allocate_slots_and_deploy(self, options: list[DeploymentOption]) -> None:
        """What gets no slot stays as it is, and is asked for again with every event."""
        for option in options:
            if isinstance(option, RegionDeploymentOption):
                self._deploy_regions(option)
                continue
            granted = self._allocator.allocate_slots_for(option)
            if len(granted.executions):
                self._recorder.emit(self._deploy(granted, self._placement(granted)))
            self._give_back(option, granted)

    def allocate_slots_and_place(self, option: ExecutionDeploymentOption, placement: Placement) -> None:
        """Deploy those that get a slot now; the others stay in CREATED, for the caller to ask again."""
        granted = self._allocator.allocate_slots_for(option)
        if len(granted.executions):
            self._recorder.emit(self._deploy(granted, placement))

    def _deploy_regions(self, option: RegionDeploymentOption) -> None:
        granted = self._allocator.allocate_slots_for_regions(option)
        if len(granted.parts[0].executions):
            parts = tuple(self._deploy(part, self._placement(part)) for part in granted.parts)
            self._recorder.emit(DeployRegions(parts))
        self._give_back(option.parts[0], granted.parts[0])

    def _deploy(self, granted: ExecutionDeploymentOption, placement: Placement | None) -> Deploy:
        self._operations.move(granted.vertex, granted.executions, ExecutionState.SCHEDULED)
        return self._descriptors.deploy(granted, placement)

    def _give_back(self, option: ExecutionDeploymentOption, granted: ExecutionDeploymentOption) -> None:
        if len(granted.subtasks) < len(option.subtasks):
            self._ask_again({option.vertex: without(option.subtasks, granted.subtasks)})
