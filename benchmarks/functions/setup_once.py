"""Benchmark 23: a model of 1 GiB in 200 subtasks: set up once in each worker, once in each executor, or loaded by each subtask.

Firesteel's step is a class with ``setup()``; PySpark's ``mapInArrow`` loads the model in its function, once per partition, which is what it
has. Every run of Firesteel is given another one, so that nothing is kept from the run before; a second job with the same one follows.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

import firesteel as fs
from benchmarks.kit.data import BASE
from benchmarks.kit.harness import Contender, alternate, cpu_seconds

MIB = int(os.environ.get("FIRESTEEL_MODEL_MIB", "1024"))
PARTS, ROWS = 200, 200_000
MASTER = "local[2]"
MODEL = BASE / f"model-{MIB}.npy"
Run = Callable[[], list[Any]]


def load(path: str, run: int = 0) -> Any:
    """The weights, in the caller's memory. ``run``: tells equal calls of several runs apart."""
    return np.load(path)


def scored(weights: Any, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        places = (batch.column("id").to_numpy() * 7_919) % len(weights)
        yield pa.record_batch({"score": weights[places]})


class Scorer:
    """``shared``: its weights are the executor's, not the worker's."""

    def __init__(self, path: str, run: int, *, shared: bool) -> None:
        self.path, self.run, self.shared = path, run, shared

    def setup(self) -> None:
        self.weights = fs.shared(load, self.path, self.run) if self.shared else load(self.path)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return scored(self.weights, batches)


def firesteel(shared: bool) -> Run:
    env = fs.ExecutionEnvironment(master=MASTER, options={"firesteel.progress": False, "max-parallelism": PARTS})
    rows = env.from_arrow(pa.table({"id": np.arange(ROWS)})).rebalance()
    runs = 0

    def job() -> float:
        scores = rows.map_in_arrow(Scorer(str(MODEL), runs, shared=shared), "score double").set_parallelism(PARTS)
        return scores.aggregate({"score": "sum"}).collect()[0]["score"]

    def run() -> list[Any]:
        nonlocal runs
        runs += 1
        began, cpu = time.perf_counter(), cpu_seconds()
        total, seconds, cpu = job(), time.perf_counter() - began, cpu_seconds() - cpu
        again = time.perf_counter()
        job()
        return [round(total, 3), seconds, cpu, time.perf_counter() - again]

    return run


def pyspark() -> Run:
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder: Any = SparkSession.builder
    spark = builder.master(MASTER).config("spark.ui.enabled", "false").getOrCreate()
    path = str(MODEL)

    def score(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return scored(load(path), batches)

    def run() -> list[Any]:
        began, cpu = time.perf_counter(), cpu_seconds()
        frame = spark.range(0, ROWS, 1, PARTS).mapInArrow(score, "score double")
        total = frame.agg(F.sum("score")).first()[0]
        return [round(total, 3), time.perf_counter() - began, cpu_seconds() - cpu, float("nan")]

    return run


def made() -> None:
    """The model's file, written once."""
    if not MODEL.exists():
        MODEL.parent.mkdir(exist_ok=True)
        np.save(MODEL, np.random.default_rng(7).random(MIB << 17))


def main(runs: int, only: str) -> None:
    made()
    entered = [
        Contender("Firesteel, set up once per worker", f"{__name__}:firesteel", {"shared": False}),
        Contender("Firesteel, shared by the executor", f"{__name__}:firesteel", {"shared": True}),
        Contender("PySpark, mapInArrow", f"{__name__}:pyspark", {}),
    ]
    entered = [contender for contender in entered if only in contender.name]
    answers = alternate(entered, runs=runs, warmup=0)
    if len({answer[0] for each in answers.values() for answer in each if answer}) != 1:
        raise AssertionError(f"The contenders gave different answers: {answers}.")
    middle = {c.name: [statistics.median(column) for column in zip(*answers[c.name], strict=True)] for c in entered}
    first = middle[entered[0].name]
    lines = [
        f"| {name} | {seconds:.2f} | {seconds / first[1]:.2f} | {cpu:.2f} | {cpu / first[2]:.2f} | {again:.2f} |"
        for name, (_, seconds, cpu, again) in middle.items()
    ]
    title = f"### set-up: a model of {MIB} MiB, {PARTS} subtasks, {MASTER}, medians of {runs} runs"
    head = "| contender | s | ratio | CPU s | ratio | s of a second job |\n|---|---|---|---|---|---|"
    print("\n".join([title, "", head, *lines, ""]), flush=True)
