"""Spark DataFrames as sources of ours, and results of ours as Spark DataFrames."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from firesteel.errors import UsageError
from firesteel.results.reader import GateReader
from firesteel.results.storage.store import ResultStore
from firesteel.scheduler.kernel.commands import GateDescriptor
from firesteel.spark.driver.spark_errors import read_error
from firesteel.spark.session.sessions import own_interrupts, with_settings
from firesteel.spark.session.versions import arrow_schema, check_frames, dataframe_of, spark_schema


@dataclass(frozen=True)
class DataFrameSource:
    """A DataFrame whose partitions are counted and stay. ``num_partitions`` subtasks read it, one partition each.

    ``dataframe`` has the same rows as the one given, without its exchanges: Spark has run those already (or runs them
    once, however often a partition is read), so its partitions are the same in every attempt.
    """

    dataframe: Any
    schema: pa.Schema
    num_partitions: int
    deterministic: bool = True
    """False: Spark says that a partition may have other rows when it is computed again (random numbers, some functions)."""


def dataframe_schema(dataframe: Any) -> pa.Schema:
    """The schema in which Spark hands the DataFrame's rows over. Runs nothing.

    Raises UsageError for Spark Connect, streaming DataFrames, and columns that have no Arrow type.
    """
    from pyspark.sql import DataFrame

    if not isinstance(dataframe, DataFrame) or type(dataframe).__module__.startswith("pyspark.sql.connect"):
        kind = f"{type(dataframe).__module__}.{type(dataframe).__qualname__}"
        raise UsageError(f"from_dataframe needs a classic Spark DataFrame, not a {kind}.")
    if dataframe.isStreaming:
        raise UsageError("from_dataframe takes a batch DataFrame; this one is streaming.")
    zone = str(dataframe.sparkSession.conf.get("spark.sql.session.timeZone"))
    try:
        return arrow_schema(dataframe.schema, zone)
    except UsageError:  # of this Python, not of a column
        raise
    except Exception as error:
        raise UsageError(f"This DataFrame has a column that Arrow cannot carry: {error}") from error


def dataframe_source(dataframe: Any) -> DataFrameSource:
    """Plans the DataFrame and counts its partitions; with adaptive execution on, Spark runs its exchanges here.

    The steps after the last exchange run inside our own tasks. Raises UsageError as :func:`dataframe_schema`, and when
    Spark cannot plan or run it; Ctrl-C cancels what Spark runs for it, and nothing else.
    """
    schema = dataframe_schema(dataframe)
    session = dataframe.sparkSession
    check_frames(session)
    context = session.sparkContext
    tag = f"firesteel-dataframe-{uuid.uuid4().hex[:12]}"
    context.addJobTag(tag)
    try:
        with own_interrupts(), with_settings(session):
            settled = _settled(dataframe, session)
            partitions = int(settled._jdf.queryExecution().toRdd().getNumPartitions())
            deterministic = bool(dataframe._jdf.queryExecution().optimizedPlan().deterministic())
    except KeyboardInterrupt:
        context.cancelJobsWithTag(tag)
        raise
    except Exception as error:
        raise UsageError(f"Spark cannot run this DataFrame: {read_error(error).sentence}") from error
    finally:
        context.removeJobTag(tag)
    if partitions == 0:  # Spark knows that it is empty; a vertex has at least one subtask
        nothing = context.parallelize([], 1)
        return DataFrameSource(session.createDataFrame(nothing, dataframe.schema), schema, 1)
    return DataFrameSource(settled, schema, partitions, deterministic)


def _settled(dataframe: Any, session: Any) -> Any:
    """The DataFrame over the RDD of its own physical plan (what ``localCheckpoint`` does, without writing anything)."""
    rows = dataframe._jdf.queryExecution().toRdd()
    return dataframe_of(session._jsparkSession.internalCreateDataFrame(rows, dataframe._jdf.schema(), False), session)


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
    return [np.array([[low, high, 0, gate.num_subpartitions]], dtype=np.int32) for low, high in pairwise(edges)]


def to_dataframe(session: Any, store: ResultStore, gate: GateDescriptor, schema: pa.Schema) -> Any:
    """A Spark DataFrame of a persistent result; it reads the objects each time it is evaluated.

    The objects must stay for as long as it is used (``JobOutcome.keep``). The session must have passed ``check_frames``.
    """
    context = session.sparkContext
    shares = shares_of(gate, max(1, context.defaultParallelism))
    n = len(shares)
    reader = RangeReader(store, gate, schema, shares)
    return session.range(0, n, 1, n).mapInArrow(reader, spark_schema(schema))
