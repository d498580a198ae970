"""Pictures: what is thinned keeps what matters, what has no room is left out, what cannot be read is not drawn."""

from __future__ import annotations

import itertools
import re

from hypothesis import given
from hypothesis import strategies as st

from firesteel.ui.drawing.canvas import Caption, Span
from firesteel.ui.drawing.graph import MOST_CARDS, Card, Flow, graph
from firesteel.ui.drawing.histogram import histogram
from firesteel.ui.drawing.lines import MOST_POINTS, Line, lines, thinned
from firesteel.ui.drawing.lines import Mark as Event
from firesteel.ui.drawing.timeline import MOST_BARS, fused, timeline
from firesteel.ui.views.structs import Bar, Histogram, Lane, Mark, Timeline


def mark(begin: float, state: str = "finished", **more) -> Mark:
    return Mark(begin=begin, end=begin + 0.5, vertex=0, state=state, **more)


@given(st.lists(st.sampled_from(["finished", "failed", "running"]), min_size=1, max_size=300), st.integers(1, 50))
def test_marks_that_share_a_bar_lose_no_attempt_and_no_failure(states, most):
    kept = fused([mark(float(k), state) for k, state in enumerate(states)], most)
    assert len(kept) <= most or len(kept) == len(states) <= most
    assert sum(one.count for one in kept) == len(states)
    failed = sum(one.failed if one.count > 1 else one.state == "failed" for one in kept)
    assert failed == states.count("failed")
    assert kept[0].begin == 0.0 and kept[-1].end == len(states) - 0.5


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=3000))
def test_a_thinned_line_keeps_its_peak_and_its_last_value(values):
    points = list(enumerate(values))
    kept = thinned(points)
    assert len(kept) <= MOST_POINTS + 2
    assert max(value for _, value in kept) == max(values)
    assert kept[-1][1] == values[-1]
    assert [at for at, _ in kept] == sorted(at for at, _ in kept)


def test_a_timeline_is_bounded_whatever_it_is_given():
    lanes = [
        Lane(node=f"node-{k}", slot=None, marks=[mark(float(j), count=3, busy=2.0) for j in range(100)])
        for k in range(64)
    ]
    view = Timeline(
        begin=0.0, end=100.0, job_seconds=100.0, lanes=lanes, blocked=[], moments=[], attempts=19_200, mirrors=0, vertices={0: "step"},
        is_aggregated=True,
    )  # fmt: skip
    drawn = timeline(view, lambda begin, end: f"?from={begin}&to={end}")
    assert drawn.count('class="attempt') <= MOST_BARS
    assert 'href="?from=0.0&amp;to=12.5"' in drawn


def test_labels_of_rescales_have_room():
    events = [Event(float(at), f"{at}→{at + 1}", "a rescale", "good") for at in range(100)]
    drawn = lines(Caption("a", "A", ""), [Line("partitions", [(0.0, 1.0), (50.0, 9.0)])], Span(0.0, 100.0), "9", events)
    places = sorted(float(x) for x in re.findall(r'<text x="([\d.]+)%"[^>]*>\d+→', drawn))
    assert len(places) > 5
    assert min(later - earlier for earlier, later in itertools.pairwise(places)) >= 5.9


def test_heavy_ranges_are_marked_and_told():
    sizes = Histogram(
        bars=[Bar(low=0, high=10, count=98), Bar(low=10, high=20, count=0), Bar(low=20, high=30, count=2)], count=100, smallest=1.0, median=5.0,
        mean=5.5, largest=30.0, largest_at=42,
    )  # fmt: skip
    drawn = histogram("a", "Bytes", sizes, lambda value: f"{value:g} B", "subtask")
    assert drawn.count('class="bar"') == 1 and drawn.count('class="bar heavy"') == 1
    assert "30 B at most (subtask 42), 6.0 times the median" in drawn


def test_a_graph_that_nobody_could_read_is_not_drawn():
    card = Card("[0] step", "1 subtask", "by-bytes", "", "running", "/", "")
    assert graph([card] * (MOST_CARDS + 1), [], "a graph", "") == ""
    assert graph([], [], "a graph", "") == ""
    drawn = graph([card, card], [Flow(0, 1, "hash", "5 rows", 100)], "a graph", "")
    assert drawn.count("<a href") == 2 and "hash" in drawn and "100 B" in drawn
