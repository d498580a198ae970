"""The simulated data plane of streams: a plain scheduler gets along with it, and what must never be asked is refused."""

from __future__ import annotations

import itertools

import pytest
from tests.simulation.streams.stream import SimulatedStream
from tests.simulation.streams.world import Dice, Load, SimulatedUser, StreamFaults, StreamWorld

from firesteel.scheduler.kernel.commands import SetTimer
from firesteel.scheduler.streaming.commands import (
    Action,
    Continue,
    EndStream,
    Rescale,
    SetCommitBarrier,
    StartQuery,
    StopQuery,
)
from firesteel.scheduler.streaming.events import (
    BatchCommitted,
    BatchStarted,
    CancelRequested,
    QueryFailed,
    QueryFinished,
    QueryIdle,
    QueryStarted,
    QueryStopped,
    RescaleFailed,
    RescaleStepped,
    StopRequested,
    StreamSubmitted,
    TimerFired,
)
from firesteel.simulation.violation import ViolationError


class Plain:
    """Starts, restarts for ever, stops; and does what else it is told to, once, by event type."""

    def __init__(self, barrier=False, **also):
        self.run, self.told, self.barrier, self.also = 1, [], barrier, also

    def handle(self, event):
        self.told.append(event)
        name = type(event).__name__
        if name == "BatchCommitted" and "BatchCommitted3" in self.also and event.batch >= 3:
            name = "BatchCommitted3"
        if name in self.also:
            return self.also.pop(name)(event)
        if getattr(event, "run", self.run) != self.run:
            return []
        match event:
            case StreamSubmitted():
                return [StartQuery(run=self.run, parallelism=4)]
            case QueryStarted() if self.barrier:
                return [SetCommitBarrier(run=self.run, on=True)]
            case QueryFailed() if any(isinstance(former, StopRequested) for former in self.told):
                self.run = 0
                return [EndStream(failed=True, cause=event.cause)]
            case QueryFailed():
                self.run += 1
                return [StartQuery(run=self.run, parallelism=4)]
            case BatchCommitted(at_barrier=True) | QueryIdle(at_barrier=True):
                return [Continue(run=event.run, batch=event.batch)]
            case StopRequested() | CancelRequested():
                return [StopQuery(run=self.run, savepoint=isinstance(event, StopRequested))]
            case QueryStopped() | QueryFinished():
                self.run = 0  # all is over
                return [EndStream(failed=False)]
            case _:
                return []


def world(**changes):
    user = SimulatedUser(end_at=changes.pop("end_at", 60.0), end=changes.pop("end", "stop"))
    return StreamWorld(user=user, faults=changes.pop("faults", StreamFaults()), **changes)


def simulate(scheduler, **changes):
    return SimulatedStream(scheduler, world(**changes), patience=3600.0).run()


def rescale(parallelism=8, action=Action.REPARTITION, run=2, **more):
    return Rescale(rescale=1, run=run, parallelism=parallelism, action=action, **more)


def test_a_stream_runs_reads_every_row_once_and_stops_where_nothing_is_half_done():
    scheduler = Plain()
    outcome = simulate(scheduler)
    assert outcome.replayed_rows == 0 and not outcome.failed
    commits = [event for event in scheduler.told if isinstance(event, BatchCommitted)]
    assert [event.batch for event in commits] == list(range(len(commits))) and len(commits) > 20
    assert sum(event.rows for event in commits) == outcome.rows == pytest.approx(60_000, rel=0.03)


def test_a_stream_at_its_barrier_waits_for_its_answer_and_tells_when_it_is_idle():
    scheduler = Plain(barrier=True)
    outcome = simulate(scheduler, rates=(1000.0, 0.0), rate_for=15.0)
    waited = [type(e) for e in scheduler.told if isinstance(e, BatchCommitted | QueryIdle) and e.at_barrier]
    assert {BatchCommitted, QueryIdle} == set(waited) and outcome.rows == pytest.approx(30_000, rel=0.03)


def test_a_cancelled_stream_leaves_a_batch_that_the_next_life_replays():
    first = SimulatedStream(Plain(), world(end="cancel"))
    first.run()
    pending = first.plane.checkpoint.pending
    assert pending
    second = SimulatedStream(Plain(), world(born=4, pending=pending))
    outcome = second.run()
    assert outcome.rows >= pending


def test_fewer_partitions_than_cores_leave_cores_idle():
    def rows_with(parallelism):
        def start(_):
            return [StartQuery(run=1, parallelism=parallelism)]

        return simulate(Plain(StreamSubmitted=start), rates=(100_000.0,), executors=4).rows

    assert rows_with(8) > 3.5 * rows_with(2)


def test_a_rescale_from_a_commit_barrier_reads_nothing_twice():
    scheduler = Plain(barrier=True, BatchCommitted3=lambda event: [rescale()])
    outcome = simulate(Counting(scheduler))
    steps = [event.step.value for event in scheduler.told if isinstance(event, RescaleStepped)]
    assert steps == ["commit barrier", "stop", "repartition", "start"]
    assert outcome.rescales == 1 and outcome.runs == 2 and outcome.replayed_rows == 0


class Counting:
    """Its scheduler's run follows the rescale."""

    def __init__(self, scheduler):
        self.scheduler = scheduler

    def handle(self, event):
        commands = self.scheduler.handle(event)
        for command in commands:
            if isinstance(command, Rescale):
                self.scheduler.run = command.run
        return commands


def test_a_rescale_that_does_not_wait_reads_the_batch_again():
    scheduler = Plain(BatchCommitted3=lambda event: [], BatchStarted=lambda event: [SetTimer(timer="now", at=5.3)])
    scheduler.also["TimerFired"] = lambda event: [rescale(replay=True)]
    outcome = simulate(Counting(scheduler), overhead=1.0)
    assert outcome.rescales == 1 and outcome.replayed_rows > 0
    assert "replay" in [event.step.value for event in scheduler.told if isinstance(event, RescaleStepped)]


def test_a_query_without_a_barrier_has_begun_another_batch():
    scheduler = Plain(barrier=True, BatchCommitted3=lambda event: [rescale()])
    outcome = simulate(Counting(scheduler), has_commit_barrier=False)
    assert outcome.rescales == 1 and outcome.replayed_rows > 0
    assert not any(getattr(event, "at_barrier", False) for event in scheduler.told)


@pytest.mark.parametrize("seed", range(6))
def test_a_rescale_that_fails_leaves_a_query_that_goes_on(seed):
    scheduler = Plain(barrier=True, BatchCommitted3=lambda event: [rescale()])
    simulated = SimulatedStream(Counting(scheduler), world(seed=seed, faults=StreamFaults(step=1.0)))
    outcome = simulated.run()
    failed = [event for event in scheduler.told if isinstance(event, RescaleFailed)]
    assert len(failed) == 1 and failed[0].parallelism == simulated.plane.parallelism
    assert outcome.runs == 2 and outcome.replayed_rows == 0 and outcome.rows > 40_000


FORBIDDEN = {
    "two starts": ({"BatchStarted": lambda e: [StartQuery(run=2, parallelism=4)]}, "is there"),
    "a run again": ({"QueryFailed": lambda e: [StartQuery(run=1, parallelism=4)]}, "run 1 after run 1"),
    "the same number": ({"BatchCommitted": lambda e: [rescale(parallelism=4)]}, "has 4 partitions"),
    "the wrong action": ({"BatchCommitted": lambda e: [rescale(action=Action.RESTART)]}, "must be rewritten"),
    "two rescales": ({"BatchCommitted": lambda e: [rescale(), rescale(run=3)]}, "in the middle of another"),
    "a start in a rescale": (
        {"BatchCommitted": lambda e: [rescale()], "RescaleStepped": lambda e: [StartQuery(run=3, parallelism=4)]},
        "there|in the middle of a rescale",
    ),
    "a rescale while it starts": ({"ClusterChanged": lambda e: [rescale(action=Action.RESTART)]}, "has not started"),
    "go on at nothing": ({"BatchStarted": lambda e: [Continue(run=1, batch=0)]}, "waits at no barrier"),
    "go on at another batch": ({"BatchCommitted3": lambda e: [Continue(run=1, batch=2)]}, "and 3 is at the barrier"),
    "no answer": ({"BatchCommitted3": lambda e: []}, "gets no answer"),
    "an end that leaves it running": ({"BatchStarted": lambda e: [EndStream(failed=False)]}, "is there"),
    "a word after the end": (
        {"QueryStopped": lambda e: [EndStream(failed=False), SetTimer(timer="a", at=1e9)]},
        "after the end",
    ),
    "stop twice": ({"StopRequested": lambda e: 2 * [StopQuery(run=1, savepoint=True)]}, "after StopQuery"),
    "never stop": ({"StopRequested": lambda e: []}, "asked to end"),
}


@pytest.mark.parametrize("name", FORBIDDEN)
def test_what_must_never_be_asked_is_refused(name):
    also, complaint = FORBIDDEN[name]
    faults = StreamFaults(batch=0.5 if name == "a run again" else 0.0)
    with pytest.raises(ViolationError, match=complaint):
        simulate(Plain(barrier=name in ("no answer", "go on at another batch"), **dict(also)), faults=faults)


def test_a_query_that_must_not_be_rescaled_is_not():
    with pytest.raises(ViolationError, match="has no key"):
        simulate(Plain(BatchCommitted=lambda event: [rescale()]), refusal="it has no key")


def test_timers_fire_once_and_a_later_one_of_the_same_name_counts():
    scheduler = Plain(BatchStarted=lambda e: [SetTimer(timer="a", at=9.0), SetTimer(timer="a", at=20.0)])
    simulate(scheduler)
    fired = [event for event in scheduler.told if isinstance(event, TimerFired)]
    assert [event.timer for event in fired] == ["a"] and fired[0].at == pytest.approx(20.0, abs=0.01)


def test_everything_goes_wrong_and_news_comes_late_twice_and_stale():
    faults = StreamFaults(
        batch=0.2, uncounted=0.3, start=0.2, late=0.3, twice=0.3, stale=0.5, jump_every=60.0, jump_by=9.0
    )
    scheduler = Plain(barrier=True)
    outcome = simulate(scheduler, faults=faults, end_at=600.0, seed=3)
    told = scheduler.told
    runs = [event.run for event in told if isinstance(event, BatchStarted | BatchCommitted | QueryFailed)]
    assert runs != sorted(runs), "some are stale"
    assert outcome.runs > 20 and outcome.replayed_rows > 0
    assert any(one is other for one, other in itertools.pairwise(told)), "some come twice"
    assert any(one.at > other.at for one, other in itertools.pairwise(told)), "some come late"


def test_the_same_seed_is_the_same_story():
    faults = StreamFaults(batch=0.2, start=0.2, late=0.3, executor_every=10.0)
    assert simulate(Plain(), faults=faults, seed=5) == simulate(Plain(), faults=faults, seed=5)
    assert simulate(Plain(), faults=faults, seed=5) != simulate(Plain(), faults=faults, seed=6)


def test_rows_come_by_the_rates():
    load = Load(StreamWorld(rates=(10.0, 0.0), rate_for=100.0, rows_to_end=1500))
    assert [load.until(at) for at in (50.0, 100.0, 150.0, 250.0, 400.0)] == [500, 1000, 1000, 1500, 1500]
    assert load.ended and load.next_after(120.0) == 200.0


def test_dice_that_are_not_thrown_change_nothing():
    assert not Dice(1).hits(0.0) and Dice(1).hits(1.0)
