"""Releases a result as soon as its last consumer vertex has finished, and not before."""

from __future__ import annotations

import numpy as np

from firesteel.scheduler.commands import ReleasePartitions
from firesteel.scheduler.deployment import DeploymentDescriptorFactory
from firesteel.scheduler.execution_graph import DefaultExecutionGraph, ExecutionJobVertex
from firesteel.scheduler.recorder import Recorder


class PartitionReleaseStrategy:
    def __init__(
        self, graph: DefaultExecutionGraph, descriptors: DeploymentDescriptorFactory, recorder: Recorder
    ) -> None:
        self._graph = graph
        self._descriptors = descriptors
        self._recorder = recorder

    def vertex_finished(self, vertex: ExecutionJobVertex) -> None:
        """All its subtasks have finished: what it consumed, and what nobody consumes, may go."""
        for dataset in {edge.dataset for edge in vertex.job.inputs} | set(vertex.job.outputs):
            consumers = self._graph.consumers[dataset]
            producer = self._graph.vertices[self._graph.job_graph.datasets[dataset].producer]
            if producer.is_finished and all(self._graph.vertices[v].is_finished for v in consumers):
                self._release(dataset)

    def _release(self, dataset: int) -> None:
        result = self._graph.result(dataset)
        if result.dataset.persistent:
            return
        partitions = np.flatnonzero(result.available)
        if not len(partitions):
            return
        result.withdraw(partitions, stored=False)
        self._descriptors.drop(dataset)
        attempts, tokens = result.attempts[partitions], result.tokens[partitions]
        self._recorder.emit(ReleasePartitions(dataset, partitions, attempts, tokens))
        columns = partitions.tolist(), attempts.tolist(), tokens.tolist()
        self._recorder.output_gone(result.dataset.producer, dataset, columns, "released")
        self._recorder.tell(result.dataset.producer, f"released {len(partitions)} partitions of data set {dataset}")
