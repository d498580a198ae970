"""Consumers of a nondeterministic producer that runs again: the test plane compares the rows that all winners read."""

from __future__ import annotations

import random

import numpy as np
import pytest
from tests.scheduler_kit import FaultInjection, GraphBuilder, attempts_of, drive, plane, random_graph, random_sizes

from firesteel.errors import UsageError
from firesteel.model.job_graph import ShipStrategy

HASH, RESCALE, FORWARD, BROADCAST = (
    ShipStrategy.HASH,
    ShipStrategy.RESCALE,
    ShipStrategy.FORWARD,
    ShipStrategy.BROADCAST,
)


def lose(p, vertex, subtask, dataset):
    """The object that a winner wrote is lost."""
    p.lost.add((dataset, subtask, *p.admitted[vertex, subtask]))


def pair(ship, deterministic=False, last=2, **options):
    """A producer of parallelism 2, readers of parallelism 2, and who reads those."""
    builder = GraphBuilder()
    builder.source([1] * 2, parallelism=2, deterministic=deterministic)
    builder.step((0, ship), parallelism=2)
    builder.step((1, HASH), parallelism=last)
    options["jobmanager__partition__release_during_job_execution"] = False
    return plane(builder.graph, subpartition_factor=1, **options)


@pytest.mark.parametrize("ship", [HASH, FORWARD, BROADCAST])
@pytest.mark.parametrize("deterministic", [True, False])
def test_who_has_read_what_is_made_anew_reads_again_unless_it_is_the_same(ship, deterministic):
    p = pair(ship, deterministic).start()
    p.run(0)
    p.finish((1, 0, 0))
    lose(p, 0, 1, 0)
    p.finish((1, 1, 0))
    shares = ship is not FORWARD  # else subtask 0 has nothing of partition 1
    again = {"1": 1} if shares and not deterministic else {}
    decision = p.decisions("failover")[-1]
    assert decision.inputs["invalidated"] == again
    assert decision.result == {"0": 1, "1": 1 + len(again)}
    assert ("or be other rows" in decision.reason) == bool(again)
    before = [d.ranges[0].rects.tolist() for d in p.deploys if d.vertex == 1]
    assert p.run().status == "FINISHED"
    assert len(p.decisions("parallelism", 2)) <= 1, "what was decided stays decided"
    assert all(d.ranges[0].rects.tolist()[0] in before[0] for d in p.deploys if d.vertex == 1)


def test_it_goes_on_to_those_who_read_the_readers_and_stops_where_nobody_has_read():
    builder = GraphBuilder()
    builder.source([1] * 2, parallelism=2, deterministic=False)
    (
        builder.step((0, FORWARD), parallelism=2),
        builder.step((1, FORWARD), parallelism=2),
        builder.step((2, HASH), parallelism=2),
    )
    p = plane(builder.graph, jobmanager__partition__release_during_job_execution=False).start()
    p.run(0), p.run(1), p.run(2)
    p.finish((3, 0, 0))
    lose(p, 0, 1, 0), lose(p, 1, 1, 1), lose(p, 2, 1, 2)
    p.finish((3, 1, 0))
    first = p.decisions("failover")[-1]
    assert first.result == {"2": 1, "3": 1} and first.inputs["invalidated"] == {}, "vertex 2 is deterministic"
    p.fire(next(iter(p.timers)))
    p.finish((2, 1, 1))  # misses what vertex 1 gave
    p.fire(next(iter(p.timers)))
    p.finish((1, 1, 1))  # misses what vertex 0 gave, which gives other rows now
    last = p.decisions("failover")[-1]
    assert last.result == {"0": 1, "1": 1, "3": 1} and last.inputs["invalidated"] == {"3": 1}
    assert p.run().status == "FINISHED"


def test_a_first_attempt_that_failed_gave_nobody_other_rows():
    p = pair(HASH).start()
    p.fail((0, 1, 0))
    p.fire(next(iter(p.timers)))
    p.run(0)
    p.finish((1, 0, 0))
    p.fail((1, 1, 0))
    assert p.decisions("failover")[-1].result == {"1": 1}
    assert p.run().status == "FINISHED" and attempts_of(p.deploys, 1) == [(0, 0), (1, 0), (1, 1)]


def mirror(p, vertex, subtask):
    """Beside the attempt of the subtask that runs."""
    p.slow(next(key for key in p.keys(vertex) if key[1] == subtask and not p.tasks[key].cancelled))


@pytest.mark.parametrize("winner", [0, 1])
def test_a_mirror_that_wins_is_no_producer_that_ran_again(winner):
    p = pair(HASH, speculative__enabled=True).start()
    mirror(p, 0, 1)
    p.finish((0, 1, winner))
    p.run(0)
    p.finish((1, 0, 0))
    p.fail((1, 1, 0))
    decision = p.decisions("failover")[-1]
    assert decision.result == {"1": 1} and decision.inputs["invalidated"] == {}
    assert p.run().status == "FINISHED"


@pytest.mark.parametrize("first", ["original", "mirror"])
def test_two_attempts_told_of_different_attempts_of_their_producer_end_together(first):
    """Subtask 0's attempts were both told of the producer's first attempt. It is lost: neither may win any more."""
    p = pair(HASH, speculative__enabled=True).start()
    p.run(0)
    mirror(p, 1, 0)
    lose(p, 0, 0, 0)
    p.finish((1, 1, 0))
    assert p.decisions("failover")[-1].result == {"0": 1, "1": 2}
    assert p.tasks[1, 0, 0].cancelled and p.tasks[1, 0, 1].cancelled
    p.fire("restart-1")
    p.finish((0, 0, 1))
    mirror(p, 1, 0)
    assert p.keys(1)[-3:] == [(1, 0, 2), (1, 0, 3), (1, 1, 1)]
    p.lost.clear()
    p.finish((1, 0, 0))  # had read all of the lost attempt, and comes too late
    assert (1, 0) not in p.scheduler.graph.vertices[1].winner.tolist() and p.admitted.get((1, 0)) is None
    p.finish((1, 0, 2 if first == "original" else 3))
    assert p.run().status == "FINISHED"


def test_a_finished_mirror_that_had_read_what_is_made_anew_reads_again():
    """By when the winner was told what to read, not by when its subtask began."""
    p = pair(HASH, speculative__enabled=True).start()
    p.run(0)
    mirror(p, 1, 0)
    p.finish((1, 0, 1))
    lose(p, 0, 0, 0)
    p.finish((1, 1, 0))
    decision = p.decisions("failover")[-1]
    assert decision.result == {"0": 1, "1": 2} and decision.inputs["invalidated"] == {"1": 1}
    assert p.run().status == "FINISHED"


def test_random_jobs_with_mirrors_read_the_same_rows_everywhere():
    """Lost objects, failures and mirrors that are made and win at random."""
    faults = FaultInjection(
        user=0.03, uncounted=0.05, worker=0.02, lose=0.2, double=0.05, foreign_cancel=0.02, slow=0.3
    )
    mirrors = reread = 0
    for seed in range(12):
        rng = random.Random(seed)
        try:
            p = plane(
                random_graph(rng),
                sizes=random_sizes(rng),
                restart_strategy__fixed_delay__attempts=10_000,
                restart_strategy__fixed_delay__delay="0 s",
                max_parallelism=4,
                speculative__enabled=True,
            )
        except UsageError:
            continue
        assert drive(p, rng, faults).status == "FINISHED"
        mirrors += sum(len(d.result) for d in p.decisions("speculation"))
        reread += sum(bool(d.inputs["invalidated"]) for d in p.decisions("failover"))
    assert mirrors > 10 and reread > 0


def divided_join(may=(True, False), sizes=None, **options):
    """Two producers of two subtasks each, a join of three of whose four subpartitions the last two are heavy on the left, and a reader."""
    builder = GraphBuilder()
    left, right = (builder.source([1] * 2, parallelism=2) for _ in range(2))
    builder.step((left, HASH), (right, HASH), divisible_inputs=may, parallelism=6)
    builder.step((2, HASH), parallelism=2)
    options["jobmanager__partition__release_during_job_execution"] = False
    heavy = np.array([1, 1, 60, 60])
    return plane(
        builder.graph,
        sizes=lambda vertex, subtask, dataset, n: np.resize(heavy if vertex == 0 else np.ones(4, int), n),
        data_volume_per_task=10,
        max_parallelism=6,
        subpartition_factor=1,
        **options,
    )


def readers_of(p, subpartition):
    """The subtasks of the join that read parts of the left side's subpartition."""
    ranges = p.scheduler.graph.vertices[2].ranges[0]
    return [k for k in range(6) if ranges.of(k)[0, 2] == subpartition and ranges.is_divided[ranges.offsets[k]]]


def test_who_has_read_a_part_of_a_subpartition_reads_again_if_another_part_is_read_anew():
    p = divided_join().start()
    p.run(0), p.run(1)
    heavy = sorted({s for s in range(6) if readers_of(p, s)})
    assert len(heavy) == 2, "two subpartitions are divided"
    first, second = (readers_of(p, s) for s in heavy)
    assert len(first) > 1 and len(second) > 1
    for subtask in [*second, first[0]]:
        p.finish((2, subtask, 0))
    lose(p, 0, 1, 0)
    p.finish((2, first[1], 0))
    decision = p.decisions("failover")[-1]
    assert decision.inputs["invalidated"] == {"2": 1}, "who has read parts of the other one has all there is"
    before = [r.tolist() for r in p.scheduler.graph.vertices[2].ranges[0].columns]
    assert p.run().status == "FINISHED"
    assert [r.tolist() for r in p.scheduler.graph.vertices[2].ranges[0].columns] == before
    again = [name for name in attempts_of(p.deploys, 2) if name[1] > 0]
    assert (first[0], 1) in again and not {(subtask, 1) for subtask in second} & set(again)


def test_the_side_that_all_sharers_read_whole_may_come_in_another_order():
    p = divided_join().start()
    p.run(0), p.run(1)
    first = readers_of(p, min(s for s in range(6) if readers_of(p, s)))
    p.finish((2, first[0], 0))
    lose(p, 1, 1, 1)
    p.finish((2, first[1], 0))
    assert p.decisions("failover")[-1].inputs["invalidated"] == {}
    assert p.run().status == "FINISHED"


def test_what_a_sharer_gives_anew_are_other_rows():
    """Its reader has read its first result, and reads again."""
    p = divided_join().start()
    p.run(0), p.run(1), p.run(2)
    p.finish((3, 0, 0))
    first = readers_of(p, min(s for s in range(6) if readers_of(p, s)))
    lose(p, 2, first[1], 2), lose(p, 0, 0, 0)
    p.finish((3, 1, 0))
    p.fire(next(iter(p.timers)))
    p.finish((2, first[1], 1))
    assert "3" in p.decisions("failover")[-1].inputs["invalidated"]
    assert p.run().status == "FINISHED"
