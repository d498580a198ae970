"""Turns executions that have a slot into Deploy commands. What is common to a consumed group is built once.

A descriptor that is sent to many consumers goes to the job's storage once, as a blob (Flink: the blob server's part in deployment);
deployments then name it, and each executor fetches it once.
"""

from __future__ import annotations

import numpy as np

from firesteel.model import descriptors
from firesteel.model.arrays import Ints, compact
from firesteel.model.job_graph import IntermediateDataSet
from firesteel.scheduler.kernel.commands import Deploy, DropBlobs, GateDescriptor, Placement, StoreBlob
from firesteel.scheduler.kernel.decisions import Offload
from firesteel.scheduler.kernel.recorder import Recorder
from firesteel.scheduler.slots.allocators import ExecutionDeploymentOption
from firesteel.scheduler.topology.execution_graph import DefaultExecutionGraph, IntermediateResult
from firesteel.scheduler.topology.groups import EdgeGroups

_NONE: Ints = np.empty(0, np.int64)
_NONE.flags.writeable = False


class DeploymentDescriptorFactory:
    """Descriptors of consumed groups are cached until a partition of theirs is added, restarted or released.

    A cached one is encoded once, when it is first shipped or its size matters.
    """

    def __init__(self, graph: DefaultExecutionGraph, threshold: int, recorder: Recorder) -> None:
        """``threshold``: encoded bytes times consumers of the group from which on a descriptor becomes a blob."""
        self._graph = graph
        self._threshold = threshold
        self._recorder = recorder
        self._gates: dict[int, tuple[int, GateDescriptor]] = {}
        self._blobs: dict[int, list[bytes]] = {}
        """Data set to the digests that are stored for it."""

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
            splits=None if vertex.splits is None else vertex.splits.select(option.subtasks),
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
            gate = self._offload(self.gate(result), result.dataset, edge.num_consumers)
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
        blobs = self._blobs.pop(dataset, None)
        if blobs:
            self._recorder.emit(DropBlobs(tuple(blobs)))

    def drop_all(self) -> None:
        """The job ends."""
        self._gates.clear()
        for dataset in list(self._blobs):
            self.drop(dataset)

    def _offload(self, gate: GateDescriptor, dataset: IntermediateDataSet, consumers: int) -> GateDescriptor:
        """The same gate, marked as offloaded if it is now; its blob is stored before the deployment that needs it."""
        if gate.offloaded or descriptors.most_bytes(gate.columns) * consumers < self._threshold:
            return gate
        encoded = gate.encoded
        if len(encoded.data) * consumers < self._threshold:
            return gate
        if encoded.digest not in self._blobs.get(dataset.id, ()):
            # Older ones stay: other groups of a pointwise edge, or readers that never missed a merged object, need them.
            self._blobs.setdefault(dataset.id, []).append(encoded.digest)
            self._recorder.emit(StoreBlob(encoded.digest, encoded.data))
        self._recorder.decision(
            "offload",
            vertex=dataset.producer,
            inputs=Offload(
                dataset=dataset.id,
                partitions=len(gate.attempts),
                bytes=len(encoded.data),
                consumers=consumers,
                threshold=self._threshold,
            ),
            rule="descriptor bytes x consumers",
            result=encoded.digest.hex(),
        )
        return gate.as_offloaded()
