"""Parts that all pictures are made of. A wide one has no coordinates of its own from left to right but percents, so that it fills any page
and its text keeps its size; shapes that are no rectangles lie in a stretched part of 1,000 units. Colours come from the style sheet,
by classes: nothing is styled in place, as the pages' content security policy wants it."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from firesteel.humanize import format_seconds, unsteering
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
