"""Numbers over time, in steps: the parallelism of a stream with its rescales, its backlog, slots that were held."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from firesteel.humanize import format_count, plural
from firesteel.ui.drawing.canvas import AXIS, Caption, Span, axis, hint, outline, percent, picture, stretched, text
from firesteel.ui.views.structs import Histogram
from firesteel.view.svg import element

MOST_MARKS = 60
_HEIGHT, _TOP = 130.0, 18.0
_ROOM = 0.06
"""Part of the width that a label takes."""

Points = Sequence[tuple[float, float]]
"""(time, value that holds from then on), ascending."""


@dataclass(frozen=True, slots=True)
class Line:
    """``kind``: "main", "wanted" (dashed) or "area"."""

    name: str
    points: Points
    kind: str = "main"


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened. ``kind``: "good", "bad" or "plain"."""

    at: float
    label: str
    hint: str
    kind: str = "plain"
    until: float | None = None


def lines(caption: Caption, drawn: Sequence[Line], span: Span, largest: str, marks: Sequence[Mark] = ()) -> str:
    """``largest``: the largest value as text. Empty where no line has a point."""
    shown = [line for line in drawn if line.points]
    if not shown:
        return ""
    most = max(value for line in shown for _, value in line.points) or 1.0
    unit = (_HEIGHT - _TOP) / most
    content = [axis(span, _HEIGHT)]
    content += [_band(mark, span) for mark in marks[:MOST_MARKS]]
    content.append(stretched(0.0, _HEIGHT, "".join(_path(line, span, unit) for line in shown)))
    content.append(element("line", x1="0", x2="100%", y1=_HEIGHT, y2=_HEIGHT, class_="base"))
    content.append(text(largest, "0", 12.0, "small label"))
    content += _marks(marks[:MOST_MARKS], span)
    return picture(caption, _HEIGHT + AXIS, "".join(content))


def _path(line: Line, span: Span, unit: float) -> str:
    points = [(span.units(at), _HEIGHT - value * unit) for at, value in line.points if at <= span.end]
    if not points:
        return ""
    last = line.points[-1]
    points.append((span.units(span.end), _HEIGHT - last[1] * unit))
    data = outline(points, _HEIGHT if line.kind == "area" else None)
    return element("path", d=data, class_=f"line {line.kind}")


def _band(mark: Mark, span: Span) -> str:
    """The time that it took."""
    if mark.until is None or not span.holds(mark.at, mark.until):
        return ""
    width = f"{100 * (span.part(mark.until) - span.part(mark.at)):.3f}%"
    return element(
        "rect",
        hint(mark.hint),
        x=span.percent(mark.at),
        width=width,
        y=_TOP,
        height=_HEIGHT - _TOP,
        class_=f"band {mark.kind}",
    )


def _marks(marks: Sequence[Mark], span: Span) -> Iterator[str]:
    """Values that are labelled have room for it."""
    free = 0.12  # the largest value is written at the left
    for mark in marks:
        at = mark.at if mark.until is None else mark.until
        if not span.holds(at, at):
            continue
        part, x = span.part(at), span.percent(at)
        line = element("line", x1=x, x2=x, y1=_TOP, y2=_HEIGHT, class_=f"mark {mark.kind}")
        if part >= free:
            line += text(mark.label, x, _TOP - 5, f"small label {mark.kind}", "end" if part > 0.95 else "middle")
            free = part + _ROOM
        yield element("g", hint(mark.hint) + line)


HEAVY = 2.0
"""Bars of values that are more than so many times the median are marked."""
_LEAST = 3.0


def histogram(name: str, title: str, shown: Histogram, write: Callable[[float], str], noun: str) -> str:
    """``write``: a value as people write it; ``noun``: what is counted, one of it."""
    most = max((bar.count for bar in shown.bars), default=0)
    if not most:
        return ""
    low, high = shown.bars[0].low, shown.bars[-1].high
    width = max(high - low, 1e-9)
    drawn: list[str] = []
    for k, bar in enumerate(shown.bars):
        if bar.count:
            height = max((_HEIGHT - _TOP) * bar.count / most, _LEAST)
            shape = {"x": percent((k + 0.06) / len(shown.bars)), "width": percent(0.88 / len(shown.bars))}
            kind = "bar heavy" if shown.median and bar.low > HEAVY * shown.median else "bar"
            said = hint(f"{write(bar.low)} to {write(bar.high)}: {plural(bar.count, noun)}")
            drawn.append(element("rect", said, y=_HEIGHT - height, height=height, class_=kind, **shape))
    part = min(max((shown.median - low) / width, 0.0), 1.0)
    edge = "start" if part < 0.15 else "end" if part > 0.85 else "middle"
    drawn += [
        element("line", x1=percent(part), x2=percent(part), y1=_TOP - 4, y2=_HEIGHT, class_="median"),
        text(f"median {write(shown.median)}", percent(part), 12.0, "small label", edge),
        element("line", x1="0", x2="100%", y1=_HEIGHT, y2=_HEIGHT, class_="base"),
        text(write(low), "0", _HEIGHT + 15),
        text(write(high), "100%", _HEIGHT + 15, anchor="end"),
    ]
    return picture(Caption(name, title, described(shown, write, noun)), _HEIGHT + AXIS, "".join(drawn))


def described(shown: Histogram, write: Callable[[float], str], noun: str) -> str:
    """The same in words."""
    times = f", {shown.largest / shown.median:.1f} times the median" if shown.median else ""
    return (
        f"{plural(shown.count, noun)}: {write(shown.smallest)} at least, {write(shown.median)} in the median, "
        f"{write(shown.largest)} at most (subtask {format_count(shown.largest_at)}){times}."
    )
