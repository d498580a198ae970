"""Progress in a notebook: one output that changes in its place, from the first record to the last."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
from msgspec.structs import replace
from tests import journal_samples
from tests.unit.view.test_display import by_tag, parsed, texts

from firesteel.report.fold import JobHistory
from firesteel.view.live_table import headline
from firesteel.view.notebook.progress import Html, NotebookView, notebook_view, progress_html
from firesteel.view.progress import Progress, create


class Shown:
    """Stands for an output below a cell: all that it has held."""

    def __init__(self) -> None:
        self.states: list[Html] = []
        self.changed = threading.Event()

    def show(self, html: Html) -> Shown:
        self.update(html)
        return self

    def update(self, html: Html) -> None:
        self.states.append(html)
        self.changed.set()

    def told(self) -> list[str]:
        return [repr(html) for html in self.states]


def progress_in(shown: Shown, seconds: float = 0.01) -> Progress:
    return Progress(sys.stderr, lambda _stream, lock: NotebookView(shown.show, lock, seconds))


def watched(records) -> JobHistory:
    seen = JobHistory(runs=True)
    for record in records:
        seen.apply(record)
    return seen


def test_an_output_changes_until_the_job_is_over_and_then_no_more():
    shown = Shown()
    progress = progress_in(shown)
    assert shown.told() == ["Firesteel: the job is being prepared."]
    *before, last = journal_samples.word_count()
    for record in before:
        progress.record(record)
    for _ in range(2):  # without any record time goes on
        shown.changed.clear()
        assert shown.changed.wait(600)
    assert "word count: running" in shown.told()[-1]
    progress.record(last)
    progress.close()
    count = len(shown.states)
    shown.changed.clear()
    assert not shown.changed.wait(0.05)
    assert len(shown.states) == count
    assert shown.told()[-1] == "word count: finished after 4.2 s, 2 steps, 3 subtasks"
    root = parsed(shown.states[-1]._repr_html_())
    assert by_tag(root, "details")[0].get("open") is None, "folded"


def test_updates_are_as_rare_as_promised():
    shown = Shown()
    progress = progress_in(shown, 60.0)
    for record in journal_samples.word_count() * 50:
        progress.record(record)
    progress.close()
    assert len(shown.states) <= 3, "the first one, one when it began, the last one"


def test_a_job_that_never_began_leaves_nothing():
    shown = Shown()
    progress_in(shown).close()
    assert shown.states[-1]._repr_html_() == ""


def test_an_output_that_fails_disturbs_nobody():
    class Gone(Shown):
        def update(self, html: Html) -> None:
            if self.states:
                raise OSError("the notebook is gone")
            super().update(html)

    progress = progress_in(Gone())
    for record in journal_samples.word_count():
        progress.record(record)
    progress.close()


def test_a_view_that_cannot_be_made_gives_way_to_the_streams():
    def make(_stream, _lock):
        raise OSError("no display")

    view = create(True, sys.stderr, make)
    view.record(journal_samples.planned())
    view.close()


def test_the_table_has_a_row_per_vertex_with_a_bar_and_what_went_wrong():
    seen = watched(journal_samples.word_count())
    root = parsed(progress_html(seen, headline(seen), ["subtask 1 failed: <out of memory>"]))
    assert len(by_tag(root, "tr")) == 3
    assert len(by_tag(root, "svg")) == 2
    assert "subtask 1 failed: <out of memory>" in texts(root)


@pytest.mark.parametrize("status", ["FAILED", "CANCELED"])
def test_the_table_of_a_job_that_did_not_finish_stays_open(status):
    *records, last = journal_samples.word_count()
    seen = watched([*records, replace(last, status=status)])
    assert by_tag(parsed(progress_html(seen, "said", [])), "details")[0].get("open") == "open"


def test_outside_of_notebooks_there_is_none_and_ipython_is_not_loaded():
    assert notebook_view() is None
    code = "import sys, firesteel.view.notebook.progress as p; assert p.notebook_view() is None; assert 'IPython' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)
