"""What the benchmark of slots of two sizes prints."""

from __future__ import annotations

import pytest
from benchmarks.cluster.resources import CASES, report
from benchmarks.kit.harness import Contender


def entered(*cores_and_seconds: tuple[float, float]):
    contenders, warm = [], {}
    for number, (cores, seconds) in enumerate(cores_and_seconds):
        run = {"seconds": seconds, "cores": cores, "gib": cores, "rows": []}
        name = f"contender {number}"
        contenders.append(Contender(name, "", cold=9.0, cold_answer=run))
        warm[name] = [run, {**run, "seconds": seconds * 3, "cores": cores * 3}, {**run, "seconds": 0.0}]
    return contenders, warm


def test_ratios_are_of_medians_to_the_first():
    lines = report("waits", *entered((32.0, 4.0), (56.0, 8.0))).splitlines()
    assert lines[5] == "| contender 1 | 9.00 | 8.00 | 0.00 - 24.00 | 2.00 | 56.0 | 56.0 | 1.75 | 56.0 | 56.0 | 1.75 |"
    assert lines[-1] == "1.75 times fewer core-seconds held (aim: 1.6) in 0.50 times the time (aim: 1)."


@pytest.mark.parametrize("coarse", [(50.0, 4.0), (64.0, 3.9)], ids=["too much held", "too slow"])
def test_a_missed_aim_is_said(coarse):
    assert "NOT AS AIMED: " in report("waits", *entered((32.0, 4.0), coarse))


def test_core_seconds_of_the_stages_stand_three_to_one():
    for case in CASES.values():
        (light, work), (heavy, heavy_work) = case.light, case.heavy
        assert light * work == 3 * heavy * heavy_work * 2
