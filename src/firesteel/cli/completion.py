"""Completions that a shell offers when Tab is pressed. Each function imports what it needs when it is called: a shell waits for it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

Offer = tuple[str, str]
"""The text to write, and a word on it."""
MOST = 50
"""Jobs that are offered, the latest ones."""


def complete_job(incomplete: str) -> list[Offer]:
    """``last`` and the ids of jobs, with their names; by name too, where no id begins so."""
    try:
        return list(_jobs(incomplete))
    except Exception:  # a wrong option in the environment, say: nothing to offer
        return []


def _jobs(incomplete: str) -> Iterator[Offer]:
    from firesteel.journal.places import id_of, journals, name_of
    from firesteel.options.layers import surroundings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        known = journals(surroundings())[::-1]
    if known and "last".startswith(incomplete):
        yield "last", f"the latest: {name_of(known[0])}"
    begun = [path for path in known if id_of(path).startswith(incomplete)]
    for path in begun[:MOST]:
        yield id_of(path), f"{name_of(path)}, {path.name[:15]}"
    if not begun:
        for name in dict.fromkeys(name_of(path) for path in known):
            if name.startswith(incomplete):
                yield name, "the latest of this name"


def complete_option(incomplete: str) -> list[Offer]:
    """Keys with ``=``; behind it the values there are (not in bash, which takes ``=`` for the end of a word)."""
    from firesteel.errors import UsageError
    from firesteel.options import all_options, format_value, lookup

    key, equals, value = incomplete.partition("=")
    if equals:
        try:
            option = lookup(key)
        except UsageError:
            return []
        return [(f"{key}={each}", "") for each in _values(option) if each.lower().startswith(value.lower())]
    offers: dict[str, str] = {}
    for option in all_options():
        short = option.key.rsplit(".", 1)[-1]
        default = f"default {format_value(option, option.default)}"
        if option.key.startswith(incomplete):
            offers[f"{option.key}="] = default
        elif incomplete and short.startswith(incomplete) and _is_clear(short):
            offers[f"{short}="] = default
    return list(offers.items())


def _values(option: Any) -> list[str]:
    """All that it may have, where these are a few words: what an option does not take it answers with what it does."""
    if option.kind == "bool":
        return ["true", "false"]
    try:
        option.parse("\0")
    except ValueError as error:
        told = str(error)
        return told.removeprefix("one of ").split(", ") if told.startswith("one of ") else []
    return []


def _is_clear(short: str) -> bool:
    from firesteel.errors import UsageError
    from firesteel.options import lookup

    try:
        lookup(short)
    except UsageError:
        return False
    return True


def complete_demo(incomplete: str) -> list[Offer]:
    from firesteel.cli.demos.catalog import DEMOS

    return [(name, told) for name, told in DEMOS.items() if name.startswith(incomplete)]


def complete_status(incomplete: str) -> list[Offer]:
    return [(status, "") for status in _STATUSES if status.startswith(incomplete)]


_STATUSES = ("finished", "failed", "cancelled", "running", "broken-off", "unfinished", "damaged")
