"""Which runner a query gets."""

from __future__ import annotations

import pytest

from firesteel.options import Options
from firesteel.run.choose import choose

GIB = 1 << 30


@pytest.mark.parametrize(
    ("options", "nbytes", "memory", "runner", "rule"),
    [
        ({}, 5, GIB, "in process", "bytes"),
        ({}, GIB, GIB, "in process", "bytes"),
        ({}, GIB + 1, GIB, "stages", "bytes"),
        ({"firesteel.run.in-process.max-bytes": 4}, 5, GIB, "stages", "bytes"),
        ({}, 5, (256 << 20) - 1, "stages", "memory"),
        ({"firesteel.run.in-process": "never"}, 5, GIB, "stages", "option"),
    ],
)
def test_the_first_rule_that_answers_decides(options, nbytes, memory, runner, rule):
    choice = choose(Options(options), nbytes, memory)
    assert (choice.runner, choice.rule) == (runner, rule)
    assert choice.inputs["bytes"] == nbytes
