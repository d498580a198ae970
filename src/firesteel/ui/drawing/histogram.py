"""Histogram of the bytes of ranges, or of the seconds of attempts: skew at a glance."""

from __future__ import annotations

from collections.abc import Callable

from firesteel.humanize import format_count, plural
from firesteel.ui.drawing.canvas import AXIS, Caption, hint, percent, picture, text
from firesteel.ui.views.structs import Histogram
from firesteel.view.svg import element

HEAVY = 2.0
"""Bars of values that are more than so many times the median are marked."""
_HEIGHT, _TOP, _LEAST = 130.0, 20.0, 3.0


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
