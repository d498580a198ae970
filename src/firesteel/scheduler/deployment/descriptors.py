"""Turns executions that have a slot into Deploy commands. What is common to a consumed group is built once."""

from __future__ import annotations

import numpy as np

from firesteel.model.arrays import Ints, compact
from firesteel.scheduler.deployment.coordinators import OperatorCoordinatorHandler
from firesteel.scheduler.deployment.offloading import DescriptorOffloading
from firesteel.scheduler.kernel.commands import Deploy, GateDescriptor, Placement
from firesteel.scheduler.slots.allocators import ExecutionDeploymentOption
from firesteel.scheduler.topology.execution_graph import DefaultExecutionGraph, IntermediateResult
from firesteel.scheduler.topology.groups import EdgeGroups

_NONE: Ints = np.empty(0, np.int64)
_NONE.flags.writeable = False


class DeploymentDescriptorFactory:
    """Descriptors of consumed groups are cached until a partition of theirs is added, restarted or released.

    A cached one is encoded once, when it is first shipped or its size matters. One that is sent to many consumers
    becomes a blob (``offloading``).
    """

    def __init__(
        self,
        graph: DefaultExecutionGraph,
        coordinators: OperatorCoordinatorHandler,
        offloading: DescriptorOffloading,
    ) -> None:
        self._graph = graph
        self._coordinators = coordinators
        self._offloading = offloading
        self._gates: dict[int, tuple[int, GateDescriptor]] = {}

    def deploy(self, option: ExecutionDeploymentOption, placement: Placement | None = None) -> Deploy:
        vertex = self._graph.vertices[option.vertex]
        if vertex.ranges is None:
            raise ValueError(f"Vertex {vertex.id} '{vertex.job.name}' is deployed before its input was cut.")
        return Deploy(
            vertex=vertex.id,
            parallelism=vertex.parallelism,
            subtasks=option.subtasks,
            attempts=compact(self._graph.executions.attempt[option.executions].astype(np.int64)),
            gates=tuple(self._gate_of(edge, option.subtasks) for edge in vertex.inputs),
            ranges=tuple(ranges.select(option.subtasks) for ranges in vertex.ranges),
            subpartitions={result.dataset.id: result.num_subpartitions for result in self._graph.outputs(vertex)},
            splits=self._coordinators.splits_of(vertex.id, option.subtasks),
            input_bytes=None if vertex.input_bytes is None else vertex.input_bytes[option.subtasks],
            placement=placement,
            slots=option.slots,
        )

    def _gate_of(self, edge: EdgeGroups, subtasks: Ints) -> GateDescriptor:
        """Of a pointwise edge only what these consumers read; of others the one descriptor that all share.

        The first kind serves one deployment, hence travels in it; what is shared may become a blob.
        """
        result = self._graph.result(edge.dataset)
        if result.is_pipelined:
            broadcast = result.info.is_broadcast
            return GateDescriptor(result.dataset.id, result.num_subpartitions, _NONE, _NONE, broadcast, pipelined=True)
        groups = edge.groups_of_consumers(subtasks)
        if edge.inside:  # deployed before its partitions are there: what they find changes with each of them
            return self.gate(result)
        if len(groups) == len(edge):
            gate = self._offloading.offload(self.gate(result), result.dataset, edge.num_consumers)
            self._gates[result.dataset.id] = (result.version, gate)
            return gate
        partitions = edge.partitions(groups)
        return GateDescriptor(
            result.dataset.id,
            result.num_subpartitions,
            result.attempts[partitions],
            result.tokens[partitions],
            result.info.is_broadcast,
            partitions,
        )

    def gate(self, result: IntermediateResult) -> GateDescriptor:
        """Returns the place of each partition, -1 for one that is not available, and the merged objects."""
        cached = self._gates.get(result.dataset.id)
        if cached is not None and cached[0] == result.version:
            return cached[1]
        gate = GateDescriptor(
            result.dataset.id,
            result.num_subpartitions,
            *result.names(),
            result.info.is_broadcast,
            merged=result.merged,
            boundaries=result.info.boundaries,
        )
        self._gates[result.dataset.id] = (result.version, gate)
        return gate

    def drop(self, dataset: int) -> None:
        """The data set is released: its descriptor, and the blob if there is one, may go."""
        self._gates.pop(dataset, None)
        self._offloading.drop(dataset)

    def drop_all(self) -> None:
        """The job ends."""
        self._gates.clear()
        self._offloading.drop_all()
