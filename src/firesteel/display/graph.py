"""A graph of steps or vertices as an SVG: layers from left to right, every node behind all that it reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from firesteel.display.markup import STATE_COLOURS, cut, element, escape, svg, text_width

MOST_NODES = 150
"""A larger graph is not drawn: nobody could read it."""
_CHARACTERS = 34
_HEIGHT, _GAP_ACROSS, _GAP_ALONG, _MARGIN, _PADDING = 44.0, 14.0, 74.0, 6.0, 10.0
_SWEEPS = 4
"""How often the nodes of a layer are put in the order of their neighbours."""


@dataclass(frozen=True, slots=True)
class Node:
    title: str
    detail: str = ""
    hint: str = ""
    """What a pointer shows; empty: the title."""
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
    layers = _ordered(_layers(len(nodes), edges), edges)
    boxes, width, height = _placed(nodes, layers)
    drawn = "".join(_edge(boxes, edge) for edge in edges) + "".join(
        _node(node, box) for node, box in zip(nodes, boxes, strict=True)
    )
    return svg(width, height, drawn, label)


def _layers(count: int, edges: Sequence[Edge]) -> list[list[int]]:
    """The longest way from a source decides."""
    depth = [0] * count
    for edge in sorted(edges, key=lambda edge: edge.consumer):
        depth[edge.consumer] = max(depth[edge.consumer], depth[edge.producer] + 1)
    layers: list[list[int]] = [[] for _ in range(max(depth) + 1)]
    for node, layer in enumerate(depth):
        layers[layer].append(node)
    return layers


def _ordered(layers: list[list[int]], edges: Sequence[Edge]) -> list[list[int]]:
    """Nodes near the middle of their neighbours, forth and back: fewer lines cross (Sugiyama's barycentre rule)."""
    neighbours: dict[int, list[int]] = {}
    for edge in edges:
        neighbours.setdefault(edge.consumer, []).append(edge.producer)
        neighbours.setdefault(edge.producer, []).append(edge.consumer)
    place = {node: float(k) for layer in layers for k, node in enumerate(layer)}
    for sweep in range(_SWEEPS):
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            means = {
                node: sum(place[other] for other in near) / len(near) if (near := neighbours.get(node)) else place[node]
                for node in layer
            }
            layer.sort(key=means.__getitem__)
            place.update({node: float(k) for k, node in enumerate(layer)})
    return layers


def _placed(nodes: Sequence[Node], layers: list[list[int]]) -> tuple[list[tuple[float, float, float]], float, float]:
    """Per node (x, y, width), and the size of the picture."""
    boxes = [(0.0, 0.0, 0.0)] * len(nodes)
    tallest = max(map(len, layers)) * (_HEIGHT + _GAP_ACROSS) - _GAP_ACROSS
    x = _MARGIN
    for layer in layers:
        width = max(text_width(cut(text, _CHARACTERS)) for k in layer for text in (nodes[k].title, nodes[k].detail))
        width += 2 * _PADDING
        y = _MARGIN + (tallest - len(layer) * (_HEIGHT + _GAP_ACROSS) + _GAP_ACROSS) / 2
        for k in layer:
            boxes[k] = (x, y, width)
            y += _HEIGHT + _GAP_ACROSS
        x += width + _GAP_ALONG
    return boxes, x - _GAP_ALONG + _MARGIN, tallest + 2 * _MARGIN


def _node(node: Node, box: tuple[float, float, float]) -> str:
    x, y, width = box
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


def _edge(boxes: list[tuple[float, float, float]], edge: Edge) -> str:
    x, y, width = boxes[edge.producer]
    to_x, to_y, _ = boxes[edge.consumer]
    x, y, to_y = x + width, y + _HEIGHT / 2, to_y + _HEIGHT / 2
    middle = (x + to_x) / 2
    path = f"M{x:.1f},{y:.1f} C{middle:.1f},{y:.1f} {middle:.1f},{to_y:.1f} {to_x - 5:.1f},{to_y:.1f}"
    drawn = element("path", d=path, fill="none", stroke="currentColor", stroke_opacity=0.5)
    tip = f"M{to_x - 6:.1f},{to_y - 4:.1f} L{to_x:.1f},{to_y:.1f} L{to_x - 6:.1f},{to_y + 4:.1f} z"
    drawn += element("path", d=tip, fill="currentColor", fill_opacity=0.5)
    if edge.label:
        at = {"x": to_x - _GAP_ALONG / 2, "y": to_y - 5, "text_anchor": "middle", "font_size": 10}
        label = element("text", escape(cut(edge.label, 12)), fill="currentColor", opacity=0.7, **at)
        drawn += element("g", element("title", escape(edge.label)) + label)
    return drawn
