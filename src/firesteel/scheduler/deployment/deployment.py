"""The parts that deploy a job's executions, put together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from firesteel.options import OFFLOAD_THRESHOLD, Options
from firesteel.scheduler.deployment.coordinators import OperatorCoordinatorHandler
from firesteel.scheduler.deployment.deployer import ExecutionDeployer
from firesteel.scheduler.deployment.descriptors import DeploymentDescriptorFactory
from firesteel.scheduler.deployment.gathering import Gathering
from firesteel.scheduler.deployment.offloading import DescriptorOffloading
from firesteel.scheduler.deployment.readiness import Readiness
from firesteel.scheduler.deployment.region_strategy import PipelinedRegionSchedulingStrategy
from firesteel.scheduler.deployment.vertexwise_strategy import VertexwiseSchedulingStrategy
from firesteel.scheduler.kernel.commands import Placement
from firesteel.scheduler.kernel.profiler import Profiler
from firesteel.scheduler.kernel.recorder import Recorder
from firesteel.scheduler.kernel.timers import Timers
from firesteel.scheduler.slots.allocators import ExecutionDeploymentOption, ExecutionSlotAllocator
from firesteel.scheduler.topology.operations import ExecutionOperations

SchedulingStrategyClass = type[VertexwiseSchedulingStrategy] | type[PipelinedRegionSchedulingStrategy]


@dataclass(frozen=True, slots=True, eq=False)
class Deployment:
    """``strategy`` says what may run; ``deployer`` asks for slots and deploys, with ``descriptors``."""

    coordinators: OperatorCoordinatorHandler
    readiness: Readiness
    descriptors: DeploymentDescriptorFactory
    deployer: ExecutionDeployer
    strategy: VertexwiseSchedulingStrategy | PipelinedRegionSchedulingStrategy


def deployment_of(
    operations: ExecutionOperations,
    options: Options,
    recorder: Recorder,
    timers: Timers,
    *,
    strategy: SchedulingStrategyClass,
    allocator: ExecutionSlotAllocator,
    placement: Callable[[ExecutionDeploymentOption], Placement | None],
    profiler: Profiler,
) -> Deployment:
    """``placement``: says where executions should run."""
    graph = operations.graph
    coordinators = OperatorCoordinatorHandler(recorder)
    gathering = Gathering(graph, recorder, timers)
    readiness = Readiness(graph)
    offloading = DescriptorOffloading(options[OFFLOAD_THRESHOLD], recorder)
    descriptors = DeploymentDescriptorFactory(graph, coordinators, offloading)
    deployer = ExecutionDeployer(operations, descriptors, allocator, recorder, placement=placement, profiler=profiler)
    made = strategy(graph, readiness, deployer.allocate_slots_and_deploy, gathering)
    return Deployment(coordinators, readiness, descriptors, deployer, made)
