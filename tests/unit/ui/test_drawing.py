"""Pictures: what has no room is left out, what cannot be read is not drawn."""

from __future__ import annotations

import itertools
import re

from firesteel.ui.drawing.canvas import Caption, Line, Span, histogram, lines
from firesteel.ui.drawing.canvas import Mark as Event
from firesteel.ui.drawing.graph import MOST_CARDS, Card, Flow, graph
from firesteel.ui.drawing.timeline import timeline
from firesteel.ui.views.structs import Bar, Histogram, Lane, Mark, Timeline


def test_the_axis_of_a_timeline_leads_to_its_parts():
    several = Mark(begin=0.0, end=0.5, vertex=0, state="failed", count=3, failed=1, busy=2.0)
    view = Timeline(
        begin=0.0, end=100.0, job_seconds=100.0, lanes=[Lane(node="node-0", slot=None, marks=[several])], blocked=[], moments=[],
        attempts=3, mirrors=0, vertices={0: "step"}, is_aggregated=True,
    )  # fmt: skip
    drawn = timeline(view, lambda begin, end: f"?from={begin}&to={end}")
    assert 'href="?from=0.0&amp;to=12.5"' in drawn
    assert drawn.count('class="attempt finished"') == 1 and drawn.count('class="attempt failed part"') == 1


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
