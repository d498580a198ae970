"""A log-log plot as SVG, written by hand: no library is worth this one picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

Points = Sequence[tuple[float, float]]
_COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#e377c2", "#7f7f7f")
_WIDTH, _HEIGHT = 300, 300
_LEFT, _TOP, _GAP, _LEGEND = 64, 36, 60, 230


def log_log(panels: Mapping[str, Mapping[str, Points]], x_label: str, y_label: str) -> str:
    """One panel per title, side by side, all on the same scales; a line per name, of (x, y) points above 0."""
    points = [p for lines in panels.values() for line in lines.values() for p in line]
    x_range, y_range = (_decades([p[axis] for p in points]) for axis in (0, 1))
    names = list(dict.fromkeys(name for lines in panels.values() for name in lines))
    width = _LEFT + len(panels) * (_WIDTH + _GAP) + _LEGEND
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{_TOP + _HEIGHT + 52}" '
        'font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for number, (title, lines) in enumerate(panels.items()):
        left = _LEFT + number * (_WIDTH + _GAP)
        parts.append(_panel(left, title, x_range, y_range, labels=number == 0))
        for name, line in lines.items():
            parts.append(_line(left, line, x_range, y_range, _COLOURS[names.index(name) % len(_COLOURS)]))
        parts.append(_text(left + _WIDTH / 2, _TOP + _HEIGHT + 36, x_label, "middle"))
    parts.append(
        f'<text x="14" y="{_TOP + _HEIGHT / 2}" text-anchor="middle" transform="rotate(-90 14 {_TOP + _HEIGHT / 2})">'
        f"{escape(y_label)}</text>"
    )
    for number, name in enumerate(names):
        x, y = width - _LEGEND - 10, _TOP + 14 + 18 * number
        colour = _COLOURS[number % len(_COLOURS)]
        parts.append(f'<line x1="{x}" y1="{y - 4}" x2="{x + 18}" y2="{y - 4}" stroke="{colour}" stroke-width="2"/>')
        parts.append(_text(x + 24, y, name))
    return "\n".join([*parts, "</svg>\n"])


def _decades(values: Sequence[float]) -> tuple[int, int]:
    return math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))


def _panel(left: float, title: str, x_range: tuple[int, int], y_range: tuple[int, int], labels: bool) -> str:
    parts = [
        f'<rect x="{left}" y="{_TOP}" width="{_WIDTH}" height="{_HEIGHT}" fill="none" stroke="#444"/>',
        _text(left + _WIDTH / 2, _TOP - 12, title, "middle"),
    ]
    for decade in range(x_range[0], x_range[1] + 1):
        x = left + _place(decade, x_range) * _WIDTH
        parts.append(f'<line x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{_TOP + _HEIGHT}" stroke="#ddd"/>')
        parts.append(_text(x, _TOP + _HEIGHT + 16, f"{10**decade:,}", "middle"))
    for decade in range(y_range[0], y_range[1] + 1):
        y = _TOP + _HEIGHT * (1 - _place(decade, y_range))
        parts.append(f'<line x1="{left}" y1="{y:.1f}" x2="{left + _WIDTH}" y2="{y:.1f}" stroke="#ddd"/>')
        if labels:
            parts.append(_text(left - 6, y + 4, f"{10.0**decade:g}", "end"))
    return "\n".join(parts)


def _line(left: float, line: Points, x_range: tuple[int, int], y_range: tuple[int, int], colour: str) -> str:
    places = [
        (
            left + _place(math.log10(x), x_range) * _WIDTH,
            _TOP + _HEIGHT * (1 - _place(math.log10(y), y_range)),
        )
        for x, y in line
    ]
    joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"/>' for x, y in places)
    return f'<polyline points="{joined}" fill="none" stroke="{colour}" stroke-width="1.5"/>{dots}'


def _place(value: float, ends: tuple[int, int]) -> float:
    return (value - ends[0]) / max(1, ends[1] - ends[0])


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
