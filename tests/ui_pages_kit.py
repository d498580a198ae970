"""Pages as a test reads them: made of journals by the server's own source, without the server, and checked tag by tag."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from firesteel.ui.catalog.index import Index
from firesteel.ui.catalog.places import Folder
from firesteel.ui.catalog.source import Source
from firesteel.ui.pages.pages import ROUTES
from firesteel.ui.pages.templates import Asked
from firesteel.ui.views.structs import UnknownThing


def source_of(folder: Path) -> Source:
    return Source([Index(Folder(folder))])


def render(source: Source, address: str) -> str:
    """The page at this address. Raises UnknownThing and UsageError as the pages do."""
    split = urlsplit(address)
    for route in ROUTES:
        parameters = matched(route.path, split.path)
        if parameters is not None:
            return route.render(source, Asked(parameters, dict(parse_qsl(split.query))))
    raise UnknownThing(f"There is no page {split.path}.")


def matched(pattern: str, path: str) -> dict[str, str] | None:
    parts, given = pattern.strip("/").split("/"), path.strip("/").split("/")
    if len(parts) != len(given):
        return None
    found = {part.strip("{}"): unquote(value) for part, value in zip(parts, given, strict=True) if part.startswith("{")}
    same = all(part == value for part, value in zip(parts, given, strict=True) if not part.startswith("{"))
    return found if same else None


VOID = {"meta", "link", "input", "br", "hr", "img"}
FIELDS = {"input", "select", "textarea"}


class Checked(HTMLParser):
    """A page read tag by tag. Raises AssertionError for tags that do not match, ids twice, what a strict content security policy
    would refuse, and what a screen reader could not name."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.text = ""
        self.elements = 0
        self.headings: list[int] = []
        self._open: list[str] = []
        self._targets: set[str] = set()
        self._labels: set[str] = set()
        self._fields: list[dict[str, str | None]] = []
        assert html.startswith("<!doctype html>\n<html lang=")
        self.feed(html)
        self.close()
        assert not self._open, self._open
        assert self._targets <= self.ids, self._targets - self.ids
        for field in self._fields:
            assert field.get("type") == "hidden" or field.get("id") in self._labels or "aria-label" in field, field

    def handle_starttag(self, tag, attrs):
        self.elements += 1
        given = dict(attrs)
        assert len(given) == len(attrs), attrs
        assert not [name for name in given if name.startswith("on") or name == "style"], given
        assert tag != "style" and (tag != "script" or given.get("src")), tag
        if "id" in given:
            assert given["id"] not in self.ids, given["id"]
            self.ids.add(given["id"])
        for name in ("aria-labelledby", "aria-describedby", "list"):
            self._targets.update((given.get(name) or "").split())
        if tag == "label":
            self._labels.add(given["for"])
        if tag in FIELDS:
            self._fields.append(given)
        if tag == "svg":
            named = given.get("aria-labelledby") or given.get("aria-label")
            assert named or given.get("aria-hidden") == "true" or "svg" in self._open, given
        if tag == "a":
            self.links.append(given["href"])
        if tag in ("h1", "h2", "h3"):
            self.headings.append(int(tag[1]))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self._open and self._open[-1] == tag, (tag, self._open[-5:])
        self._open.pop()

    def handle_data(self, data):
        self.text += f" {data.strip()}" if data.strip() else ""
