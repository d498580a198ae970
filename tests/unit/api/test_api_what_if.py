"""A journal's sizes, decided again with other options."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from tests.journal_samples import planned
from tests.scheduler_kit import reason_in
from tests.unit.parallelism.test_parallelism_decider import MIB, bounds, broadcast, forward, keyed
from typer.testing import CliRunner

from firesteel.cli.main import app
from firesteel.errors import UsageError
from firesteel.journal.file import Journal, read
from firesteel.report.decisions import with_reason
from firesteel.report.explain import ranges_text
from firesteel.scheduler.kernel.records import Decision
from firesteel.scheduler.parallelism import decide_vertex
from firesteel.scheduler.parallelism.model import SlotBound
from firesteel.simulation.what_if import compare, what_if


def decided(vertex, inputs, limits, name="count"):
    plan = decide_vertex(inputs, limits)
    return with_reason(Decision(at=1.0, what="parallelism", vertex=vertex, name=name, **plan.decision))


@pytest.fixture
def journal(tmp_path):
    """Of a job whose steps were decided by bytes, fixed, as a forward group, and before there was anything to see."""
    journal = Journal(tmp_path / "j.jsonl")
    journal.record(planned())
    journal.record(decided(1, [keyed(np.full(256, 4 * MIB)), broadcast(4 * MIB)], bounds(maximum=128)))
    journal.record(decided(2, [keyed([MIB] * 8)], bounds(fixed=3), "fixed"))
    journal.record(decided(3, [forward([MIB] * 3)], bounds(), "after it"))
    journal.record(Decision(at=1.0, what="parallelism", vertex=4, name="old", inputs={"bytes": [3]}, rule="fixed",
                            result={"parallelism": 2}, reason="2 subtasks, as set"))  # fmt: skip
    journal.close()
    return journal.path


def test_both_ways_side_by_side(journal):
    records = read(journal)
    first, fixed, follows, old = compare(records, {"data-volume-per-task": "256 MiB"})
    assert (first.was.parallelism, first.would_be.parallelism) == (18, 5), "1 GiB over 60 MiB, over 252 MiB"
    assert first.was.share == (60 * MIB, 60 * MIB, 64 * MIB), "14 or 15 subpartitions of 4 MiB, and the broadcast"
    assert first.was.reason == next(r.reason for r in records if isinstance(r, Decision))
    assert (fixed.would_be.parallelism, fixed.would_be.rule) == (3, "fixed"), "what was set stays"
    assert follows.would_be is None and "forward group" in follows.why_not
    assert old.would_be is None and old.was.parallelism == 2
    text = what_if(records, {"data-volume-per-task": "256 MiB", "max-parallelism": "4"}, 1)
    assert "with data-volume-per-task = 256 MiB, max-parallelism = 4." in text.splitlines()[0]
    assert "4 (14 subtasks fewer)" in text
    assert "bounded by max-parallelism 4" in text


def test_as_it_was_is_what_the_job_did_though_this_firesteel_decides_otherwise():
    """An older one took the maximum where fewer have as small a largest range; and slots that bind keep their name."""
    inputs, older = [keyed([MIB] * 70)], {"parallelism": 20, "largest": 4 * MIB, "smallest": 3 * MIB}
    said = decide_vertex(inputs, bounds(maximum=20, data_volume=MIB)).decision
    del said["inputs"]["type"]
    said |= {"result": older, "reason": "20 subtasks"}
    (one,) = compare([Decision(at=1.0, what="parallelism", vertex=1, name="old", **said)], {"min-parallelism": 2})
    assert (one.was.parallelism, one.was.reason) == (20, "20 subtasks")
    assert one.was.share == (3 * MIB, 3.5 * MIB, 4 * MIB), "cut again for as many"
    assert one.would_be is not None and one.would_be.parallelism == 18
    bound = decide_vertex(inputs, bounds(data_volume=MIB, slots_maximum=SlotBound(3, "gpu")))
    (one,) = compare([Decision(at=1.0, what="parallelism", vertex=1, name="x", **bound.decision)], {"cut": "by-count"})
    assert one.was.reason == reason_in(bound.decision) and "the 3 slots of group 'gpu'" in one.was.reason


@pytest.mark.parametrize(
    ("values", "parallelism"),
    [
        ({"min-parallelism": 40}, 40),
        ({"cut": "by-count"}, 16),
        ({"parallelism": 7}, 7),
        ({"execution.batch.adaptive.auto-parallelism.max-parallelism": 3}, 3),
        ({"parallelism.default": 2}, 2),
        ({"max-slices-per-subtask": 4}, 128),  # two of them are the broadcast
    ],
)
def test_each_option_of_the_decider_counts(journal, values, parallelism):
    assert compare(read(journal), values)[0].would_be.parallelism == parallelism


def test_what_cannot_be_asked(journal):
    for values, sentence in (
        ({"data-volum-per-task": 1}, "Did you mean 'data-volume-per-task'"),
        ({"firesteel.progress": "true"}, "has no part in this decision"),
        ({"parallelism": "many"}, "is not a whole number"),
        ({"min-parallelism": 5, "max-parallelism": 1}, "5 and max-parallelism 1 leave no parallelism"),
    ):
        with pytest.raises(UsageError, match=sentence):
            compare(read(journal), values)
    one = compare(read(journal), {"min-parallelism": 200})[0]
    assert one.would_be is None
    assert "leave no parallelism" in one.why_not


def test_the_command(journal):
    shown = CliRunner().invoke(app, ["explain", str(journal), "--what-if", "data-volume-per-task=256MiB"])
    assert shown.exit_code == 0, shown.output
    assert "5 (13 subtasks fewer)" in shown.output
    one = CliRunner().invoke(
        app, ["explain", str(journal), "1", "--what-if", "cut=by-count", "--what-if", "max-parallelism=8"]
    )
    assert "8 (10 subtasks fewer)" in one.output
    with pytest.raises(UsageError, match="'--what-if cut' is not an option"):
        CliRunner().invoke(app, ["explain", str(journal), "--what-if", "cut"], catch_exceptions=False)
    assert json.loads(journal.read_text().splitlines()[-1])["name"] == "old"


def test_a_divided_join_without_its_division(tmp_path):
    left, right = np.full(64, MIB), np.full(64, MIB // 8)
    left[5] = 90 * MIB
    inputs = [replace(keyed(side, partitions=4), divisible=True) for side in (left, right)]
    decision = decided(2, inputs, bounds(data_volume=16 * MIB, slots=8, least_volume=4 * MIB), "inner join")
    divided = "divided: subpartition 5 (90.1 MiB) among"
    assert divided in decision.reason
    text = ranges_text(decision)
    assert "One of them, with 56 % of all bytes, is divided" in text and "contiguous" not in text
    (one,) = compare([decision], {"firesteel.join.skew": "none"})
    assert one.would_be is not None and one.would_be.share is not None and one.was.share is not None
    assert one.would_be.share[2] > 5 * one.was.share[2] and divided not in one.would_be.reason
    (same,) = compare([decision], {"join.skew": "auto"})
    assert same.would_be is not None and same.would_be.reason == decision.reason
