"""HTML and SVG as text. Colours of the page are kept (``currentColor``), so that light and dark notebooks are both readable."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from firesteel.view.svg import number

LINE = "rgba(128,128,128,0.4)"
FONT = "font:12px system-ui,sans-serif"
STATE_COLOURS = {
    "waiting": "#9d9da1",
    "running": "#4c78a8",
    "finished": "#54a24b",
    "failed": "#e45756",
    "cancelled": "#b07aa1",
}
_CELL = "padding:2px 10px 2px 0;vertical-align:top;border:none;"


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], right: Iterable[str] = ()) -> str:
    """``right``: the columns of numbers. A value with ``__html__`` (an SVG of ours) goes in as it is."""
    numbers = set(right)
    sides = ["right;white-space:nowrap" if column in numbers else "left" for column in columns]
    head = "".join(
        f'<th style="{_CELL}text-align:{side};border-bottom:1px solid {LINE}">{escape(column)}</th>'
        for column, side in zip(columns, sides, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f'<td style="{_CELL}text-align:{side}">{_cell(value)}</td>' for value, side in zip(row, sides, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    return f'<table style="border-collapse:collapse;{FONT}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _cell(value: object) -> str:
    made = getattr(value, "__html__", None)
    return escape(str(value)) if made is None else made()


def details(summary: str, content: str, *, is_open: bool = False) -> str:
    """A part that the reader can fold; plain HTML."""
    opened = ' open="open"' if is_open else ""
    return f'<details style="{FONT};margin:4px 0"{opened}><summary>{escape(summary)}</summary>{content}</details>'


def note(text: str) -> str:
    return f'<div style="{FONT};margin:4px 0">{escape(text)}</div>'


def link(address: str, text: str) -> str:
    """Opened beside the notebook."""
    return f'<div style="{FONT};margin:4px 0"><a href="{escape(address)}" target="_blank" rel="noopener">{escape(text)}</a></div>'


def svg(width: float, height: float, content: str, label: str) -> str:
    """``label``: what it shows, for those who cannot see it."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(label)}" '
        f'width="{number(width)}" height="{number(height)}" viewBox="0 0 {number(width)} {number(height)}" '
        f'style="max-width:100%;height:auto;{FONT};color:inherit">{content}</svg>'
    )
