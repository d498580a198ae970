"""A stream on a cluster: Spark's dynamic allocation is no signal to it; a worker is added and the stream grows; one is killed
in the middle of a batch and it shrinks."""

from __future__ import annotations

import time

import pytest
from tools.standalone import HOSTS

pytestmark = pytest.mark.cluster

_, SECOND, THIRD = HOSTS


@pytest.mark.full
def test_executors_that_come_and_go_by_dynamic_allocation_do_not_rescale(cluster, tmp_path):
    told = cluster.driver("dynamic", tmp_path, "stream_drivers.py").answer()
    assert told["seen"] == 2, "idle executors that Spark took away are no loss"
    assert told["rescales"] == [[2, 1, 0]], "only what the user asked for"
    assert told["twice"] == 0
    assert told["totals"] == [[key, 3] for key in range(50)]


@pytest.mark.full
def test_changes_in_the_cooldown_are_followed_together_at_its_end(cluster, tmp_path):
    told = cluster.driver("in_cooldown", tmp_path, "stream_drivers.py").answer()
    assert told["waits"].startswith("the end of the cooldown (in "), told["waits"]
    began = told["phases"][0]
    ended = next(at for at, phase in told["phases"] if phase != "Cooldown")
    assert began[1] == "Cooldown" and ended > began[0] + 9.99
    assert not [one for one in told["rescales"] if one["end"] == "failed"]
    (rescale,) = [one for one in told["rescales"] if one["end"] == "completed"]
    assert (rescale["before"], rescale["granted"]) == (1, 2)
    assert rescale["first_change"] < ended <= rescale["triggered"], "a change in the cooldown, followed behind it"
    first = told["batches"][0]
    assert first[1] == 1 and first[0] <= rescale["triggered"], "a checkpoint in the cooldown is no trigger"
    assert rescale["replayed_rows"] == told["twice"] == 0
    assert told["totals"] == [[key, 2] for key in range(50)]


@pytest.mark.full
def test_a_second_failed_checkpoint_in_a_row_sets_the_rescale_off(cluster, tmp_path):
    told = cluster.driver("failing", tmp_path, "stream_drivers.py").answer()
    assert not [one for one in told["rescales"] if one["end"] == "failed"]
    (rescale,) = [one for one in told["rescales"] if one["end"] == "completed"]
    assert (rescale["before"], rescale["granted"]) == (1, 2)
    assert rescale["trigger"] == "failed checkpoints: 2"
    assert rescale["triggered"] - rescale["first_change"] > 2.0, "one failed checkpoint is not enough"
    assert rescale["replayed_rows"] == 50, "the batch that stood still"
    assert list(dict.fromkeys(parallelism for _, parallelism in told["batches"])) == [1, 2]
    assert told["twice"] == 0
    assert told["totals"] == [[key, 3] for key in range(50)]


@pytest.mark.full
def test_a_stream_follows_its_workers(cluster, tmp_path):
    cluster.standalone.kill_worker(SECOND)
    cluster.standalone.kill_worker(THIRD)
    driver = cluster.driver("follow", tmp_path, "stream_drivers.py")

    def wait(true, what):
        end = time.monotonic() + 600.0
        while not true():
            assert driver.process.poll() is None, driver.log.read_text()[-3000:]
            if time.monotonic() >= end:
                raise TimeoutError(f"gave up on {what}")
            time.sleep(0.01)

    wait((tmp_path / "started").exists, "the stream")
    cluster.standalone.start_workers(SECOND)
    wait((tmp_path / "grown").exists, "the second worker's use")
    before = set(tmp_path.glob(f"busy-{SECOND}-*"))
    wait(lambda: set(tmp_path.glob(f"busy-{SECOND}-*")) - before, "a task on the second worker")
    cluster.standalone.kill_worker(SECOND)

    told = driver.answer()
    assert told["rescales"] == [[1, 2, 0], [2, 1, 0]]
    assert f"on {SECOND} came" in told["what"][0]
    assert f"on {SECOND} was lost" in told["what"][1]
    assert told["twice"] == 0, "the sink was given a batch twice"
    rows = sum(count for _, count, _ in told["totals"])
    assert rows > 0
    values = range(rows)
    assert told["totals"] == [[key, len(values[key::7]), sum(values[key::7])] for key in range(7)]
