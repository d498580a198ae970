"""A stream on a cluster: Spark's dynamic allocation is no signal to it; a worker is added and the stream grows; one is killed
in the middle of a batch and it shrinks."""

from __future__ import annotations

import time

import pytest

pytestmark = pytest.mark.cluster

FIRST, SECOND = HOSTS = ("127.0.0.2", "127.0.0.3")


def test_executors_that_come_and_go_by_dynamic_allocation_do_not_rescale(cluster, tmp_path):
    told = cluster.driver("dynamic", tmp_path, "stream_drivers.py").answer()
    assert told["seen"] == 2, "idle executors that Spark took away are no loss"
    assert told["rescales"] == [[2, 1, 0]], "only what the user asked for"
    assert told["twice"] == 0
    assert told["totals"] == [[key, 3] for key in range(50)]


def test_a_stream_follows_its_workers(cluster, tmp_path):
    cluster.standalone.kill_worker(SECOND)
    driver = cluster.driver("follow", tmp_path, "stream_drivers.py")

    def wait(true, what):
        end = time.monotonic() + 120.0
        while not true():
            assert driver.process.poll() is None, driver.log.read_text()[-3000:]
            assert time.monotonic() < end, f"waited in vain for {what}"
            time.sleep(0.01)

    wait((tmp_path / "started").exists, "the stream")
    cluster.standalone.start_worker(SECOND)
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
