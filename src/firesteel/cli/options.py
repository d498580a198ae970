"""``firesteel options``: what can be set, what is, and where that was said."""

from __future__ import annotations

from typing import Annotated

import typer

from firesteel.cli.shared import Config, OptionPairs, given_options, show


def options(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY...]", help="Only these options (a short name will do), or those with such a word."
        ),
    ] = None,
    changed: Annotated[bool, typer.Option("--changed", help="Only options that are set somewhere.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    option: OptionPairs = None,
    config: Config = None,
) -> None:
    """List the options: value, where it was set (-O, FIRESTEEL_... in the environment, a file), default, meaning."""
    from firesteel.cli.options_list import chosen_options, options_json, options_text

    given = given_options(option, configs=config)
    found = chosen_options(given, words or (), changed=changed)
    show(options_json(given, found) if as_json else options_text(given, found))
