"""The output of ``firesteel options``."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from firesteel.errors import UsageError
from firesteel.masking import mask_value
from firesteel.options import Option, Options, all_options, format_value, lookup, lookup_family
from firesteel.options.layers import variable_of


def chosen_options(given: Options, words: Iterable[str] = (), *, changed: bool = False) -> list[Option[Any]]:
    """Of all options (and the set members of families) those that a word names, else those with it in key or meaning.

    Raises UsageError for a word that fits none.
    """
    known: list[Option[Any]] = []
    for option in all_options():
        known += [option, *(lookup(key) for key in given if lookup_family(key) is option)]
    asked = list(words)
    found = {o.key for word in asked for o in _about(word, known)} if asked else {o.key for o in known}
    return [option for option in known if option.key in found and (not changed or given.is_set(option))]


def _about(word: str, known: Sequence[Option[Any]]) -> list[Option[Any]]:
    try:
        named = lookup(word)
    except UsageError:
        named = None
    if named is not None and any(named.key == option.key for option in known):
        return [named]
    fits = [o for o in known if word.lower() in f"{o.key} {' '.join(o.aliases)} {o.doc}".lower()]
    if not fits:
        close = UsageError(f"No option is about '{word}'.", hint="'firesteel options' lists all of them.")
        try:
            lookup(word)
        except UsageError as error:
            if error.hint is not None and error.hint.startswith("Did you mean"):
                close.hint = error.hint
        raise close
    return fits


def options_text(given: Options, chosen: Sequence[Option[Any]]) -> str:
    """A block for each: value, where it comes from, default, meaning, other names."""
    if not chosen:
        return "Nothing is set: every option has its default."
    width = min(100, shutil.get_terminal_size().columns)
    blocks: list[str] = []
    for option in chosen:
        default = f"default {format_value(option, option.default)}"
        value = default
        if given.is_set(option):
            value = f"{_written(option, given)} (from {given.origin(option).where}; {default})"
        meaning = textwrap.fill(option.doc, width, initial_indent="    ", subsequent_indent="    ")
        also = f"\n    also: {', '.join(option.aliases)}" if option.aliases else ""
        variable = "" if "<" in option.key else f"\n    variable: {variable_of(option.key)}"
        blocks.append(f"{option.key}: {value}\n{meaning}{also}{variable}")
    return "\n\n".join(blocks)


def options_json(given: Options, chosen: Sequence[Option[Any]]) -> str:
    """A list of objects: key, value and default (numbers are numbers: sizes in bytes, durations in seconds), the same as
    text, origin, kind, meaning, names."""
    return json.dumps([_described(given, option) for option in chosen], indent=2)


def _described(given: Options, option: Option[Any]) -> dict[str, Any]:
    return {
        "key": option.key,
        "value": mask_value(option.key, given[option.key]) if "<" not in option.key else None,
        "text": _written(option, given) if "<" not in option.key else "unset",
        "origin": given.origin(option).where if "<" not in option.key else "default",
        "default": option.default,
        "kind": option.kind,
        "scope": option.scope.value,
        "doc": option.doc,
        "aliases": list(option.aliases),
        "variable": variable_of(option.key),
    }


def _written(option: Option[Any], given: Options) -> str:
    return str(mask_value(option.key, format_value(option, given[option.key])))
