"""The table of pages: which address shows what. The server mounts it; nothing here knows of HTTP.

A page's function takes what is asked for and where it comes from, and returns HTML. It raises UnknownThing (404) and UsageError (400), for which
``error_page`` is the page. ``FILES`` are the style sheet, script and icon.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from firesteel.ui.catalog.source import Source
from firesteel.ui.pages.pages import (
    comparison_page,
    decisions_page,
    failures_page,
    job_page,
    jobs_page,
    options_page,
    slots_page,
    subtask_page,
    timeline_page,
    vertex_page,
    what_if_page,
)
from firesteel.ui.pages.templates import Asked, render

FILES = {"ui.css": "text/css", "ui.js": "text/javascript", "icon.svg": "image/svg+xml"}
"""Under /files/, with their media types."""


@dataclass(frozen=True, slots=True)
class Route:
    path: str
    """With parameters in braces."""
    render: Callable[[Source, Asked], str]


ROUTES = (
    Route("/", jobs_page),
    Route("/compare", comparison_page),
    Route("/jobs/{id}", job_page),
    Route("/jobs/{id}/timeline", timeline_page),
    Route("/jobs/{id}/decisions", decisions_page),
    Route("/jobs/{id}/failures", failures_page),
    Route("/jobs/{id}/slots", slots_page),
    Route("/jobs/{id}/options", options_page),
    Route("/jobs/{id}/what-if", what_if_page),
    Route("/jobs/{id}/vertices/{vertex}", vertex_page),
    Route("/jobs/{id}/vertices/{vertex}/subtasks/{subtask}", subtask_page),
)


@dataclass(frozen=True, slots=True)
class Request:
    """One that REST answers. ``parameters``: (name, meaning)."""

    method: str
    path: str
    doc: str
    parameters: Sequence[tuple[str, str]] = ()


def rest_page(asked: Asked, requests: Sequence[Request]) -> str:
    """The table of all that REST can be asked."""
    return render("rest.html", asked, requests=requests)


def error_page(asked: Asked, status: int, message: str, hint: str = "") -> str:
    """``message``: a sentence; ``hint``: what to do about it."""
    return render("error.html", asked, status=status, message=message, hint=hint)


@cache
def file(name: str) -> bytes:
    """One of FILES."""
    return (files("firesteel.ui.pages") / "files" / name).read_bytes()
