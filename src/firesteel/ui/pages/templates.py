"""The templates, and how they write what they are given: escaped, always, and with numbers and times as people write them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any, cast
from urllib.parse import quote, urlencode

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup

from firesteel.errors import UsageError
from firesteel.humanize import format_bytes, format_count, format_seconds, plural, unsteering
from firesteel.report.fold import subtask_numbers
from firesteel.ui.drawing.graph import GLYPHS
from firesteel.ui.views.structs import Job, Script, Stream, UnknownThing
from firesteel.view.live_table import coarse
from firesteel.view.stream_view import rate
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


@dataclass(frozen=True, slots=True)
class Asked:
    """A request for a page: what stands in its path and in its query, as text. Of a parameter given twice the last counts."""

    path: Mapping[str, str] = field(default_factory=dict[str, str])
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    root: str = ""
    """Before all addresses, without a slash at its end: where a proxy has the server under a path of its own."""

    @property
    def id(self) -> str:
        return self.path["id"]

    def number(self, name: str) -> int:
        """Of the path. Raises UnknownThing."""
        value = self.path[name]
        if not value.isdecimal() or len(value) > 9:
            raise UnknownThing(f"There is no {name} '{cut(value, 40)}': a {name} is a number.")
        return int(value)

    def text(self, name: str) -> str:
        """Of the query; empty: not given."""
        return self.query.get(name, "").strip()

    def integer(self, name: str, default: int | None = None, most: int = 1 << 31) -> int | None:
        """Of the query, from 0 to ``most``. Raises UsageError."""
        value = self.text(name)
        if not value:
            return default
        if not value.isdecimal() or len(value) > 12 or int(value) > most:
            raise UsageError(
                f"'{name}={cut(value, 40)}' makes no sense: it is a whole number from 0 to {format_count(most)}."
            )
        return int(value)

    @property
    def offset(self) -> int:
        return self.integer("offset", 0) or 0

    def seconds(self, name: str) -> float | None:
        """Of the query; None: not given. Raises UsageError."""
        value = self.text(name)
        try:
            found = float(value) if value else None
        except ValueError:
            found = math.nan
        if found is not None and not math.isfinite(found):
            raise UsageError(f"'{name}={cut(value, 40)}' makes no sense: it is a number of seconds, as 12.5.")
        return found


@dataclass(frozen=True, slots=True)
class Links:
    """``root``: before all of them."""

    root: str = ""

    def jobs(self, **query: object) -> str:
        return _with(f"{self.root}/", query)

    def job(self, id: str, tab: str = "", **query: object) -> str:
        """``tab``: "timeline", "decisions", "failures", "slots", "options", "what-if"; empty: the overview."""
        return _with(f"{self.root}/jobs/{quote(id, safe='')}{f'/{tab}' if tab else ''}", query)

    def vertex(self, id: str, vertex: int, **query: object) -> str:
        return self.job(id, f"vertices/{vertex}", **query)

    def subtask(self, id: str, vertex: int, subtask: int) -> str:
        return self.job(id, f"vertices/{vertex}/subtasks/{subtask}")

    def compare(self, **query: object) -> str:
        return _with(f"{self.root}/compare", query)

    def api(self, id: str, rest: str = "") -> str:
        return f"{self.root}/api/v1/jobs/{quote(id, safe='')}{rest}"

    def events(self, id: str) -> str:
        return self.api(id, "/events")

    def file(self, name: str) -> str:
        return f"{self.root}/files/{name}"


def _with(address: str, query: Mapping[str, object]) -> str:
    """Values that are None or empty are left out."""
    given = {key.rstrip("_"): str(value) for key, value in query.items() if value is not None and value != ""}
    return f"{address}?{urlencode(given)}" if given else address


@dataclass(frozen=True, slots=True)
class Tab:
    name: str
    """As in the address; empty: the first page."""
    title: str
    count: int | None = None


def tabs(job: Job | Stream | Script) -> list[Tab]:
    """The pages of a job, stream or script."""
    match job:
        case Job():
            return [
                Tab("", "Overview"), Tab("timeline", "Timeline"), Tab("decisions", "Decisions", job.decisions_total),
                Tab("failures", "Failures", job.failures_total), Tab("slots", "Slots and nodes"), Tab("options", "Options", len(job.options)),
                Tab("what-if", "What if"),
            ]  # fmt: skip
        case Stream():
            return [Tab("", "Overview"), Tab("options", "Options", len(job.options))]
        case Script():
            return [Tab("", "Overview")]


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
        bytes=_if_known(format_bytes), count=_if_known(format_count), seconds=_if_known(format_seconds), coarse=coarse, share=_share, rate=rate, when=_when, times=_times, plural=plural,
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


def _if_known(write: Callable[[Any], str]) -> Callable[[Any], str]:
    return lambda value: "" if value is None else write(value)


def _share(part: float | None) -> str:
    """``64 %``. What is not all is never 100 %."""
    return "" if part is None else f"{int(100 * part)} %"


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
