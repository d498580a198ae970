"""Groups with resources on a local master, where the slot pool alone decides what runs at once. A driver of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from firesteel.errors import UsageError
from firesteel.scheduler.slots.resource_profile import ResourceProfile
from firesteel.spark.slots.provisioning import spark_profile, task_need
from intervals_kit import most_at_once, most_by

pytestmark = pytest.mark.spark

TESTS = Path(__file__).parents[1]


def test_what_spark_cannot_do_is_refused_with_its_reason(spark):
    with pytest.raises(UsageError) as error:
        spark_profile(spark.sparkContext, task_need(ResourceProfile(2.0, 1)), "heavy")
    said = str(error.value)
    assert (
        "Spark cannot give slots to the group 'heavy' on 'local[2,4]': TaskResourceProfiles are only supported" in said
    )
    assert said.count("..") == 0


@pytest.mark.full
def test_slots_of_a_local_master(tmp_path):
    given = [os.environ["PYTHONPATH"]] if "PYTHONPATH" in os.environ else []
    ran = subprocess.run(
        [sys.executable, str(TESTS / "cluster" / "resource_drivers.py"), "local", str(tmp_path)],
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *given])},
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    told = json.loads(ran.stdout.strip().splitlines()[-1])
    for name in ("heavy", "gpu", "hungry"):
        assert told[name]["right"], told[name]["error"]
        assert told[name]["slots"] == ["the slot pool alone"]
        assert most_at_once(told[name]["intervals"]) == 2, f"{name}: of 2 cores, or 1 GPU, or 600 of 1,400 MiB each"
    assert {one["threads"] for one in told["heavy"]["intervals"]} == {"2"}
    given = {"threads": "2", "openmp": "2", "cores": 2.0, "rows": 250}
    assert told["dataframe"] == [given] * 4
    for name in ("gpu", "together"):
        assert told[name]["right"], told[name]["error"]
        by_address = most_by(told[name]["intervals"], lambda one: ",".join(one["addresses"]["gpu"]))
        assert by_address == {"0": 1, "1": 1}, f"{name}: two subtasks held one address at once"
    one_each = told["one each"]
    assert one_each["right"], one_each["error"]
    assert most_at_once(one_each["intervals"]) == 2, "two jobs of one GPU each, on a machine with two, run at once"
    assert sorted(one["addresses"]["gpu"] for one in one_each["intervals"]) == [["0"], ["1"]]
    memory = told["memory"]
    assert memory["right"], memory["error"]
    assert len(memory["intervals"]) == 6 and most_at_once(memory["intervals"]) <= 2, (
        "600 of 1,400 MiB each, of two jobs"
    )
    assert any("holds" in reason and "600 MiB" in reason for reason in memory["waited"]), memory["waited"]
