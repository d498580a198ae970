"""A pipeline that has not run: its schema, and the steps it is made of, as the user wrote them."""

from __future__ import annotations

from collections.abc import Sequence

from firesteel.compile.stream_graph import StreamEdge, StreamNode, UnionStep, reachable
from firesteel.humanize import plural
from firesteel.report.stream_report import rescale_sentence
from firesteel.scheduler.streaming.records import RescaleRecord, StreamStatus
from firesteel.view.notebook.markup import MOST_NODES, Edge, Node, details, graph_svg, link, note, table
from firesteel.view.stream_view import status_facts, status_title

_MOST_HINTED = 12
"""Columns named in a node's hint."""


def stream_html(node: StreamNode, title: str) -> str:
    """``node``: the stream's last step. Nothing is run or read for it."""
    steps = reachable([node])
    drawn = steps_svg(steps)
    told = drawn or note(f"{plural(len(steps), 'step')}: too many to draw (at most {MOST_NODES}).")
    columns = [(field.name, str(field.type), "" if field.nullable else "never null") for field in node.schema]
    schema = details(plural(len(columns), "column"), table(("column", "type", ""), columns), is_open=True)
    return f"<div>{note(title)}{schema}{told}</div>"


def steps_svg(steps: list[StreamNode]) -> str:
    place = {step: k for k, step in enumerate(steps)}
    nodes = [_node(step) for step in steps]
    edges = [Edge(place[edge.source], place[step], _label(edge)) for step in steps for edge in step.inputs]
    edges += [Edge(place[edge.source], place[step], name) for step in steps for name, edge in step.sides]
    return graph_svg(nodes, edges, "The steps of the pipeline")


def _node(step: StreamNode) -> Node:
    names = list(step.schema.names)
    shown = ", ".join(names[:_MOST_HINTED]) + (", ..." if len(names) > _MOST_HINTED else "")
    fixed = "" if step.config.parallelism is None else plural(step.config.parallelism, "subtask")
    detail = ", ".join(filter(None, [fixed, step.place]))
    return Node(step.name, detail if not isinstance(step.work, UnionStep) else "", f"{step.name}\n{shown}", "running")


def _label(edge: StreamEdge) -> str:
    if edge.ship is None:
        return ""
    return f"{edge.ship.value} by {', '.join(edge.keys)}" if edge.keys else edge.ship.value


_MOST_RESCALES = 50


def status_html(status: StreamStatus, rescales: Sequence[RescaleRecord], page: str = "") -> str:
    """``rescales``: all of them, the oldest first; the last fifty are told. ``page``: the address of its page; empty: it has none."""
    told = "".join(note(f"{record.rescale}: {rescale_sentence(record)}") for record in rescales[-_MOST_RESCALES:])
    parts = [
        note(status_title(status)),
        link(page, "Its page") if page else "",
        table(("", ""), status_facts(status)),
        details(plural(len(rescales), "rescale"), told) if told else "",
    ]
    return f"<div>{''.join(parts)}</div>"
