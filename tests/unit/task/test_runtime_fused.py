"""Executions of a pipelined region in the tasks of one Spark job: what the scheduler is told of each of them."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import MagicMock

import pyarrow.compute as pc
import pytest
from msgspec import structs

from driver_loop import END, Loop, Py4JJavaError, Status, decode, deploy, failed, finished, ints
from firesteel.model.descriptors import encode_executions
from firesteel.results.storage.store import ResultStore, object_name
from firesteel.scheduler.kernel import events as ev
from firesteel.scheduler.kernel.commands import Cancel, DeployRegions, SetTimer
from firesteel.spark.driver.batch import Batch, BatchEnded, descriptors_of, fused
from firesteel.spark.driver.serialise import dumps
from firesteel.spark.placement.node_names import NodeNames
from firesteel.spark.placement.status_store import SparkTask
from firesteel.spark.placement.watch import Killer, Watcher
from firesteel.task.executor.information import Blob, JobInformation, VertexInformation, VertexPart
from firesteel.task.executor.spark_task import BatchFunction
from firesteel.task.functions.batch_functions import MapInArrow
from firesteel.task.program import GateHead, ResultOutput, SourceHead, VertexProgram
from runtime_support import NUMBERS, Numbers

A, B = 0, 1
"""Vertices; messages of A carry the batch's number 0, those of B 1."""


def part(vertex, *subtasks, reads=(), attempt=0):
    """``reads``: data sets that earlier parts feed."""
    made = deploy(*subtasks, vertex=vertex, attempt=attempt)
    gates = tuple(replace(made.gates[0], dataset=dataset, pipelined=True) for dataset in reads)
    return structs.replace(made, gates=gates, ranges=made.ranges[:1] * len(gates))


def region(*subtasks):
    """B reads what A makes, data set 0."""
    return DeployRegions((part(A, *subtasks), part(B, *subtasks, reads=[0])))


def pairs(events):
    return [(e.vertex, *e.subtasks.tolist()) for e in events]


def starting(*subtasks, then):
    def answer(event):
        if isinstance(event, ev.JobStarted):
            return [region(*subtasks)]
        return then(event)

    return answer


def cancel(vertex, *subtasks):
    return Cancel(vertex, ints(*subtasks), ints(*[0] * len(subtasks)), "its region starts again")


class TestWhatRunsTogether:
    def test_parts_joined_by_pipelined_gates(self):
        """0 -> 2 <- 1, 3 -> 4, and 5 alone; data set k is made by vertex k."""
        parts = (
            part(0, 1),
            part(1, 1),
            part(2, 1, reads=[0, 1]),
            part(3, 1, 2),
            part(4, 1, 2, reads=[3]),
            part(5, 7, 8),
        )
        together = fused(DeployRegions(parts), range(6))
        assert [[p.vertex for p in group] for group in together] == [[0, 1, 2], [3, 4], [5]]

    def test_a_stored_gate_joins_nothing(self):
        assert len(fused(DeployRegions((part(0, 1), deploy(1, vertex=1))), range(2))) == 2
        assert len(fused(deploy(1, vertex=1), range(2))) == 1

    def test_other_subtasks_cannot_stream_to_each_other(self):
        with pytest.raises(ValueError, match="Vertices 0 and 1 share tasks, but not of the same subtasks"):
            fused(DeployRegions((part(0, 1, 2), part(1, 1, 3, reads=[0]))), range(2))


class TestReports:
    def test_one_job_reports_per_vertex(self):
        done = []

        def then(event):
            done.extend(pairs([event]) if isinstance(event, ev.ExecutionsFinished) else [])
            return [END] if len(done) == 2 else None

        loop = Loop(starting(3, 4, then=then))
        loop.put(*[finished(subtask, 10 + subtask, batch=vertex) for subtask in (3, 4) for vertex in (A, B)])
        loop.run()
        assert done == [(A, 3, 4), (B, 3, 4)]
        (batch,) = loop.batches
        assert batch.description == "two steps: numbers + work (2 subtasks)" and not batch.open

    def test_the_watcher_tells_of_all_that_share_a_task(self):
        told = []
        watcher = Watcher(
            Status(SparkTask(7, 1, 1.0, "1", "h")),
            NodeNames(),
            lambda: [],
            told.append,
            killer=Killer(print, told.append),
            of_wall=lambda at: at,
        )
        watcher.look_at(Batch.of(0, region(3, 4).parts, "job", "both"))
        assert pairs(told) == [(A, 4), (B, 4)] and [e.nodes for e in told] == [["h"], ["h"]]


class TestFailures:
    def test_the_others_of_a_failed_task_are_gone_when_they_are_cancelled(self):
        """One message for the culprit; nothing is cancelled in Spark, the task has ended."""

        def then(event):
            if isinstance(event, ev.ExecutionsFailed):
                return [cancel(A, 3)]
            if isinstance(event, ev.ExecutionsCancelled):
                return [SetTimer("end", 0.0)]
            return [END] if isinstance(event, ev.TimerFired) else None

        loop = Loop(starting(3, 4, then=then))
        loop.put(failed(3, 13, batch=B))
        loop.run()
        assert pairs(loop.scheduler.of(ev.ExecutionsFailed)) == [(B, 3)]
        assert pairs(loop.scheduler.of(ev.ExecutionsCancelled)) == [(A, 3)]
        assert set(loop.batches[0].open) == {(A, 4), (B, 4)} and not loop.batches[0].let_go

    def test_the_last_task_that_fails_leaves_nothing_to_cancel(self):
        def then(event):
            if isinstance(event, ev.ExecutionsFailed):
                return [cancel(A, 3)]
            return [END] if isinstance(event, ev.ExecutionsCancelled) else None

        loop = Loop(starting(3, then=then))
        start = loop.runner.start.side_effect

        def and_end(batch, code):
            start(batch, code)
            loop.put(failed(3, 13, batch=B), BatchEnded(batch, [failed(3, 13, batch=B)], None))

        loop.runner.start.side_effect = and_end
        end = loop.run()
        assert pairs(loop.scheduler.of(ev.ExecutionsFailed)) == [(B, 3)], "and nobody is given up"
        loop.runner.cancel.assert_not_called()
        assert not end.had_zombies

    def test_a_dead_worker_is_charged_to_one_execution(self):
        told = []

        def then(event):
            if isinstance(event, ev.ExecutionsFailed):
                told.append((event.vertex, event.subtasks.tolist(), event.counted))
            return [END] if len(told) == 3 else None

        loop = Loop(starting(3, 4, 5, then=then))
        start = loop.runner.start.side_effect

        def and_die(batch, code):
            start(batch, code)
            text = "Task 1 in stage 9.0 failed 1 times, most recent failure: Lost task 1.0 in stage 9.0 (TID 1) (h executor 1): Python worker exited unexpectedly (crashed)"
            done = [finished(3, 7, batch=A), finished(3, 7, batch=B)]
            loop.put(*done, BatchEnded(batch, done, Py4JJavaError(text)))

        loop.runner.start.side_effect = and_die
        loop.run()
        assert told == [(A, [4], True), (A, [5], False), (B, [4, 5], False)]

    def test_what_an_earlier_event_cancelled_is_not_hung_for(self):
        """The scheduler cancels the whole region at the first word of it; the rest that is said then is stale to it."""

        def then(event):
            if isinstance(event, ev.ExecutionsFailed) and event.counted:
                return [cancel(B, 3)]
            return [END] if isinstance(event, ev.ExecutionsCancelled) else None

        loop = Loop(starting(3, then=then))
        start = loop.runner.start.side_effect
        loop.runner.start.side_effect = lambda batch, code: (start(batch, code), loop.put(BatchEnded(batch, [], None)))
        loop.run()
        assert [(e.vertex, e.counted) for e in loop.scheduler.of(ev.ExecutionsFailed)] == [(A, True), (B, False)]
        assert pairs(loop.scheduler.of(ev.ExecutionsCancelled)) == [(B, 3)]


class TestCancelling:
    def both(self, *subtasks, alone=False):
        gone = []

        def answer(event):
            if isinstance(event, ev.JobStarted):
                return [region(3, 4), cancel(A, *subtasks), cancel(B, *subtasks)]
            gone.extend(pairs([event]) if isinstance(event, ev.ExecutionsCancelled) else [])
            return [END] if len(gone) == 2 else None

        loop = Loop(answer)
        loop.compiled.job_graph.vertices[A].supports_concurrent_attempts = not alone
        loop.runner.cancel.side_effect = lambda batch: (
            loop._cancelled(batch),
            loop.put(BatchEnded(batch, [], None)),
        )
        return loop, gone

    def test_all_of_it_ends_the_spark_job(self):
        loop, gone = self.both(3, 4)
        loop.run()
        loop.runner.cancel.assert_called_once_with(loop.batches[0])
        assert sorted(gone) == [(A, 3, 4), (B, 3, 4)]

    def test_one_region_of_several_is_let_go(self):
        loop, gone = self.both(4)
        loop.run()
        assert sorted(gone) == [(A, 4), (B, 4)]
        assert set(loop.batches[0].open) == {(A, 3), (B, 3)}
        assert not loop.batches[0].cancelled or loop.batches[0].ended.is_set()

    def test_where_one_vertex_must_run_alone_both_wait_for_the_end(self, monkeypatch):
        monkeypatch.setattr("firesteel.spark.driver.cancelling.ZOMBIE_SECONDS", 0.1)
        loop, gone = self.both(3, 4, alone=True)
        loop.run()
        assert sorted(gone) == [(A, 3, 4), (B, 3, 4)]
        assert min(e.at for e in loop.scheduler.of(ev.ExecutionsCancelled)) >= 0.1


# --- in a task --------------------------------------------------------------------------------------------------


def double(batches):
    for batch in batches:
        yield batch.set_column(1, "v", pc.multiply(batch["v"], 2))


def failing(batches):
    yield from batches
    raise ValueError("at the end")


@pytest.fixture
def task(tmp_path, monkeypatch):
    """Runs subtask 0 of numbers -> ``fn`` in one task; what it says, and the store. Batch 40, so ``fn`` speaks as 41."""
    attempt = SimpleNamespace(taskAttemptId=lambda: 9, attemptNumber=lambda: 0)
    monkeypatch.setattr("firesteel.task.executor.spark_task._spark_task", lambda task_class: attempt)
    store = ResultStore(str(tmp_path / "store"))
    store.create()
    (tmp_path / "scratch").mkdir()
    job = JobInformation("fused", store, "none", 1 << 24, scratch=str(tmp_path / "scratch"))

    def run(fn):
        read = VertexProgram(SourceHead(Numbers(100)), (), (ResultOutput(0, NUMBERS),))
        work = VertexProgram(GateHead((0,)), (MapInArrow("fn", fn, NUMBERS),), (ResultOutput(1, NUMBERS),), (NUMBERS,))
        gate = part(B, 0, reads=[0]).gates[0].encoded
        parts = (
            VertexPart(Blob.of(VertexInformation(A, "numbers", 1, {0: 1}, dumps(read))), ()),
            VertexPart(Blob.of(VertexInformation(B, "work", 1, {1: 1}, dumps(work))), ((gate.digest, gate.data),)),
        )
        channel = MagicMock()
        function = BatchFunction(40, Blob.of(job), parts, (), channel)
        subtask = encode_executions(ints(0), ints(0), [], [(0,)]) + descriptors_of(part(B, 0, reads=[0], attempt=3), ())
        messages = list(function(iter(subtask)))
        channel.add.assert_called_once_with(messages)
        return [decode(message) for message in messages]

    return run, store, attempt


def test_a_task_says_one_thing_for_each_execution(task):
    run, store, _ = task
    first, second = run(double)
    assert [(m.where.batch, m.where.attempt, m.where.token) for m in (first, second)] == [(40, 0, 9), (41, 3, 9)]
    assert (first.partitions, first.rows_in, first.rows_out) == ((), 100, 100)
    assert (second.partitions[0][0], second.rows_in, second.rows_out) == (1, 100, 100)
    assert store.list() == [object_name(1, 0, 3, 9)]


def test_only_the_culprit_of_a_task_speaks(task):
    run, store, _ = task
    (message,) = run(failing)
    assert (message.where.batch, message.kind) == (41, "USER")
    assert "step 'fn' raised ValueError: at the end" in message.message and "failing" in message.trace
    assert store.list() == []


def test_what_spark_runs_again_ends_at_once_with_one_word(task):
    run, store, attempt = task
    attempt.attemptNumber = lambda: 1
    (message,) = run(double)
    assert (message.where.batch, message.kind) == (40, "LOST") and store.list() == []
