"""Whole streams in the simulation, on which everything that can go wrong does: the scheduler never does what it must not."""

from __future__ import annotations

import collections
import itertools
import math
import os
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from tests.effort import examples
from tests.simulation.digest import JournalDigest
from tests.simulation.streams.random_streams import random_stream, run_random_stream
from tests.simulation.streams.stream import SimulatedStream

from firesteel.scheduler.streaming import adaptive_scheduler
from firesteel.scheduler.streaming import rescales as rescaling
from firesteel.scheduler.streaming.manager import RescaleManager
from firesteel.scheduler.streaming.records import RescaleRecord, StreamStateChange
from firesteel.scheduler.streaming.slots import ProfileSlots
from firesteel.scheduler.streaming.states import RESCALE_PHASES, SCHEDULER_STATES
from firesteel.simulation.violation import ViolationError

SEEDS = st.integers(0, 1 << 40)
EACH = settings(max_examples=examples(75), derandomize="FIRESTEEL_EXAMPLES" not in os.environ)
"""The same streams each time; the soak, and FIRESTEEL_EXAMPLES, look at others."""


class Journal:
    """Counts what it sees, and keeps a fingerprint."""

    def __init__(self):
        self.digest, self.count, self.states, self.rescales = JournalDigest(), collections.Counter(), [], []

    def seen(self, now, event, commands):
        self.count.update(type(thing).__name__ for thing in (event, *commands))

    def written(self, record):
        self.digest.record(record)
        if isinstance(record, StreamStateChange):
            self.states.append((record.state, record.phase))
        if isinstance(record, RescaleRecord):
            self.rescales.append(record)


@EACH
@given(SEEDS)
def test_a_stream_whatever_happens_to_it(seed):
    """What is checked: see stream_plane.py (what must never be asked) and stream_oversight.py (FLIP-461's promises)."""
    run_random_stream(random_stream(seed, hours=0.2))


@EACH
@given(SEEDS)
def test_a_stream_whose_cluster_and_user_change_and_nothing_else(seed):
    stream = random_stream(seed, faults=False, hours=0.2)
    again = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": 1 << 30}
    outcome = run_random_stream(replace(stream, options=stream.options | again))
    if stream.world.executors and not outcome.cause.startswith("No core was there to run the stream after "):
        assert not outcome.failed, outcome.cause


@pytest.mark.full
def test_streams_are_as_wild_as_they_are_meant_to_be():
    """Guards the tests above against dice that have gone quiet."""
    seen, ends, moves, phases, how = collections.Counter(), set(), set(), set(), collections.Counter()
    for seed in range(160):
        journal = Journal()
        outcome = run_random_stream(random_stream(seed, faults=seed % 4 != 2, hours=0.1), (journal,))
        seen.update(journal.count)
        ends.add(outcome.failed)
        how.update(
            (record.end, record.action, record.trigger.split(" ")[0], record.cause) for record in journal.rescales
        )
        states = [("Created", ""), *journal.states]
        for (before, phase), (after, next_phase) in itertools.pairwise(states):
            if before != after:
                moves.add((before, after))
            elif phase and next_phase:
                phases.add((phase, next_phase))
    wanted = """BatchStarted BatchCommitted QueryIdle QueryStarted QueryFailed QueryStopped QueryFinished RescaleStepped RescaleFailed
        TimerFired ClusterChanged RequirementsChanged RescaleRequested StopRequested CancelRequested StartQuery SetCommitBarrier
        Continue Rescale StopQuery SetTimer CancelTimer Record EndStream"""
    assert not [kind for kind in wanted.split() if not seen[kind]]
    assert ends == {True, False}
    parts = [{part for key, part in enumerate_parts(how, place)} for place in range(4)]
    assert parts[0] == {"completed", "failed", "ignored"} and parts[1] == {"nothing", "restart", "repartition"}
    assert parts[2] >= {"checkpoint", "max"} and len(parts[3]) >= 4
    assert len({(move.source.value, move.target.value) for move in RESCALE_PHASES.table} - phases) <= 2
    rare = {(move.source.value, move.target.value) for move in SCHEDULER_STATES.table} - moves
    assert len(rare) <= 6, rare


def enumerate_parts(counter, place):
    return [(key, key[place]) for key in counter]


def test_the_same_seed_tells_the_same_story():
    def story(seed):
        journal = Journal()
        outcome = run_random_stream(random_stream(seed, hours=0.1), (journal,))
        return outcome, journal.digest.digest

    assert [story(seed) for seed in range(8)] == [story(seed) for seed in range(8)]
    assert len({story(seed)[1] for seed in range(8)}) == 8


def broken(monkeypatch, fault):
    """A scheduler with this fault in it."""
    match fault:
        case "forgets changes in the cooldown":
            plain = RescaleManager.__init__

            def forgets(self, *args, **names):
                plain(self, *args, **names)
                del names, args
                self._wanted = lambda direction: (
                    None if self.phase.value == "Cooldown" else RescaleManager._wanted(self, direction)
                )

            monkeypatch.setattr(RescaleManager, "__init__", forgets)
        case "knows no cooldown":
            monkeypatch.setattr(adaptive_scheduler.Delays, "cooldown", lambda self, direction: 0.0)
        case "waits for all slots for ever":
            monkeypatch.setattr(RescaleManager, "_stabilization_over", lambda self: None)
        case "forgets to write a rescale down":
            monkeypatch.setattr(rescaling.Rescales, "complete", lambda self, reason="": None)
        case "does not answer":
            plain_settle = adaptive_scheduler.AdaptiveScheduler._settle

            def silent(self):
                self._at_barrier = None
                plain_settle(self)

            monkeypatch.setattr(adaptive_scheduler.AdaptiveScheduler, "_settle", silent)
        case "replays what it holds":
            plain_emit = adaptive_scheduler.Recorder.emit

            def replays(self, command):
                plain_emit(
                    self, structs.replace(command, parallelism=1) if type(command).__name__ == "Rescale" else command
                )

            monkeypatch.setattr(adaptive_scheduler.Recorder, "emit", replays)
        case "promises slots twice":
            plain_slots = ProfileSlots.there
            monkeypatch.setattr(ProfileSlots, "there", lambda self, resources: 2 * plain_slots(self, resources))
        case "never stops":
            monkeypatch.setattr(adaptive_scheduler.AdaptiveScheduler, "_end_requested", lambda self, cancel: None)


FAULTS = {
    "forgets changes in the cooldown": "was wanted",
    "knows no cooldown": "cooldown ends",
    "waits for all slots for ever": "was wanted",
    "forgets to write a rescale down": "no record",
    "does not answer": "gets no answer",
    "replays what it holds": "asked for|it has 1 partitions|of Rescale",
    "promises slots twice": "and there are",
    "never stops": "was asked to end",
}


@pytest.mark.full
@pytest.mark.parametrize("fault", FAULTS)
def test_a_scheduler_with_a_fault_is_caught(monkeypatch, fault):
    broken(monkeypatch, fault)
    with pytest.raises(ViolationError, match=FAULTS[fault]):
        for seed in range(300):
            run_random_stream(random_stream(seed, faults=False, hours=0.2))


def test_rows_are_read_once_where_every_rescale_waits_for_its_checkpoint():
    """The seed's aim: nothing is processed twice by a rescale."""
    rescales = 0
    for seed in range(12):
        stream = random_stream(seed, faults=False, hours=0.2)
        calm = replace(
            stream.world, faults=replace(stream.world.faults, executor_every=0.0), has_commit_barrier=True, pending=0
        )
        user = replace(calm.user, requirements_every=60.0, most=16, end="stop")
        options = stream.options | {
            "jobmanager.adaptive-scheduler.max-delay-for-scale-trigger": "1 h",
            "execution.checkpointing.timeout": "1 h",
        }
        options.pop("firesteel.stream.max-downtime", None)
        outcome = run_random_stream(replace(stream, world=replace(calm, user=user, executors=2), options=options))
        assert outcome.replayed_rows == 0 and not outcome.failed
        rescales += outcome.rescales
    assert rescales > 20


def test_nothing_grows_with_the_number_of_batches():
    """A stream runs for months: after thousands of batches the scheduler is as large as after a few."""
    stream = random_stream(1, faults=False)
    world = replace(stream.world, executors=2, refusal="", user=replace(stream.world.user, end_at=400.0))
    world = replace(world, rates=(1000.0,), overhead=0.1, trigger_interval=None, rows_to_end=math.inf, most_rows=1000)
    scheduler = replace(stream, world=world, options={}).scheduler()
    sizes = []

    class Sizes:
        def seen(self, now, event, commands):
            if type(event).__name__ == "BatchCommitted" and event.batch in (300, 2000):
                sizes.append(deep_size(scheduler))

        def written(self, record): ...

    SimulatedStream(scheduler, world, (Sizes(),)).run()
    assert len(sizes) == 2
    assert sizes[1] <= sizes[0] + 20, "the batches of the last second, at most"


def deep_size(thing):
    """How many objects of the scheduler's can be reached: containers with all that is in them."""
    seen, todo = set(), [thing]
    while todo:
        one = todo.pop()
        if id(one) in seen or isinstance(one, type) or (type(one).__module__ == "builtins" and callable(one)):
            continue
        seen.add(id(one))
        if isinstance(one, dict):
            todo += [*one.keys(), *one.values()]
        elif isinstance(one, list | tuple | set | frozenset | collections.deque):
            todo += [] if getattr(one, "maxlen", None) else list(one)
        elif type(one).__module__.startswith("firesteel.scheduler"):
            todo += [getattr(one, name) for name in getattr(type(one), "__slots__", ()) if hasattr(one, name)]
            todo += list(getattr(one, "__dict__", {}).values())
    return len(seen)


def test_a_rescale_that_is_overtaken_before_its_first_batch_is_written_down():
    """Cooldown 0, and the user has another word before the query that was started has committed anything."""
    journal = Journal()
    run_random_stream(random_stream(2, faults=False, hours=0.1), (journal,))
    asked = [record for record in journal.rescales if record.trigger]
    assert sum("next rescale" in record.reason for record in asked) == 2
    assert len(asked) == journal.count["Rescale"] == 7
