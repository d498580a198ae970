"""Buckets as Spark has them: rows parted among files by Spark's hash of some columns, and the files' names that say so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from firesteel.connectors.files.spark_hash import bucket_numbers
from firesteel.task.program import Batches, TaskContext

NOTE = b"firesteel.buckets"
"""The key under which a Parquet file says how the rows of its folder are bucketed."""


@dataclass(frozen=True, slots=True)
class Buckets:
    """``count`` buckets by ``columns``. ``number``: the column that says in which a row lies; it is not written."""

    count: int
    columns: tuple[str, ...]
    sort_by: tuple[str, ...]
    number: str

    @property
    def words(self) -> str:
        return f"{self.count} by {', '.join(self.columns)}"


@dataclass(frozen=True, slots=True)
class BucketNumbers:
    """Adds the number of the bucket to each row, as the last column of ``schema``."""

    name: str
    columns: tuple[str, ...]
    count: int
    schema: pa.Schema
    unitwise: ClassVar[bool] = True

    def apply(self, batches: Batches, ctx: TaskContext) -> Batches:
        for batch in batches:
            numbers = bucket_numbers([batch.column(name) for name in self.columns], batch.num_rows, self.count)
            yield pa.RecordBatch.from_arrays([*batch.columns, pa.array(numbers)], schema=self.schema)
