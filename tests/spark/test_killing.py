"""Single executions of a wave are killed, on Spark: how, how soon, and what is left of them. A script plays the scheduler."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from driver_loop import END, Script, ints
from firesteel.results.storage.store import ResultStore
from firesteel.scheduler.kernel import events as ev
from firesteel.scheduler.kernel.commands import Cancel, Deploy, SetTimer, Splits
from firesteel.spark.driver.loop import DriverInput, JobDriver
from firesteel.spark.driver.serialise import serialise_programs
from firesteel.spark.placement.node_names import NodeNames
from firesteel.spark.placement.status_store import SparkStatus
from firesteel.task.executor.information import Blob, JobInformation
from runtime_support import NUMBERS, two_steps

pytestmark = pytest.mark.spark

ROWS = 1 << 16


@dataclass(frozen=True)
class Writes:
    """Subtask 0 ends when the file ``go`` is there; others write until a part of it is stored, and then hang in C code."""

    folder: str

    def read(self, split, ctx):
        import ctypes

        folder = Path(self.folder)
        values = pa.array(np.random.default_rng(split).integers(0, 1 << 60, ROWS))
        batch = pa.RecordBatch.from_arrays([values, values], schema=NUMBERS)
        while split and not any(p.stat().st_size for p in (folder / "store").glob(f"*-p{split}-*")):
            yield batch
        (folder / f"running-{split}").touch()
        while not (folder / "go").exists():
            if split:
                ctypes.PyDLL(None).sleep(600)  # keeps the interpreter's lock
            time.sleep(0.01)
        yield batch


class Run:
    """The first step of a job, whose scheduler is ``answer``."""

    def __init__(self, spark, folder: Path, answer, *, exclusive=False):
        context = spark.sparkContext
        compiled = two_steps(splits=3, source=Writes(str(folder)))
        compiled.job_graph.vertices[0].supports_concurrent_attempts = not exclusive
        self.store = ResultStore(str(folder / "store"))
        self.store.create()
        (folder / "scratch").mkdir()
        job = JobInformation(
            "kills", self.store, "none", 1 << 20, scratch=str(folder / "scratch"), module_paths=tuple(sys.path)
        )
        self.scheduler = Script(answer)
        self.driver = JobDriver(
            DriverInput(
                compiled=compiled,
                context=context,
                scheduler=self.scheduler,
                job_id=f"kills-{folder.name}",
                store=self.store,
                job=Blob.of(job),
                programs=serialise_programs(compiled),
                record=lambda record: None,
                nodes=NodeNames(),
                look_seconds=0.1,
            )
        )


def wave(*subtasks):
    n = len(subtasks)
    splits = Splits(np.arange(n + 1), np.array(subtasks))
    return Deploy(0, 3, ints(*subtasks), ints(*[0] * n), (), (), {0: 1}, splits)


def both_run(told):
    return {s for e in told if isinstance(e, ev.ExecutionsDeploying) for s in e.subtasks.tolist()} >= {0, 1}


@pytest.mark.parametrize("exclusive", [False, pytest.param(True, marks=pytest.mark.full)])
def test_a_running_loser_is_killed_and_its_file_is_gone_while_its_sibling_goes_on(spark, tmp_path, exclusive):
    at = SimpleNamespace(killed=0.0)

    def answer(event):
        if isinstance(event, ev.JobStarted):
            return [wave(0, 1)]
        if isinstance(event, ev.ExecutionsDeploying) and both_run(run.scheduler.told):
            return [SetTimer("look", 0.0)]
        if isinstance(event, ev.TimerFired):
            return look(event)
        over = run.scheduler.of(ev.ExecutionsFinished) and are_gone()
        return [END] if over else None  # on a busy machine either may be heard of first

    def are_gone():
        """Spark's word that it gave the task up may come before the task is missed. To the scheduler that is the same."""
        return run.scheduler.of(ev.ExecutionsCancelled) or run.scheduler.of(ev.ExecutionsFailed)

    def look(event):
        written = [name for name in run.store.list() if "-p1-" in name]
        if not at.killed and (tmp_path / "running-1").exists() and written:
            at.killed = event.at
            return [Cancel(0, ints(1), ints(0), "another was faster"), SetTimer("look", event.at + 0.05)]
        if at.killed and not written:
            (tmp_path / "go").touch()
            return []
        return [SetTimer("look", event.at + 0.05)]

    run = Run(spark, tmp_path, answer, exclusive=exclusive)
    run.driver.run()
    (done,) = run.scheduler.of(ev.ExecutionsFinished)
    (gone,) = are_gone()
    assert (done.subtasks.tolist(), gone.subtasks.tolist()) == ([0], [1])
    assert done.at - at.killed < 300.0, "2 to 4 s where nothing else runs; 600 if it were not killed"
    assert (gone.at - at.killed > 0.1) is exclusive, "one that must be alone counts when it is gone"
    assert [name[:9] for name in run.store.list()] == ["d0-p0-a0-"]
    assert {node for e in run.scheduler.of(ev.ExecutionsDeploying) for node in e.nodes} == {"127.0.0.1"}
    assert set(done.reports.nodes.names) == {"127.0.0.1"}


@pytest.mark.full
def test_one_that_waits_for_a_slot_is_killed_when_it_starts(spark, tmp_path):
    """Three on two slots: the third gets that of the second, which is killed too."""
    lost: list[ev.ExecutionsFailed] = []

    def answer(event):
        if isinstance(event, ev.JobStarted):
            return [wave(0, 1, 2), Cancel(0, ints(2), ints(0), "not needed")]
        if isinstance(event, ev.ExecutionsDeploying) and both_run(run.scheduler.told):
            return [Cancel(0, ints(1), ints(0), "not needed either")]
        if isinstance(event, ev.ExecutionsFailed):
            lost.append(event)
            if len(lost) == 2:
                (tmp_path / "go").touch()
        return [END] if isinstance(event, ev.ExecutionsFinished) else None

    run = Run(spark, tmp_path, answer)
    run.driver.run()
    assert sorted(e.subtasks.item() for e in lost) == [1, 2]
    assert {e.cause.kind for e in lost} == {ev.FailureKind.LOST}
    assert run.scheduler.of(ev.ExecutionsFinished)[0].subtasks.tolist() == [0]


@pytest.mark.full
def test_the_last_stage_of_a_job_is_found_in_whatever_order_spark_lists_them(spark):
    """It lists them in the order of a hash table: 16 before 15."""
    context = spark.sparkContext
    context.parallelize([1], 1).count()  # from now on a job's stages are of both sorts, even first and odd first
    for number in range(18):
        if number == 9:
            context.parallelize([1], 1).count()
        tag = f"stages-{number}"
        context.addJobTag(tag)
        context.parallelize([1, 2], 2).map(lambda v: (v, v)).groupByKey(1).count()
        context.removeJobTag(tag)
        tracker = context._jsc.sc().statusTracker()
        (job,) = tracker.getJobIdsForTag(tag)
        stages = list(tracker.getJobInfo(job).get().stageIds())
        assert SparkStatus(context).stage_of(tag) == max(stages)
        assert len(stages) == 2
