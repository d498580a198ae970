"""A pipeline that has not run: its schema, and the steps it is made of, as the user wrote them."""

from __future__ import annotations

from firesteel.compile.stream_graph import StreamEdge, StreamNode, UnionStep, reachable
from firesteel.humanize import plural
from firesteel.view.notebook.graph import MOST_NODES, Edge, Node, graph_svg
from firesteel.view.notebook.markup import details, note, table

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
