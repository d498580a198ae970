"""The size of a blocking result (FLIP-187: BlockingResultInfo, numBytesProduced).

Plain bytes per subpartition are folded into one sum as reports arrive, and that is all a decision needs. The rows
themselves go to the driver's scratch files (``size_rows``) until every consumer is decided: a restart before that must
take its share back, and pointwise and rebalanced inputs are cut over single (producer, subpartition) cells. Flink keeps
the whole matrix in memory instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from firesteel.model.arrays import Ints, unwritten, writable
from firesteel.model.heavy_keys import HeavyKey, HeavyKeys, decode_heavy_keys
from firesteel.model.job_graph import IntermediateDataSet, ShipStrategy
from firesteel.model.sizes import counts_of, fold, unfold, unpack
from firesteel.model.sketches import Boundaries, decode_sketch
from firesteel.scheduler.exchange.key_ranges import KeyRanges, bytes_in, decide_ranges
from firesteel.scheduler.exchange.size_rows import BUFFER_BYTES, SizeRows
from firesteel.scheduler.kernel.commands import Command
from firesteel.scheduler.kernel.events import PartitionReports, SizesLoaded


def _ignore(_command: Command) -> None:
    pass


class BlockingResultInfo:
    """Sizes of one result, by producer and by subpartition. Partition ``p`` is what producing subtask ``p`` wrote.

    Consumers read subpartition ranges of all producers, for which the folded sums are all that a decision needs; subclasses: else.
    """

    needs_cells = False
    """True: consumers are cut over single cells, so the decider is given the matrix."""
    boundaries: tuple[bytes, ...] | None = None
    """Of a RANGE result: the keys at which its ranges begin, but for the first; None before they are decided."""

    def __init__(
        self,
        dataset: IntermediateDataSet,
        num_partitions: int,
        num_subpartitions: int,
        emit: Callable[[Command], None] = _ignore,
        buffer_bytes: int = BUFFER_BYTES,
    ) -> None:
        """``emit`` is given commands about rows; ``buffer_bytes``: of rows kept in memory before they are stored."""
        self.dataset = dataset.id
        self.is_broadcast = dataset.ship is ShipStrategy.BROADCAST
        self.num_partitions = num_partitions
        self.num_subpartitions = num_subpartitions
        self.partition_bytes = unwritten(num_partitions)
        self.partition_rows = unwritten(num_partitions)
        self.partition_stored = unwritten(num_partitions)
        self.subpartition_bytes = unwritten(num_subpartitions)
        self.recorded = np.zeros(num_partitions, np.bool_)
        self._unmeasured = np.zeros(num_partitions, np.bool_)
        """Recorded without sizes by subpartition."""
        self._rows: SizeRows | None = SizeRows(dataset.id, num_partitions, self._is_whole, emit, buffer_bytes)
        """None once every consumer is decided."""
        self.is_exact = True
        """False: a row could not be read back, so that its share of the sums was guessed."""
        self._heavy_keys = HeavyKeys()
        self._void_bytes = 0
        """Plain bytes of executions that were erased: their heavy keys are still among those of all."""

    @property
    def awaits_ranges(self) -> bool:
        """Returns whether the ranges that its consumers are cut over are still to be decided."""
        return False

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
        """Driver memory that the packed rows take."""
        return 0 if self._rows is None else self._rows.bytes_in_memory

    @property
    def is_measured(self) -> bool:
        """All that was recorded came with sizes by subpartition."""
        return not self._unmeasured.any()

    @property
    def is_settled(self) -> bool:
        """The sums hold what is recorded and nothing else: no row of an execution that is void is on its way."""
        return self._rows is None or not self._rows.num_owed

    @property
    def num_awaited(self) -> int:
        """Rows that are being read back."""
        return 0 if self._rows is None else self._rows.num_owed + self._rows.num_wanted

    def record(self, partitions: Ints, attempts: Ints, reports: PartitionReports) -> None:
        """Take in what these (distinct) producers wrote; an entry that was there already is replaced.

        Rows of sizes have one size per subpartition: the scheduler has checked that.
        """
        self.erase(partitions[self.recorded[partitions]])
        self._begin()
        self.partition_bytes[partitions] = reports.bytes
        if reports.rows.any():  # zeros that nobody writes take no memory
            self.partition_rows[partitions] = reports.rows
        self.partition_stored[partitions] = reports.stored_bytes
        self.recorded[partitions] = True
        self._note_heavy_keys(reports)
        if self._rows is None:
            return
        rows = self._told(reports)
        if rows is None:
            self._unmeasured[partitions] = True
        else:
            self.subpartition_bytes = writable(self.subpartition_bytes)
            self._fold(rows)
            self._rows.keep(partitions, attempts, rows)

    def record_one(self, partition: int, attempt: int, reports: PartitionReports) -> None:
        """:meth:`record` of one producer."""
        keeps = self._rows is not None and self._told(reports) is not None
        if keeps or self.recorded[partition]:
            self.record(np.array([partition]), np.array([attempt]), reports)
            return
        self._begin()
        self.partition_bytes[partition] = reports.bytes.item()
        self.partition_rows[partition] = reports.rows.item()
        self.partition_stored[partition] = reports.stored_bytes.item()
        self.recorded[partition] = True
        self._note_heavy_keys(reports)
        self._unmeasured[partition] = self._rows is not None

    def erase(self, partitions: Ints) -> None:
        """Forget what these producers reported: they are being restarted.

        The share of a row that is in the scratch files is taken from the sums when the row has come back.
        """
        partitions = partitions[self.recorded[partitions]]
        if not len(partitions):
            return
        self.recorded[partitions] = False
        if self._rows is not None:
            if self.recorded.any():
                self._give_up(self._rows, partitions)
            else:
                self._rows.forget_all()
                self.subpartition_bytes = unwritten(self.num_subpartitions)
            self._unmeasured[partitions] = False
        self._void_bytes += int(self.partition_bytes[partitions].sum())
        for column in (self.partition_bytes, self.partition_rows, self.partition_stored):
            column[partitions] = 0

    def forget_rows(self) -> None:
        """Every consumer is decided. From here on the sums stay as they are, whatever is restarted."""
        if self._rows is not None:
            self._rows.drop()
            self._rows = None

    def misreported(self, reports: PartitionReports) -> tuple[int, str] | None:
        """The first of these reports that does not speak of what was to be written (its place), and what it tells."""
        if reports.sizes is None:
            return None
        counts = counts_of(reports.sizes)
        place = int(np.argmax(counts != self.num_subpartitions))
        return None if counts[place] == self.num_subpartitions else (place, f"{counts[place]} sizes")

    def heavy_keys(self) -> list[tuple[HeavyKey, float]]:
        """Returns the heavy keys and the share of all plain bytes that each has, the heaviest first.

        Executions that were erased count as those that did the same again: with what they wrote, among all that was written.
        """
        total = self.num_bytes_produced + self._void_bytes
        filled = int(np.count_nonzero(self.subpartition_bytes)) or self.num_subpartitions
        return [(key, key.weight / total) for key in self._heavy_keys.heavy(total, filled)]

    def fetch_cells(self) -> bool:
        """Returns whether :meth:`cells` can be given now; rows that are in the scratch files are asked for."""
        return self._rows is not None and self._rows.fetch()

    def cells(self) -> Ints:
        """Plain bytes as a (num_partitions, num_subpartitions) int64 matrix, after :meth:`fetch_cells`.

        Pointwise and rebalanced results have few subpartitions per producer (``subpartitions``), so that it is small.
        """
        assert self._rows is not None
        matrix = np.zeros((self.num_partitions, self.num_subpartitions), np.int64)
        partitions, rows = self._rows.rows()
        for partition, row in zip(partitions.tolist(), rows, strict=True):
            matrix[partition] = unpack(row)
        left = self.recorded.copy()
        left[partitions] = False
        for partition in np.flatnonzero(left).tolist():
            matrix[partition] = self._shaped_like_sum(int(self.partition_bytes[partition]))
        return matrix

    def loaded(self, event: SizesLoaded) -> int:
        """Rows that came back from the scratch files; those nobody waits for change nothing.

        One that could not be read is taken to be shaped like the sum. Returns how many of these there were.
        """
        if self._rows is None:
            return 0
        answer = self._rows.loaded(event)
        self._take([row for _, row in answer.owed if row is not None], [w for w, row in answer.owed if row is None])
        self.is_exact = self.is_exact and not answer.num_unreadable
        return answer.num_unreadable

    def _is_whole(self, row: bytes) -> bool:
        """Returns whether a row that came back from the scratch files can be used."""
        return int(counts_of([row])[0]) == self.num_subpartitions

    def _told(self, reports: PartitionReports) -> Sequence[bytes] | None:
        """Returns the sizes that each of these producers reported, packed; None if they were not measured."""
        return reports.sizes

    def _fold(self, rows: Sequence[bytes]) -> None:
        """Add what was told to the sums."""
        fold(rows, self.subpartition_bytes)

    def _unfold(self, rows: Sequence[bytes]) -> None:
        unfold(rows, self.subpartition_bytes)

    def _give_up(self, rows: SizeRows, partitions: Ints) -> None:
        """Some of those that are recorded are void."""
        self._take(*rows.give_up(partitions, self.partition_bytes[partitions]))

    def _begin(self) -> None:
        if not self.partition_bytes.flags.writeable:
            self.partition_bytes = writable(self.partition_bytes)
            self.partition_rows = writable(self.partition_rows)
            self.partition_stored = writable(self.partition_stored)

    def _note_heavy_keys(self, reports: PartitionReports) -> None:
        if reports.heavy_keys is None:
            return
        for report in filter(None, reports.heavy_keys):
            with suppress(ValueError):  # a name is not worth a job
                self._heavy_keys.add(decode_heavy_keys(report))

    def _take(self, rows: list[bytes], unreadable: list[int]) -> None:
        """Take shares from the sums; of executions whose row could not be read, the plain bytes they wrote are given."""
        if not rows and not unreadable:
            return
        self._unfold(rows)
        for written in unreadable:
            self.subpartition_bytes -= self._shaped_like_sum(written)
        np.maximum(self.subpartition_bytes, 0, out=self.subpartition_bytes)  # after a guess they may fall short

    def _shaped_like_sum(self, total: int) -> NDArray[np.int64]:
        whole = int(self.subpartition_bytes.sum())
        if whole == 0:
            return np.zeros(self.num_subpartitions, np.int64)
        edges = np.round(np.cumsum(self.subpartition_bytes) * (total / whole)).astype(np.int64)
        return np.diff(edges, prepend=0)


class PointwiseBlockingResultInfo(BlockingResultInfo):
    """Consumers read runs of (producer, subpartition) cells: pointwise and rebalanced results."""

    needs_cells = True


class RangeBlockingResultInfo(BlockingResultInfo):
    """Consumers read ranges of the key. Producers told sketches; the sums are of the ranges, once those are decided.

    Until then there is nothing to fold: the sketches wait as rows of sizes do, in memory or in the scratch files. They
    are all in memory only while the ranges are decided, within ``sketches.budget``, whatever the number of ranges.
    """

    @property
    def awaits_ranges(self) -> bool:
        return self.boundaries is None

    def decide_ranges(self, file_volume: int | None = None) -> KeyRanges:
        """Decide the ranges, once all rows are in memory (:meth:`fetch_cells`). They stay as they are from then on. ``file_volume``: as
        ``key_ranges.decide_ranges`` takes it."""
        assert self._rows is not None and self.boundaries is None
        partitions, rows = self._rows.rows()
        ranges = decide_ranges(rows, self.num_subpartitions, file_volume)
        self.boundaries = ranges.boundaries.keys
        self.subpartition_bytes = ranges.sizes.copy()
        unreadable = self.recorded.copy()
        unreadable[partitions] = False
        for written in self.partition_bytes[unreadable].tolist():
            self.subpartition_bytes += self._shaped_like_sum(written)
        self._rows.unload()
        return ranges

    def misreported(self, reports: PartitionReports) -> tuple[int, str] | None:
        if reports.sketches is None:
            return 0, "no sketch"
        wrong = next((place for place, row in enumerate(reports.sketches) if not self._is_whole(row)), None)
        return None if wrong is None else (wrong, "no sketch that can be read")

    def _is_whole(self, row: bytes) -> bool:
        try:
            decode_sketch(row)
        except ValueError:
            return False
        return True

    def _told(self, reports: PartitionReports) -> Sequence[bytes] | None:
        return reports.sketches

    def _fold(self, rows: Sequence[bytes]) -> None:
        if self.boundaries is not None:
            self.subpartition_bytes += self._bytes_of(rows)

    def _unfold(self, rows: Sequence[bytes]) -> None:
        self.subpartition_bytes -= self._bytes_of(rows)

    def _give_up(self, rows: SizeRows, partitions: Ints) -> None:
        if self.boundaries is None:
            rows.forget(partitions)
        else:
            super()._give_up(rows, partitions)

    def _bytes_of(self, rows: Sequence[bytes]) -> Ints:
        assert self.boundaries is not None
        return bytes_in([decode_sketch(row) for row in rows], Boundaries(self.boundaries), self.num_subpartitions)


def blocking_result_info(
    dataset: IntermediateDataSet,
    num_partitions: int,
    num_subpartitions: int,
    emit: Callable[[Command], None] = _ignore,
    buffer_bytes: int = BUFFER_BYTES,
) -> BlockingResultInfo:
    kind = _KINDS.get(dataset.ship, BlockingResultInfo)
    return kind(dataset, num_partitions, num_subpartitions, emit, buffer_bytes)


_KINDS: dict[ShipStrategy, type[BlockingResultInfo]] = {
    ShipStrategy.RESCALE: PointwiseBlockingResultInfo,
    ShipStrategy.REBALANCE: PointwiseBlockingResultInfo,
    ShipStrategy.RANGE: RangeBlockingResultInfo,
}
