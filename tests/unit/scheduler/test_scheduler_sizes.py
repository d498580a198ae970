"""What becomes of rows of sizes between a producer's end and its consumers' decision."""

import numpy as np
import pytest
from msgspec import to_builtins
from tests.scheduler_kit import GraphBuilder, ints, plane, waits_of

from firesteel.model.job_graph import ShipStrategy
from firesteel.scheduler.kernel import commands as c
from firesteel.scheduler.kernel.decisions import Unreadable
from firesteel.scheduler.kernel.events import ExecutionReports, ExecutionsFinished, PartitionReports, SizesLoaded

HASH, REBALANCE = ShipStrategy.HASH, ShipStrategy.REBALANCE


def of(commands, kind):
    return [command for command in commands if isinstance(command, kind)]


def three_steps(ship=HASH, buffer_bytes=0, scheduler="AdaptiveBatch"):
    """Vertex 1 reads vertex 0; vertex 2 reads both, so that it is undecided while vertex 1 runs."""
    builder = GraphBuilder()
    fixed = {} if scheduler == "AdaptiveBatch" else {"parallelism": 2}
    builder.source([1] * 3, parallelism=3)
    builder.step((0, ship), parallelism=2), builder.step((0, ship), (1, HASH), **fixed)
    return plane(
        builder.graph,
        size_buffer_bytes=buffer_bytes,
        sizes=lambda _v, s, _d, n: np.full(n, 100 * (s + 1)),
        max_parallelism=4,
        jobmanager__scheduler=scheduler,
        restart_strategy__fixed_delay__delay="0 s",
    ).start()


def lose_partition_0(p):
    """Vertex 1 finds it lost, and its producer runs again while vertex 2 is undecided."""
    p.lost.add((0, 0, *p.admitted[0, 0]))
    for key in p.keys(1):
        p.finish(key)
    p.verify.clear()


def test_rows_go_to_the_files_in_bulk_and_are_dropped_with_the_decision():
    p = three_steps()
    (store,) = of(p.finish(*p.keys(0)[:2]), c.StoreSizes)
    assert (store.dataset, store.partitions.tolist(), store.attempts.tolist()) == (0, [0, 1], [0, 0])
    assert [len(x.rows) for x in of(p.finish((0, 2, 0)), c.StoreSizes)] == [1]
    info = p.scheduler.graph.result(0).info
    assert set(info.subpartition_bytes.tolist()) == {600} and info.kept_row_bytes == 0
    assert [x.dataset for x in of(p.finish(*p.keys(1)), c.DropSizes)] == [0, 1]
    assert p.run().status == "FINISHED"


def test_rows_that_fit_the_buffer_never_leave():
    p = three_steps(buffer_bytes=1 << 20)
    p.run(0)
    assert p.scheduler.graph.result(0).info.kept_row_bytes > 0
    lose_partition_0(p)
    assert p.run().status == "FINISHED" and p.decisions("failover")
    assert not of(p.commands, (c.StoreSizes, c.LoadSizes, c.DropSizes))


@pytest.mark.parametrize("scheduler", ["AdaptiveBatch", "Default"])
def test_a_decision_waits_for_the_share_of_what_ran_before(scheduler):
    p = three_steps(scheduler=scheduler)
    p.run(0)
    info = p.scheduler.graph.result(0).info
    lose_partition_0(p)
    (asked,) = p.load
    assert (asked.partitions.tolist(), asked.attempts.tolist()) == ([0], [0])
    p.finish((0, 0, 1)), p.finish(*p.keys(1))
    assert not info.is_settled and not p.keys(2), "everything is there but the share of what ran before"
    said = "waiting for" if scheduler == "Default" else "it waits for"
    line = f"{said} the sizes that 1 producer of result 0 reported: they are being read back."
    assert [w for w in waits_of(p.scheduler) if w.endswith(line)] == waits_of(p.scheduler) != []
    stale = SizesLoaded(at=p.tick(), dataset=0, partitions=ints(0), attempts=ints(7), rows=[b"x"])
    assert p.send(stale) == [] and not p.keys(2), "of another attempt"
    p.answer_load()
    assert set(info.subpartition_bytes.tolist()) == {600} and p.keys(2)
    assert p.run().status == "FINISHED" and not p.decisions("sizes")


def test_a_row_that_cannot_be_read_is_guessed_and_recorded():
    p = three_steps()
    p.run(0)
    lose_partition_0(p)
    p.stored_sizes.clear()
    p.answer_load()
    (decision,) = p.decisions("sizes")
    assert decision.rule == "shaped like the sum" and decision.inputs == to_builtins(Unreadable(dataset=0, rows=1))
    assert set(p.scheduler.graph.result(0).info.subpartition_bytes.tolist()) == {500}
    assert p.run().status == "FINISHED"


def test_cells_are_read_back_before_a_cut_over_cells():
    p = three_steps(REBALANCE)
    p.finish(*p.keys(0))
    (asked,) = p.load
    assert asked.partitions.tolist() == [0, 1, 2] and not p.keys(1)
    assert "are being read back" in waits_of(p.scheduler)[0]
    p.answer_load()
    assert p.keys(1) and p.decisions("parallelism", 1)
    assert p.run().status == "FINISHED"


def unmeasured(p, vertex):
    """All of a vertex' executions finish and report no sizes by subpartition."""
    subtasks = np.arange(p.parallelism(vertex))
    for key in p.keys(vertex):
        p.tasks.pop(key)
        p.admitted[key[:2]] = (0, key[1] + 1)
        p.read[(*key[:2], key[1] + 1)] = {}
        p.written.add((0, key[1], 0, key[1] + 1))
    columns = (np.full(len(subtasks), 50), np.ones(len(subtasks), np.int64), np.ones(len(subtasks), np.int64))
    reports = ExecutionReports.of(subtasks + 1, partitions=[PartitionReports(0, *columns, None)])
    p.send(
        ExecutionsFinished(
            at=p.tick(), vertex=vertex, subtasks=subtasks, attempts=np.zeros_like(subtasks), reports=reports
        )
    )


@pytest.mark.parametrize("ship", [HASH, REBALANCE])
def test_what_was_not_measured_is_cut_by_count(ship):
    p = three_steps(ship)
    unmeasured(p, 0)
    (decision,) = p.decisions("sizes", 1)
    assert decision.rule == "not measured" and decision.result == "by-count"
    assert p.decisions("parallelism", 1)[0].inputs["bytes"] == [150]
    assert p.run().status == "FINISHED"
