"""Decides which gate descriptors travel as blobs, and until when the blobs are kept (Flink: the blob server's part in deployment).

A descriptor that is sent to many consumers goes to the job's storage once; deployments then name it, and each executor
fetches it once.
"""

from __future__ import annotations

from firesteel.humanize import format_bytes, plural
from firesteel.model import descriptors
from firesteel.model.job_graph import IntermediateDataSet
from firesteel.scheduler.kernel.commands import DropBlobs, GateDescriptor, StoreBlob
from firesteel.scheduler.kernel.recorder import Recorder


class DescriptorOffloading:
    """``threshold``: encoded bytes times consumers of the group from which on a descriptor becomes a blob."""

    def __init__(self, threshold: int, recorder: Recorder) -> None:
        self._threshold = threshold
        self._recorder = recorder
        self._blobs: dict[int, list[bytes]] = {}
        """Data set to the digests that are stored for it."""

    def offload(self, gate: GateDescriptor, dataset: IntermediateDataSet, consumers: int) -> GateDescriptor:
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
            inputs={
                "dataset": dataset.id,
                "bytes": len(encoded.data),
                "consumers": consumers,
                "threshold": self._threshold,
            },
            rule="descriptor bytes x consumers",
            result=encoded.digest.hex(),
            reason=(
                f"The descriptor of {plural(len(gate.attempts), 'partition')} takes {format_bytes(len(encoded.data))} and "
                f"goes to {plural(consumers, 'consumer')}, so it is stored once and fetched by every executor."
            ),
        )
        return gate.as_offloaded()

    def drop(self, dataset: int) -> None:
        """No deployment refers to the data set's blobs any more."""
        blobs = self._blobs.pop(dataset, None)
        if blobs:
            self._recorder.emit(DropBlobs(tuple(blobs)))

    def drop_all(self) -> None:
        for dataset in list(self._blobs):
            self.drop(dataset)
