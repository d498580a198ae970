"""``firesteel options``."""

from __future__ import annotations

import shutil
import textwrap

from firesteel.errors import UsageError
from firesteel.options import Options, all_options, format_value, lookup_family


def options_text(options: Options, word: str | None = None) -> str:
    """All options, or those with ``word`` in key or meaning. Raises UsageError if there are none."""
    width = min(100, shutil.get_terminal_size().columns)
    chosen = [
        o for o in all_options() if word is None or word.lower() in f"{o.key} {' '.join(o.aliases)} {o.doc}".lower()
    ]
    if not chosen:
        raise UsageError(f"No option is about '{word}'.", hint="'firesteel options' lists all of them.")
    blocks: list[str] = []
    for option in chosen:
        default = f"default {format_value(option, option.default)}"
        value = f"{format_value(option, options[option])} ({default})" if options.is_set(option) else default
        meaning = textwrap.fill(option.doc, width, initial_indent="    ", subsequent_indent="    ")
        also = f"\n    also: {', '.join(option.aliases)}" if option.aliases else ""
        members = [key for key in options if lookup_family(key) is option]
        given = "".join(f"\n    {key}: {format_value(option, options[key])}" for key in members)
        blocks.append(f"{option.key}: {value}\n{meaning}{also}{given}")
    return "\n\n".join(blocks)
