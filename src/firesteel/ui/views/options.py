"""Options of a job as one would write them, with their defaults and what they are for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from firesteel.errors import UsageError
from firesteel.options import format_value, lookup
from firesteel.ui.views.structs import Option


def options_of(values: Mapping[str, Any], origins: Mapping[str, str] | None = None) -> list[Option]:
    """The options that a journal's plan holds, by key. ``origins``: where each came from, as far as that is known."""
    return [option_of(key, values[key], (origins or {}).get(key, "")) for key in sorted(values)]


def option_of(key: str, value: Any, origin: str = "") -> Option:
    """One that this version does not know, or whose value it cannot read, is shown as it is."""
    try:
        option = lookup(key)
        parsed = option.parse(value) if isinstance(value, str) else value
        written, default = format_value(option, parsed), format_value(option, option.default)
    except (UsageError, TypeError, ValueError):
        return Option(key=key, value=str(value), origin=origin)
    return Option(key=key, value=written, default=default, doc=option.doc, origin=origin)
