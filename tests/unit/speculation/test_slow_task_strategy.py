"""Slow task detectors of the user's own: what they are told, what they may say, and what becomes of their errors."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.scheduler_kit import GraphBuilder, Plane

from firesteel import SlowTaskBaseline, SlowTaskStrategy, StepTimes
from firesteel.errors import FiresteelError, UsageError
from firesteel.option_functions import OptionFunctionError
from firesteel.options import Options
from firesteel.scheduler.scheduler import create_scheduler

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
FUNCTION = "firesteel.slow-task-detector.function"
SPECULATION = {"speculative.enabled": True, "restart-strategy.fixed-delay.delay": 0}


class Second:
    """Calls the attempt at subtask 1 slow from 3 s on, and keeps what it was told."""

    told: list[StepTimes]
    options: dict

    def __init__(self, options):
        Second.told, Second.options = [], dict(options)

    def baseline(self, step):
        self.told.append(step)
        seconds = np.where(step.subtasks == 1, 3.0, np.inf)
        return SlowTaskBaseline(seconds, "subtask 1 may take 3 s")


class Says:
    """Answers with ``answer``."""

    answer = None

    def __init__(self, options):
        pass

    def baseline(self, step):
        return self.answer


def dividing(options):
    class Dividing:
        def baseline(self, step):
            return SlowTaskBaseline(step.parallelism / len(step.finished_times), "never said")

    return Dividing()


def changing(options):
    class Changing:
        def baseline(self, step):
            step.elapsed[:] = 1e9

    return Changing()


def refusing(options):
    raise ValueError("not on a Monday")


def job(function: str, n: int = 3, **options) -> Plane:
    builder = GraphBuilder()
    builder.source([100 * (k + 1) for k in range(n)], parallelism=n)
    given = {**SPECULATION, FUNCTION: f"{__name__}:{function}", **options}
    return Plane(create_scheduler(builder.graph, Options(given)), check=False).start()


def test_an_execution_that_has_reached_its_baseline_is_mirrored():
    p = job("Second")
    for subtask in range(3):
        p.launch((0, subtask, 0), node=f"node-{subtask}")
    p.finish((0, 2, 0))
    while p.now < 3.0:
        p.fire("slow-task-detector")
    assert not p.decisions("speculation")
    p.fire("slow-task-detector")
    (decision,) = p.decisions("speculation")
    assert (decision.rule, decision.result) == (f"{__name__}:Second", [[1, 1]])
    assert decision.inputs["subtasks"] == [1] and decision.inputs["baseline"] == [3.0]
    assert decision.reason.startswith("attempt 1 of subtask 1 of 'step 0' has taken ")
    assert "on node-1, subtask 1 may take 3 s: attempt 2 is made beside it" in decision.reason
    p.launch((0, 1, 1), node="node-0")
    p.fire("slow-task-detector")
    last = Second.told[-1]
    told = zip(last.subtasks.tolist(), last.attempts.tolist(), last.nodes, last.input_bytes.tolist(), strict=True)
    assert sorted(told) == [(0, 0, "node-0", 100), (1, 0, "node-1", 200), (1, 1, "node-0", 200)]
    assert (last.vertex, last.name, last.parallelism, last.at) == (0, "step 0", 3, p.now)
    assert last.finished_input_bytes.tolist() == [300] and len(last.finished_times) == 1
    assert Second.options["jobmanager.adaptive-batch-scheduler.speculative.enabled"] is True
    assert p.run().status == "FINISHED"


def test_the_protocol_is_what_a_strategy_has():
    assert isinstance(Says({}), SlowTaskStrategy) and not isinstance(object(), SlowTaskStrategy)


def test_it_takes_the_place_of_all_rules():
    p = job("Says", **{"firesteel.slow-task-detector.absolute-time": "1 s", "baseline-ratio": 0})
    p.launch((0, 0, 0))
    for _ in range(100):
        p.fire("slow-task-detector")
    assert not p.decisions("speculation")


def test_what_it_raises_fails_the_job_and_is_told_with_its_frames():
    p = job("dividing")
    p.launch((0, 0, 0))
    p.fire("slow-task-detector")
    cause = p.scheduler.job.cause
    assert cause.message == f"{FUNCTION} = '{__name__}:dividing' raised ZeroDivisionError: division by zero."
    assert "step.parallelism / len(step.finished_times)" in cause.trace
    assert "firesteel/scheduler/" not in cause.trace, "none of our frames"
    assert p.run().status == "FAILED"


def test_what_it_is_told_it_cannot_change():
    p = job("changing")
    p.launch((0, 0, 0))
    p.fire("slow-task-detector")
    assert "raised ValueError: assignment destination is read-only" in p.scheduler.job.cause.message


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (3.0, "gave 3.0 for step 'step 0'. Return a SlowTaskBaseline, or None."),
        (
            SlowTaskBaseline([1.0, 2.0, 3.0], "x"),
            "Return one number, or an array of 2: one for each execution that runs.",
        ),
        (SlowTaskBaseline("soon", "x"), "gave the seconds 'soon' for step 'step 0'."),
        (SlowTaskBaseline(float("nan"), "x"), "gave seconds that are not numbers (nan) for step 'step 0'."),
    ],
)
def test_an_answer_that_is_none_fails_the_job_with_a_sentence(monkeypatch, answer, complaint):
    monkeypatch.setattr(Says, "answer", answer)
    p = job("Says")
    p.launch((0, 0, 0)), p.launch((0, 1, 0))
    p.fire("slow-task-detector")
    cause = p.scheduler.job.cause
    assert complaint in f"{cause.message} {cause.hint}"
    assert p.run().status == "FAILED"


@pytest.mark.parametrize(
    ("function", "kind", "complaint"),
    [
        ("nowhere", UsageError, "there is no 'nowhere' in"),
        ("refusing", OptionFunctionError, "raised ValueError: not on a Monday."),
        (
            "Options",
            OptionFunctionError,
            "which is not a slow task strategy. It must return an object with the method baseline",
        ),
    ],
)
def test_what_cannot_be_made_is_refused_before_the_job_starts(function, kind, complaint):
    with pytest.raises(FiresteelError) as raised:
        job(function)
    assert isinstance(raised.value, kind) and complaint in str(raised.value) and FUNCTION in str(raised.value)


def test_without_speculation_it_is_not_even_loaded():
    builder = GraphBuilder()
    builder.source([1], parallelism=1)
    create_scheduler(builder.graph, Options({FUNCTION: "no.such:thing"}))


def test_the_example_goes_by_throughput(monkeypatch):
    spec = importlib.util.spec_from_file_location("slow_tasks", EXAMPLES / "slow_tasks.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "slow_tasks", module)
    spec.loader.exec_module(module)
    builder = GraphBuilder()
    builder.source([1 << 20, 1 << 20, 40 << 20, 1 << 20], parallelism=4)
    p = Plane(create_scheduler(builder.graph, Options({**SPECULATION, **module.OPTIONS})), check=False).start()
    for subtask in range(4):
        p.launch((0, subtask, 0), node=f"node-{subtask}")
    while p.now < 1.0:
        p.fire("slow-task-detector")
    p.finish((0, 0, 0))  # 1 MiB/s
    while p.now < 9.5:
        p.fire("slow-task-detector")
    assert not p.decisions("speculation"), "not before 10 s"
    while p.now < 60.0:
        p.fire("slow-task-detector")
    assert {tuple(d.inputs["subtasks"]) for d in p.decisions("speculation")} == {(1, 3)}, "40 MiB may take 120 s"
