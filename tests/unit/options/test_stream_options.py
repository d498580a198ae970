"""Each option of streams changes what it says it does."""

from __future__ import annotations

import pytest
from tests.stream_kit import Stream

from firesteel.errors import UsageError
from firesteel.options import Options
from firesteel.scheduler.streaming.commands import Rescale
from firesteel.scheduler.streaming.events import RescaleRequested, StreamPlan
from firesteel.scheduler.streaming.settings import StreamSettings
from firesteel.scheduler.streaming.states import Phase

AS = "jobmanager.adaptive-scheduler."


def begins(stream, at, cores, until=2000.0, **how):
    """When a rescale begins, if the cores change at ``at`` and no checkpoint completes."""
    stream.to(at)
    stream.cores(cores, **how)
    while not any(isinstance(command, Rescale) for command in stream.commands) and stream.timers:
        when = min(stream.timers.values())
        if when > until:
            return None
        stream.to(when)
    return stream.at


@pytest.mark.parametrize(("value", "when"), [(None, 30), ("0", 4), ("2 min", 120)])
def test_cooldown_after_rescaling(value, when):
    assert begins(Stream(**{"cooldown-after-rescaling": value}).running(), 1, 8, complete=True) == when


@pytest.mark.parametrize(("number", "when"), [(8, 10), (1, 100)])
def test_a_cooldown_for_each_direction(number, when):
    stream = Stream(**{"cooldown-after-scale-up": "10 s", "cooldown-after-scale-down": "100 s"}).running()
    stream.to(1)
    stream.tell(RescaleRequested(at=1, parallelism=number))
    assert begins(stream, 1, 1, complete=True) == when


@pytest.mark.parametrize(("value", "when"), [(None, 100), ("0", 43), ("5 min", 340)])
def test_resource_stabilization_timeout(value, when):
    stream = Stream(upper=64, **{AS + "executing.resource-stabilization-timeout": value}).running()
    assert begins(stream, 40, 8) == when


@pytest.mark.parametrize(("value", "when"), [(None, 10), ("0", 0), ("1 min", 60)])
def test_stabilization_of_a_submission(value, when):
    stream = Stream(upper=64, **{AS + "submission.resource-stabilization-timeout": value})
    stream.submit(2, complete=False)
    while not stream.commands:
        stream.to(min(stream.timers.values()))
    assert stream.at == when


@pytest.mark.parametrize(
    ("options", "when"),
    [
        ({}, 43),
        ({AS + "scale-on-failed-checkpoints-count": 4}, 45),
        ({AS + "rescale-trigger.max-checkpoint-failures": 4}, 45),
        ({AS + "max-delay-for-scale-trigger": "0"}, 40),
        ({AS + "rescale-trigger.max-delay": "7 s"}, 47),
    ],
)
def test_max_delay_and_how_many_failed_checkpoints_make_it(options, when):
    assert begins(Stream(**options).running(), 40, 8, complete=True) == when


@pytest.mark.parametrize(("count", "when"), [(1, 50), (3, 70)])
def test_failed_checkpoints_in_a_row(count, when):
    stream = Stream(
        **{
            "scale-on-failed-checkpoints-count": count,
            "execution.checkpointing.timeout": "10 s",
            "max-delay-for-scale-trigger": "1 h",
        }
    ).running()
    stream.to(40)
    stream.begin()
    assert begins(stream, 40, 8, complete=True) == when


def test_the_interval_of_the_trigger_makes_the_default_delay():
    stream = Stream().running(plan=StreamPlan(stateful=("count",), parallelism=2, trigger_interval=20.0))
    assert stream.scheduler.max_delay == 60
    assert begins(stream, 40, 8, complete=True) == 100


def test_the_older_keys_of_flink_are_understood():
    with pytest.warns(FutureWarning, match="deprecated"):
        settings = StreamSettings.of(
            Options(
                {
                    AS + "scaling-interval.min": "1 s",
                    AS + "scaling-interval.max": "2 s",
                    AS + "resource-wait-timeout": "3 s",
                    AS + "resource-stabilization-timeout": "4 s",
                }
            )
        )
    assert (settings.cooldown_up, settings.cooldown_down, settings.stabilization) == (1, 1, 2)
    assert (settings.resource_wait, settings.submission_stabilization) == (3, 4)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("scale-on-failed-checkpoints-count", 0),
        ("partitions-per-core", 0),
        ("load.target-utilization", 1.5),
        ("load.high-utilization", 0),
        ("scaling", "luck"),
        ("submission.resource-wait-timeout", "-soon"),
    ],
)
def test_values_that_make_no_sense_are_refused(key, value):
    with pytest.raises(UsageError, match=key.rsplit(".", maxsplit=1)[-1]):
        Options({key: value})


def test_phases_are_told_in_the_status():
    stream = Stream().running()
    assert (stream.phase, stream.scheduler.status().phase) == (Phase.COOLDOWN, "Cooldown")
