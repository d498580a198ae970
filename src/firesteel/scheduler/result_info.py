"""What finished executions said about the size of a blocking result (FLIP-187: BlockingResultInfo, numBytesProduced).

Plain bytes per subpartition are folded into one sum as reports arrive. The rows themselves are kept, in the smallest
integers that hold them, only until every consumer is decided: a restart before that must take its share back, and
pointwise and rebalanced inputs are cut over single (producer, subpartition) cells.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from firesteel.graph.job_graph import IntermediateDataSet, ShipStrategy
from firesteel.scheduler.events import Ints, PartitionReports
from firesteel.sizes import unpack

MAX_ROW_BYTES = 64 << 20
"""Rows of one result kept on the driver. Beyond it a producer's row is taken to be shaped like the sum."""
_CHUNK = 256
_WIDTHS = tuple((np.dtype(kind), int(np.iinfo(kind).max)) for kind in (np.uint8, np.uint16, np.uint32, np.int64))


class BlockingResultInfo:
    """Sizes of one result, by producer and by subpartition. Partition ``p`` is what producing subtask ``p`` wrote."""

    needs_cells = False
    """True: consumers are cut over single cells, so the decider is given the matrix."""

    def __init__(self, dataset: IntermediateDataSet, num_partitions: int, num_subpartitions: int) -> None:
        self.dataset = dataset.id
        self.is_broadcast = dataset.ship is ShipStrategy.BROADCAST
        self.num_partitions = num_partitions
        self.num_subpartitions = num_subpartitions
        self.partition_bytes = np.zeros(num_partitions, np.int64)
        self.partition_rows = np.zeros(num_partitions, np.int64)
        self.partition_stored = np.zeros(num_partitions, np.int64)
        self.subpartition_bytes = np.zeros(num_subpartitions, np.int64)
        self.recorded = np.zeros(num_partitions, np.bool_)
        self._rows: dict[int, NDArray[np.integer]] | None = {}
        self._row_bytes = 0

    def get_blocking_partition_sizes(self) -> Ints:
        """Plain bytes each producer wrote, int64 (numBytesProduced); a broadcast counts once, however many read it."""
        return self.partition_bytes

    @property
    def num_bytes_produced(self) -> int:
        return int(self.partition_bytes.sum())

    @property
    def rows(self) -> int:
        return int(self.partition_rows.sum())

    @property
    def stored_bytes(self) -> int:
        return int(self.partition_stored.sum())

    @property
    def kept_row_bytes(self) -> int:
        """Driver memory that the kept rows take."""
        return self._row_bytes

    def record(self, partitions: Ints, reports: PartitionReports) -> None:
        """Take in what these (distinct) producers wrote; an entry that was there already is replaced.

        Rows of sizes have one size per subpartition: the scheduler has checked that.
        """
        self.erase(partitions[self.recorded[partitions]])
        self.partition_bytes[partitions] = reports.bytes
        self.partition_rows[partitions] = reports.rows
        self.partition_stored[partitions] = reports.stored_bytes
        if self._rows is not None and reports.sizes is not None:
            for start in range(0, len(partitions), _CHUNK):
                chunk = slice(start, start + _CHUNK)
                matrix = np.stack([unpack(row) for row in reports.sizes[chunk]])
                self.subpartition_bytes += matrix.sum(axis=0)
                self._keep(partitions[chunk], matrix)
        self.recorded[partitions] = True

    def record_one(self, partition: int, reports: PartitionReports) -> None:
        """:meth:`record` of one producer."""
        if reports.sizes is not None or self.recorded[partition]:
            self.record(np.array([partition]), reports)
            return
        self.partition_bytes[partition] = reports.bytes.item()
        self.partition_rows[partition] = reports.rows.item()
        self.partition_stored[partition] = reports.stored_bytes.item()
        self.recorded[partition] = True

    def erase(self, partitions: Ints) -> None:
        """Forget what these producers reported: they are being restarted."""
        for partition in partitions[self.recorded[partitions]].tolist():
            if self._rows is not None:
                self.subpartition_bytes -= np.minimum(self._row(partition), self.subpartition_bytes)
                kept = self._rows.pop(partition, None)
                self._row_bytes -= 0 if kept is None else kept.nbytes
            self.partition_bytes[partition] = self.partition_rows[partition] = self.partition_stored[partition] = 0
        self.recorded[partitions] = False

    def forget_rows(self) -> None:
        """Every consumer is decided. From here on the sums stay as they are, whatever is restarted."""
        self._rows = None
        self._row_bytes = 0

    def cells(self) -> Ints:
        """Plain bytes as a (num_partitions, num_subpartitions) int64 matrix. Only before :meth:`forget_rows`."""
        matrix = np.zeros((self.num_partitions, self.num_subpartitions), np.int64)
        for partition in np.flatnonzero(self.recorded).tolist():
            matrix[partition] = self._row(partition)
        return matrix

    def _keep(self, partitions: Ints, matrix: Ints) -> None:
        assert self._rows is not None
        largest = int(matrix.max(initial=0))
        width = next(kind for kind, most in _WIDTHS if largest <= most)
        room = (MAX_ROW_BYTES - self._row_bytes) // max(1, self.num_subpartitions * width.itemsize)
        small = matrix[: max(0, room)].astype(width)
        self._row_bytes += small.nbytes
        self._rows.update(zip(partitions[: len(small)].tolist(), small, strict=True))

    def _row(self, partition: int) -> NDArray[np.int64]:
        assert self._rows is not None
        row = self._rows.get(partition)
        if row is not None:
            return row.astype(np.int64)
        return self._shaped_like_sum(int(self.partition_bytes[partition]))

    def _shaped_like_sum(self, total: int) -> NDArray[np.int64]:
        whole = int(self.subpartition_bytes.sum())
        if whole == 0:
            return np.zeros(self.num_subpartitions, np.int64)
        edges = np.round(np.cumsum(self.subpartition_bytes) * (total / whole)).astype(np.int64)
        return np.diff(edges, prepend=0)


class AllToAllBlockingResultInfo(BlockingResultInfo):
    """Consumers read subpartition ranges of all producers: the folded sums are all a decision needs."""


class PointwiseBlockingResultInfo(BlockingResultInfo):
    """Consumers read runs of (producer, subpartition) cells: pointwise and rebalanced results."""

    needs_cells = True


def blocking_result_info(
    dataset: IntermediateDataSet, num_partitions: int, num_subpartitions: int
) -> BlockingResultInfo:
    by_cells = dataset.ship in (ShipStrategy.RESCALE, ShipStrategy.REBALANCE)
    kind = PointwiseBlockingResultInfo if by_cells else AllToAllBlockingResultInfo
    return kind(dataset, num_partitions, num_subpartitions)
