"""HTML and SVG as text. Colours of the page are kept (``currentColor``), so that light and dark notebooks are both readable."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from firesteel.view.svg import Box, before_the_end, curve, cut, element, layered, number, placed, text_width, tip

LINE = "rgba(128,128,128,0.4)"
FONT = "font:12px system-ui,sans-serif"
STATE_COLOURS = {
    "waiting": "#9d9da1",
    "running": "#4c78a8",
    "finished": "#54a24b",
    "failed": "#e45756",
    "cancelled": "#b07aa1",
}
_CELL = "padding:2px 10px 2px 0;vertical-align:top;border:none;"


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], right: Iterable[str] = ()) -> str:
    """``right``: the columns of numbers. A value with ``__html__`` (an SVG of ours) goes in as it is."""
    numbers = set(right)
    sides = ["right;white-space:nowrap" if column in numbers else "left" for column in columns]
    head = "".join(
        f'<th style="{_CELL}text-align:{side};border-bottom:1px solid {LINE}">{escape(column)}</th>'
        for column, side in zip(columns, sides, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f'<td style="{_CELL}text-align:{side}">{_cell(value)}</td>' for value, side in zip(row, sides, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    return f'<table style="border-collapse:collapse;{FONT}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _cell(value: object) -> str:
    made = getattr(value, "__html__", None)
    return escape(str(value)) if made is None else made()


def details(summary: str, content: str, *, is_open: bool = False) -> str:
    """A part that the reader can fold; plain HTML."""
    opened = ' open="open"' if is_open else ""
    return f'<details style="{FONT};margin:4px 0"{opened}><summary>{escape(summary)}</summary>{content}</details>'


def note(text: str) -> str:
    return f'<div style="{FONT};margin:4px 0">{escape(text)}</div>'


def link(address: str, text: str) -> str:
    """Opened beside the notebook."""
    return f'<div style="{FONT};margin:4px 0"><a href="{escape(address)}" target="_blank" rel="noopener">{escape(text)}</a></div>'


def svg(width: float, height: float, content: str, label: str) -> str:
    """``label``: what it shows, for those who cannot see it."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(label)}" '
        f'width="{number(width)}" height="{number(height)}" viewBox="0 0 {number(width)} {number(height)}" '
        f'style="max-width:100%;height:auto;{FONT};color:inherit">{content}</svg>'
    )


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
