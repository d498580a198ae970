"""Hand-made jobs for the tests of the runtime: no compiler, only programs and a job graph."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from firesteel.compile.compiled import CompiledJob
from firesteel.model.job_graph import IntermediateDataSet, JobEdge, JobGraph, JobVertex, ShipStrategy, SourceInfo
from firesteel.options import Options
from firesteel.results.reader import GateReader
from firesteel.scheduler.kernel.records import StateChange
from firesteel.task.functions.batch_functions import MapInArrow
from firesteel.task.program import GateHead, ResultOutput, SinkOutput, SourceHead, VertexProgram

NUMBERS = pa.schema([("k", pa.int64()), ("v", pa.int64())])


@dataclass(frozen=True)
class Numbers:
    """Split ``i`` holds ``rows`` numbers from ``i * rows`` on; k is the number modulo ``keys``."""

    name = "numbers"
    rows: int
    keys: int = 7

    def read(self, split: int, ctx: Any):
        v = np.arange(split * self.rows, (split + 1) * self.rows, dtype=np.int64)
        yield pa.RecordBatch.from_arrays([pa.array(v % self.keys), pa.array(v)], schema=NUMBERS)


@dataclass(frozen=True)
class DiesBeside:
    """The worker of split 0 is killed once that of split 1 runs, which then waits for the second attempt of split 0."""

    folder: str

    def read(self, split: int, ctx: Any):
        mark = Path(self.folder, f"began-{split}-{ctx.attempt}")
        mark.touch()
        if split < 2 and ctx.attempt == 0:
            awaited = mark.with_name("began-0-1" if split else "began-1-0")
            while not awaited.exists():
                time.sleep(0.01)
        if split == 0 and ctx.attempt == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        yield from Numbers(10).read(split, ctx)


class Seen:
    """An instrument that keeps all records of a job."""

    def __init__(self) -> None:
        self.records: list[Any] = []

    def record(self, record: Any) -> None:
        self.records.append(record)

    def close(self) -> None:
        pass

    def states(self, state: str, vertex: int) -> list[int]:
        """Subtasks whose executions went there."""
        changes = [
            r for r in list(self.records) if isinstance(r, StateChange) and r.state == state and r.vertex == vertex
        ]
        return [s for change in changes for s in change.subtasks]


@dataclass
class RecordingSink:
    """A sink that keeps what happened to it on the driver, and writes nothing anywhere."""

    name: str = "recording"
    supports_concurrent_execution_attempts: bool = True
    job_id: str | None = None
    calls: list[tuple[str, Any]] = field(default_factory=list)
    commit_error: Exception | None = None

    def check(self, schema):
        pass

    def begin(self, job_id):
        self.job_id = job_id
        self.calls.append(("begin", job_id))

    def write(self, subtask, attempt):
        return _Writer(self.job_id, subtask, attempt)

    def commit(self, winners):
        self.calls.append(("commit", list(winners)))
        if self.commit_error is not None:
            raise self.commit_error

    def abort(self, attempts):
        self.calls.append(("abort", list(attempts)))


class _Writer:
    def __init__(self, job_id, subtask, attempt):
        self.message = [job_id, subtask, attempt, 0]

    def write(self, batch):
        self.message[3] += pa.compute.sum(batch.column("v")).as_py() or 0

    def finish(self):
        return tuple(self.message)

    def abort(self):
        pass


def two_steps(
    splits: int = 4, rows: int = 100, source=None, fn=None, sink: RecordingSink | None = None, parallelism: int = -1
) -> CompiledJob:
    """numbers -> hash on k -> ``fn`` (identity) -> collect, and to ``sink`` too if there is one."""
    outputs: tuple[Any, ...] = (ResultOutput(1, NUMBERS),)
    if sink is not None:
        outputs += (SinkOutput(sink),)
    chain = () if fn is None else (MapInArrow("fn", fn, NUMBERS),)
    read = VertexProgram(SourceHead(source or Numbers(rows)), (), (ResultOutput(0, NUMBERS, ("k",)),))
    work = VertexProgram(GateHead((0,)), chain, outputs, gate_schemas=(NUMBERS,))
    graph = JobGraph(
        "two steps",
        [
            JobVertex(
                0,
                "numbers",
                "u0",
                outputs=[0],
                parallelism=splits,
                source=SourceInfo(np.full(splits, rows * 16, dtype=np.int64)),
                program=read,
            ),
            JobVertex(
                1,
                "work",
                "u1",
                inputs=[JobEdge(0, 0, co_partitioned=True)],
                outputs=[1],
                has_sink=sink is not None,
                parallelism=parallelism,
                program=work,
            ),
        ],
        [
            IntermediateDataSet(0, 0, ShipStrategy.HASH, ("k",)),
            IntermediateDataSet(1, 1, ShipStrategy.GLOBAL, persistent=True),
        ],
    )
    return CompiledJob(
        graph,
        splits={0: list(range(splits))},
        sinks={} if sink is None else {1: [sink]},
        schemas={0: NUMBERS, 1: NUMBERS},
        collects={0: 1},
    )


def collected(outcome, dataset: int = 1, schema: pa.Schema = NUMBERS) -> pa.Table:
    """All rows of a persistent data set."""
    gate = outcome.persistent[dataset]
    rects = np.array([[0, len(gate.attempts), 0, gate.num_subpartitions]], dtype=np.int32)
    reader = GateReader(outcome.store, dataset, schema, gate.num_subpartitions, gate.attempts, gate.tokens, rects)
    return pa.Table.from_batches(list(reader.read()), schema)


def options(tmp_path, **values: Any) -> Options:
    """Storage in the test's own directory, quick restarts."""
    given = {"firesteel.storage.directory": str(tmp_path / "storage"), "restart-strategy.fixed-delay.delay": "10 ms"}
    return Options({**given, **{k.replace("__", "."): v for k, v in values.items()}})


def files_in(folder) -> list[Path]:
    """All below, also while some are being removed."""
    return [Path(parent, name) for parent, _, files in os.walk(folder) for name in files]


def left_behind(tmp_path) -> list[str]:
    """What lies in the storage of :func:`options`."""
    root = tmp_path / "storage"
    return sorted(str(p.relative_to(root)) for p in root.rglob("*")) if root.exists() else []
