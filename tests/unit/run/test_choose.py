"""Which runner a query gets."""

from __future__ import annotations

import pytest

from firesteel.options import Options
from firesteel.run.choose import choose, decision_of

MIB, GIB = 1 << 20, 1 << 30


@pytest.mark.parametrize(
    ("mode", "options", "nbytes", "memory", "runner", "rule"),
    [
        ("queries", {}, 5, GIB, "in process", "bytes"),
        ("queries", {}, GIB, GIB, "in process", "bytes"),
        ("queries", {}, GIB + 1, GIB, "stages", "bytes"),
        ("queries", {"firesteel.run.in-process.max-bytes": 4}, 5, GIB, "stages", "bytes"),
        ("queries", {}, 5, 256 * MIB - 1, "stages", "memory"),
        ("all", {}, GIB + 1, GIB, "in process", "option"),
        ("all", {}, GIB + 1, 256 * MIB - 1, "stages", "memory"),
        ("never", {}, 5, GIB, "stages", "option"),
        ("never", {}, None, GIB, "stages", "option"),
    ],
)
def test_the_first_rule_that_answers_decides(mode, options, nbytes, memory, runner, rule):
    choice = choose(
        Options({"firesteel.run.in-process": mode, **options}), nbytes, "it calls f", 5, memory, local=False
    )
    assert (choice.runner, choice.rule) == (runner, rule)
    assert choice.inputs["bytes"] == nbytes
    assert decision_of(choice).reason.startswith(f"{runner}: ")  # all that explain shows


@pytest.mark.parametrize(("estimate", "runner"), [(16 * MIB - 1, "Spark"), (16 * MIB, "stages")])
def test_spark_answers_what_needs_stages_and_reads_little(estimate, runner):
    choice = choose(Options(), None, "it calls f", estimate, GIB, local=False)
    assert choice.runner == runner
    assert choice.reason.startswith("it calls f")


@pytest.mark.parametrize(("nbytes", "runner"), [(16 * GIB, "in process"), (16 * GIB + 1, "stages")])
def test_a_local_master_has_no_more_cores_for_stages(nbytes, runner):
    assert choose(Options(), nbytes, "", 5, GIB, local=True).runner == runner
