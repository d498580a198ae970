"""A stream whose slot sharing group has resources, on a standalone cluster: it is granted the slots that its executors can hold, and
Spark's tasks are what the group says."""

from __future__ import annotations

import pytest
from tools.standalone import Size

pytestmark = pytest.mark.cluster

LARGE, SMALL = HOSTS = ("127.0.0.2", "127.0.0.3")
SIZES = {LARGE: Size(4, "1g", {"gpu": ("7", "9")}), SMALL: Size(2)}


def test_a_stream_is_granted_the_slots_that_fit_and_its_tasks_are_what_the_group_says(cluster, tmp_path):
    told = cluster.driver("group", tmp_path, "stream_drivers.py", SPARK_LOCAL_IP="127.0.0.1").answer()
    assert told["made"] == {"cpus": "2", "slots": 3, "parallelism": 3, "tasks take": [2], "right": True}
    assert all(count <= {LARGE: 2, SMALL: 1}[host] for host, count in told["most at once"].items())
    assert told["by heap"] == {"slots": 2, "parallelism": 2, "right": True}
    assert "no executor has heap for more" in told["why"]
    assert "needs tasks of 1 core, and Spark gives 2 cores to each task" in told["refused"]
    assert "FLIP-168" in told["speculation"]


def test_a_stream_gets_as_many_slots_as_there_are_gpus_and_each_task_one_of_its_own(cluster, tmp_path):
    told = cluster.driver("gpus", tmp_path, "stream_drivers.py").answer()
    assert (told["slots"], told["parallelism"]) == (2, 2)
    assert told["addresses"] == [["7"], ["9"]]
    assert told["right"]
