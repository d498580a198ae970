"""The progress views, plain and live."""

from __future__ import annotations

import io
import threading

import pytest
from tests.unit.journal_samples import measured, word_count

from firesteel.journal.history import JobHistory, VertexHistory
from firesteel.journal.progress import LiveView, NoProgress, PlainView, Progress, create, is_live, render, visible
from firesteel.scheduler.records import JobStatusRecord, StateChange


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
        "word count: finished after 4.2 s",
    ]


def test_several_that_failed_together_are_subtasks():
    gone = StateChange(at=104.0, vertex=0, state="FAILED", subtasks=[1, 2, 3], attempts=[0, 0, 0], cause="gone\nthere")
    assert "[0] subtasks 1-3 failed: gone" in plain_lines([*word_count()[:5], gone])


def test_a_cancelled_job_is_cancelled():
    assert plain_lines([*word_count()[:5], JobStatusRecord(at=105.0, status="CANCELED")])[-1].endswith(
        ": cancelled after 5 s"
    )


def test_a_vertex_that_runs_again_is_said_to_finish_again():
    records = word_count()
    again = [
        StateChange(at=105.0, vertex=0, state="RUNNING", subtasks=[0], attempts=[1]),
        StateChange(at=106.0, vertex=0, state="FINISHED", subtasks=[0], attempts=[1]),
    ]
    lines = plain_lines([*records[:10], *again, *records[10:]])
    assert sum(line.startswith("[0] finished") for line in lines) == 2


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


def test_the_live_table():
    history = JobHistory(word_count()[:9])
    table = render(history, 3.0)
    columns = {c.header: list(c.cells) for c in table.columns}
    assert columns["subtasks"] == ["2", "open"]
    assert columns["done"] == ["2", ""]
    assert str(table.title) == "word count: running, 3 s"
    running = {c.header: list(c.cells) for c in render(JobHistory(word_count()[:5]), 1).columns}
    assert (running["waiting"][0], running["running"][0], running["done"][0]) == ("·", "2", "·")


@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_live_table_keeps_its_numbers_on_a_narrow_terminal(width):
    from rich.console import Console

    console = Console(file=io.StringIO(), width=width)
    console.print(render(JobHistory(word_count()), 4.0, width))
    lines = console.file.getvalue().splitlines()
    assert all(len(line) <= width for line in lines)
    if width >= 80:
        assert "subtasks  waiting  running   done         rows     bytes" in lines[1]
        assert "5,000     3 MiB" in lines[2]
    assert lines[2].startswith("  0  text ")


def test_a_long_job_shows_the_vertices_around_those_that_run():
    vertices = [VertexHistory(i, f"v{i}", parallelism=1) for i in range(100)]
    for vertex in vertices[:50]:
        vertex.by_state["FINISHED"] = 1
    shown = [v.id for v in visible(vertices)]
    assert len(shown) == 24
    assert 50 in shown
    assert shown[0] < 50
    assert [v.id for v in visible(vertices[:10])] == list(range(10))


def test_off_is_a_no_op():
    stream = io.StringIO()
    progress = create(False, stream)
    assert isinstance(progress, NoProgress)
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
    for view in (PlainView(io.StringIO()), LiveView(io.StringIO(), threading.Lock())):
        view.close(JobHistory())
