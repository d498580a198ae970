"""What is wanted of a stream, by which action, at what price."""

from __future__ import annotations

import dataclasses

import pytest

from firesteel.options import Options
from firesteel.scheduler.streaming.commands import Action
from firesteel.scheduler.streaming.events import BatchCommitted, ClusterChanged, StreamPlan
from firesteel.scheduler.streaming.load import BusyLoad, load_signal
from firesteel.scheduler.streaming.settings import StreamSettings
from firesteel.scheduler.streaming.slots import Resources
from firesteel.scheduler.streaming.wish import DowntimePrediction, ResourceRequirements, Wanted, choose

SETTINGS = StreamSettings.of(Options())


def wanted(lower=1, upper=128, **options):
    return Wanted(ResourceRequirements(lower, upper), StreamSettings.of(Options(options)))


def cores(count, **how):
    return Resources().changed(ClusterChanged(at=0, cores=count, executors=1, **how))


@pytest.mark.parametrize(
    ("lower", "upper", "there", "expected"),
    [
        (1, 128, 2, (8, True, False, ())),
        (1, 6, 2, (6, True, True, ("upper bound",))),
        (1, 8, 2, (8, True, True, ())),
        (10, 128, 2, (10, False, False, ("lower bound",))),
        (1, 128, 0, (1, False, False, ("lower bound",))),
    ],
)
def test_slots_within_the_requirements(lower, upper, there, expected):
    wish = wanted(lower, upper).at_start(cores(there))
    assert (wish.parallelism, wish.sufficient, wish.desired, wish.bounds) == expected


def test_where_no_more_can_come_what_is_there_is_desired():
    assert wanted().at_start(cores(2, complete=True)).desired
    assert wanted().at_start(cores(2, dynamic=True)).desired
    assert wanted().at_start(cores(2), user=True).desired
    assert not wanted(lower=9).at_start(cores(2, complete=True)).desired


def test_a_core_gives_as_many_slots_as_the_option_says():
    assert wanted(**{"partitions-per-core": 2}).at_start(cores(4)).parallelism == 8


@pytest.mark.parametrize(("running", "there"), [(8, 2), (8, 8), (8, 1), (16, 1)])
def test_partitions_that_still_suffice_stay(running, there):
    wish = wanted().running(running, cores(there), None, user=False)
    assert wish.parallelism == running
    assert wish.rule == ("slots within the requirements" if running == there * 4 else "the partitions still suffice")


@pytest.mark.parametrize(
    ("lower", "upper", "running", "there", "expected"),
    [(1, 128, 8, 9, 36), (1, 128, 17, 1, 4), (12, 128, 8, 2, 12), (1, 4, 8, 2, 4)],
)
def test_partitions_that_do_not(lower, upper, running, there, expected):
    assert wanted(lower, upper).running(running, cores(there), None, user=False).parallelism == expected


def test_the_most_partitions_of_a_core_are_an_option():
    assert wanted(**{"max-partitions-per-core": 4}).running(8, cores(1), None, user=False).parallelism == 4


def test_the_users_number_is_taken_whatever_the_cores():
    wish = wanted()
    wish.require(ResourceRequirements(100, 100), exact=True)
    found = wish.running(4, cores(1), 1, user=True)
    assert (found.parallelism, found.sufficient, found.desired) == (100, True, True)
    nobody = wish.running(4, cores(0), None, user=True)
    assert not nobody.sufficient, "but for none at all"


def test_blocked_cores_are_named_and_not_counted():
    wish = wanted().at_start(cores(2, excluded=6))
    assert wish.parallelism == 8
    assert "6 cores on blocked nodes" in wish.reason


@pytest.mark.parametrize(
    ("load", "running", "there", "expected"),
    [
        (6, 4, 8, 24),  # more, and the cores are there
        (40, 4, 8, 32),  # more than are there
        (1, 32, 8, 4),  # so few that the partitions are too many
        (2, 32, 8, 32),  # few, but the partitions still suffice
        (4, 4, 8, 4),  # more cores are of no use
        (4, 2, 0, 1),  # nobody is there
    ],
)
def test_cores_that_the_load_needs(load, running, there, expected):
    assert wanted().running(running, cores(there), load, user=False).parallelism == expected


def test_partitions_that_the_load_does_not_need_go_where_executors_come_on_demand():
    assert wanted().running(32, cores(8, dynamic=True), 2, user=False).parallelism == 8


def test_no_more_cores_are_waited_for_than_the_load_needs():
    assert wanted().running(4, cores(8), 6, user=False).desired
    assert not wanted().running(4, cores(8), 40, user=False).desired


def test_dynamic_allocation_is_no_signal():
    first = cores(8, dynamic=True)
    assert first.says_more_than(Resources())
    later = first.changed(ClusterChanged(at=1, cores=2, executors=1, dynamic=True))
    assert not later.says_more_than(first)
    assert later.counted_as(first).cores == 8
    assert later.changed(ClusterChanged(at=2, cores=2, executors=1)).says_more_than(later)


def test_a_cluster_that_grows_on_demand_has_a_core_to_begin_with():
    assert cores(0, dynamic=True).cores == 1


STATEFUL, STATELESS = StreamPlan(stateful=("dedup", "count"), parallelism=4), StreamPlan(parallelism=4)


@pytest.mark.parametrize(
    ("plan", "now", "pinned", "action"),
    [
        (STATEFUL, 4, True, Action.NOTHING),
        (STATEFUL, 8, True, Action.REPARTITION),
        (STATEFUL, 8, False, Action.RESTART),
        (STATELESS, 8, True, Action.RESTART),
    ],
)
def test_the_cheapest_sufficient_action(plan, now, pinned, action):
    choice = choose(plan, 4, now, pinned=pinned)
    assert choice.action is action
    assert not choice.refusal
    assert choice.reason


def test_a_refusal_is_known_before_anything_is_touched():
    choice = choose(dataclasses.replace(STATEFUL, refusal="It has one partition by nature."), 4, 8, pinned=True)
    assert (choice.action, choice.refusal) == (Action.NOTHING, "It has one partition by nature.")


def test_downtime_grows_with_the_state_and_learns():
    prediction = DowntimePrediction()
    small, large = (prediction.predict(Action.REPARTITION, size) for size in (0, 10 << 30))
    assert prediction.predict(Action.NOTHING, 10 << 30) == 0
    assert 0 < prediction.predict(Action.RESTART, 10 << 30) < small < large
    for _ in range(3):
        prediction.learn(10 << 30, 9.0, 600 + 1.5)
    assert prediction.predict(Action.RESTART, 0) == 9
    assert prediction.predict(Action.REPARTITION, 10 << 30) == pytest.approx(9 + 1.5 + 600)
    assert prediction.predict(Action.REPARTITION, 0) == pytest.approx(9 + 1.5), "bytes cost bytes alone"
    many = prediction.predict(Action.REPARTITION, 0, partitions=1000)
    assert many > prediction.predict(Action.REPARTITION, 0, partitions=10) + 20
    prediction.learn(0, 9.0, many - 9, partitions=1000)
    assert prediction.predict(Action.REPARTITION, 0) == pytest.approx(9 + 1.5), "partitions cost partitions alone"
    prediction.learn(1000, 9.0, 4.0)
    prediction.learn(1000, 9.0, 4.0)
    assert prediction.predict(Action.REPARTITION, 0) == pytest.approx(9 + 4, rel=0.01)


def test_a_rewrite_that_took_no_time_teaches_too():
    prediction = DowntimePrediction()
    for _ in range(5):
        prediction.learn(0, 1.0, 0.01, partitions=100)
    prediction.learn(0, 1.0, 0.01, partitions=100)
    assert prediction.predict(Action.REPARTITION, 0) == 1


class Batches:
    """A load signal, fed with a batch every ten seconds; eight cores are kept busy."""

    def __init__(self, **options):
        self.load = BusyLoad(StreamSettings.of(Options({"scaling": "load", **options})))
        self.load.started(8)
        self.at = 0.0

    def feed(self, count, busy, *, rows=100, backlog=(0, 0)):
        for _ in range(count):
            self.at += 10.0
            waits = None if backlog is None else max(0, backlog[0] + round(backlog[1] * self.at))
            event = BatchCommitted(at=self.at, run=1, batch=0, rows=rows, duration=busy, backlog=waits)
            self.load.batch(event, 8)
        return self.load.cores


def test_load_is_off_unless_asked_for():
    assert not isinstance(load_signal(SETTINGS), BusyLoad)
    assert load_signal(SETTINGS).cores is None
    assert isinstance(load_signal(StreamSettings.of(Options({"scaling": "load"}))), BusyLoad)


def test_a_busy_stream_needs_more_cores_and_an_idle_one_fewer():
    assert Batches().feed(12, busy=9.8) == 12, "8 x 0.98 / 0.7"
    assert Batches().feed(12, busy=1.4) == 2, "8 x 0.14 / 0.7"


@pytest.mark.parametrize("busy", [3.6, 7.0, 8.9])
def test_between_low_and_high_all_stays(busy):
    assert Batches().feed(12, busy=busy) == 8


def test_low_high_and_target_are_options():
    assert Batches(**{"load.low-utilization": 0.1}).feed(12, busy=1.4) == 8
    assert Batches(**{"load.high-utilization": 0.99}).feed(12, busy=9.8) == 8
    assert Batches(**{"load.target-utilization": 0.5}).feed(12, busy=9.8) == 16


def test_the_window_is_an_option():
    assert Batches(**{"load.window": "10 min"}).feed(12, busy=9.8) == 8, "too short a time to say"
    short = Batches(**{"load.window": "40 s"})
    short.feed(12, busy=9.8)
    assert short.feed(5, busy=7.0) == 8, "what was before is forgotten"


def test_a_backlog_that_grows_is_more_load_than_the_batches_show():
    assert Batches().feed(12, busy=10.0, backlog=(0, 5)) == 18, "half as many rows again wait: 8 x 1.5 / 0.7"


def test_nothing_is_said_while_it_catches_up():
    batches = Batches()
    assert batches.feed(12, busy=10.0, backlog=(100_000, -20)) == 8
    assert "catches up" in batches.load.reason
    assert batches.feed(12, busy=1.4, backlog=(0, 0)) == 2, "and then again"


def test_the_first_batches_after_a_start_say_nothing():
    batches = Batches()
    assert batches.feed(3, busy=10.0) == 8
    batches.load.started(4)
    assert batches.load.cores == 4


def test_without_a_backlog_and_a_gap_nothing_is_said():
    """Batches follow each other whatever the load; a start after a pause would look like the heaviest."""
    batches = Batches()
    assert batches.feed(12, busy=9.8, backlog=None) is None
    assert "is not known" in batches.load.reason
    batches.load.started(8, gap=10.0)
    assert batches.feed(12, busy=9.8, backlog=None) == 12


def test_an_idle_stream_is_less_and_less_busy():
    batches = Batches()
    assert batches.feed(12, busy=9.8) == 12
    for _ in range(8):
        batches.at += 10.0
        batches.load.idle(batches.at, 8)
    assert batches.load.cores == 1


def test_what_was_said_stays_until_it_is_clearly_wrong():
    batches = Batches()
    said = {batches.feed(2, busy=busy) for busy in [9.8] * 6 + [9.0, 9.6, 8.9, 9.9, 9.2, 9.5] * 5}
    assert len(said - {8}) == 1
    assert batches.feed(12, busy=7.0) == 8
