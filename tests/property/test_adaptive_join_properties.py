"""Joins that adapt, against a plain model of joins: random sizes, kinds, skews, hints and orders of events, with rows that are really
joined. Each pair comes out once, whatever was decided and whoever died; what was decided stays; the records tell it all."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.effort import examples
from tests.joins_kit import RowPlane, random_row_job
from tests.scheduler_kit import FaultInjection, drive, plane

from firesteel.scheduler.exchange import merging
from firesteel.scheduler.joins import adaptive

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
        patch.setattr(adaptive, "WAIT_SHARE", rng.choice([0.25, 1e9, 1e9]))
        drive(made, rng, faults)
    assert made.status == "FINISHED"
    return made


def tell(p: RowPlane) -> None:
    for what, of in (("absorbed", len(p.changes)), ("failovers", len(p.decisions("failover")))):
        event(f"{min(of, 3)} {what}")
    event(f"decided: {', '.join(sorted({d.result for d in p.decisions('join')}))}")


@settings(max_examples=examples(150), deadline=None)
@given(st.integers(0, 1 << 32))
def test_each_pair_comes_out_once_whatever_was_decided(seed):
    p = driven(random.Random(seed), QUIET)
    tell(p)
    assert not p.decisions("failover")
    p.check_rows()
    p.check_graph()


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(0, 1 << 32))
def test_each_pair_comes_out_once_whoever_died(seed):
    p = driven(random.Random(seed), FAULTS)
    tell(p)
    p.check_rows()
    p.check_graph()


def test_the_jobs_are_as_wild_as_they_are_meant_to_be():
    """Guards the tests above against dice that have gone quiet."""
    wanted = [
        "broadcast left, bytes",
        "broadcast right, bytes",
        "broadcast right, hint",
        "hash, memory",
        "hash, too late",
    ]
    wanted += ["hash, bytes", "hash, hint", "a chain", "a fused vertex ran again", "invalidated a fused vertex"]
    seen: Counter[str] = Counter()
    for seed in range(120, 300):  # the first of these have it all
        if not (missing := [what for what in wanted if not seen[what]]):
            break
        p = driven(random.Random(seed), FAULTS)
        fused = {vertex for vertex, program in p.programs.items() if len(program) > 1}
        seen.update(f"{d.result}, {d.rule}" for d in p.decisions("join"))
        seen["a chain"] += any(len(program) > 2 for program in p.programs.values())
        seen["a fused vertex ran again"] += any(d.vertex in fused and d.attempts.max() for d in p.deploys)
        invalidated = {vertex for d in p.decisions("failover") for vertex in d.inputs["invalidated"]}
        seen["invalidated a fused vertex"] += bool(invalidated & {str(vertex) for vertex in fused})
    assert not missing, seen
