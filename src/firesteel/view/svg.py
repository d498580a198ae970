"""Elements of SVG as text, which notebooks and web pages share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from itertools import pairwise
from typing import Any

import numpy as np

_CHARACTER = 7.0
"""Width of a character of a font of 12 pixels, about."""


def element(name: str, content: str = "", **attributes: object) -> str:
    """``stroke_width=2`` is written ``stroke-width="2"``, ``class_="a"`` ``class="a"``; numbers are rounded to a tenth of a pixel.
    ``content`` goes in as it is, None as an attribute is left out."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(number(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{written}>{content}</{name}>" if content else f"<{name}{written}/>"


def number(value: object) -> str:
    return f"{value:.1f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else text[: characters - 1].rstrip() + "…"


def text_width(text: str) -> float:
    """Pixels, about."""
    return len(text) * _CHARACTER


MOST_LINES = 8
"""Lines of an axis."""


def round_step(length: float, most: int = MOST_LINES) -> float:
    """Seconds between the lines of an axis that is ``length`` seconds long: a number of which people think in."""
    return next(
        unit * factor
        for unit in (0.001, 0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 36_000.0, 360_000.0, 3.6e6, 3.6e9)
        for factor in (1, 2, 5)
        if length / (unit * factor) <= most
    )


def running(starts: Any, ends: Any, most: int) -> list[tuple[float, int]]:
    """(time, those that run from then on), ascending. ``starts`` and ``ends``: of each, in the same order. Of more than ``most``
    moments each stands for the most in its stretch."""
    if not len(starts):
        return []
    begun, over = np.sort(np.asarray(starts)), np.sort(np.maximum(starts, ends))
    times = np.unique(np.concatenate([begun, over]))
    counts = np.searchsorted(begun, times, "right") - np.searchsorted(over, times, "right")
    if len(times) > most:
        edges = np.linspace(times[0], times[-1], most + 1)
        places = np.searchsorted(times, edges)
        # what ran as a stretch began counts to it too
        peaks = [int(counts[max(low - 1, 0) : high].max()) for low, high in pairwise(places)]
        times, counts = edges, np.array([*peaks, counts[-1]])
    return list(zip(times.tolist(), counts.tolist(), strict=True))


_SWEEPS = 4
"""Number of times that the nodes of a layer are put in the order of their neighbours."""

Box = tuple[float, float, float]
"""x, middle's y, width."""


def layered(count: int, edges: Sequence[tuple[int, int]]) -> tuple[list[list[int]], list[list[int]]]:
    """Layers of ``count`` nodes, from left to right, and per edge (producer, consumer) the nodes that it goes through: itself has a
    place, with a number from ``count`` on, in each layer that it crosses. A consumer has a larger number than its producers."""
    depth = _depths(count, edges)
    ways = _ways(depth, edges)
    return _ordered(depth, ways), ways


def placed(
    layers: list[list[int]],
    width_of: Callable[[list[int]], float],
    height_of: Callable[[int], float],
    gaps: tuple[float, float],
    margin: float,
) -> tuple[list[Box], float, float]:
    """The box of each node and place, and the size of the picture. ``width_of``: of a layer with these nodes; ``gaps``: between
    layers, and between the nodes of one."""
    boxes: list[Box] = [(0.0, 0.0, 0.0)] * sum(map(len, layers))
    along, across = gaps
    heights = [[height_of(node) for node in layer] for layer in layers]
    tallest = max(sum(own) + across * (len(own) - 1) for own in heights)
    x = margin
    for layer, own in zip(layers, heights, strict=True):
        width = width_of(layer)
        y = margin + (tallest - sum(own) - across * (len(own) - 1)) / 2
        for node, height in zip(layer, own, strict=True):
            boxes[node] = (x, y + height / 2, width)
            y += height + across
        x += width + along
    return boxes, x - along + margin, tallest + 2 * margin


def curve(way: list[Box]) -> str:
    """The data of a path from box to box, through the places between them."""
    x, y, width = way[0]
    path = [f"M{x + width:.1f},{y:.1f}"]
    x += width
    for to_x, to_y, to_width in way[1:]:
        middle = (x + to_x) / 2
        path.append(f"C{middle:.1f},{y:.1f} {middle:.1f},{to_y:.1f} {to_x:.1f},{to_y:.1f}")
        if (to_x, to_y, to_width) != way[-1]:
            path.append(f"h{to_width:.1f}")
        x, y = to_x + to_width, to_y
    return " ".join(path)


def tip(way: list[Box]) -> str:
    """The data of a path: the arrow's tip at the end of a curve."""
    x, y, _ = way[-1]
    return f"M{x - 6:.1f},{y - 4:.1f} L{x:.1f},{y:.1f} L{x - 6:.1f},{y + 4:.1f} z"


def before_the_end(way: list[Box]) -> tuple[float, float]:
    """The middle of a curve's last stretch, where a label goes."""
    (x, y, width), (end_x, end_y, _) = way[-2:]
    return (x + width + end_x) / 2, (y + end_y) / 2


def _depths(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Layer of each node: the longest way from a source decides; a source is right before the first that reads it."""
    depth = [0] * count
    for producer, consumer in sorted(edges, key=lambda edge: edge[1]):
        depth[consumer] = max(depth[consumer], depth[producer] + 1)
    fed = {consumer for _, consumer in edges}
    for producer, consumer in sorted(edges, key=lambda edge: -depth[edge[1]]):
        if producer not in fed:
            depth[producer] = depth[consumer] - 1
    return depth


def _ways(depth: list[int], edges: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Appends the places of edges to ``depth``."""
    ways: list[list[int]] = []
    for producer, consumer in edges:
        crossed = range(depth[producer] + 1, depth[consumer])
        ways.append([producer, *range(len(depth), len(depth) + len(crossed)), consumer])
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
