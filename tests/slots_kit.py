"""Executions in slots, sent to Spark as they are: one subtask, no scheduler."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa

import firesteel
from driver_loop import decode
from firesteel.model.descriptors import encode_executions
from firesteel.results.storage.store import ResultStore
from firesteel.spark.driver.batch import WithEnvironment, environment
from firesteel.spark.driver.serialise import dumps
from firesteel.task.executor.information import Blob, JobInformation, VertexInformation, VertexPart
from firesteel.task.executor.slots.slot import SlotInformation
from firesteel.task.executor.spark_task import BatchFunction, DataFrameFunction
from firesteel.task.functions.batch_functions import MapInArrow
from firesteel.task.program import SourceHead, SparkHead, VertexProgram

NUMBERS = pa.schema({"v": pa.int64()})
MIB = 1 << 20


def slot(*, limit=0, threads=1, managed=0, gpu=(), subtask=0):
    external = {"gpu": float(len(gpu))} if gpu else {}
    addresses = {subtask: {"gpu": gpu}} if gpu else {}
    return SlotInformation("trainers", float(threads), limit // 2, limit, managed, threads, external, addresses)


@dataclass(frozen=True)
class Tells:
    """Writes down where it runs and what it was given; then does ``then``, if anything."""

    folder: str
    then: object = None

    def read(self, split, ctx):
        yield from self.batches([pa.record_batch({"v": [1, 2, 3]}, schema=NUMBERS)], ctx.attempt, ctx.memory_budget)

    def batches(self, batches, attempt=0, budget=0):
        given = firesteel.task_resources()
        said = {
            "process": os.getpid(),
            "gpu": os.environ.get("CUDA_VISIBLE_DEVICES"),
            "omp": os.environ.get("OMP_NUM_THREADS"),
            "cpu": pa.cpu_count(),
            "io": pa.io_thread_count(),
            "budget": budget,
            "group": given.group,
            "cpu_cores": given.cpu_cores,
            "memory": given.memory,
            "memory_limit": given.memory_limit,
            "addresses": dict(given.addresses),
        }
        Path(self.folder, f"{attempt}.json").write_text(json.dumps(said))
        batches = list(batches)
        if self.then is not None:
            self.then()
        yield from batches


class Slots:
    """``variables``: makes the Python workers this test's own."""

    def __init__(self, spark, folder, variables):
        self.spark, self.context, self.folder = spark, spark.sparkContext, folder
        self.variables = {"FIRESTEEL_TEST": str(folder), **variables}
        self.store = ResultStore(str(folder / "store"))
        self.store.create()
        (folder / "scratch").mkdir()
        self.job = Blob.of(
            JobInformation(
                "slots", self.store, "none", 64 * MIB, scratch=str(folder / "scratch"), module_paths=tuple(sys.path)
            )
        )

    def rdd(self, attempt, given, then=None):
        """What the execution says: its message."""
        program = VertexProgram(SourceHead(Tells(str(self.folder), then)), (), ())
        rdd = self.context.parallelize([self._descriptor(attempt)], 1)
        rdd.ctx = WithEnvironment(self.context, self.variables)
        (message,) = self.context.runJob(rdd, self._function(program, given), [0])
        return decode(message)

    def dataframe(self, attempt, given, then=None):
        tells = Tells(str(self.folder), then)
        step = MapInArrow("tells", lambda batches: tells.batches(batches, attempt), NUMBERS)
        function = self._function(VertexProgram(SparkHead(), (step,), ()), given)
        with environment(self.context, self.variables):
            rows = self.spark.range(0, 3, 1, 1).withColumnRenamed("id", "v")
            sent = rows.mapInArrow(DataFrameFunction(function, {0: self._descriptor(attempt)}), "message binary")
            (row,) = sent.rdd.map(lambda row: bytes(row[0])).collect()
        return decode(row)

    def _descriptor(self, attempt):
        return encode_executions(np.array([0]), np.array([attempt]), [], [["all"]])[0]

    def _function(self, program, given):
        vertex = VertexInformation(0, "train", 1, {}, dumps(program), "trainers")
        return BatchFunction(0, self.job, (VertexPart(Blob.of(vertex), ()),), (), SimpleNamespace(add=len), slot=given)

    def said(self, attempt):
        """None: its program did not begin."""
        path = self.folder / f"{attempt}.json"
        return json.loads(path.read_text()) if path.exists() else None


def is_there(process):
    """False of one that has ended, though nobody has asked yet how, as the first process of some containers never does."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def is_gone(process, seconds=600.0):
    until = time.monotonic() + seconds
    while is_there(process):
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True
