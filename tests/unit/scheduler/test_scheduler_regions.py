"""Pipelined regions: what they are, how they are deployed, restarted and released, and what events touch."""

import numpy as np
import pytest
from tests.scheduler_kit import GraphBuilder, Plane, ints, plane, waits_of

from firesteel.errors import UsageError
from firesteel.model.job_graph import ResultPartitionType, ShipStrategy
from firesteel.model.pipelined_region import fed_while_running, logical_pipelined_regions
from firesteel.options import Options
from firesteel.scheduler.failover.regions import tasks_needing_restart
from firesteel.scheduler.inputs import DirectInputs, Inputs
from firesteel.scheduler.job import Job
from firesteel.scheduler.kernel import commands as c
from firesteel.scheduler.scheduler import Scheduler
from firesteel.scheduler.slots.allocators import BoundedSlots

HASH, RESCALE, FORWARD = ShipStrategy.HASH, ShipStrategy.RESCALE, ShipStrategy.FORWARD
BROADCAST, REBALANCE, GLOBAL = ShipStrategy.BROADCAST, ShipStrategy.REBALANCE, ShipStrategy.GLOBAL
PIPELINED = ResultPartitionType.PIPELINED


def default(graph, **options):
    return plane(graph, jobmanager__scheduler="Default", **options)


def pair(*ships, n=3, m=None, **options):
    """A source, and a step that reads it over pipelined edges."""
    builder = GraphBuilder()
    builder.source([1] * n, parallelism=n)
    builder.step(*((0, ship, PIPELINED) for ship in ships), parallelism=m or n)
    return default(builder.graph, **options)


def of(commands, kind):
    return [x for x in commands if isinstance(x, kind)]


def parts(command):
    return [(part.vertex, part.subtasks.tolist()) for part in command.parts]


# --- what they are -------------------------------------------------------------------------------------------


def test_vertices_joined_by_pipelined_results_and_circles_are_one_logical_region():
    builder = GraphBuilder()
    a = builder.source([1])
    b = builder.step((a, HASH))
    d = builder.step((a, FORWARD, PIPELINED), (b, HASH))
    builder.step((d, HASH))
    regions = logical_pipelined_regions(builder.graph)
    assert [r.vertices for r in regions] == [(0, 1, 2), (3,)]
    assert fed_while_running(builder.graph) == {1, 2}


def test_regions_come_in_topological_order_not_by_their_first_vertex():
    builder = GraphBuilder()
    a, b = builder.source([1]), builder.source([1])
    builder.step((a, FORWARD, PIPELINED), (b, HASH))
    assert [r.vertices for r in logical_pipelined_regions(builder.graph)] == [(1,), (0, 2)]


@pytest.mark.parametrize("n", [10, 10_000])
def test_where_all_is_blocking_every_subtask_is_a_region_and_nothing_is_held(n):
    builder = GraphBuilder()
    builder.source([1] * n, parallelism=n)
    builder.step((0, HASH), parallelism=n)
    regions = default(builder.graph, check=False).start().scheduler.graph.regions
    assert regions.count == 2 * n and regions.elements == 0
    assert regions.is_trivial(0) and regions.of(1, ints(0, n - 1)).tolist() == [n, 2 * n - 1]
    assert {v: s.tolist() for v, s in regions[n + 1].subtasks.items()} == {1: [1]}


@pytest.mark.parametrize("ship", [HASH, BROADCAST, REBALANCE])
def test_an_all_to_all_edge_inside_makes_one_region(ship):
    p = pair(ship, n=4, m=2).start()
    assert p.scheduler.graph.regions.count == 1
    (deployed,) = of(p.commands, c.DeployRegions)
    assert parts(deployed) == [(0, [0, 1, 2, 3]), (1, [0, 1])]


def test_forward_edges_join_like_subtasks_and_need_no_columns():
    p = pair(FORWARD, n=4).start()
    regions = p.scheduler.graph.regions
    assert regions.count == 4 and regions.elements == 0
    assert {v: s.tolist() for v, s in regions[2].subtasks.items()} == {0: [2], 1: [2]}
    (decision,) = p.decisions("pipelined regions")
    assert decision.result == 4 and decision.reason == (
        "8 subtasks of vertices 0, 1 run in 4 regions, each all at once: pointwise edges inside"
    )


@pytest.mark.parametrize(("ship", "why"), [(FORWARD, "pointwise edges inside"), (HASH, "an all-to-all edge inside")])
def test_why_there_is_one_region_is_told_truly(ship, why):
    (decision,) = pair(ship, n=1).start().decisions("pipelined regions")
    assert decision.rule == why
    assert decision.reason == f"2 subtasks of vertices 0, 1 run in 1 region, all at once: {why}"


def test_blocks_of_a_rescale_are_regions():
    regions = pair(RESCALE, n=4, m=2).start().scheduler.graph.regions
    assert [
        {v: s.tolist() for v, s in regions[k].subtasks.items()} for k in range(regions.count)
    ] == [{0: [0, 1], 1: [0]}, {0: [2, 3], 1: [1]}]  # fmt: skip


def test_of_a_circle_only_those_that_wait_for_each_other_are_merged():
    builder = GraphBuilder()
    a = builder.source([1, 1], parallelism=2)
    b = builder.step((a, RESCALE), parallelism=3)
    builder.step((a, RESCALE, PIPELINED), (b, RESCALE), parallelism=4)
    p = default(builder.graph).start()
    regions = p.scheduler.graph.regions
    assert [{v: s.tolist() for v, s in regions[k].subtasks.items()} for k in range(regions.count)] == [
        {0: [0], 1: [0], 2: [0, 1]},
        {0: [1], 1: [2], 2: [2, 3]},
        {1: [1]},
    ]
    assert [parts(x) for x in p.regions] == [[(0, [0]), (1, [0]), (2, [0, 1])]]
    (made_beside,) = {tuple(part.gates[0].attempts.tolist()) for part in p.regions[0].parts if part.vertex == 1}
    assert made_beside == (-1, -1)
    p.finish((0, 0, 0))
    assert p.keys(1) == [(1, 0, 0), (1, 1, 0)], "a region in between needs no other vertex"
    p.finish((1, 1, 0))
    assert parts(p.regions[-1]) == [(0, [1]), (1, [2]), (2, [2, 3])]
    assert p.run().status == "FINISHED"


# --- scheduling ----------------------------------------------------------------------------------------------


def test_a_region_waits_for_all_its_blocking_inputs_and_is_deployed_by_one_command():
    builder = GraphBuilder()
    a, b = builder.source([1] * 2, parallelism=2), builder.source([1] * 2, parallelism=2)
    d = builder.step((a, HASH), parallelism=2)
    builder.step((d, FORWARD, PIPELINED), (b, BROADCAST), parallelism=2)
    p = default(builder.graph).start()
    assert {k[0] for k in p.tasks} == {a, b}
    p.run(a)
    assert not p.keys(d)
    waits = waits_of(p.scheduler)
    assert any("vertex 2 'step 2', with which it runs at the same time" in line for line in waits), waits
    p.run(b)
    (deployed,) = p.regions
    assert parts(deployed) == [(2, [0, 1]), (3, [0, 1])]
    gate = deployed.parts[1].gates[0]
    assert gate.pipelined and not len(gate.attempts) and not len(gate.tokens)
    assert not deployed.parts[1].gates[1].pipelined
    assert p.run().status == "FINISHED"


@pytest.mark.parametrize("cut", ["by-bytes", "by-count"])
@pytest.mark.parametrize("ship", [HASH, REBALANCE, RESCALE])
def test_pipelined_inputs_are_cut_by_count_so_that_every_subtask_has_a_share(ship, cut):
    p = pair(ship, n=8, m=6, cut=cut).start()
    ranges = p.scheduler.graph.vertices[1].ranges[0]
    assert (np.diff(ranges.offsets) >= 1).all()
    assert p.run().status == "FINISHED"


def test_a_rebalanced_blocking_input_beside_a_pipelined_one_has_a_share_for_everybody_too():
    builder = GraphBuilder()
    a, b = builder.source([1] * 8, parallelism=8), builder.source([1] * 6, parallelism=6)
    builder.step((a, REBALANCE), (b, FORWARD, PIPELINED), parallelism=6)
    p = default(builder.graph).start().run()
    assert p.status == "FINISHED" and p.scheduler.graph.result(0).num_subpartitions == 6


def test_several_edges_between_two_vertices_are_one_part_each():
    p = pair(FORWARD, BROADCAST, HASH).start()
    (deployed,) = p.regions
    assert [gate.pipelined for gate in deployed.parts[1].gates] == [True] * 3
    assert p.run().status == "FINISHED"


def test_adaptive_batch_refuses_pipelined_exchanges_and_says_what_can_have_them():
    builder = GraphBuilder()
    builder.step((builder.source([1]), FORWARD, PIPELINED))
    with pytest.raises(UsageError) as caught:
        plane(builder.graph)
    assert "jobmanager.scheduler to Default" in str(caught.value.hint)
    assert default(builder.graph).start().run().status == "FINISHED"


class FewSlots(BoundedSlots):
    """So many; grants what it can."""

    free = 0

    def __init__(self, free):
        self.free = free

    def allocate_slots_for(self, option):
        n = min(self.free, len(option.subtasks))
        self.free -= n
        return type(option)(option.vertex, option.subtasks[:n], option.executions[:n])

    def ended(self, rows):
        self.free += len(rows)


@pytest.mark.parametrize(("free", "at_once"), [(2, 1), (3, 1), (5, 2), (6, 3)])
def test_a_region_gets_all_its_slots_or_none(free, at_once):
    builder = GraphBuilder()
    builder.source([1] * 3, parallelism=3)
    builder.step((0, FORWARD, PIPELINED), parallelism=3)
    slots = FewSlots(free)
    options = Options({"jobmanager.scheduler": "Default"})
    p = Plane(Scheduler(Job(builder.graph, options, Inputs(), DirectInputs()), slots)).start()
    assert len(p.keys(0)) == len(p.keys(1)) == at_once and slots.free == free - 2 * at_once
    if at_once < 3:
        assert any("waiting for a slot" in line for line in waits_of(p.scheduler))
    assert p.run().status == "FINISHED" and slots.free == free
    assert all(len(part.subtasks) == len(x.parts[0].subtasks) for x in p.regions for part in x.parts)


# --- failover ------------------------------------------------------------------------------------------------


def test_a_restart_of_a_region_takes_finished_members_along_and_no_other_region():
    p = pair(FORWARD, restart_strategy__fixed_delay__delay="0 s").start()
    p.finish((0, 1, 0)), p.finish((0, 2, 0)), p.finish((1, 2, 0))
    p.fail((1, 1, 0))
    assert parts(p.regions[-1]) == [(0, [1]), (1, [1])]
    assert p.regions[-1].parts[0].attempts.tolist() == [1]
    (decision,) = p.decisions("failover")
    assert decision.result == {"0": 1, "1": 1}
    assert p.run().status == "FINISHED"


def test_a_failed_producer_cancels_who_reads_it_now():
    p = pair(FORWARD).start()
    (cancel,) = of(p.fail((0, 2, 0)), c.Cancel)
    assert (cancel.vertex, cancel.subtasks.tolist()) == (1, [2])
    assert "runs again after a failure in vertex 0" in cancel.reason
    p.confirm_cancel((1, 2, 0))
    p.fire("restart-1")
    assert parts(p.regions[-1]) == [(0, [2]), (1, [2])]


def test_what_a_region_stored_is_read_again_only_by_who_needs_it():
    """Its blocking result is made again with it; the finished reader keeps what it has, and the new one goes at once."""
    builder = GraphBuilder()
    a = builder.source([1] * 2, parallelism=2)
    builder.step((a, FORWARD, PIPELINED), parallelism=2)
    reader = builder.step((a, FORWARD), parallelism=2)
    p = default(builder.graph, restart_strategy__fixed_delay__delay="0 s").start()
    p.finish((a, 0, 0), (a, 1, 0))
    (first,) = of(p.finish((reader, 0, 0)), c.ReleasePartitions)
    assert first.partitions.tolist() == [0]
    p.fail((1, 0, 0))
    assert p.keys(a) == [(a, 0, 1)] and p.keys(reader) == [(reader, 1, 0)]
    (second,) = of(p.finish((a, 0, 1)), c.ReleasePartitions)
    assert (second.partitions.tolist(), second.attempts.tolist()) == ([0], [1])
    assert p.run().status == "FINISHED"


# --- release -------------------------------------------------------------------------------------------------


def stored(ship, n=4, m=None, **options):
    builder = GraphBuilder()
    builder.source([1] * n, parallelism=n)
    builder.step((0, ship), parallelism=m or n)
    return default(builder.graph, **options).start()


def test_a_group_goes_with_its_last_reader():
    p = stored(RESCALE, n=4, m=2).run(0)
    (release,) = of(p.finish((1, 1, 0)), c.ReleasePartitions)
    assert release.partitions.tolist() == [2, 3]
    assert p.run().status == "FINISHED"


def test_a_group_goes_with_the_region_of_its_reader():
    builder = GraphBuilder()
    a = builder.source([1] * 2, parallelism=2)
    b = builder.step((a, HASH), parallelism=2)
    builder.step((b, FORWARD, PIPELINED), parallelism=2)
    p = default(builder.graph).start().run(a)
    p.finish((1, 0, 0), (1, 1, 0)), p.finish((2, 0, 0))
    assert not p.released
    (release,) = of(p.finish((2, 1, 0)), c.ReleasePartitions)
    assert release.partitions.tolist() == [0, 1]


def test_a_partition_waits_for_every_group_of_every_edge():
    builder = GraphBuilder()
    a = builder.source([1] * 2, parallelism=2)
    builder.step((a, RESCALE), parallelism=2)
    builder.step((a, RESCALE), (a, FORWARD), parallelism=2)
    builder.step((a, RESCALE), parallelism=4)
    p = default(builder.graph).start().run(a)
    p.run(1)
    assert not p.released
    (release,) = of(p.finish((2, 0, 0)), c.ReleasePartitions)
    assert (release.dataset, release.partitions.tolist()) == (1, [0])
    assert not of(p.finish((3, 0, 0)), c.ReleasePartitions)
    (release,) = of(p.finish((3, 1, 0)), c.ReleasePartitions)
    assert (release.dataset, release.partitions.tolist()) == (0, [0])
    assert p.run().status == "FINISHED"


@pytest.mark.parametrize("during", [True, False])
def test_partitions_can_be_kept_until_the_job_has_finished(during):
    p = stored(FORWARD, n=2, jobmanager__partition__release_during_job_execution=str(during).lower()).run(0)
    assert bool(of(p.finish((1, 0, 0)), c.ReleasePartitions)) is during
    last = p.finish((1, 1, 0))
    (release,) = of(last, c.ReleasePartitions)
    assert release.partitions.tolist() == ([1] if during else [0, 1])
    assert p.status == "FINISHED" and last[-1] is p.ended


def test_a_reader_that_runs_again_gets_its_producers_again_though_they_were_released():
    builder = GraphBuilder()
    a = builder.source([1] * 2, parallelism=2)
    b = builder.step((a, FORWARD), parallelism=2)
    builder.step((b, HASH), parallelism=1)
    p = default(builder.graph, restart_strategy__fixed_delay__delay="0 s").start().run(a)
    p.run(b)
    assert {(d, k) for d, k, _, _ in p.released} == {(0, 0), (0, 1)}
    p.lost.add((1, 0, *p.admitted[b, 0]))
    p.finish((2, 0, 0))
    assert p.keys(a) == [(a, 0, 1)]
    assert p.run().status == "FINISHED"


# --- what is touched -----------------------------------------------------------------------------------------


def touched(p):
    return sum(edge.touched for result in p.scheduler.graph.results for edge in result.consumers)


@pytest.mark.parametrize("n", [100, 400])
@pytest.mark.parametrize("ship", [HASH, FORWARD, RESCALE, REBALANCE, BROADCAST])
def test_a_job_touches_a_few_elements_per_subtask(ship, n):
    p = stored(ship, n=n, check=False)
    for key in p.keys(0):
        p.finish(key)
    p.run()
    assert p.status == "FINISHED" and touched(p) <= 12 * n


@pytest.mark.parametrize("n", [100, 1000])
@pytest.mark.parametrize(("ship", "least"), [(HASH, 1), (FORWARD, 1)])
def test_a_failover_visits_each_group_once(ship, least, n):
    p = stored(ship, n=n, check=False)
    p.run(0)
    before = touched(p)
    restart = tasks_needing_restart(p.scheduler.graph, {0: ints(5)})
    assert sum(map(len, restart.tasks.values())) == (n + 1 if ship is HASH else 2)
    assert least <= touched(p) - before <= (3 * n if ship is HASH else 10)
