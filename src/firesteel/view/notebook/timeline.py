"""Timeline of attempts as an SVG: a bar for each where there are few, else per vertex how many ran at once."""

from __future__ import annotations

from html import escape
from itertools import groupby

from firesteel.humanize import format_count, format_seconds, plural
from firesteel.report.executions import Attempt, Lives, sentences
from firesteel.report.history import JobHistory
from firesteel.view.notebook.markup import LINE, STATE_COLOURS, svg
from firesteel.view.svg import cut, element, round_step, running

MOST_BARS = 120
"""Attempts that are drawn one by one."""
MOST_STEPS = 240
"""Points of the line of one vertex with more of them."""
_LEFT, _PLOT, _RIGHT = 210.0, 620.0, 12.0
_WIDE, _NARROW = 110, 28
"""Characters of a vertex's name above its bars, and beside its line."""
_BAR, _HEAD, _AREA, _AXIS = 11.0, 18.0, 42.0, 22.0
_ENDED = {"FINISHED": "finished", "FAILED": "failed", "CANCELED": "cancelled", "CANCELING": "cancelled"}


def timeline_svg(history: JobHistory, lives: Lives) -> str:
    """Empty when nothing has run. ``lives``: of all subtasks."""
    began, now = history.started_at, history.last_at
    if began is None or now is None or not any(a.deployed is not None for attempts in lives.values() for a in attempts):
        return ""
    scale = _Scale(began, max(now, began + 1e-3))
    total = sum(a.deployed is not None for attempts in lives.values() for a in attempts)
    rows: list[str] = []
    y = 0.0
    for vertex, keys in groupby(sorted(lives), key=lambda key: key[0]):
        own = {key: lives[key] for key in keys}
        title = f"[{vertex}] {history.vertices[vertex].name}"
        few = total <= MOST_BARS
        drawn, height = _bars(history, own, scale, y, title) if few else _area(own, scale, y, title)
        rows.append(drawn)
        y += height
    content = _axis(scale, y) + "".join(rows)
    return svg(_LEFT + _PLOT + _RIGHT, y + _AXIS, content, f"{format_count(total)} attempts over time")


class _Scale:
    def __init__(self, began: float, end: float) -> None:
        self.began = began
        self.end = end

    def x(self, at: float) -> float:
        inside = min(max(at, self.began), self.end)
        return _LEFT + _PLOT * (inside - self.began) / (self.end - self.began)


def _axis(scale: _Scale, height: float) -> str:
    """Lines at round times."""
    length = scale.end - scale.began
    step = round_step(length)
    lines: list[str] = []
    for k in range(int(length / step) + 1):
        x = scale.x(scale.began + k * step)
        lines.append(element("path", d=f"M{x:.1f},0 V{height:.1f}", stroke=LINE, stroke_width=0.5))
        text = format_seconds(k * step) if k else "0"
        lines.append(_small(text, x, height + 15, "middle"))
    return "".join(lines)


def _title(text: str, y: float, most: int) -> str:
    shown = element("text", escape(cut(text, most)), x=2, y=y + 12, fill="currentColor")
    return element("g", element("title", escape(text)) + shown)


def _bars(history: JobHistory, lives: Lives, scale: _Scale, y: float, title: str) -> tuple[str, float]:
    """A bar for each attempt, subtask by subtask; and the height they take."""
    drawn, row = [_title(title, y, _WIDE)], y + _HEAD
    for (_, subtask), attempts in lives.items():
        told = sentences(attempts, scale.end, is_over=history.is_over)
        for attempt, sentence in zip(attempts, told, strict=True):
            if attempt.deployed is not None:
                label = f"{subtask}" + (f", attempt {attempt.number + 1}" if attempt.number else "")
                drawn.append(_small(label, _LEFT - 6, row + 9, "end"))
                drawn.append(_bar(attempt, scale, row, f"subtask {subtask}, {sentence}"))
                row += _BAR + 2
    return "".join(drawn), row + 6 - y


def _small(text: str, x: float, y: float, anchor: str = "start") -> str:
    return element("text", escape(text), x=x, y=y, text_anchor=anchor, font_size=10, fill="currentColor", opacity=0.7)


def _bar(attempt: Attempt, scale: _Scale, y: float, hint: str) -> str:
    begin = scale.x(attempt.deployed or scale.began)
    end = scale.x(scale.end if attempt.ended is None else attempt.ended)
    colour = STATE_COLOURS[_ENDED.get(attempt.state, "running")]
    dashes = {"stroke": "currentColor", "stroke_dasharray": "3,2"} if attempt.is_mirror else {}
    rect = element("rect", x=begin, y=y, width=max(end - begin, 1.0), height=_BAR, fill=colour, **dashes)
    return element("g", element("title", escape(hint)) + rect)


def _area(lives: Lives, scale: _Scale, y: float, title: str) -> tuple[str, float]:
    """Returns an area of how many attempts of the vertex ran at each time, with a mark for each time one failed, and its height."""
    attempts = [a for life in lives.values() for a in life if a.deployed is not None]
    drawn = [_title(title, y, _NARROW)]
    ends = [scale.end if a.ended is None else a.ended for a in attempts]
    points = running([a.deployed for a in attempts], ends, MOST_STEPS)
    if points:
        most = max(count for _, count in points)
        base, unit = y + _AREA - 6, (_AREA - 12) / most
        steps = " ".join(f"H{scale.x(at):.1f} V{base - count * unit:.1f}" for at, count in points)
        outline = f"M{scale.x(points[0][0]):.1f},{base:.1f} {steps} V{base:.1f} z"
        drawn.append(element("path", d=outline, fill=STATE_COLOURS["running"], opacity=0.7))
        drawn.append(_small(f"{plural(len(attempts), 'attempt')}, at most {format_count(most)} at once", 2, y + 27))
    for at in sorted({a.ended for a in attempts if a.state == "FAILED" and a.ended is not None})[:MOST_BARS]:
        mark = f"M{scale.x(at):.1f},{y + 4:.1f} v{_AREA - 10:.1f}"
        drawn.append(element("path", d=mark, stroke=STATE_COLOURS["failed"]))
    return "".join(drawn), _AREA
