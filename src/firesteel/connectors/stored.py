"""Rows that an earlier job of the session has kept on storage (``cache()``), as a source whose sizes are known exactly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from firesteel.connectors.base import Split
from firesteel.errors import PartitionException, UsageError
from firesteel.results.reader import GateReader
from firesteel.results.storage.store import ResultStore, object_name
from firesteel.task.program import TaskContext

THREADS = 16
"""Objects of a remote store whose index is asked for at once."""


@dataclass(frozen=True, slots=True)
class StoredRows:
    """A data set that was kept: one object per producer. ``attempts``, ``tokens``: int64, by producer, name the objects."""

    store: ResultStore
    dataset: int
    num_subpartitions: int
    attempts: NDArray[np.int64]
    tokens: NDArray[np.int64]
    schema: pa.Schema

    def names(self) -> list[str]:
        """The objects, one per producer."""
        pairs = zip(self.attempts.tolist(), self.tokens.tolist(), strict=True)
        return [object_name(self.dataset, p, attempt, token) for p, (attempt, token) in enumerate(pairs)]

    def missing(self) -> int:
        """The number of objects that are missing; one request. Raises StorageError."""
        return len(set(self.names()).difference(self.store.list()))

    def sizes(self) -> list[int]:
        """Plain bytes of each producer's rows, at least 1 where there are any. Raises PartitionException, StorageError."""

        def size(producer: int) -> int:
            reader = self.reader(producer)
            nbytes = int(reader.bytes_per_subpartition()[1].sum())
            return nbytes or int(any(batch.num_rows for batch in reader.read()))  # columns of nothing but nulls

        producers = range(len(self.attempts))
        if self.store.is_local or len(producers) == 1:
            return list(map(size, producers))
        with ThreadPoolExecutor(min(THREADS, len(producers))) as pool:
            return list(pool.map(size, producers))

    def reader(self, producer: int) -> GateReader:
        return reader_of(self, producer, int(self.attempts[producer]), int(self.tokens[producer]))


def reader_of(rows: StoredRows | StoredSource, producer: int, attempt: int, token: int) -> GateReader:
    """Reads what one producer made."""
    rect = np.array([[producer, producer + 1, 0, rows.num_subpartitions]], dtype=np.int32)
    columns = [np.array([value], dtype=np.int64) for value in (attempt, token, producer)]
    return GateReader(
        rows.store, rows.dataset, rows.schema, rows.num_subpartitions, columns[0], columns[1], rect, columns[2]
    )


@dataclass(frozen=True, slots=True)
class StoredSource:
    """One split per producer of the rows; ``splits`` stay on the driver."""

    name: str
    schema: pa.Schema
    store: ResultStore
    dataset: int
    num_subpartitions: int
    splits: tuple[Split, ...] = field(repr=False)
    supports_concurrent_execution_attempts: bool = True

    @classmethod
    def of(cls, rows: StoredRows, name: str, sizes: Sequence[int]) -> StoredSource:
        columns = zip(rows.attempts.tolist(), rows.tokens.tolist(), sizes, strict=True)
        splits = tuple(
            Split((producer, attempt, token), size, f"part {producer} of the cached rows of {name}")
            for producer, (attempt, token, size) in enumerate(columns)
            if size
        )
        return cls(name, rows.schema, rows.store, rows.dataset, rows.num_subpartitions, splits)

    def __reduce__(self) -> tuple[object, ...]:
        return StoredSource, (self.name, self.schema, self.store, self.dataset, self.num_subpartitions, ())

    def list_splits(self, data_volume: int) -> Sequence[Split]:
        return self.splits

    def read(self, split: tuple[int, int, int], ctx: TaskContext) -> Iterator[pa.RecordBatch]:
        try:
            yield from reader_of(self, *split).read()
        except PartitionException as error:  # of another job: nobody in this one can make it again
            raise UsageError(
                f"The cached rows of {self.name} cannot be read any more: {error.message}",
                hint="Run it again: they are computed anew.",
            ) from error
