"""What notebooks show: well-formed, complete, bounded, and without anything that runs."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pyarrow as pa
import pytest
from msgspec.structs import replace
from tests import journal_samples, stream_samples

from firesteel.api.environment import ExecutionEnvironment
from firesteel.arrow import col
from firesteel.report.fold import JobFold
from firesteel.report.stream_report import rescale_sentence
from firesteel.report.tables import attempts_table, decisions_table, timings_table, vertices_table
from firesteel.scheduler.kernel.records import Decision, StateChange
from firesteel.view.notebook.job import MOST_BARS, MOST_ROWS, MOST_STEPS, attempts_of, decisions_html, job_html
from firesteel.view.notebook.markup import MOST_NODES, Edge, Node, graph_svg
from firesteel.view.notebook.stream import status_html
from firesteel.view.notebook.tables import install, table_html
from firesteel.view.svg import running


def parsed(html: str) -> ElementTree.Element:
    """The HTML is XML as well, has no script, no handler, and reaches for nothing outside."""
    assert "<script" not in html
    assert not re.search(r"\son[a-z]+=|javascript:|(?:href|src)=", html)
    return ElementTree.fromstring(html)


def texts(root: ElementTree.Element) -> list[str]:
    return [text for text in root.itertext() if text.strip()]


def by_tag(root: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    return [element for element in root.iter() if element.tag.rsplit("}", 1)[-1] == name]


def attempts(records: list) -> ElementTree.Element:
    return parsed(f"<div>{attempts_of(JobFold(records), JobFold(records).lives(all_of_them=True))}</div>")


def big_job(subtasks: int) -> list:
    plan = journal_samples.planned()
    every = list(range(subtasks))
    times = [100.0 + k / subtasks for k in every]
    return [
        plan,
        StateChange(at=100.0, vertex=0, state="DEPLOYING", subtasks=every, attempts=[0] * subtasks, times=times),
        StateChange(
            at=103.0, vertex=0, state="FINISHED", subtasks=every, attempts=[0] * subtasks,
            deployed=times, times=[at + 1.0 for at in times],
        ),
    ]  # fmt: skip


def test_a_job_shows_its_graph_vertices_timeline_and_decisions():
    root = parsed(job_html(journal_samples.word_count()))
    graph, timeline = by_tag(root, "svg")
    assert "[0] text src/**/*.py -> tokenize" in texts(graph)
    assert "hash" in texts(graph)
    assert len(by_tag(graph, "rect")) == 2
    assert len(by_tag(timeline, "rect")) == 4, "two subtasks, one of them twice, and the consumer"
    told = " ".join(texts(root))
    assert "word count (job 3f2a91c0): finished after 4.2 s, 2 vertices, 3 subtasks" in told
    assert "2 source subtasks: 100 MiB in 12 splits over 64 MiB each" in told
    assert "attempt 1 failed" in told


def test_a_bar_says_what_became_of_its_attempt():
    root = parsed(job_html(journal_samples.mirrored()))
    hints = [text for title in by_tag(root, "title") for text in texts(title)]
    assert "subtask 1, attempt 3 (a mirror) on 10.0.0.3 finished after 1.1 s and won" in hints
    dashed = [rect for rect in by_tag(root, "rect") if rect.get("stroke-dasharray")]
    assert len(dashed) == 2, "mirrors"


def test_attempts_of_subtasks_with_several_come_first():
    rows = by_tag(attempts(journal_samples.mirrored()), "tr")[1:]
    assert [texts(row)[1] for row in rows] == ["1", "1", "1", "0", "2"]


@pytest.mark.parametrize("subtasks", [MOST_BARS, MOST_BARS + 1, 10_000])
def test_many_attempts_become_a_line_of_bounded_size(subtasks):
    html = job_html(big_job(subtasks))
    (timeline,) = [svg for svg in by_tag(parsed(html), "svg") if "attempts over time" in svg.get("aria-label")]
    bars = len(by_tag(timeline, "rect"))
    assert bars == (subtasks if subtasks <= MOST_BARS else 0)
    assert len(html) < 60_000


def test_the_line_says_how_many_ran():
    few = running([1.0, 2.0, 2.5], [3.0, 3.0, 4.0], MOST_STEPS)
    assert few == [(1.0, 1), (2.0, 2), (2.5, 3), (3.0, 1), (4.0, 0)]
    assert running([], [], MOST_STEPS) == []


def test_the_thinned_line_keeps_the_peak_and_the_quiet():
    many = [(k / 1000, 1.0 + k / 1000) for k in range(1000)] + [(0.9995, 0.99951)] * 50
    points = running(*zip(*many, strict=True), MOST_STEPS)
    assert len(points) == MOST_STEPS + 1
    assert max(count for _, count in points) == 1050
    assert points[-1][1] == 0
    later = [(5.0, 6.0)] * 3
    quiet = [count for at, count in running(*zip(*many, *later, strict=True), MOST_STEPS) if 2.1 < at < 4.9]
    assert set(quiet) == {0}


def test_names_are_escaped():
    plan = replace(journal_samples.planned(), job_name="<script>alert(1)</script>")
    html = job_html([plan])
    assert "&lt;script&gt;" in html
    parsed(html)


def test_a_job_that_has_just_begun_is_shown():
    assert "still created" in " ".join(texts(parsed(job_html([journal_samples.planned()]))))


def test_decisions_beyond_a_bound_are_counted():
    decisions = [Decision(at=float(k), what="release", reason=f"number {k}") for k in range(MOST_ROWS + 7)]
    root = parsed(f"<div>{decisions_html(decisions)}</div>")
    assert len(by_tag(root, "tr")) == MOST_ROWS + 1
    assert "and 7 more" in texts(root)


def test_every_node_is_behind_what_it_reads_and_none_overlap():
    nodes = [Node(f"step {k}") for k in range(6)]
    edges = [Edge(0, 2), Edge(1, 2), Edge(2, 3), Edge(0, 4), Edge(4, 5), Edge(3, 5), Edge(0, 5)]
    rects = [
        tuple(float(rect.get(name)) for name in ("x", "y", "width", "height"))
        for rect in by_tag(parsed(graph_svg(nodes, edges, "a graph")), "rect")
    ]
    for edge in edges:
        assert rects[edge.producer][0] + rects[edge.producer][2] < rects[edge.consumer][0]
    for k, (x, y, width, height) in enumerate(rects):
        for ox, oy, owidth, oheight in rects[:k]:
            assert x >= ox + owidth or ox >= x + width or y >= oy + oheight or oy >= y + height


def test_a_graph_that_nobody_could_read_is_not_drawn():
    assert graph_svg([Node("step")] * (MOST_NODES + 1), [], "a graph") == ""
    assert graph_svg([], [], "a graph") == ""


def test_a_stream_shows_its_columns_and_steps():
    env = ExecutionEnvironment()
    left = env.from_arrow(pa.table({"k": [1, 2], "n": [3, 4]})).filter(col("n") > 3)
    joined = left.key_by("k").join(env.from_arrow(pa.table({"k": [1], "m": ["x"]})).key_by("k"))
    root = parsed(joined._repr_html_())
    told = texts(root)
    assert {"k", "n", "m", "int64", "string", "3 columns"} <= set(told)
    (drawn,) = by_tag(root, "svg")
    assert len(by_tag(drawn, "rect")) == 4
    assert any(text.startswith("hash by k") for text in texts(drawn))


# --- the Arrow tables -------------------------------------------------------------------------------------------------


def test_the_tables_of_a_job_are_readable_and_others_are_left_alone():
    records = journal_samples.mirrored()
    decisions = parsed(table_html(decisions_table(records)))
    assert "inputs" not in texts(decisions), "for programs"
    assert texts(decisions)[0] == f"pyarrow.Table: decisions, {decisions_table(records).num_rows} rows, 11 columns"
    assert len(by_tag(decisions, "tr")) == 1 + decisions_table(records).num_rows
    vertices = vertices_table(records)
    assert set(vertices["name"].to_pylist()) <= set(texts(parsed(table_html(vertices))))
    assert "running" in texts(parsed(table_html(timings_table(records))))
    assert table_html(vertices.select(["vertex"])) is None
    assert table_html(pa.table({"k": [1]})) is None


def test_the_table_of_attempts_has_the_same_timeline_as_the_job():
    records = journal_samples.mirrored()
    root, whole = parsed(table_html(attempts_table(records))), attempts(records)
    (drawn,), (expected,) = by_tag(root, "svg"), by_tag(whole, "svg")
    bars = [
        [(rect.get("y"), rect.get("fill"), rect.get("stroke-dasharray")) for rect in by_tag(svg, "rect")]
        for svg in (drawn, expected)
    ]
    assert bars[0] == bars[1]
    assert [texts(title) for title in by_tag(drawn, "title")] == [texts(title) for title in by_tag(expected, "title")]
    assert len(by_tag(root, "tr")) == len(by_tag(whole, "tr"))


def test_a_part_of_the_attempts_and_none_can_be_shown():
    attempts = attempts_table(journal_samples.mirrored())
    assert len(by_tag(parsed(table_html(attempts.slice(1, 2))), "tr")) == 3
    assert by_tag(parsed(table_html(attempts.slice(0, 0))), "svg") == []


class Formatter:
    """As IPython's: what is known by type, else KeyError."""

    def __init__(self) -> None:
        self.known: dict = {}

    def lookup_by_type(self, kind: type):
        return self.known[kind]

    def for_type(self, kind: type, show) -> None:
        self.known[kind] = show


def test_what_the_user_said_of_arrow_tables_stays():
    formatter = Formatter()
    install(formatter)
    assert formatter.known == {pa.Table: table_html}
    formatter.known = {pa.Table: str}
    install(formatter)
    assert formatter.known == {pa.Table: str}


def test_a_running_stream_shows_how_it_is_and_its_rescales():
    status = replace(stream_samples.STATUS, name="a <b>")
    root = parsed(status_html(status, [stream_samples.GROWN]))
    told = " ".join(texts(root))
    assert "a <b>: Executing" in told and status.checkpoint in told
    assert {"partitions", "batches", "rescales"} <= set(texts(root))
    assert f"{stream_samples.GROWN.rescale}: {rescale_sentence(stream_samples.GROWN)}" in texts(root)
    assert by_tag(parsed(status_html(status, [])), "details") == []
