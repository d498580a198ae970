"""A graph of steps or vertices as an SVG: layers from left to right, every node behind all that it reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from firesteel.view.notebook.markup import STATE_COLOURS, cut, element, escape, svg, text_width

MOST_NODES = 150
"""A larger graph is not drawn: nobody could read it."""
_CHARACTERS = 34
_HEIGHT, _LANE, _GAP_ACROSS, _GAP_ALONG, _MARGIN, _PADDING = 44.0, 10.0, 14.0, 78.0, 6.0, 10.0
_SWEEPS = 4
"""Number of times that the nodes of a layer are put in the order of their neighbours."""


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
    depth = _depths(len(nodes), edges)
    ways = _ways(depth, edges)
    boxes, width, height = _placed(nodes, _ordered(depth, ways))
    drawn = [_edge([boxes[k] for k in way], edge.label) for way, edge in zip(ways, edges, strict=True)]
    drawn += [_node(node, box) for node, box in zip(nodes, boxes, strict=False)]
    return svg(width, height, "".join(drawn), label)


def _depths(count: int, edges: Sequence[Edge]) -> list[int]:
    """Layer of each node: the longest way from a source decides; a source is right before the first that reads it."""
    depth = [0] * count
    for edge in sorted(edges, key=lambda edge: edge.consumer):
        depth[edge.consumer] = max(depth[edge.consumer], depth[edge.producer] + 1)
    fed = {edge.consumer for edge in edges}
    for edge in sorted(edges, key=lambda edge: -depth[edge.consumer]):
        if edge.producer not in fed:
            depth[edge.producer] = depth[edge.consumer] - 1
    return depth


def _ways(depth: list[int], edges: Sequence[Edge]) -> list[list[int]]:
    """Per edge the nodes it goes through: a place of its own, appended to ``depth``, in each layer that it crosses."""
    ways: list[list[int]] = []
    for edge in edges:
        crossed = range(depth[edge.producer] + 1, depth[edge.consumer])
        ways.append([edge.producer, *range(len(depth), len(depth) + len(crossed)), edge.consumer])
        depth += crossed
    return ways


def _ordered(depth: list[int], ways: list[list[int]]) -> list[list[int]]:
    """Layers whose nodes are near the middle of their neighbours: fewer lines cross (Sugiyama's barycentre rule)."""
    layers: list[list[int]] = [[] for _ in range(max(depth) + 1)]
    for node, layer in enumerate(depth):
        layers[layer].append(node)
    neighbours: dict[int, list[int]] = {}
    for way in ways:
        for one, other in pairwise(way):
            neighbours.setdefault(other, []).append(one)
            neighbours.setdefault(one, []).append(other)
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


_Box = tuple[float, float, float]
"""x, middle's y, width."""


def _placed(nodes: Sequence[Node], layers: list[list[int]]) -> tuple[list[_Box], float, float]:
    """Of each node, and behind them of the places of edges; and the size of the picture."""
    boxes: list[_Box] = [(0.0, 0.0, 0.0)] * sum(map(len, layers))
    heights = [[_HEIGHT if k < len(nodes) else _LANE for k in layer] for layer in layers]
    tallest = max(sum(own) + _GAP_ACROSS * (len(own) - 1) for own in heights)
    x = _MARGIN
    for layer, own in zip(layers, heights, strict=True):
        texts = [cut(text, _CHARACTERS) for k in layer if k < len(nodes) for text in (nodes[k].title, nodes[k].detail)]
        width = max(map(text_width, texts)) + 2 * _PADDING
        y = _MARGIN + (tallest - sum(own) - _GAP_ACROSS * (len(own) - 1)) / 2
        for k, height in zip(layer, own, strict=True):
            boxes[k] = (x, y + height / 2, width)
            y += height + _GAP_ACROSS
        x += width + _GAP_ALONG
    return boxes, x - _GAP_ALONG + _MARGIN, tallest + 2 * _MARGIN


def _node(node: Node, box: _Box) -> str:
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


def _edge(way: list[_Box], label: str) -> str:
    """A line from box to box, through the places between them, with a tip at its end."""
    x, y, width = way[0]
    path = [f"M{x + width:.1f},{y:.1f}"]
    x += width
    for to_x, to_y, to_width in way[1:]:
        middle = (x + to_x) / 2
        path.append(f"C{middle:.1f},{y:.1f} {middle:.1f},{to_y:.1f} {to_x:.1f},{to_y:.1f}")
        if (to_x, to_y, to_width) != way[-1]:
            path.append(f"h{to_width:.1f}")
        x, y = to_x + to_width, to_y
    end_x, end_y, _ = way[-1]
    drawn = element("path", d=" ".join(path), fill="none", stroke="currentColor", stroke_opacity=0.5)
    tip = f"M{end_x - 6:.1f},{end_y - 4:.1f} L{end_x:.1f},{end_y:.1f} L{end_x - 6:.1f},{end_y + 4:.1f} z"
    drawn += element("path", d=tip, fill="currentColor", fill_opacity=0.5)
    if label:
        last_x, last_y, last_width = way[-2]
        at = {"x": (last_x + last_width + end_x) / 2, "y": (last_y + end_y) / 2 - 5}
        text = escape(cut(label, 12))
        said = element("text", text, text_anchor="middle", font_size=10, fill="currentColor", opacity=0.7, **at)
        drawn += element("g", element("title", escape(label)) + said)
    return drawn
