"""Spark DataFrames as sources of ours, and results of ours as Spark DataFrames."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from firesteel.errors import UsageError
from firesteel.results.reader import GateReader
from firesteel.results.store import ResultStore
from firesteel.scheduler.commands import GateDescriptor


@dataclass(frozen=True)
class DataFrameSource:
    """A DataFrame whose partitions are counted and stay. ``num_partitions`` subtasks read it, one partition each.

    ``dataframe`` has the same rows as the one given, without its exchanges: Spark has run those already (or runs them
    once, however often a partition is read), so its partitions are the same in every attempt.
    """

    dataframe: Any
    schema: pa.Schema
    num_partitions: int


def dataframe_source(dataframe: Any) -> DataFrameSource:
    """Plans the DataFrame and counts its partitions; with adaptive execution on, Spark runs its exchanges here.

    The steps after the last exchange run inside our own tasks. Raises UsageError for Spark Connect, streaming
    DataFrames, and columns that have no Arrow type.
    """
    from pyspark.sql import DataFrame
    from pyspark.sql.pandas.types import to_arrow_schema

    if not isinstance(dataframe, DataFrame) or type(dataframe).__module__.startswith("pyspark.sql.connect"):
        raise UsageError(f"from_dataframe needs a classic Spark DataFrame, not {type(dataframe).__module__}.")
    if dataframe.isStreaming:
        raise UsageError("from_dataframe takes a batch DataFrame; this one is streaming.")
    session = dataframe.sparkSession
    try:
        zone = str(session.conf.get("spark.sql.session.timeZone"))
        schema = to_arrow_schema(dataframe.schema, timezone=zone)
    except Exception as error:
        raise UsageError(f"This DataFrame has a column that Arrow cannot carry: {error}") from error
    settled = _settled(dataframe, session)
    partitions = int(settled._jdf.queryExecution().toRdd().getNumPartitions())
    if partitions == 0:  # Spark knows that it is empty; a vertex has at least one subtask
        nothing = session.sparkContext.parallelize([], 1)
        return DataFrameSource(session.createDataFrame(nothing, dataframe.schema), schema, 1)
    return DataFrameSource(settled, schema, partitions)


def _settled(dataframe: Any, session: Any) -> Any:
    """The DataFrame over the RDD of its own physical plan (what ``localCheckpoint`` does, without writing anything)."""
    from pyspark.errors import PySparkException
    from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

    try:
        rows = dataframe._jdf.queryExecution().toRdd()
        settled = session._jsparkSession.internalCreateDataFrame(rows, dataframe._jdf.schema(), False)
    except PySparkException as error:
        raise UsageError(f"Spark cannot run this DataFrame: {str(error).strip().splitlines()[0]}") from error
    return ClassicDataFrame(settled, session)


class RangeReader:
    """Reads the whole of a persistent result, partition ``k`` of ``n`` taking its share of the objects or subpartitions."""

    def __init__(
        self, store: ResultStore, gate: GateDescriptor, schema: pa.Schema, rects: list[np.ndarray[Any, Any]]
    ) -> None:
        self.store = store
        self.dataset = gate.dataset
        self.num_subpartitions = gate.num_subpartitions
        self.attempts = gate.attempts
        self.tokens = gate.tokens
        self.schema = schema
        self.rects = rects

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For ``mapInArrow`` over ``spark.range(0, n, 1, n)``: each row is the number of a share."""
        for batch in numbers:
            for k in batch.column(0).to_pylist():
                yield from self.read(k)

    def read(self, share: int) -> Iterator[pa.RecordBatch]:
        reader = GateReader(
            self.store,
            self.dataset,
            self.schema,
            self.num_subpartitions,
            self.attempts,
            self.tokens,
            self.rects[share],
        )
        yield from reader.read()


def shares_of(gate: GateDescriptor, most: int) -> list[np.ndarray[Any, Any]]:
    """Rectangles, int32 (1, 4), that cut the producers of a result into at most ``most`` equal runs, in order."""
    producers = len(gate.attempts)
    n = max(1, min(most, producers))
    edges = [k * producers // n for k in range(n + 1)]
    return [
        np.array([[low, high, 0, gate.num_subpartitions]], dtype=np.int32)
        for low, high in zip(edges[:-1], edges[1:], strict=True)
    ]


def to_dataframe(session: Any, store: ResultStore, gate: GateDescriptor, schema: pa.Schema) -> Any:
    """A Spark DataFrame of a persistent result; it reads the objects each time it is evaluated.

    The objects must stay for as long as it is used (``JobOutcome.keep``).
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    context = session.sparkContext
    shares = shares_of(gate, max(1, context.defaultParallelism))
    n = len(shares)
    reader = RangeReader(store, gate, schema, shares)
    return session.range(0, n, 1, n).mapInArrow(reader, from_arrow_schema(schema))
