"""Elements of SVG as text, which notebooks and web pages share."""

from __future__ import annotations

from html import escape

_CHARACTER = 7.0
"""Width of a character of a font of 12 pixels, about."""


def element(name: str, content: str = "", **attributes: object) -> str:
    """``stroke_width=2`` is written ``stroke-width="2"``, ``class_="a"`` ``class="a"``; numbers are rounded to a tenth of a pixel.
    ``content`` goes in as it is, None as an attribute is left out."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(number(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{written}>{content}</{name}>" if content else f"<{name}{written}/>"


def number(value: object) -> str:
    return f"{value:.1f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else text[: characters - 1].rstrip() + "…"


def text_width(text: str) -> float:
    """Pixels, about."""
    return len(text) * _CHARACTER
