"""What steps cost in earlier runs, out of their journals."""

from __future__ import annotations

import os

import pytest

from firesteel.journal.costs import ENOUGH_RUNS, LOOKED_AT, earlier_costs
from firesteel.journal.file import Journal
from firesteel.model.costs import NO_COSTS, StepCost
from firesteel.model.job_graph import JobGraph, JobVertex
from firesteel.options import Options
from firesteel.scheduler.kernel.records import Decision, JobPlanned, MetricsSnapshot

NAME = "Nightly café"


def graph(*steps, name=NAME):
    return JobGraph(name, [JobVertex(n, step, f"uid-{n}", step=step) for n, step in enumerate(steps)], [])


@pytest.fixture
def options(tmp_path):
    return Options({"firesteel.journal.directory": str(tmp_path)})


def numbers(size, seconds, out=0):
    return {
        "parallelism": 2,
        "numBytesConsumed": size,
        "accumulateBusyTimeMs": round(seconds * 1e3),
        "numBytesProduced": out,
    }


def write(folder, number, costs, name=NAME, slug="nightly-cafe"):
    """A journal of the ``number``th run. ``costs``: step to its metrics; None: it had not finished."""
    path = folder / f"20260101-{number:06d}_{slug}_job{number}.jsonl"
    journal = Journal(path)
    vertices = [{"id": n, "name": step, "step": step} for n, step in enumerate(costs)]
    journal.record(JobPlanned(at=0.0, job_id=f"job{number}", job_name=name, vertices=vertices, datasets=[], options={}))
    journal.record(Decision(at=0.0, what="parallelism", vertex=0))
    measured = {n: cost or {"parallelism": 2} for n, cost in enumerate(costs.values())}
    journal.record(MetricsSnapshot(at=1.0, vertices={0: {"parallelism": 2}}))
    journal.record(MetricsSnapshot(at=2.0, vertices=measured))
    journal.close()
    return path


def test_of_all_runs_the_least_and_how_many_there_were(tmp_path, options):
    write(tmp_path, 1, {"a": numbers(100, 5.0, 10), "b": None})
    write(tmp_path, 2, {"a": numbers(100, 2.0, 30), "c": numbers(1, 1.0)})
    found = earlier_costs(graph("a", "b", "d"), options)
    assert found.by_step == {"a": StepCost(0.02, 2, 0.2)}
    assert found.of("b") is None
    assert found.of("") is None


def test_only_the_newest_few_are_read(tmp_path, options):
    for number in range(20):
        write(tmp_path, number, {"a": numbers(100, 1.0 + number)})
    assert earlier_costs(graph("a"), options).by_step == {"a": StepCost(0.18, ENOUGH_RUNS)}
    assert earlier_costs(graph("a", "unknown"), options).by_step["a"].runs == LOOKED_AT


def test_journals_of_others_tell_nothing(tmp_path, options):
    own = write(tmp_path, 1, {"a": numbers(100, 1.0)})
    write(tmp_path, 2, {"a": numbers(100, 1.0)}, name="Nightly cafe")
    write(tmp_path, 3, {"a": numbers(100, 1.0)}, slug="other")
    assert earlier_costs(graph("a"), options, own).by_step == {}
    assert earlier_costs(graph("a"), options).by_step["a"].runs == 1


@pytest.mark.parametrize("target", ["0", "1 s"])
def test_it_can_be_switched_off(tmp_path, options, target):
    write(tmp_path, 1, {"a": numbers(100, 1.0)})
    chosen = options.with_values({"firesteel.decider.target-task-duration": target})
    assert (earlier_costs(graph("a"), chosen) is NO_COSTS) == (target == "0")


def test_there_need_not_be_a_folder(tmp_path):
    assert earlier_costs(graph("a"), Options({"firesteel.journal.directory": str(tmp_path / "none")})).by_step == {}


def test_what_is_damaged_is_passed_over(tmp_path, options):
    whole = write(tmp_path, 1, {"a": numbers(100, 1.0)}).read_bytes()
    lines = whole.splitlines(keepends=True)
    for number, text in enumerate(
        [
            b"",
            b"\x00\xff\n" * 3,
            whole[: len(whole) // 3],
            lines[1][:-20],
            b"".join([*lines[:2], b'{"type":"MetricsSnapshot","at":1,"vertices":{"0":{"numBytesConsumed":"x"}}}\n']),
            b"".join([*lines[:2], b'{"type":"MetricsSnapshot","at":1,"vertices":7}\n']),
            whole.replace(b'"accumulateBusyTimeMs":1000', b'"accumulateBusyTimeMs":1' + b"0" * 400),
            b"[1]\n",
        ]
    ):
        (tmp_path / f"20260102-{number:06d}_nightly-cafe_bad{number}.jsonl").write_bytes(text)
    os.mkfifo(tmp_path / "20260103-000000_nightly-cafe_pipe.jsonl")
    (tmp_path / "20260103-000001_nightly-cafe_folder.jsonl").mkdir()
    for number in range(3):
        (tmp_path / f"20260102-{number:06d}_nightly-cafe_bad{number}.jsonl").unlink()
    assert earlier_costs(graph("a"), options).by_step == {"a": StepCost(0.01, 1)}
