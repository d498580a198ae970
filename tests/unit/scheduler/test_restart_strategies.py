"""Restart strategies on a virtual clock: none, fixed delay, failure rate, exponential delay, with Flink's keys."""

from __future__ import annotations

import pytest
from tests.scheduler_kit import GraphBuilder, Plane

from firesteel.errors import UsageError
from firesteel.model.job_graph import ShipStrategy
from firesteel.options import Options
from firesteel.scheduler.failover.restart_strategies import RestartStrategy, restart_strategy
from firesteel.scheduler.scheduler import create_scheduler

RATE = "restart-strategy.failure-rate."
GROWING = "restart-strategy.exponential-delay."


def strategy(kind: str, job: str = "job", **options) -> RestartStrategy:
    return restart_strategy(Options({"restart-strategy.type": kind, **options}), job)


def delays(s: RestartStrategy, *times: float) -> list[float | None]:
    return [s.count_failure(at).delay for at in times]


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("off", "none"),
        ("Disable", "none"),
        ("fixeddelay", "fixed-delay"),
        ("failurerate", "failure-rate"),
        ("exponentialdelay", "exponential-delay"),
        ("Exponential-Delay", "exponential-delay"),
    ],
)
def test_flinks_words_name_a_strategy(word, name):
    assert strategy(word).name == name


def test_none_restarts_nothing():
    s = strategy("off")
    assert s.count_failure(0.0).delay is None and s.uncounted("it was not to blame").delay is None


# --- failure rate ---------------------------------------------------------------------------------------------------


def test_by_default_the_second_failure_within_a_minute_ends_the_job():
    s = strategy("failure-rate")
    first = s.count_failure(0.0)
    assert (first.delay, first.reason) == (1.0, "failure 1 of 1 within 1 min, after 1 s")
    assert s.count_failure(60.001).delay == 1.0, "the first is longer ago than the interval"
    last = s.count_failure(120.0)
    assert last.delay is None
    assert last.reason == (
        "2 failures within 1 min, and restart-strategy.failure-rate.max-failures-per-interval allows 1"
    )


def test_failures_are_counted_over_the_interval_that_ends_now():
    options = {RATE + "max-failures-per-interval": 2, RATE + "failure-rate-interval": "10 s", RATE + "delay": "0 s"}
    s = strategy("failure-rate", **options)
    assert delays(s, 0.0, 9.0, 10.1, 19.5, 20.2) == [0.0] * 5
    assert s.uncounted("another was").delay == 0.0
    assert delays(s, 20.3) == [None], "19.5, 20.2 and 20.3"


# --- exponential delay ----------------------------------------------------------------------------------------------


def test_pauses_grow_up_to_the_longest():
    s = strategy("exponential-delay", **{GROWING + "jitter-factor": 0, GROWING + "max-backoff": "3 s"})
    assert delays(s, 0.0, 10.0, 20.0, 30.0, 40.0) == pytest.approx([1.0, 1.5, 2.25, 3.0, 3.0])


def test_there_is_no_end_to_them():
    s = strategy("exponential-delay", **{GROWING + "backoff-multiplier": 1e9})
    found = delays(s, *(100.0 * k for k in range(100)))
    assert None not in found and max(d for d in found if d is not None) == 60.0


def test_failures_before_a_restart_began_wait_for_it():
    s = strategy("exponential-delay", **{GROWING + "jitter-factor": 0})
    assert delays(s, 5.0, 5.25, 6.0) == pytest.approx([1.0, 0.75, 0.0])
    assert s.count_failure(5.5).reason == "with restart 1, in 500 ms"
    assert s.count_failure(6.001).delay == pytest.approx(1.5), "the second restart"


def test_after_long_enough_without_a_failure_it_begins_anew():
    options = {
        GROWING + "jitter-factor": 0,
        GROWING + "reset-backoff-threshold": "20 s",
        GROWING + "attempts-before-reset-backoff": 2,
    }
    s = strategy("exponential-delay", **options)
    assert delays(s, 0.0, 20.9) == pytest.approx([1.0, 1.5]), "20 s after a restart, not after the failure"
    assert delays(s, 42.4) == pytest.approx([1.0])
    assert delays(s, 50.0, 60.0) == [pytest.approx(1.5), None]
    assert "attempts-before-reset-backoff are used up" in s.count_failure(70.0).reason


def test_jitter_is_a_part_of_the_pause_and_the_jobs_own():
    options = {GROWING + "jitter-factor": 0.25, GROWING + "backoff-multiplier": 1.0001}
    times = [10.0 * k for k in range(200)]
    here, again, other = (delays(strategy("exponential-delay", job, **options), *times) for job in ("a", "a", "b"))
    assert here == again != other
    spread = [d for d in here if d is not None]
    assert 0.75 <= min(spread) < 0.8 and 1.2 < max(spread) <= 1.0001**199 * 1.25


def test_what_does_not_count_waits_the_shortest_pause():
    s = strategy("exponential-delay", **{GROWING + "initial-backoff": "2 s", GROWING + "jitter-factor": 0})
    assert [s.count_failure(0.0).delay, s.count_failure(10.0).delay, s.uncounted("it was not to blame").delay] == [
        2.0,
        3.0,
        2.0,
    ]


def test_the_first_pause_is_no_longer_than_the_longest():
    with pytest.raises(UsageError, match=r"initial-backoff \(2 min\) is longer than .*max-backoff \(1 min\)"):
        strategy("exponential-delay", **{GROWING + "initial-backoff": "2 min"})


@pytest.mark.parametrize(
    "bad",
    [
        {GROWING + "backoff-multiplier": 1},
        {GROWING + "jitter-factor": 1.1},
        {GROWING + "attempts-before-reset-backoff": 0},
        {RATE + "max-failures-per-interval": 0},
        {RATE + "failure-rate-interval": 0},
    ],
)
def test_values_that_make_no_sense_are_refused(bad):
    with pytest.raises(UsageError, match=r"must (not )?be"):
        Options(bad)


# --- in a job -------------------------------------------------------------------------------------------------------


def job(**options) -> Plane:
    builder = GraphBuilder()
    source = builder.source([1, 1], parallelism=2)
    builder.step((source, ShipStrategy.HASH), parallelism=1)
    return Plane(create_scheduler(builder.graph, Options(options))).start()


def test_a_job_waits_longer_each_time_and_tells_so():
    p = job(**{"restart-strategy.type": "exponential-delay", GROWING + "jitter-factor": 0})
    for attempt, delay in enumerate((1.0, 1.5)):
        p.fail((0, 0, attempt))
        (timer,) = p.timers
        assert p.timers[timer] == pytest.approx(p.now + delay)
        p.fire(timer)
    reasons = [d.reason for d in p.decisions("failover")]
    assert reasons[1].endswith("1 subtask to run again, restart 2 without limit, after 1.5 s")
    assert p.run().status == "FINISHED"


def test_failures_that_come_too_fast_end_a_job():
    p = job(**{"restart-strategy.type": "failure-rate"})
    p.fail((0, 0, 0))
    p.fail((0, 1, 0))
    p.run()
    assert p.status == "FAILED" and "2 failures within 1 min" in p.decisions("failover")[-1].reason
