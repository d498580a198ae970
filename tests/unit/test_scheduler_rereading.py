"""Consumers of a nondeterministic producer that runs again: the test plane compares the rows that all winners read."""

from __future__ import annotations

import random

import numpy as np
import pytest
from tests.scheduler_kit import Chaos, GraphBuilder, attempts_of, drive, plane, random_graph, random_sizes

from firesteel.errors import UsageError
from firesteel.graph.job_graph import ShipStrategy
from firesteel.scheduler.events import TimerFired
from firesteel.scheduler.slots import ExecutionDeploymentOption
from firesteel.scheduler.speculation import NoSpeculation
from firesteel.scheduler.states import IS_DEPLOYED

HASH, RESCALE, FORWARD, BROADCAST = (
    ShipStrategy.HASH,
    ShipStrategy.RESCALE,
    ShipStrategy.FORWARD,
    ShipStrategy.BROADCAST,
)


def lose(p, vertex, subtask, dataset):
    """The object that a winner wrote is lost."""
    p.lost.add((dataset, subtask, *p.admitted[vertex, subtask]))


class Mirrors(NoSpeculation):
    """Mirrors that are asked for, and with an ``rng`` also some for no reason."""

    def __init__(self, p, rng: random.Random | None = None) -> None:
        self._p, self._scheduler, self._rng = p, p.scheduler, rng
        self._wanted: list[tuple[int, list[int]]] = []
        self.made = 0
        p.scheduler.speculation = self

    def mirror(self, vertex: int, subtask: int) -> None:
        self._wanted.append((vertex, [subtask]))
        self._p.send(TimerFired(at=self._p.tick(), timer="now"))

    def schedule(self) -> None:
        wanted, self._wanted = self._wanted, []
        for vertex in self._scheduler.graph.vertices if self._rng else ():
            if vertex.ranges is not None and vertex.job.supports_concurrent_attempts:
                running = np.flatnonzero(IS_DEPLOYED[vertex.states]).tolist()
                alone = [s for s in running if len(vertex[s].current_executions) < 2 and self._rng.random() < 0.5]
                wanted.append((vertex.id, alone))
        for number, subtasks in wanted:
            vertex, chosen = self._scheduler.graph.vertices[number], np.array(subtasks, np.int64)
            rows = vertex.create_new_speculative_executions(chosen, self._scheduler.recorder.at)
            self._scheduler.operations.created(vertex, rows, "slow")
            if len(rows):
                self._scheduler.allocate_slots_and_deploy([ExecutionDeploymentOption(number, chosen, rows)])
            self.made += len(rows)


def pair(ship, deterministic=False, last=2, **options):
    """A producer of parallelism 2, readers of parallelism 2, and who reads those."""
    builder = GraphBuilder()
    builder.source([1] * 2, parallelism=2, deterministic=deterministic)
    builder.step((0, ship), parallelism=2)
    builder.step((1, HASH), parallelism=last)
    return plane(
        builder.graph, subpartition_factor=1, jobmanager__partition__release_during_job_execution=False, **options
    )


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
    assert decision.inputs["rereaders"] == again
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
    assert first.result == {"2": 1, "3": 1} and first.inputs["rereaders"] == {}, "vertex 2 is deterministic"
    p.fire(next(iter(p.timers)))
    p.finish((2, 1, 1))  # misses what vertex 1 gave
    p.fire(next(iter(p.timers)))
    p.finish((1, 1, 1))  # misses what vertex 0 gave, which gives other rows now
    last = p.decisions("failover")[-1]
    assert last.result == {"0": 1, "1": 1, "3": 1} and last.inputs["rereaders"] == {"3": 1}
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


@pytest.mark.parametrize("winner", [0, 1])
def test_a_mirror_that_wins_is_no_producer_that_ran_again(winner):
    p = pair(HASH).start()
    Mirrors(p).mirror(0, 1)
    p.finish((0, 1, winner))
    p.run(0)
    p.finish((1, 0, 0))
    p.fail((1, 1, 0))
    decision = p.decisions("failover")[-1]
    assert decision.result == {"1": 1} and decision.inputs["rereaders"] == {}
    assert p.run().status == "FINISHED"


@pytest.mark.parametrize("first", ["original", "mirror"])
def test_two_attempts_told_of_different_attempts_of_their_producer_end_together(first):
    """Subtask 0's attempts were both told of the producer's first attempt. It is lost: neither may win any more."""
    p = pair(HASH).start()
    p.run(0)
    mirrors = Mirrors(p)
    mirrors.mirror(1, 0)
    lose(p, 0, 0, 0)
    p.finish((1, 1, 0))
    assert p.decisions("failover")[-1].result == {"0": 1, "1": 2}
    assert p.tasks[1, 0, 0].cancelled and p.tasks[1, 0, 1].cancelled
    p.fire(next(iter(p.timers)))
    p.finish((0, 0, 1))
    mirrors.mirror(1, 0)
    assert p.keys(1)[-3:] == [(1, 0, 2), (1, 0, 3), (1, 1, 1)]
    p.lost.clear()
    p.finish((1, 0, 0))  # had read all of the lost attempt, and comes too late
    assert (1, 0) not in p.scheduler.graph.vertices[1].winner.tolist() and p.admitted.get((1, 0)) is None
    p.finish((1, 0, 2 if first == "original" else 3))
    assert p.run().status == "FINISHED"


def test_a_finished_mirror_that_had_read_what_is_made_anew_reads_again():
    """By when the winner was told what to read, not by when its subtask began."""
    p = pair(HASH).start()
    p.run(0)
    Mirrors(p).mirror(1, 0)
    p.finish((1, 0, 1))
    lose(p, 0, 0, 0)
    p.finish((1, 1, 0))
    decision = p.decisions("failover")[-1]
    assert decision.result == {"0": 1, "1": 2} and decision.inputs["rereaders"] == {"1": 1}
    assert p.run().status == "FINISHED"


def test_random_jobs_with_mirrors_read_the_same_rows_everywhere():
    """Lost objects, failures and mirrors that are made and win at random."""
    chaos = Chaos(user=0.03, innocent=0.05, worker=0.02, lose=0.2, double=0.05, foreign_cancel=0.02)
    mirrors = reread = 0
    for seed in range(16):
        rng = random.Random(seed)
        try:
            p = plane(
                random_graph(rng),
                sizes=random_sizes(rng),
                restart_strategy__fixed_delay__attempts=10_000,
                restart_strategy__fixed_delay__delay="0 s",
                max_parallelism=4,
            )
        except UsageError:
            continue
        made = Mirrors(p, rng)
        assert drive(p, rng, chaos).status == "FINISHED"
        mirrors += made.made
        reread += sum(bool(d.inputs["rereaders"]) for d in p.decisions("failover"))
    assert mirrors > 20 and reread > 0
