"""Checkpoints of a stream: which completed, which failed, how far apart, how long a rescale waits for one."""

from __future__ import annotations

from functools import partial

import pytest

from firesteel.scheduler.kernel.recorder import Recorder
from firesteel.scheduler.kernel.timers import Timers
from firesteel.scheduler.streaming.checkpoint_stats import (
    CheckpointStatsTracker,
    FailedCheckpoints,
    max_delay,
)
from firesteel.scheduler.streaming.events import TimerFired


class Heard:
    def __init__(self, timeout=600.0):
        self.told = []
        self.recorder = Recorder()
        self.timers = Timers(self.recorder)
        said = [partial(self.told.append, word) for word in ("completed", "failed")]
        self.stats = CheckpointStatsTracker(self.recorder, self.timers, timeout, *said)

    def to(self, at):
        self.recorder.begin(TimerFired(at=at, timer=""))
        self.timers.fire_due()
        return self


def test_a_commit_completes_a_checkpoint():
    heard = Heard()
    heard.stats.batch_started()
    heard.stats.batch_committed(2.0)
    assert heard.told == ["completed"]
    assert heard.to(1000).told == ["completed"], "its timeout is over with it"
    assert (heard.stats.completed, heard.stats.failed) == (1, 0)


def test_a_batch_that_is_not_committed_in_time_fails_and_fails_again():
    heard = Heard(timeout=10)
    heard.stats.batch_started()
    assert heard.to(9).told == []
    assert heard.to(10).told == ["failed"]
    assert heard.to(20).told == ["failed", "failed"]
    heard.stats.batch_committed(21.0)
    assert heard.told[-1] == "completed"


def test_a_failed_batch_is_a_failed_checkpoint():
    heard = Heard()
    heard.stats.batch_started()
    heard.stats.batch_failed()
    assert heard.told == ["failed"]
    assert heard.stats.running_since is None


def test_an_idle_query_has_completed_all_there_is():
    heard = Heard()
    heard.stats.idle()
    assert heard.told == ["completed"]
    assert heard.stats.completed == 0, "but no batch"


def test_the_interval_is_the_triggers_gap_or_the_median_of_ten():
    heard = Heard()
    assert heard.stats.interval == 1.0
    for duration in (100.0, *[2.0] * 4, *[4.0] * 6):
        heard.stats.batch_committed(duration)
    assert heard.stats.interval == 4.0, "of the last ten"
    heard.stats.query_started(3.0)
    assert heard.stats.interval == 4.0, "batches take longer than the gap"
    heard.stats.query_started(30.0)
    assert heard.stats.interval == 30.0


def test_a_first_batch_is_as_long_as_it_has_lasted():
    heard = Heard()
    heard.stats.batch_started()
    assert heard.to(25).stats.interval == 25.0
    heard.stats.batch_committed(0)
    assert heard.stats.interval == 25.0, "as we saw it"


@pytest.mark.parametrize(
    ("configured", "interval", "failed", "expected"), [(None, 5.0, 2, 15.0), (None, 1.0, 1, 2.0), (0.0, 5.0, 2, 0.0)]
)
def test_how_long_a_rescale_waits_for_a_checkpoint(configured, interval, failed, expected):
    assert max_delay(configured, interval, failed) == expected


def test_failed_checkpoints_count_from_the_first_change_on():
    count = FailedCheckpoints(2)
    assert not count.failed(changed=False)
    assert not count.failed(changed=True)
    assert count.failed(changed=True)
    count.clear()
    assert not count.failed(changed=True)
