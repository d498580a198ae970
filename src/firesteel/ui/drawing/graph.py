"""The job graph: a card for each vertex, with its parallelism and the rule it comes from, and what went along each edge."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from firesteel.humanize import format_bytes
from firesteel.ui.drawing.canvas import Caption, hint, link, shown, sized, text
from firesteel.view.svg import Box, before_the_end, curve, cut, element, layered, placed, tip

MOST_CARDS = 120
"""A larger graph is not drawn: nobody could read it."""
GLYPHS = {"waiting": "○", "running": "▶", "finished": "✓", "failed": "✕", "cancelled": "⊘"}
"""States without colours."""
_WIDTH, _HEIGHT, _LANE, _PADDING, _MARGIN = 228.0, 106.0, 12.0, 12.0, 4.0
_GAPS = (88.0, 20.0)
_NAME, _LINE = 26, 34
"""Characters of a line of a name, and of smaller text."""


@dataclass(frozen=True, slots=True)
class Card:
    """A vertex. ``open_``: its parallelism is not decided yet. ``done``, ``running``, ``failed``: parts of its subtasks, 0 to 1."""

    name: str
    subtasks: str
    rule: str
    figures: str
    state: str
    href: str
    hint: str
    is_open: bool = False
    done: float = 0.0
    running: float = 0.0
    failed: float = 0.0


@dataclass(frozen=True, slots=True)
class Flow:
    """From card to card; the consumer has the larger number. ``size``: plain bytes, 0: not known."""

    producer: int
    consumer: int
    ship: str
    told: str
    size: int = 0


def graph(cards: Sequence[Card], flows: Sequence[Flow], title: str, description: str) -> str:
    """Empty for no cards, and for more than MOST_CARDS."""
    if not cards or len(cards) > MOST_CARDS:
        return ""
    layers, ways = layered(len(cards), [(flow.producer, flow.consumer) for flow in flows])
    boxes, width, height = placed(
        layers,
        lambda layer: _WIDTH if any(k < len(cards) for k in layer) else _LANE,
        lambda node: _HEIGHT if node < len(cards) else _LANE,
        _GAPS,
        _MARGIN,
    )
    most = max((flow.size for flow in flows), default=0)
    drawn = [_flow(flow, [boxes[k] for k in way], most) for flow, way in zip(flows, ways, strict=True)]
    drawn += [_card(card, box) for card, box in zip(cards, boxes, strict=False)]
    return sized(Caption("graph", title, description), (width, height), "".join(drawn), has_links=True)


def _card(card: Card, box: Box) -> str:
    x, middle, width = box
    y = middle - _HEIGHT / 2
    kind = f"card {card.state}{' open' if card.is_open else ''}"
    left = x + _PADDING
    lines = [
        hint(card.hint),
        element("rect", x=x, y=y, width=width, height=_HEIGHT, rx=6, class_="box"),
        element("text", GLYPHS[card.state], x=x + width - _PADDING, y=y + 21, class_="glyph", text_anchor="end"),
        *(text(line, left, y + 21 + 16 * k, "name") for k, line in enumerate(_two_lines(card.name))),
        _decided(card, left, y + 59),
        text(cut(card.figures, _LINE), left, y + 76),
        _progress(card, left, y + _HEIGHT - 16, width - 2 * _PADDING),
    ]
    return link(card.href, f"{card.name}: {card.state}, {card.subtasks}", element("g", "".join(lines), class_=kind))


def _two_lines(name: str) -> list[str]:
    """Broken where a step of a chain ends, if there is such a place, else at a word."""
    name = name.replace(" -> ", " → ")
    if len(name) <= _NAME:
        return [name]
    head = name[: _NAME + 1]
    at = head.rfind(" → ") if head.rfind(" → ") > 4 else head.rfind(" ")
    at = at if at > 4 else _NAME
    return [name[:at].rstrip(), cut(name[at:].lstrip(), _NAME)]


def _decided(card: Card, x: float, y: float) -> str:
    rule = (
        element("tspan", shown(cut(f"  {card.rule}", max(4, _LINE - len(card.subtasks)))), class_="small")
        if card.rule
        else ""
    )
    return element("text", element("tspan", shown(card.subtasks), class_="strong") + rule, x=x, y=y)


def _progress(card: Card, x: float, y: float, width: float) -> str:
    drawn = [element("rect", x=x, y=y, width=width, height=5.0, rx=2.5, class_="trough")]
    for part, name in ((card.done, "finished"), (card.running, "running"), (card.failed, "failed")):
        taken = min(max(part, 0.0), 1.0) * width
        if taken > 0:
            drawn.append(element("rect", x=x, y=y, width=max(taken, 2.0), height=5.0, rx=2.5, class_=f"fill {name}"))
            x += taken
    return "".join(drawn)


def _flow(flow: Flow, way: list[Box], most: int) -> str:
    """As thick as its bytes are many, by their logarithm."""
    part = math.log1p(flow.size) / math.log1p(most) if most else 0.0
    drawn = [
        hint(f"{flow.ship}: {flow.told}" if flow.ship and flow.told else flow.ship or flow.told),
        element("path", d=curve(way), class_="flow", stroke_width=1.0 + 4.0 * part),
        element("path", d=tip(way), class_="tip"),
    ]
    x, y = before_the_end(way)
    if flow.ship:
        drawn.append(text(cut(flow.ship, 15), x, y - 7, "small label", "middle"))
    if flow.size:
        drawn.append(text(format_bytes(flow.size), x, y + 15, "small label", "middle"))
    return element("g", "".join(drawn), class_="edge")
