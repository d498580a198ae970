"""``firesteel.decider.function``: a parallelism decider of the user's own."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from tests.scheduler_kit import GraphBuilder, plane

import firesteel
from firesteel import ConsumedResult, UndecidedStep
from firesteel.api.deciding import decide_request
from firesteel.errors import UsageError
from firesteel.model.job_graph import ShipStrategy
from firesteel.option_functions import OptionFunctionError
from firesteel.options import Options
from firesteel.simulation.what_if import compare

HASH, FORWARD, GLOBAL = ShipStrategy.HASH, ShipStrategy.FORWARD, ShipStrategy.GLOBAL
seen: list[UndecidedStep] = []


def seven(step: UndecidedStep) -> int:
    seen.append(step)
    return 7


def numpy_twice(step: UndecidedStep) -> int:
    return np.int64(step.parallelism) * 2


def raising(step: UndecidedStep) -> int:
    return 1 // len(step.inputs[1:])


def wrong(value):
    return lambda _step: value


def writing(step: UndecidedStep) -> int:
    for consumed in step.inputs:
        for sizes in (consumed.subpartition_bytes, consumed.cells):
            if sizes is not None:
                sizes[:] = 0
    return 5


true, text, none, zero, many, half = (wrong(v) for v in (True, "7", None, 0, 1000, 3.5))


def named(function: str) -> str:
    return f"{__name__}:{function}"


def job(function: str, consumer=HASH, **options):
    builder = GraphBuilder()
    builder.source([1] * 3, parallelism=3)
    builder.step((0, consumer), **options.pop("step", {}))
    return plane(builder.graph, decider__function=named(function), **options)


def test_it_decides_and_the_record_says_so():
    seen.clear()
    p = job("seven", max_parallelism=20).start().run()
    assert p.status == "FINISHED" and p.parallelism(1) == 7
    (decision,) = p.decisions("parallelism")
    assert decision.rule == named("seven")
    assert decision.reason.startswith(
        f"7 subtasks, as {named('seven')} decided; 2.34 KiB cut by-bytes, bounded by nothing"
    )
    (step,) = seen
    assert (step.name, step.uid, step.minimum, step.maximum, step.parallelism) == ("step 1", "uid-1", 1, 20, 1)
    (consumed,) = step.inputs
    assert isinstance(consumed, ConsumedResult) and consumed.total_bytes == 3 * 80 * 10 and consumed.is_keyed


def test_the_ranges_are_cut_for_its_number():
    p = job("seven", max_parallelism=20).start().run(0)
    (deploy,) = [d for d in p.deploys if d.vertex == 1]
    assert int(deploy.input_bytes.sum()) == 2400 and deploy.input_bytes.max() - deploy.input_bytes.min() <= 30


def test_a_number_of_numpys_is_one():
    assert job("numpy_twice", data_volume_per_task=800).start().run().parallelism(1) == 40, "of 15,360 B"


@pytest.mark.parametrize(
    ("consumer", "step"), [(HASH, {"parallelism": 2}), (FORWARD, {}), (GLOBAL, {})], ids=["set", "forward", "global"]
)
def test_it_is_not_asked_about_what_is_given(consumer, step):
    seen.clear()
    assert job("seven", consumer, step=step).start().run().status == "FINISHED"
    assert not seen


def test_what_it_raises_fails_the_job_with_its_own_frames():
    p = job("raising").start().run()
    assert p.status == "FAILED" and p.ended.vertex == 1
    cause = p.ended.cause
    assert (
        f"'step 1' cannot be decided. firesteel.decider.function = '{named('raising')}' raised ZeroDivisionError"
        in (cause.message)
    )
    assert re.findall(r", in (\w+)", cause.trace) == ["raising"]


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        ("true", "returned True, a bool, where a whole number is due"),
        ("text", "returned '7', a str, where a whole number is due"),
        ("half", "returned 3.5, a float, where a whole number is due"),
        ("none", r"returned nothing \(None\), where a whole number is due"),
        ("zero", "returned 0 for 'step 1', where 1 to 128 subtasks are allowed"),
        ("many", "returned 1000 for 'step 1', where 1 to 128 subtasks are allowed"),
    ],
)
def test_an_answer_that_is_no_parallelism_fails_the_job(function, sentence):
    p = job(function).start().run()
    assert p.status == "FAILED" and re.search(sentence, p.ended.cause.message)


def test_it_cannot_change_the_sizes_that_the_scheduler_decides_from():
    p = job("writing").start().run()
    assert p.status == "FAILED" and "read-only" in p.ended.cause.message
    request = {"inputs": [{"bytes": np.full((2, 3), 9)}]}
    with pytest.raises(OptionFunctionError, match="read-only"):
        decide_request(request, Options({"decider.function": named("writing")}))


def test_what_cannot_be_loaded_is_refused_before_the_job():
    with pytest.raises(UsageError, match=r"firesteel\.decider\.function = '.*:nowhere': there is no 'nowhere' in"):
        job("nowhere")


def test_it_answers_without_a_job_as_well():
    request = {"inputs": [{"bytes": [[10] * 20]}]}
    decided = decide_request(request, Options({"decider.function": named("seven")}))
    assert (decided.parallelism, decided.rule) == (7, named("seven"))
    with pytest.raises(OptionFunctionError, match="1000 for 'a request'"):
        decide_request(request, Options({"decider.function": named("many")}))


def test_a_journal_tells_what_it_decided_without_calling_it():
    p = job("seven", max_parallelism=20).start().run()
    seen.clear()
    (one,) = compare(p.records, {"data-volume-per-task": "1 b"})
    assert one.was.parallelism == 7 and one.was.rule == named("seven")
    assert one.would_be is not None and one.would_be.parallelism == 7, "it stays, as if it had been set"
    assert not seen


def test_the_example_decides_by_the_name_and_in_whole_waves(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[3] / "examples")
    for name, expected in (("train", 8), ("count", 4)):
        builder = GraphBuilder()
        builder.source([1])
        builder.step((0, HASH))
        builder.graph.vertices[1].name = name
        sizes = lambda _v, _s, _d, n: np.full(n, (40 << 20) // n)  # noqa: E731
        p = plane(builder.graph, sizes=sizes, decider__function="own_decider:decide", data_volume_per_task="20 MiB")
        p.start()
        p.worker("w", slots=4)
        p.run()
        assert p.parallelism(1) == expected, name


def test_the_public_names_are_there():
    decider: firesteel.VertexParallelismDecider = seven
    assert callable(decider)
