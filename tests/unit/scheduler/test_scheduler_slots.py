"""Slots where the cluster serves what came first: never more executions at a time than there are slots."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from tests.scheduler_kit import GraphBuilder, Plane, ints

from firesteel.model.job_graph import ResultPartitionType, ShipStrategy
from firesteel.options import Options
from firesteel.scheduler.inputs import DirectInputs, Inputs
from firesteel.scheduler.job import Job
from firesteel.scheduler.kernel import events as e
from firesteel.scheduler.nodes import Nodes
from firesteel.scheduler.scheduler import Scheduler, create_scheduler
from firesteel.scheduler.slots.allocators import (
    BoundedSlots,
    ExecutionDeploymentOption,
    RegionDeploymentOption,
    Slots,
)
from firesteel.scheduler.topology.executions import ExecutionTable

SPECULATIVE = "jobmanager.adaptive-batch-scheduler.speculative.enabled"


def option(*rows, vertex=0):
    return ExecutionDeploymentOption(vertex, ints(*rows), ints(*rows))


def granted(allocator, *rows):
    return allocator.allocate_slots_for(option(*rows)).executions.tolist()


def executor(number, node="", slots=1, added=True):
    return e.ExecutorChanged(at=0.0, executor=str(number), host="h", slots=slots, added=added, node=node)


def bounded(slots, nodes=None, table=None, blocked=()):
    return BoundedSlots(
        slots,
        Nodes() if nodes is None else nodes,
        ExecutionTable() if table is None else table,
        SimpleNamespace(avoided=blocked),
    )


def test_grants_never_exceed_the_free_slots():
    slots = bounded(3)
    assert granted(slots, 0, 1) == [0, 1]
    assert granted(slots, 2, 3, 4) == [2]
    assert granted(slots, 3, 4) == []
    slots.ended(ints(1, 99))
    slots.ended(ints(1))
    assert granted(slots, 3, 4) == [3]


def test_slots_follow_the_nodes_that_are_known():
    nodes = Nodes()
    slots = bounded(2, nodes)
    assert slots.free == 2
    for number, count in enumerate((1, 4)):
        nodes.change(executor(number, f"n{number}", count))
    assert slots.free == 5
    assert granted(slots, *range(9)) == [0, 1, 2, 3, 4]
    nodes.change(executor(1, added=False))
    assert slots.free == -4
    assert granted(slots, 5) == []
    slots.ended(ints(*range(5)))
    nodes.change(executor(0, added=False))
    assert granted(slots, 5, 6) == [5], "a job that finds no node waits in Spark, which may get some"


def test_a_blocked_node_has_no_slots_and_what_runs_there_takes_none():
    nodes, table, blocked = Nodes(), ExecutionTable(), []
    for number in range(3):
        nodes.change(executor(number, f"n{number}"))
    slots = bounded(1, nodes, table, blocked)
    rows = table.create(0, np.arange(5), np.zeros(5, np.int64), -1, at=0.0)
    assert granted(slots, *rows) == [0, 1, 2]
    table.set_nodes(ints(0, 1), e.Names.of(["n0", "n1"]))
    blocked.append("n0")
    assert slots.free == 0
    slots.ended(ints(1))
    assert granted(slots, 3, 4) == [3]
    slots.ended(ints(0))
    assert slots.free == 0, "the slot of a blocked node is none"
    blocked.clear()
    assert slots.free == 1


def test_a_region_gets_all_its_slots_or_none():
    slots = bounded(3)
    wanted = RegionDeploymentOption((option(0, 1), option(2, 3, vertex=1)), (ints(0, 1), ints(0, 1)))
    got = slots.allocate_slots_for_regions(wanted)
    assert [part.executions.tolist() for part in got.parts] == [[0], [2]]
    assert slots.free == 1


def job(in_order, **options):
    builder = GraphBuilder()
    source = builder.source([10] * 7, parallelism=7)
    builder.step((source, ShipStrategy.HASH), parallelism=5)
    scheduler = create_scheduler(
        builder.graph, Options({SPECULATIVE: True, **options}), Inputs(slots=3, in_order=in_order)
    )
    return Plane(scheduler).start()


def test_a_job_has_no_more_tasks_than_slots_and_sends_the_next_when_one_ends():
    p = job(True)
    assert [key[1] for key in p.keys(0)] == [0, 1, 2]
    p.finish((0, 1, 0))
    assert [key[1] for key in p.keys(0)] == [0, 2, 3]
    p.fail((0, 3, 0))
    assert [key[1] for key in p.keys(0)] == [0, 2, 4]
    p.send(executor(0, slots=4))
    assert len(p.tasks) == 4
    p.run()
    assert p.status == "FINISHED"


def test_slots_are_bounded_only_where_mirrors_would_queue():
    assert type(job(False).scheduler.allocator) is Slots
    assert type(job(True, **{SPECULATIVE: False}).scheduler.allocator) is Slots


@pytest.mark.parametrize("slots", [2, 3, 6])
def test_pipelined_regions_run_in_few_slots(slots):
    builder = GraphBuilder()
    source = builder.source([1] * 3, parallelism=3)
    builder.step((source, ShipStrategy.FORWARD, ResultPartitionType.PIPELINED), parallelism=3)
    job = Job(builder.graph, Options({"jobmanager.scheduler": "Default"}), Inputs(), DirectInputs())
    scheduler = Scheduler(job, BoundedSlots(slots, job.nodes, job.executions, job.blocklist))
    p = Plane(scheduler).start()
    assert len(p.tasks) == slots // 2 * 2
    assert p.run().status == "FINISHED"
