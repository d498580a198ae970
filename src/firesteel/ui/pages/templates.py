"""The templates, and how they write what they are given: escaped, always, and with numbers and times as people write them."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any, cast

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup

from firesteel.humanize import format_bytes, format_count, format_seconds, plural, unsteering
from firesteel.report.history import subtask_numbers
from firesteel.ui.drawing.graph import GLYPHS
from firesteel.ui.pages.links import Links
from firesteel.ui.pages.source import Asked
from firesteel.ui.pages.tabs import tabs
from firesteel.view.svg import cut

NAME_CHARACTERS = 160
"""Of a name in a table or heading; the pointer shows more of it."""
_HINT_CHARACTERS, _TEXT_CHARACTERS = 1000, 20_000
_CLASSES = {
    "running": "running", "finished": "finished", "done": "finished", "completed": "finished", "failed": "failed", "damaged": "failed",
    "broken off": "failed", "cancelled": "cancelled", "being cancelled": "cancelled", "restarting": "warning", "executing": "running",
}  # fmt: skip
"""Words for how something stands to the class of their colour; others wait."""
_SUBTASKS = {
    "CREATED": "waiting", "SCHEDULED": "queued", "DEPLOYING": "starting", "INITIALIZING": "starting", "RUNNING": "running", "FINISHED": "finished",
    "CANCELING": "being cancelled", "CANCELED": "cancelled", "FAILED": "failed",
}  # fmt: skip


def render(template: str, asked: Asked, **given: Any) -> str:
    """The page. ``given``: what the template names."""
    return environment().get_template(template).render(links=Links(asked.root), asked=asked, **given)


@cache
def environment() -> Environment:
    made = Environment(
        loader=DictLoader(
            {each.name: each.read_text("utf-8") for each in (files("firesteel.ui.pages") / "templates").iterdir()}
        ),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        finalize=_finalized,
    )
    filters, names = cast("dict[str, Any]", made.filters), cast("dict[str, Any]", made.globals)
    filters.update(
        bytes=_bytes, count=_count, seconds=_seconds, coarse=_coarse, share=_share, rate=_rate, when=_when, times=_times, plural=plural,
        name=_name, word=subtask_word, state_class=state_class, glyph=_glyph, numbers=subtask_numbers, sentence=_sentence,
    )  # fmt: skip
    names.update(tabs=tabs)
    return made


def state_class(word: str) -> str:
    return _CLASSES.get(word.lower(), "waiting")


def subtask_word(state: str) -> str:
    """``being cancelled`` of CANCELING."""
    return _SUBTASKS.get(state, state.lower())


def _finalized(value: Any) -> Any:
    """Nothing is shown as nothing; texts lose what would turn the direction of the page, and what nobody reads to its end."""
    if value is None:
        return ""
    return unsteering(cut(value, _TEXT_CHARACTERS)) if type(value) is str else value


def _bytes(value: float | None) -> str:
    return "" if value is None else format_bytes(value)


def _count(value: int | None) -> str:
    return "" if value is None else format_count(value)


def _seconds(value: float | None) -> str:
    return "" if value is None else format_seconds(value)


def _coarse(seconds: float) -> str:
    """No more exact than it is known."""
    return "1 s" if seconds < 1 else format_seconds(round(seconds) if seconds < 60 else round(seconds / 10) * 10)


def _share(part: float | None) -> str:
    """``64 %``. What is not all is never 100 %."""
    return "" if part is None else f"{int(100 * part)} %"


def _rate(rows: float) -> str:
    return f"{format_count(round(rows))} rows/s" if rows >= 10 or rows == int(rows) else f"{rows:.1f} rows/s"


def _times(value: float | None) -> str:
    """``2.4 times``."""
    return "" if value is None else f"{value:.1f} \u00d7"


def _when(at: float) -> Markup:
    """A moment, in UTC; the script writes it in the reader's zone."""
    try:
        moment = datetime.fromtimestamp(at, UTC)
    except (ValueError, OverflowError, OSError):  # of a damaged journal
        return Markup("")
    text = f"{moment.day} {moment:%b %Y, %H:%M:%S} UTC"
    return Markup('<time datetime="{}">{}</time>').format(f"{moment:%Y-%m-%dT%H:%M:%SZ}", text)


def _name(text: str, characters: int = NAME_CHARACTERS) -> Markup:
    """A user's name, with arrows between the steps of a chain, apart from the direction of the text around it; cut, with more of it under the pointer."""
    clean = unsteering(text.replace(" -> ", " → "))
    if len(clean) <= characters:
        return Markup("<bdi>{}</bdi>").format(clean)
    return Markup('<bdi title="{}">{}</bdi>').format(cut(clean, _HINT_CHARACTERS), cut(clean, characters))


def _glyph(word: str) -> str:
    return GLYPHS.get(state_class(word), GLYPHS["waiting"])


def _sentence(text: str) -> str:
    """With a capital letter, and an end."""
    stripped = text.strip()
    stripped = stripped[:1].upper() + stripped[1:]
    return stripped if not stripped or stripped.endswith((".", "!", "?", ":")) else f"{stripped}."
