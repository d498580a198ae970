"""Jobs and streams whose groups have resources, on three workers of different sizes, one of which offers two GPUs."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tools.standalone import Size

from intervals_kit import most_at_once, most_by

pytestmark = [pytest.mark.cluster, pytest.mark.full]

LARGE, GPUS, SMALL = "127.0.0.2", "127.0.0.3", "127.0.0.4"
SIZES = {LARGE: Size(4, "4g"), GPUS: Size(2, "3g", {"gpu": ("0", "1")}), SMALL: Size(1, "1g")}


def host(one):
    return one["host"]


def test_slots_on_executors_that_are_there(cluster, tmp_path):
    driver = cluster.driver("static", tmp_path, "resource_drivers.py")
    kill_one_of(cluster, driver, tmp_path / "killed", LARGE)
    told = driver.answer()

    heavy = told["heavy"]
    assert heavy["right"], heavy["error"]
    assert most_at_once(heavy["intervals"]) == 3
    assert most_by(heavy["intervals"], host) == {LARGE: 2, GPUS: 1}, "2 cores each, of 4, 2 and 1"
    assert {one["cpus"] for one in heavy["intervals"]} == {2}
    assert {one["threads"] for one in heavy["intervals"]} == {"2"}
    assert heavy["slots"] == ["Spark, for cores and external resources; the slot pool, for memory"]

    hungry = told["hungry"]
    assert hungry["right"], hungry["error"]
    assert most_by(hungry["intervals"], host) == {LARGE: 1, GPUS: 1, SMALL: 1}, "600 MiB each, of 1 GiB"

    huge = told["huge"]
    assert "No worker can ever hold" in huge["error"]
    assert "5 cores" in huge["error"]
    assert "4 cores" in huge["error"]
    assert huge["seconds"] < 120.0, "refused at once, not after slot.request.timeout"

    lacking = told["lacking"]["error"]
    assert "No worker can ever hold" in lacking
    assert "1 gpu): the largest worker has 4 cores, 1 GiB and no gpu." in lacking

    assert told["killed"]["right"], told["killed"]["error"]


def kill_one_of(cluster, driver, folder: Path, victim):
    """The executor there, when a task has come to it."""
    until = time.monotonic() + 600.0
    while not any(folder.glob("came-*")):
        assert driver.process.poll() is None, driver.log.read_text()[-3000:]
        assert time.monotonic() < until
        time.sleep(0.02)
    cluster.standalone.kill_executor(victim)


def test_mirrors_get_slots_of_their_group_on_nodes_that_are_well(cluster, tmp_path):
    """A node with one slot for the group gets slow; of the two others one has two, and one is too small for any."""
    driver = cluster.driver("speculating", tmp_path, "resource_drivers.py")
    until = time.monotonic() + 600.0
    while not any(tmp_path.glob(f"began-*-{GPUS}")):
        assert driver.process.poll() is None, driver.log.read_text()[-3000:]
        assert time.monotonic() < until
        time.sleep(0.02)
    with cluster.standalone.slow(GPUS):
        told = driver.answer()
    assert told["right"], told["error"]
    won = [a for a in told["attempts"] if a["mirror"] and "FINISHED" in a["states"]]
    assert won and {a["node"] for a in won} == {LARGE}
    assert {a["node"] for a in told["attempts"] if a["node"]} == {LARGE, GPUS}, "none where no slot of the group fits"
    finished = [a["subtask"] for a in told["attempts"] if "FINISHED" in a["states"]]
    assert sorted(finished) == list(range(8)), "one attempt of each subtask was admitted"
    most = most_by(told["intervals"], host)
    assert most[LARGE] == 2 and most.get(GPUS, 1) == 1, "2 cores each, of 4 and 2: mirrors are no exception"
    assert {one["cpus"] for one in told["intervals"]} == {2}
    assert told["blocked"], "the slow node was blocked"


def test_executors_made_for_a_group(cluster, tmp_path):
    told = cluster.driver("dynamic", tmp_path, "resource_drivers.py").answer()
    gpu = told["gpu"]
    assert gpu["right"], gpu["error"]
    assert {one["host"] for one in gpu["intervals"]} == {GPUS}
    by_address = most_by(gpu["intervals"], lambda one: ",".join(one["addresses"]["gpu"]))
    assert len(by_address) == 2, "one of the addresses was never used"
    assert set(by_address.values()) == {1}, "two subtasks held one address at once"
    assert most_at_once(gpu["intervals"]) == 2
    assert told["made"] >= 2
    assert told["left"] == 0, "executors of the group stay though nobody needs them"
    assert gpu["slots"] == ["Spark, which makes executors that fit"]


def test_a_stream_is_granted_the_slots_that_fit_and_its_tasks_are_what_the_group_says(cluster, tmp_path):
    told = cluster.driver("group", tmp_path, "stream_drivers.py", SPARK_LOCAL_IP="127.0.0.1").answer()
    assert told["made"] == {"cpus": "2", "slots": 3, "parallelism": 3, "tasks take": [2], "right": True}
    assert all(count <= {LARGE: 2, GPUS: 1}[host] for host, count in told["most at once"].items())
    assert told["by heap"] == {"slots": 2, "parallelism": 2, "right": True}
    assert "no executor has heap for more" in told["why"]
    assert "needs tasks of 1 core, and Spark gives 2 cores to each task" in told["refused"]
    assert "FLIP-168" in told["speculation"]


def test_a_stream_gets_as_many_slots_as_there_are_gpus_and_each_task_one_of_its_own(cluster, tmp_path):
    told = cluster.driver("gpus", tmp_path, "stream_drivers.py").answer()
    assert (told["slots"], told["parallelism"]) == (2, 2)
    assert told["addresses"] == [["0"], ["1"]]
    assert told["right"]
