"""The progress views, plain and live."""

from __future__ import annotations

import io
import json
import re
import sys
import threading

import pytest
from msgspec.structs import replace
from rich.console import Console
from tests.journal_samples import measured, mirrored, planned, word_count

from firesteel.report.fold import JobHistory, TimeLeft, VertexHistory
from firesteel.scheduler.kernel.records import JobPlanned, JobStatusRecord, StateChange
from firesteel.view.live_table import folded, table_of
from firesteel.view.progress import JsonView, LiveView, PlainView, Progress, create
from firesteel.view.screen import is_live


class Terminal(io.StringIO):
    def isatty(self):
        return True


def plain_lines(records) -> list[str]:
    stream = io.StringIO()
    progress = create(True, stream)
    for record in records:
        progress.record(record)
    progress.close()
    return [line.split(" s  ", 1)[1] for line in stream.getvalue().splitlines()]


def test_plain_lines():
    assert plain_lines(word_count()) == [
        "word count (job 3f2a91c0): 2 vertices",
        "[0] text src/**/*.py -> tokenize: 2 source subtasks: 100 MiB in 12 splits over 64 MiB each, bounded by nothing",
        "[0] subtask 1 failed: worker lost",
        "[0] restart: subtask 1 again after 1 s, restart 1 of 3",
        "[0] finished in 2.3 s, 5,000 rows, 3 MiB",
        "[1] aggregate by word -> parquet out: 1 subtask: 3 MiB over 64 MiB each, bounded by the minimum of 1",
        "[1] finished in 800 ms, 200 rows",
        "word count: finished after 4.2 s, 2 steps, 3 subtasks",
    ]


def test_several_that_failed_together_are_subtasks():
    gone = StateChange(at=104.0, vertex=0, state="FAILED", subtasks=[1, 2, 3], attempts=[0, 0, 0], cause="gone\nthere")
    assert "[0] subtasks 1-3 failed: gone" in plain_lines([*word_count()[:5], gone])


def test_a_cancelled_job_is_cancelled():
    lines = plain_lines([*word_count()[:5], JobStatusRecord(at=105.0, status="CANCELED")])
    assert lines[-1] == "word count: cancelled after 5 s, 2 steps, 2 subtasks"


def test_a_vertex_that_runs_again_is_said_to_finish_again():
    records = word_count()
    again = [
        StateChange(at=105.0, vertex=0, state="RUNNING", subtasks=[0], attempts=[1]),
        StateChange(at=106.0, vertex=0, state="FINISHED", subtasks=[0], attempts=[1]),
    ]
    lines = plain_lines([*records[:10], *again, *records[10:]])
    assert sum(line.startswith("[0] finished") for line in lines) == 2


def watched(records) -> JobHistory:
    told = JobHistory(runs=True)
    for record in records:
        told.apply(record)
    return told


def table_text(told: JobHistory, width: int, height: int = 26) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    console.print(table_of(told, width, height))
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_the_live_view_draws_and_restores_the_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    terminal = Terminal()
    progress = create(True, terminal)
    for record in word_count():
        progress.record(record)
    progress.close()
    progress.close()
    progress.record(word_count()[0])
    text = terminal.getvalue()
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1, "cursor hidden and shown again"
    assert "subtask 1 failed: worker lost" in text
    assert "[0] restart: subtask 1 again after 1 s, restart 1 of 3" in text
    assert "word count: finished, " in text


def test_what_is_printed_meanwhile_goes_above_and_to_its_own_stream(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)  # in a file: left alone
    progress = create(True)
    for record in word_count()[:5]:
        progress.record(record)
    assert sys.stdout is out and sys.stderr is not terminal
    print("to the file")
    kept = sys.stderr
    print("half a ", end="", file=sys.stderr, flush=True)
    assert "half a" not in terminal.getvalue()
    print("line", file=sys.stderr)
    assert "half a line\n" in terminal.getvalue()
    print("no end", end="", file=sys.stderr)
    progress.close()
    assert sys.stderr is terminal
    print("late", file=kept)
    assert "no end" in terminal.getvalue() and terminal.getvalue().endswith("late\n")
    assert out.getvalue() == "to the file\n"


def test_jobs_at_once_share_a_screen_and_each_leaves_its_own(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    terminal = Terminal()
    one, two = create(True, terminal), create(True, terminal)
    for record in word_count():
        one.record(record)
        two.record(replace(record, job_name="other") if isinstance(record, JobPlanned) else record)
    one.close()
    assert "\x1b[?25h" not in terminal.getvalue(), "the second still runs"
    two.close()
    text = terminal.getvalue()
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1
    assert "word count: finished, " in text and "other: finished, " in text


def test_a_short_job_leaves_one_line(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    terminal = Terminal()
    progress = create(True, terminal)
    for record in [*word_count()[:3], JobStatusRecord(at=101.0, status="FINISHED")]:
        progress.record(record)
    progress.close()
    assert "word count: finished after 1 s, 2 steps, 2 subtasks\n" in terminal.getvalue()


def test_the_live_table():
    table = table_of(watched(word_count()[:9]), 120)
    columns = {c.header: list(c.cells) for c in table.columns}
    assert columns["subtasks"] == ["2", "≤128"]
    assert columns["state"] == ["done", "waiting"]
    assert columns["done"] == ["2", ""]
    assert re.fullmatch(r"word count: running, [0-9.]+ m?s; 2 of 2 subtasks done so far", str(table.title))
    running = {c.header: list(c.cells) for c in table_of(watched(word_count()[:5]), 120).columns}
    assert (running["waiting"][0], running["running"][0], running["done"][0]) == ("·", "2", "·")
    again = {c.header: list(c.cells) for c in table_of(watched(word_count()[:7]), 120).columns}
    assert again["state"][0] == "running", "the other subtask"


def test_the_bound_of_what_is_open_is_the_users():
    plan = planned()
    vertices = [{**plan.vertices[0], "parallelism": 7}, {**plan.vertices[1], "max_parallelism": 3}]
    told = watched([replace(plan, vertices=vertices)])
    assert [told.bound(vertex) for vertex in told.vertices.values()] == [7, 3]
    told = watched([replace(plan, options={"parallelism.default": 12})])
    assert [told.bound(vertex) for vertex in told.vertices.values()] == [12, 12]


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_the_live_table_keeps_its_numbers_on_a_narrow_terminal(width):
    for records in (word_count(), word_count()[:8], mirrored()):
        lines = table_text(watched(records), width)
        assert all(len(line) <= width for line in lines)
        assert lines[2].startswith("  0  text")
    lines = table_text(watched(word_count()), width)
    if width >= 80:
        waiting = "  waiting" if width >= 110 else ""
        assert f"subtasks{waiting}  running   done         rows     bytes" in lines[1]
        assert "5,000     3 MiB" in lines[2]
    elif width >= 60:
        assert lines[2].split()[-3:] == ["2", "·", "2"], "subtasks, running, done"


def test_time_left_goes_by_the_subtasks_that_have_finished():
    left = TimeLeft()
    left.apply(StateChange(at=10.0, vertex=0, state="RUNNING", subtasks=[0, 1], attempts=[0, 0]))
    assert left.seconds(12.0, 4) is None, "none has finished"
    left.apply(StateChange(at=14.0, vertex=0, state="FINISHED", subtasks=[0], attempts=[0]))
    left.apply(StateChange(at=14.0, vertex=0, state="RUNNING", subtasks=[2], attempts=[0]))
    # each takes 4 s; subtask 1 should end just now, 2 has 4 s to go, three wait: 16 s of work for two at once
    assert left.seconds(14.0, 3) == pytest.approx(8.0)
    assert left.seconds(16.0, 3) == pytest.approx(7.0)
    left.apply(StateChange(at=18.0, vertex=0, state="FAILED", subtasks=[1], attempts=[0]))
    assert left.finished == 1 and list(left.begun) == [(2, 0)]


def many(count: int, done: int) -> list[VertexHistory]:
    vertices = [VertexHistory(i, f"v{i}", parallelism=1 if i <= done else None) for i in range(count)]
    for vertex in vertices[:done]:
        vertex.by_state["FINISHED"] = 1
        vertex.last_at = float(vertex.id)
    vertices[done].by_state["RUNNING"] = 1
    return vertices


def test_of_many_vertices_those_that_are_over_or_wait_are_folded():
    shown, before, after = folded(many(100, 50), 24)
    assert [v.id for v in shown] == list(range(50, 72)), "what runs, then what waits"
    assert ([v.id for v in before], [v.id for v in after]) == (list(range(50)), list(range(72, 100)))
    shown, before, after = folded(many(100, 99), 24)
    assert [v.id for v in shown] == list(range(78, 100)), "those that finished last stay to be seen"
    assert len(before) == 78 and not after
    assert folded(many(10, 3), 24)[1:] == ([], [])


def test_a_hundred_vertices_fit_a_terminal():
    told = watched([planned()])
    told.vertices = {vertex.id: vertex for vertex in many(100, 50)}
    lines = table_text(told, 100, 20)
    assert len(lines) == 20
    assert "50 more steps done" in lines[2] and lines[2].split()[4] == "50"
    assert "34 more steps to come" in lines[-1]


def test_a_flood_of_failures_is_cut():
    failures = [
        StateChange(at=101.0 + n, vertex=0, state="FAILED", subtasks=[n], attempts=[0], cause="gone") for n in range(50)
    ]
    lines = plain_lines([*word_count()[:5], *failures])
    assert sum("failed: gone" in line for line in lines) == 5
    assert "[0] more subtasks failed; 'firesteel history' lists all." in lines


def test_plain_lines_of_two_jobs_say_whose_they_are():
    stream = io.StringIO()
    one, two = create(True, stream), create(True, stream)
    for record in word_count()[:10]:
        one.record(record)
        two.record(record)
    one.close()
    two.record(word_count()[10])
    two.close()
    lines = [line.split(" s  ", 1)[1] for line in stream.getvalue().splitlines()]
    assert lines.count("word count 3f2a: [0] subtask 1 failed: worker lost") == 2
    assert lines[-1].startswith("[1] aggregate by word"), "alone again"


def test_json_events():
    stream = io.StringIO()
    progress = Progress(stream, JsonView)
    for record in word_count():
        progress.record(record)
    progress.close()
    told = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [event["event"] for event in told] == [
        *("job", "status", "decided", "failed", "note", "finished", "decided", "finished", "status", "result")
    ]
    assert {(event["v"], event["job"]) for event in told} == {(1, "3f2a91c0")}
    assert told[0]["vertices"][1] == {"id": 1, "name": "aggregate by word -> parquet out", "inputs": [0], "bound": 128}
    assert told[2]["parallelism"] == 2 and told[2]["reason"].startswith("2 source subtasks")
    assert (told[3]["subtasks"], told[3]["attempts"]) == ([1], [1])
    assert (told[5]["rows"], told[5]["done"], told[5]["state"]) == (5000, 2, "done")
    assert {name: told[-1][name] for name in ("status", "subtasks", "failures", "restarts")} == {
        **{"status": "FINISHED", "subtasks": 3, "failures": 1, "restarts": 1}
    }


def test_off_is_a_no_op():
    stream = io.StringIO()
    progress = create(False, stream)
    assert not isinstance(progress, Progress)
    for record in word_count():
        progress.record(record)
    progress.close()
    assert stream.getvalue() == ""


def test_a_stream_that_is_gone_disturbs_nobody():
    stream = io.StringIO()
    progress = Progress(stream)
    stream.close()
    for record in word_count():
        progress.record(record)
    progress.close()


@pytest.mark.parametrize(("term", "live"), [("xterm", True), ("dumb", False)])
def test_where_the_live_view_is_used(monkeypatch, term, live):
    monkeypatch.setenv("TERM", term)
    assert is_live(Terminal()) is live
    assert is_live(io.StringIO()) is False


def test_history_counts_subtasks_and_takes_the_latest_totals():
    history = JobHistory(word_count())
    source = history.vertices[0]
    assert source.counts() == (0, 0, 2)
    assert source.attempts == {1: 2}
    history.apply(measured(110.0, 0, parallelism=2, numFinishedTasks=2, numRecordsOut=6000))
    assert source.number("numRecordsOut") == 6000 and source.number("numRecordsIn") == 0
    assert history.metrics == {"numRestarts": 1}
    assert history.seconds == pytest.approx(10.0)


def test_views_share_one_interface():
    for view in (PlainView, LiveView, JsonView):
        view(io.StringIO(), threading.RLock()).close(JobHistory(runs=True))
