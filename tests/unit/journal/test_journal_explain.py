"""What explain says, from records alone."""

from __future__ import annotations

import pytest
from msgspec import to_builtins
from msgspec.structs import replace
from tests.journal_samples import measured, planned, word_count

from firesteel.errors import UsageError
from firesteel.report.explain import explain, ranges_text
from firesteel.report.fold import subtask_numbers
from firesteel.scheduler.kernel.records import Decision, GraphChanged, JobStatusRecord, StateChange
from firesteel.scheduler.kernel.waits import ForDecision, ForExecutions, ForProducers, Running, Subtasks

WHOLE = """\
word count (job 3f2a91c0): FINISHED after 4.2 s.
    options      firesteel.results.codec = zstd
    size         2 vertices, 3 subtasks.

[0] text src/**/*.py -> tokenize: 2 subtasks
    source       2 source subtasks: 100 MiB in 12 splits over 64 MiB each, bounded by nothing.
    restart      Subtask 1 again after 1 s, restart 1 of 3.
    read         1,000 rows, 100 MiB.
    produced     5,000 rows, 3 MiB (1 MiB stored).
    took         2.3 s, 2 subtasks finished.
    attempts     1 subtask needed more than one attempt (at most 2): 1.
                 subtask 1: attempt 1 failed after 600 ms: worker lost.
                     attempt 2 finished after 600 ms.
    failed       subtask 1, attempt 1: worker lost
                 exit code 137.

[1] aggregate by word -> parquet out: 1 subtask, after [0]
    parallelism  1 subtask: 3 MiB over 64 MiB each, bounded by the minimum of 1.
    read         5,000 rows, 3 MiB.
    produced     200 rows.
    took         800 ms, 1 subtask finished."""


def test_a_whole_job():
    assert explain(word_count()) == WHOLE
    assert explain(iter(word_count())) == WHOLE


def test_one_vertex_by_id_name_or_part_of_it():
    wanted = WHOLE.split("\n\n")[2]
    for vertex in (1, "1", "aggregate by word -> parquet out", "AGGREGATE"):
        assert explain(word_count(), vertex) == wanted


def test_what_steps_counted_and_set_ups_as_older_journals_have_them():
    steps = {"score.numSetUps": 2, "score.setUpTimeMs": 6200, "score.setUpBytes": 1 << 30, "a.b.numErrors": 1}
    told = explain([*word_count(), measured(104.2, 1, parallelism=1, **steps)], 1)
    assert (
        "\n    set up       the function of score 2 times, 3.1 s each, which its cost leaves out; a worker keeps 1 GiB.\n"
        in told
    )
    assert "\n    errors       a.b failed for 1 row.\n" in told
    told = explain([*word_count(), measured(104.2, 1, parallelism=1, numSetUps=1, setUpTimeMs=3100, setUpBytes=0)], 1)
    assert "\n    set up       functions of its steps 1 time, 3.1 s, which its cost leaves out.\n" in told
    told = explain(
        [*word_count(), measured(104.2, 1, parallelism=1, numSetUps=0, setUpTimeMs=0, setUpBytes=1 << 30)], 1
    )
    assert "set up       functions of its steps by earlier subtasks of the workers; a worker keeps 1 GiB.\n" in told


def test_an_unknown_vertex_gets_did_you_mean():
    with pytest.raises(UsageError, match=r"no vertex 'agregate by word'.*Did you mean 1 \(aggregate by word"):
        explain(word_count(), "agregate by word")
    with pytest.raises(UsageError, match=r"no vertex '7'.*There are: 0 \(text"):
        explain(word_count(), 7)
    with pytest.raises(UsageError, match=r"Several vertices .*Give the id"):
        explain(word_count(), "e")


def test_a_job_that_still_runs_and_one_that_failed():
    running = word_count()[:5]
    text = explain(running)
    assert text.startswith("word count (job 3f2a91c0): still RUNNING after 300 ms.")
    assert "1 vertex not decided yet" in text and "parquet out: not decided yet, after [0]" in text
    assert "0 subtasks finished; 0 waiting, 2 running" in text
    failed = explain([*running, JobStatusRecord(at=105.0, status="FAILED", cause="the disk is full")])
    assert "FAILED after 5 s" in failed
    for over in (failed, explain(running, broken_off=True), explain(running, 1, broken_off=True)):
        assert "parquet out: never decided, after [0]" in over and "yet" not in over
    assert "0 subtasks finished; 2 did not finish." in failed
    assert "cause        the disk is full" in failed


def test_of_a_job_that_is_over_waits_are_told_with_what_was_decided_since():
    before, told = (
        word_count()[:3],
        [
            "Vertex 0 'text src/**/*.py -> tokenize' has subtasks 0, 1 with Spark for 17 s, the longest is subtask 0.",
            "Vertex 1 'aggregate by word -> parquet out' is not decided yet: it waits for 2 of 2 producers of result 0.",
            "Vertex 1 'aggregate by word -> parquet out' is not decided yet: it waits for vertex 0 'a', which has not started.",
        ],
    )
    facts = [
        ForExecutions(0, Running(Subtasks((0, 1), 2), 17.0, 0, "")),
        ForProducers(1, None, 0, 0, 2, 2, None),
        ForDecision(1, None, 0),
    ]
    waits = Decision(at=101.0, what="waiting", inputs={"waits": to_builtins(facts)}, result=told, reason=" ".join(told))
    running = explain([*before, waits])
    assert f"    waiting      {' '.join(told)}\n" in running
    said = f"    waiting      At 1 s, after a while without news: {told[0]} Not decided by then: [1], which "
    assert f"{said}got 1 subtask at 2.6 s.\n" in explain([*before, waits, *word_count()[3:]])
    assert f"{said}never was.\n" in explain([*before, waits, JobStatusRecord(at=105.0, status="FAILED", cause="lost")])
    assert f"{said}never was.\n" in explain([*before, waits], broken_off=True)
    absorbed = GraphChanged(at=102.0, absorbed=1, into=0, vertex={"name": "both", "inputs": []})
    ended = explain([*before, waits, absorbed, JobStatusRecord(at=105.0, status="FINISHED")])
    assert f"{said.removesuffix('which ')}whose work was done in the tasks of [0].\n" in ended


def test_nothing_written_yet():
    with pytest.raises(UsageError, match="empty"):
        explain([])


def test_many_releases_and_failures_are_summed_up():
    records = [planned()]
    records += [Decision(at=101.0, what="release", vertex=0, reason=f"data set 0, partition {i}") for i in range(10)]
    records += [
        StateChange(at=102.0, vertex=0, state="FAILED", subtasks=[i], attempts=[0], cause=f"no {i}") for i in range(9)
    ]
    text = explain(records)
    assert text.count("release ") == 4
    assert "release      and 7 more." in text
    assert "failed       and 4 more times." in text


def test_subtasks_in_words():
    assert subtask_numbers([9, 0, 1, 2, 5]) == "0-2, 5, 9"
    assert subtask_numbers(range(0, 100, 2), limit=2) == "0, 2 and 48 more"


def test_options_are_printed_as_one_would_write_them():
    options = {
        "firesteel.merge.request-time": 10.0,
        "firesteel.merge.threshold": 1 << 30,
        "firesteel.progress": False,
        "of-another-version": 5,
    }
    (line,) = [line for line in explain([replace(planned(), options=options)]).splitlines() if "options" in line]
    assert line == (
        "    options      firesteel.merge.request-time = 10 s, firesteel.merge.threshold = 1 GiB, "
        "firesteel.progress = false, of-another-version = 5"
    )


def test_each_failed_subtask_stands_beside_its_attempt():
    failed = [([71, 82], [0, 1]), ([3, 5, 7, 9], [0, 1, 2, 1]), ([1, 2], [1, 1])]
    states = [
        StateChange(at=102.0, vertex=0, state="FAILED", subtasks=subtasks, attempts=attempts, cause="lost")
        for subtasks, attempts in failed
    ]
    text = explain([planned(), *states])
    assert "failed       subtasks 71 (attempt 1) and 82 (attempt 2): lost." in text
    assert "failed       subtasks 3 (attempt 1), 5, 9 (attempt 2) and 7 (attempt 3): lost." in text
    assert "failed       subtasks 1-2, attempt 2: lost." in text


def test_a_label_never_touches_its_text():
    decisions = [
        Decision(at=101.0, what=what, vertex=0, reason="so")
        for what in ("pipelined regions", "slot admission", "x" * 13)
    ]
    text = explain([planned(), *decisions])
    assert "    regions      So." in text and "    admission    So." in text and f"    {'x' * 13} So." in text


def cut(sizes, largest, how="by-bytes", parallelism=4) -> Decision:
    return Decision(
        at=1.0,
        what="parallelism",
        vertex=1,
        inputs={"sizes": sizes, "cut": how},
        result={"parallelism": parallelism, "largest": largest, "smallest": 1},
    )


def test_why_ranges_came_out_so():
    even = ranges_text(cut([[10 << 20] * 64, [1 << 20] * 64], 176 << 20))
    assert even == (
        "64 subpartitions, 11 MiB on average and 11 MiB at most, in 4 contiguous ranges: the largest has 1.00 times the average."
    )
    heavy = ranges_text(cut([[1 << 20] * 15 + [45 << 20]], 45 << 20))
    assert "the largest has 3.0 times the average. It is one subpartition, with 75 % of all bytes: a key" in heavy
    uneven = ranges_text(cut([[20, 20, 20, 20, 1, 1, 1, 1]], 40, "by-count"))
    assert uneven.endswith("cut=by-bytes evens them out.")
    one = cut([[5, 5], [1 << 30]], 5, parallelism=2)
    one.inputs["co_partitioned"] = [True, False]
    assert ranges_text(one).startswith("2 subpartitions, 5 B on average and 5 B at most")
    assert ranges_text(cut([], 1)) == ranges_text(cut([[1, 1]], 2, parallelism=1)) == ""
    assert ranges_text(Decision(at=0, what="parallelism", result=3)) == ""


def test_ranges_are_told_of_a_vertex_that_is_asked_for_alone():
    records = [*word_count()[:10], cut([[5, 5, 5, 5]], 5)]
    assert "    ranges       4 subpartitions, 5 B on average" in explain(records, 1)
    assert "    ranges" not in explain(records)


def test_a_job_whose_process_is_gone_is_broken_off():
    head = explain(word_count()[:6], broken_off=True).splitlines()[:2]
    assert head[0].endswith("broken off while RUNNING (its process is gone) after 900 ms.")
    assert "started" not in head[1]
    assert "FINISHED after" in explain(word_count(), broken_off=True)


def test_a_plan_that_is_none_is_a_sentence():
    with pytest.raises(UsageError, match="not a job's"):
        explain([replace(planned(), vertices=[{"id": 0, "inputs": ["x"]}])])
