"""A graph of steps or vertices as an SVG: layers from left to right, every node behind all that it reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from firesteel.view.notebook.markup import STATE_COLOURS, svg
from firesteel.view.svg import Box, before_the_end, curve, cut, element, layered, placed, text_width, tip

MOST_NODES = 150
"""A larger graph is not drawn: nobody could read it."""
_CHARACTERS = 34
_HEIGHT, _LANE, _GAP_ACROSS, _GAP_ALONG, _MARGIN, _PADDING = 44.0, 10.0, 14.0, 78.0, 6.0, 10.0


@dataclass(frozen=True, slots=True)
class Node:
    title: str
    detail: str = ""
    hint: str = ""
    """Text shown under the pointer; empty: the title."""
    state: str = "waiting"
    """One of ``markup.STATE_COLOURS``."""


@dataclass(frozen=True, slots=True)
class Edge:
    """From node ``producer`` to node ``consumer``, which has the larger number."""

    producer: int
    consumer: int
    label: str = ""


def graph_svg(nodes: Sequence[Node], edges: Sequence[Edge], label: str) -> str:
    """Empty for no nodes, and for more than MOST_NODES."""
    if not nodes or len(nodes) > MOST_NODES:
        return ""
    layers, ways = layered(len(nodes), [(edge.producer, edge.consumer) for edge in edges])
    boxes, width, height = placed(
        layers,
        lambda layer: _width(nodes, layer),
        lambda node: _HEIGHT if node < len(nodes) else _LANE,
        (_GAP_ALONG, _GAP_ACROSS),
        _MARGIN,
    )
    drawn = [_edge([boxes[k] for k in way], edge.label) for way, edge in zip(ways, edges, strict=True)]
    drawn += [_node(node, box) for node, box in zip(nodes, boxes, strict=False)]
    return svg(width, height, "".join(drawn), label)


def _width(nodes: Sequence[Node], layer: list[int]) -> float:
    """Of a layer: the widest text's."""
    texts = [cut(text, _CHARACTERS) for k in layer if k < len(nodes) for text in (nodes[k].title, nodes[k].detail)]
    return max(map(text_width, texts), default=0.0) + 2 * _PADDING


def _node(node: Node, box: Box) -> str:
    x, y, width = box
    y -= _HEIGHT / 2
    colour = STATE_COLOURS[node.state]
    lines = [
        element("title", escape(node.hint or node.title)),
        element("rect", x=x, y=y, width=width, height=_HEIGHT, rx=4, fill=colour, fill_opacity=0.15, stroke=colour),
        element("text", escape(cut(node.title, _CHARACTERS)), x=x + _PADDING, y=y + 18, fill="currentColor"),
    ]
    if node.detail:
        detail = escape(cut(node.detail, _CHARACTERS))
        lines.append(element("text", detail, x=x + _PADDING, y=y + 35, fill="currentColor", opacity=0.7))
    return element("g", "".join(lines))


def _edge(way: list[Box], label: str) -> str:
    """A line from box to box, through the places between them, with a tip at its end."""
    drawn = element("path", d=curve(way), fill="none", stroke="currentColor", stroke_opacity=0.5)
    drawn += element("path", d=tip(way), fill="currentColor", fill_opacity=0.5)
    if label:
        x, y = before_the_end(way)
        text = escape(cut(label, 12))
        at = {"x": x, "y": y - 5, "text_anchor": "middle", "font_size": 10}
        said = element("text", text, fill="currentColor", opacity=0.7, **at)
        drawn += element("g", element("title", escape(label)) + said)
    return drawn
