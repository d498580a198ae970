"""Joins that adapt, against a plain model of joins: random sizes, kinds, skews, hints and orders of events, with rows that are really
joined. Each pair comes out once, whatever was decided and whoever died; what was decided stays; the records tell it all."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.effort import examples
from tests.joins_kit import RowPlane, random_row_job
from tests.scheduler_kit import FaultInjection, GraphBuilder, drive, plane
from tests.simulation.digest import JournalDigest
from tests.simulation.job import SimulatedJob
from tests.simulation.random_jobs import random_job

from firesteel.model.job_graph import JobGraph, JoinInfo, ShipStrategy
from firesteel.options import Options
from firesteel.scheduler.exchange import merging
from firesteel.scheduler.failover.consumer_invalidation import ConsumerInvalidation
from firesteel.scheduler.joins import deferrals
from firesteel.scheduler.kernel.commands import JobStatus
from firesteel.simulation.violation import ViolationError

QUIET = FaultInjection(race=0.0)
FAULTS = FaultInjection(
    user=0.03,
    uncounted=0.03,
    worker=0.02,
    storage=0.02,
    lose=0.06,
    lose_merged=0.05,
    double=0.1,
    other_token=0.05,
    foreign_cancel=0.02,
    executors=0.02,
    publishing=0.5,
    unreadable=0.1,
    slow=0.1,
    reject=0.05,
    lost=0.03,
)


def driven(rng: random.Random, faults: FaultInjection) -> RowPlane:
    """A job that has run to its end."""
    job = random_row_job(rng)
    options = {
        "data_volume_per_task": rng.choice([30, 60, 1000]),
        "max_parallelism": rng.choice([1, 4, 8, 8]),
        "least_volume_per_slot": rng.choice([0, 20]),
        "restart_strategy__fixed_delay__delay": rng.choice(["0 s", "1 s"]),
        "restart_strategy__fixed_delay__attempts": 10_000,
        "offload_threshold": rng.choice([1, 1 << 40]),
        "firesteel__merge__request_time": rng.choice(["0 s", "1 h"]),
        "firesteel__merge__threshold": rng.choice([2, 1 << 30]),
        "firesteel__join__adaptive": rng.random() < 0.9,
        "speculative__enabled": rng.random() < 0.5,
        "speculative__max_concurrent_executions": rng.choice([2, 3]),
    }
    given = {"slots": rng.choice([1, 4, 9]), "task_memory": rng.choice([None, 100, 2000])}
    made = plane(job.graph, make=partial(RowPlane, job=job, validate_every=5), **given, **options)
    made.scheduler.graph.size_buffer_bytes = rng.choice([0, 100, 1 << 20])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merging, "WORTH", -1.0)
        patch.setattr(deferrals, "WAIT_SHARE", rng.choice([0.25, 1e9, 1e9]))
        drive(made, rng, faults)
    assert made.status == "FINISHED"
    return made


def tell(p: RowPlane) -> None:
    for what, of in (("absorbed", len(p.changes)), ("failovers", len(p.decisions("failover")))):
        event(f"{min(of, 3)} {what}")
    event(f"decided: {', '.join(sorted({d.result for d in p.decisions('join')}))}")
    event(f"by the same key: {', '.join(sorted({d.result for d in p.decisions('two steps')}))}")


@settings(max_examples=examples(150), deadline=None)
@given(st.integers(0, 1 << 32))
def test_each_pair_comes_out_once_whatever_was_decided(seed):
    p = driven(random.Random(seed), QUIET)
    tell(p)
    assert not p.decisions("failover")
    p.check_rows()
    p.check_graph()
    p.check_records()


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(0, 1 << 32))
def test_each_pair_comes_out_once_whoever_died(seed):
    p = driven(random.Random(seed), FAULTS)
    tell(p)
    p.check_rows()
    p.check_graph()
    p.check_records()


@pytest.mark.full
def test_the_jobs_are_as_wild_as_they_are_meant_to_be():
    """Guards the tests above against dice that have gone quiet."""
    wanted = [
        "broadcast left, bytes",
        "broadcast right, bytes",
        "broadcast right, hint",
        "hash, memory",
        "hash, too late",
    ]
    wanted += [
        "hash, bytes",
        "hash, hint",
        "hash, next step",
        "hash, one step",
        "one step",
        "two steps",
        "a chain",
        "a fused vertex ran again",
        "invalidated a fused vertex",
    ]
    seen: Counter[str] = Counter()
    for seed in range(120, 300):  # the first of these have it all
        if not (missing := [what for what in wanted if not seen[what]]):
            break
        p = driven(random.Random(seed), FAULTS)
        fused = {vertex for vertex, program in p.programs.items() if len(program) > 1}
        seen.update(f"{d.result}, {d.rule}" for d in p.decisions("join"))
        seen.update(d.result for d in p.decisions("two steps"))
        seen["a chain"] += any(len(program) > 2 for program in p.programs.values())
        seen["a fused vertex ran again"] += any(d.vertex in fused and d.attempts.max() for d in p.deploys)
        invalidated = {vertex for d in p.decisions("failover") for vertex in d.inputs["invalidated"]}
        seen["invalidated a fused vertex"] += bool(invalidated & {str(vertex) for vertex in fused})
    assert not missing, seen


# --- with a cluster on which everything goes wrong -----------------------------------------------------------------


def star_graph(rng: random.Random) -> JobGraph:
    """A fact joined with up to three sides, each of which is to be read whole; some give other rows when they are made again."""
    builder = GraphBuilder()
    fact, sides = builder.source([1000] * rng.randint(2, 8)), range(1, 1 + rng.randint(1, 3))
    for _ in sides:
        builder.source([1000] * rng.randint(1, 3), deterministic=rng.random() < 0.3)
    for side in sides:
        build = rng.choice([0, 1])
        inputs = [(fact, ShipStrategy.HASH), (side, ShipStrategy.HASH)]
        fact = builder.step(*(inputs if build else inputs[::-1]), join=JoinInfo("inner", ("", ""), build))
    builder.step((fact, rng.choice([ShipStrategy.HASH, ShipStrategy.REBALANCE])))
    return builder.graph


def run_star(seed: int) -> SimulatedJob:
    rng = random.Random(seed)
    job = next(job for job in (random_job(rng.randrange(1 << 30)) for _ in iter(int, 1)) if job.forgiving)
    changes = {"jobmanager.scheduler": "AdaptiveBatch", "max-parallelism": 8, "data-volume-per-task": 1000}
    options = job.options.with_values(Options(changes))
    simulated = SimulatedJob(
        replace(job, graph=star_graph(rng), options=options).scheduler(), job.world, JournalDigest()
    )
    assert simulated.run().status is JobStatus.FINISHED
    return simulated


def test_sides_that_are_lost_while_they_are_read_whole():
    """Who was told which splits, and which objects: the simulation's own book is looked at when the job has finished."""
    restarted, tried = 0, max(10, examples(100))  # among fewer too few are restarted
    for seed in range(tried):
        ran = run_star(seed)
        fused = [v for v in ran.scheduler.graph.vertices if any(edge.whole for edge in v.job.inputs)]
        sides = sum(edge.whole for vertex in fused for edge in vertex.job.inputs)
        assert len(fused) == 1 and sides == sum(v.is_absorbed for v in ran.scheduler.graph.vertices)
        restarted += bool(ran.scheduler.executions.attempt[fused[0].chosen].any())
    assert restarted * 4 > tried


@pytest.mark.full
def test_sides_of_several_attempts_are_seen(monkeypatch):
    monkeypatch.setattr(ConsumerInvalidation, "invalidated", lambda self: {})
    with pytest.raises(ViolationError, match="has read several attempts"):
        for seed in range(400):
            run_star(seed)


@pytest.mark.parametrize("n", [100, 400])
def test_nothing_grows_with_probe_tasks_times_build_tasks(n):
    """Counts the numbers that a join of n tasks, each of which reads n objects whole, leaves behind."""
    builder = GraphBuilder()
    fact, side = (builder.source([1] * n, parallelism=-1, max_parallelism=n) for _ in (0, 1))
    builder.step(
        (fact, ShipStrategy.HASH), (side, ShipStrategy.HASH), join=JoinInfo("inner", ("", ""), 1), max_parallelism=n
    )
    bounds = {"max_parallelism": n, "data_volume_per_task": 1}
    p = plane(builder.graph, check=False, sizes=lambda _v, _s, _d, k: np.ones(k, np.int64), **bounds).start()
    assert p.run(side).parallelism(side) == n
    assert p.parallelism(2) == n and [d.result for d in p.decisions("join")] == ["broadcast right"]
    (edges,) = [result.consumers for result in p.scheduler.graph.results if result is not None]
    (deploy,) = [deploy for deploy in p.deploys if deploy.vertex == 2]
    held = sum(edge.elements for edge in edges) + sum(r.rects.size for r in deploy.ranges)
    held += sum(len(gate.attempts) + len(gate.tokens) for gate in deploy.gates)
    assert held <= 20 * n
    assert p.run().status == "FINISHED"
