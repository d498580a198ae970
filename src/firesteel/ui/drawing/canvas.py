"""Parts that all pictures are made of. A wide one has no coordinates of its own from left to right but percents, so that it fills any page
and its text keeps its size; shapes that are no rectangles lie in a stretched part of 1,000 units. Colours come from the style sheet,
by classes: nothing is styled in place, as the pages' content security policy wants it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from firesteel.humanize import format_count, format_seconds, plural, unsteering
from firesteel.ui.views.structs import Histogram
from firesteel.view.svg import cut, element, number, round_step

UNITS = 1000.0
"""Width of a stretched part."""
AXIS = 20.0
"""Height of the numbers below, pixels."""
_LONGEST = 1000
"""Characters of a title or hint."""


@dataclass(frozen=True, slots=True)
class Caption:
    """``name``: an id, unique on the page. The others are for those who cannot see the picture."""

    name: str
    title: str
    description: str


def picture(caption: Caption, height: float, content: str, *, has_links: bool = False) -> str:
    """As wide as its place. ``has_links``: there is something in it to go to, so that it is no single image for those who hear it."""
    return _svg(caption, f'class="picture wide" width="100%" height="{number(height)}"', content, has_links)


def sized(caption: Caption, size: tuple[float, float], content: str, *, has_links: bool = False) -> str:
    """Of a size of its own, which the page may scroll."""
    width, height = number(size[0]), number(size[1])
    shape = f'class="picture" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    return _svg(caption, shape, content, has_links)


def _svg(caption: Caption, shape: str, content: str, has_links: bool) -> str:
    name, role = caption.name, "group" if has_links else "img"
    said = f'aria-labelledby="{name}-title" aria-describedby="{name}-desc"'
    return (
        f'<svg id="{name}" role="{role}" {said} {shape}><title id="{name}-title">{shown(caption.title)}</title>'
        f'<desc id="{name}-desc">{shown(caption.description)}</desc>{content}</svg>'
    )


def shown(text: str, most: int = _LONGEST) -> str:
    """Escaped, cut, and without what turns the direction of the text around it."""
    return escape(unsteering(cut(text, most)))


def hint(text: str) -> str:
    """A text that the pointer shows of an element, and that is read out."""
    return element("title", shown(text))


def link(href: str, label: str, content: str) -> str:
    return f'<a href="{escape(href)}" aria-label="{shown(label)}">{content}</a>'


def text(said: str, x: float | str, y: float, class_: str = "small", anchor: str | None = None) -> str:
    """``x``: pixels, or percents as text."""
    return element("text", shown(said), x=x, y=y, class_=class_, text_anchor=anchor)


def stretched(y: float, height: float, content: str, tall: float | None = None) -> str:
    """A part from edge to edge whose content is UNITS wide and ``tall`` high (None: as many units as pixels)."""
    box = f"0 0 {number(UNITS)} {number(tall or height)}"
    return element("svg", content, y=y, width="100%", height=height, viewBox=box, preserveAspectRatio="none")


def outline(points: list[tuple[float, float]], base: float | None = None) -> str:
    """The data of a path in steps through (x, y), each of which holds until the next; down to ``base`` at both ends: an area."""
    if not points:
        return ""
    (x, y), *rest = points
    begun = f"M{x:.1f},{y:.1f}" if base is None else f"M{x:.1f},{base:.1f} V{y:.1f}"
    steps = " ".join(f"H{to_x:.1f} V{to_y:.1f}" for to_x, to_y in rest)
    return f"{begun} {steps}" + ("" if base is None else f" V{base:.1f} z")


@dataclass(frozen=True, slots=True)
class Span:
    """The time that a picture shows, in seconds; ``zero``: what its axis counts from."""

    begin: float
    end: float
    zero: float = 0.0

    @property
    def seconds(self) -> float:
        return max(self.end - self.begin, 1e-6)

    def part(self, at: float) -> float:
        """From 0 at the left edge to 1; what is outside is at the edge."""
        return min(max((at - self.begin) / self.seconds, 0.0), 1.0)

    def percent(self, at: float) -> str:
        return percent(self.part(at))

    def units(self, at: float) -> float:
        return self.part(at) * UNITS

    def holds(self, begin: float, end: float) -> bool:
        """True if any of the time from ``begin`` to ``end`` is shown."""
        return end >= self.begin and begin <= self.end


def percent(part: float) -> str:
    return f"{100 * part:.3f}".rstrip("0").rstrip(".") + "%"


def axis(span: Span, height: float) -> str:
    """Lines at round times over ``height`` pixels, and their numbers below."""
    step = round_step(span.seconds)
    first = int((span.begin - span.zero) // step)
    drawn: list[str] = []
    for k in range(first, first + int(span.seconds / step) + 2):
        at = span.zero + k * step
        if not span.begin <= at <= span.end:
            continue
        x = span.percent(at)
        drawn.append(element("line", x1=x, x2=x, y1=0.0, y2=height, class_="grid"))
        edge = "start" if span.part(at) < 0.04 else "end" if span.part(at) > 0.96 else "middle"
        drawn.append(text(format_seconds(k * step) if k else "0 s", x, height + 14, anchor=edge))
    return "".join(drawn)


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
