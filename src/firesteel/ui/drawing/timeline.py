"""Attempts over time, lane by lane: a bar for each attempt, or for several together; mirrors, winners, blocked nodes, and what
happened to the job as a whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

from firesteel.humanize import plural
from firesteel.ui.drawing.canvas import AXIS, Caption, Span, axis, hint, link, percent, picture, shown, text
from firesteel.ui.views.structs import Lane, Mark, Moment, Timeline
from firesteel.view.svg import cut, element

MOST_LINES = 24
"""Moments whose lines cross all lanes; with more, they have their tips only."""
PARTS = 8
"""The axis is a row of so many links, each of which shows its part of the time alone."""
_TOP, _HEAD, _LANE, _DENSE, _GAP, _STRIP = 20.0, 19.0, 13.0, 18.0, 3.0, 22.0
_HINT = 120
"""Characters of what the pointer shows of a bar."""
_SHORTEST = 0.0015
"""Part of the width of a bar, at the least."""
_ROOMY = 0.035
"""Part of the width from which on a bar has room for the number of its step, where a page is not narrow."""
MOST_NUMBERS = 400
"""Bars of a picture in which steps are numbered."""


def timeline(view: Timeline, zoomed: Callable[[float, float], str]) -> str:
    """Empty when nothing ran in the window. ``zoomed``: the address of the page with another one."""
    if not view.lanes:
        return ""
    span = Span(view.begin, view.end)
    numbered = len(view.vertices) > 1 and sum(len(lane.marks) for lane in view.lanes) <= MOST_NUMBERS
    drawn, y = [_PATTERNS], _TOP
    for node, group in groupby(view.lanes, key=lambda lane: lane.node):
        lanes = list(group)
        drawn.append(_heading(node, lanes, y))
        top, y = y + 4, y + _HEAD
        for lane in lanes:
            height = _DENSE if lane.slot is None else _LANE
            drawn.append(_lane(lane, span, y, height, numbered=numbered))
            y += height + _GAP
        blocked = [one for one in view.blocked if one.node == node and span.holds(one.begin, one.end)]
        for one in blocked:
            width = percent(max(span.part(one.end) - span.part(one.begin), _SHORTEST))
            said = hint(
                f"{node or 'this node'} was blocked: {one.cause}" if one.is_over else f"{node} is blocked: {one.cause}"
            )
            drawn.append(
                element("rect", said, x=span.percent(one.begin), width=width, y=top, height=y - top, class_="blocked")
            )
        y += 6
    moments = "".join(_moment(one, span, y, full=len(view.moments) <= MOST_LINES) for one in view.moments)
    content = axis(span, y) + moments + "".join(drawn)
    content += _strip(span, y + AXIS, zoomed)
    said = f"{plural(view.attempts, 'attempt')}, {plural(view.mirrors, 'mirror')} on {plural(len({lane.node for lane in view.lanes}), 'node')}."
    return picture(Caption("timeline", "Attempts over time", said), y + AXIS + _STRIP, content, has_links=True)


_PATTERNS = (
    '<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect width="2" height="6" class="hatch"/></pattern>'
    '<pattern id="stripes" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(-45)">'
    '<rect width="2" height="5" class="stripe"/></pattern></defs>'
)


def _heading(node: str, lanes: Sequence[Lane], y: float) -> str:
    attempts = sum(mark.count for lane in lanes for mark in lane.marks)
    name = element("tspan", shown(node or "not told where", 60), class_="strong")
    rest = element("tspan", shown(f"  {plural(attempts, 'attempt')}"), class_="small")
    line = element("line", x1="0", x2="100%", y1=y, y2=y, class_="rule")
    return line + element("text", name + rest, x="0", y=y + 14, class_="label")


def _lane(lane: Lane, span: Span, y: float, height: float, *, numbered: bool) -> str:
    marks = lane.marks
    busiest = max((mark.busy for mark in marks), default=1.0)
    bars = [_bar(mark, span, y, height, busiest if lane.slot is None else 1.0) for mark in marks]
    return "".join(bars + ([_number(mark, span, y + height - 3) for mark in marks] if numbered else []))


def _number(mark: Mark, span: Span, y: float) -> str:
    """Of the step that it ran."""
    begin, end = span.part(mark.begin), span.part(mark.end)
    if mark.count > 1 or end - begin < _ROOMY or not span.holds(mark.begin, mark.end):
        return ""
    return text(f"[{mark.vertex}]", percent((begin + end) / 2), y, "step", "middle")


def _bar(mark: Mark, span: Span, y: float, height: float, busiest: float) -> str:
    """Of several attempts as high as many ran at once."""
    if not span.holds(mark.begin, mark.end):
        return ""
    x, width = span.part(mark.begin), max(span.part(mark.end) - span.part(mark.begin), _SHORTEST)
    tall = height if mark.count == 1 else max(3.0, height * min(1.0, mark.busy / busiest))
    shape: dict[str, Any] = {"x": percent(x), "width": percent(width), "y": y + height - tall, "height": tall}
    state = "finished" if mark.count > 1 and mark.state == "failed" else mark.state
    drawn = element("rect", hint(cut(mark.label, _HINT)), class_=f"attempt {state}", **shape)
    if state != mark.state:  # so much of it as failed
        failed = min(tall, max(2.0, tall * mark.failed / mark.count))
        shape["height"] = failed
        drawn += element("rect", class_="attempt failed part", **shape)
    if mark.is_mirror:
        drawn += element("rect", class_="mirror", **shape)
    if mark.won:
        drawn += element("circle", cx=percent(min(x + width, 1.0)), cy=y + height / 2, r=3.0, class_="won")
    return drawn


def _moment(moment: Moment, span: Span, height: float, *, full: bool) -> str:
    """``full``: as a line across all lanes; another driver always is."""
    if not span.holds(moment.at, moment.at):
        return ""
    x, kind = span.percent(moment.at), moment.kind.replace(" ", "-")
    bottom = height if full or kind == "driver-restart" else 20.0
    line = element("line", x1=x, x2=x, y1=14.0, y2=bottom, class_=f"moment {kind}")
    return element("g", hint(moment.text) + line + text("▼", x, 12.0, f"moment {kind}", "middle"))


def _strip(span: Span, y: float, zoomed: Callable[[float, float], str]) -> str:
    """The links below the axis."""
    drawn: list[str] = []
    for k in range(PARTS):
        begin, end = (span.begin + span.seconds * edge / PARTS for edge in (k, k + 1))
        rect = element(
            "rect", x=percent(k / PARTS), width=percent(1 / PARTS), y=y + 2, height=_STRIP - 4, class_="zoom"
        )
        plus = text("+", percent((k + 0.5) / PARTS), y + 15, "small", "middle")
        drawn.append(link(zoomed(begin, end), f"Show part {k + 1} of {PARTS} alone", rect + plus))
    return "".join(drawn)
