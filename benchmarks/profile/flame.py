"""Stacks as a flame graph: one SVG without scripts, root on top; and as lines that other tools read ("collapsed")."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

Stacks = Mapping[tuple[str, ...], int]
"""Nanoseconds by stack, root first."""
_WIDTH, _HEIGHT = 1600, 17
_TOP = 30
_LEAST = 0.4
"""Points: what is narrower is not drawn."""
_LETTER = 6.2
"""Points of width, about."""
_COLOURS = (
    "#8dd3c7",
    "#ffd98e",
    "#bebada",
    "#fb9a8f",
    "#80b1d3",
    "#fdb462",
    "#b3de69",
    "#fccde5",
    "#ccebc5",
    "#e0c9a6",
)


def collapsed(stacks: Stacks) -> str:
    """A line for each stack: its frames, ``;`` between them, and microseconds."""
    lines = [f"{';'.join(stack)} {round(used / 1000)}" for stack, used in sorted(stacks.items()) if used >= 500]
    return "\n".join(lines) + "\n"


@dataclass
class _Box:
    used: int = 0
    inner: dict[str, _Box] = field(default_factory=dict)


def svg(stacks: Stacks, title: str) -> str:
    """Boxes as wide as what they and all inside have used; of the same colour where they are of the same package. Names, seconds and
    shares show as tooltips."""
    root = _Box()
    for stack, used in stacks.items():
        if used > 0:
            box = root
            box.used += used
            for name in stack:
                box = box.inner.setdefault(name, _Box())
                box.used += used
    drawn = list(_drawn(root, root.used, 0.0, 0))
    height = _TOP + _HEIGHT * (1 + max((depth for depth, _ in drawn), default=0)) + 10
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" font-family="sans-serif" font-size="11">'
        f'<rect width="100%" height="100%" fill="white"/><text x="8" y="19" font-size="14">{escape(title)}</text>'
    )
    return "\n".join([head, *(text for _, text in drawn), "</svg>\n"])


def _drawn(box: _Box, whole: int, left: float, depth: int) -> Iterator[tuple[int, str]]:
    """Depth and text of each box inside of ``box``, the widest first."""
    for name, one in sorted(box.inner.items(), key=lambda item: -item[1].used):
        width = one.used / whole * _WIDTH
        if width >= _LEAST:
            yield depth, _rectangle(name, one.used, one.used / whole, left, width, depth)
            yield from _drawn(one, whole, left, depth + 1)
        left += width


def _rectangle(name: str, used: int, share: float, left: float, width: float, depth: int) -> str:
    top = _TOP + depth * _HEIGHT
    colour = _COLOURS[zlib.crc32(".".join(name.split(":", maxsplit=1)[0].split(".")[:3]).encode()) % len(_COLOURS)]
    short = name.removeprefix("firesteel.")
    letters = int((width - 4) / _LETTER)
    shown = short if len(short) <= letters else short[: letters - 1] + "…" if letters > 3 else ""
    text = f'<text x="{left + 2:.1f}" y="{top + 12}">{escape(shown)}</text>' if shown else ""
    return (
        f"<g><title>{escape(name)}: {used / 1e9:.3f} s, {share:.1%}</title>"
        f'<rect x="{left:.1f}" y="{top}" width="{width:.1f}" height="{_HEIGHT - 1}" fill="{colour}"/>{text}</g>'
    )
