"""Rows of sizes in the driver's scratch files, on Spark: a restart before the decision takes its share back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from firesteel.compile.compiled import CompiledJob
from firesteel.model.job_graph import IntermediateDataSet, JobEdge, JobGraph, JobVertex, ShipStrategy, SourceInfo
from firesteel.scheduler.kernel.records import Decision, StateChange
from firesteel.scheduler.scheduler import create_scheduler
from firesteel.spark.driver import runtime
from firesteel.spark.driver.runtime import submit
from firesteel.spark.storage.sizes_files import SizesFiles
from firesteel.task.program import GateHead, ResultOutput, SourceHead, VertexProgram
from runtime_support import NUMBERS, Numbers, collected, left_behind, options


def three_steps(splits=4, rows=100) -> CompiledJob:
    """Numbers -> work -> both, which reads the numbers too: it is undecided while the work reads them."""

    def vertex(number, name, inputs, output, program, **fields):
        edges = [JobEdge(dataset, place, co_partitioned=True) for place, dataset in enumerate(inputs)]
        return JobVertex(number, name, f"u{number}", inputs=edges, outputs=[output], program=program, **fields)

    source = SourceInfo(np.full(splits, rows * 16, dtype=np.int64))
    hashed = (ResultOutput(0, NUMBERS, ("k",)),), (ResultOutput(1, NUMBERS, ("k",)),)
    read = VertexProgram(SourceHead(Numbers(rows)), (), hashed[0])
    work = VertexProgram(GateHead((0,)), (), hashed[1], gate_schemas=(NUMBERS,))
    both = VertexProgram(GateHead((0, 1)), (), (ResultOutput(2, NUMBERS),), gate_schemas=(NUMBERS, NUMBERS))
    graph = JobGraph(
        "three steps",
        [
            vertex(0, "numbers", [], 0, read, parallelism=splits, source=source),
            vertex(1, "work", [0], 1, work, parallelism=2),
            vertex(2, "both", [0, 1], 2, both),
        ],
        [
            IntermediateDataSet(0, 0, ShipStrategy.HASH, ("k",)),
            IntermediateDataSet(1, 1, ShipStrategy.HASH, ("k",)),
            IntermediateDataSet(2, 2, ShipStrategy.GLOBAL, persistent=True),
        ],
    )
    return CompiledJob(
        graph, splits={0: list(range(splits))}, schemas=dict.fromkeys(range(3), NUMBERS), collects={0: 2}
    )


class Saboteur:
    """Deletes an object of the numbers as soon as all of them are there, before anybody reads them."""

    def __init__(self, storage):
        self.storage = storage
        self.finished = 0
        self.decisions = []

    def record(self, record):
        if isinstance(record, StateChange) and (record.state, record.vertex) == ("FINISHED", 0):
            self.finished += len(record.subtasks)
            if self.finished == 4:
                next(self.storage.rglob("d0-p1-*.fsr")).unlink()
        if isinstance(record, Decision):
            self.decisions.append(record)

    def close(self):
        pass


def unbuffered(graph, options, inputs, *others, **more):
    return create_scheduler(graph, options, replace(inputs, size_buffer_bytes=0), *others, **more)


def test_a_restart_before_the_decision_takes_its_share_from_the_sums(session, tmp_path, monkeypatch):
    monkeypatch.setattr(runtime, "create_scheduler", unbuffered)
    answers, files = [], []
    saboteur = Saboteur(tmp_path / "storage")
    monkeypatch.setattr(SizesFiles, "_load", watched(SizesFiles._load, answers, files, saboteur.storage))
    outcome = submit(three_steps(), session, options(tmp_path), [saboteur]).result()
    assert outcome.error is None
    assert sorted(collected(outcome, dataset=2)["v"].to_pylist()) == sorted([*range(400)] * 2)
    assert files, "rows lie in a file of the job's scratch directory"
    assert [a.partitions.tolist() for a in answers] == [[1]] and None not in answers[0].rows
    (decision,) = [d for d in saboteur.decisions if d.what == "parallelism" and d.vertex == 2]
    assert decision.inputs["bytes"] == [400 * 16] * 2, "the void row was taken out, and the new one added"
    outcome.close()
    assert left_behind(tmp_path) == []


def watched(load, answers, files, storage):
    def wrapped(self, command):
        report = self._report
        files.extend(storage.rglob("firesteel-sizes-*/0.rows"))
        self._report = answers.append
        load(self, command)
        self._report = report
        report(answers[-1])

    return wrapped
