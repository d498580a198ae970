"""Parts that commands share: the options that many take, completions that a shell offers when Tab is pressed, and printing.

A shell waits for a completion. So each completion imports what it needs only when it is called.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from firesteel.errors import FiresteelError, UsageError
from firesteel.humanize import printable

if TYPE_CHECKING:
    from firesteel.control.messages import StreamStatus
    from firesteel.control.names import StreamEntry
    from firesteel.options import Options


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


OptionPairs = Annotated[
    list[str] | None,
    typer.Option(
        "-O",
        "--set",
        metavar="KEY=VALUE",
        help="Set an option ('firesteel options' lists them). Repeatable.",
        autocompletion=complete_option,
    ),
]
Job = Annotated[
    str,
    typer.Argument(
        help="A job's id, its beginning, or its name, the path of a journal, or 'last'.", autocompletion=complete_job
    ),
]
Vertex = Annotated[str | None, typer.Argument(help="Only this vertex: its id or name.")]
Master = Annotated[str | None, typer.Option("--master", metavar="URL", help="Spark master (default: local[*]).")]
Config = Annotated[
    list[str] | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="A YAML file with options; later files override earlier ones; FIRESTEEL_... variables and -O override all files.",
    ),
]
Ui = Annotated[
    bool, typer.Option("--ui", help="Show jobs and streams on a page while they run (firesteel.ui.enabled).")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]


Number = TypeVar("Number", int, float)


def number(flag: str, kind: type[Number], name: str) -> Callable[[str | Number], Number]:
    """The parser of an option that is a number: what it complains of is a sentence like all others."""

    def parse(value: str | Number) -> Number:
        try:
            return kind(value)
        except ValueError:
            raise UsageError(f"{flag} {value} is not a valid {name}.") from None

    return parse


def whole(flag: str) -> Callable[[str | int], int]:
    return number(flag, int, "whole number")


def given_options(
    pairs: list[str] | None, quiet: bool = False, configs: list[str] | None = None, *, with_ui: bool = False
) -> Options:
    """The values of -O, over FIRESTEEL_... in the environment, over the YAML files ``configs`` (a later one over an earlier)
    and that of FIRESTEEL_CONFIG. Raises UsageError."""
    from firesteel.options import PROGRESS, UI_ENABLED, Layer, Options, Origin
    from firesteel.options.layers import surroundings
    from firesteel.options.registry import ON_COMMAND_LINE

    values = dict(split_pair(pair, "-O", "key=value") for pair in pairs or [])
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        given = Options(values, ON_COMMAND_LINE)
        if quiet:
            given = given.merged(Options({PROGRESS.key: False}, Origin(Layer.COMMAND, "--quiet")))
        if with_ui:
            given = given.merged(Options({UI_ENABLED.key: True}, Origin(Layer.COMMAND, "--ui")))
        given = surroundings(configs=configs or ()).merged(given)
    for warning in heard:
        print(f"firesteel: {warning.message}", file=sys.stderr, flush=True)
    return given


def split_pair(pair: str, flag: str, example: str) -> tuple[str, str]:
    """Returns key and value. Raises UsageError where the text is not a pair."""
    key, equals, value = (part.strip() for part in pair.partition("="))
    if not equals or not key:
        raise UsageError(f"'{flag} {pair}' is not an option.", hint=f"Write {flag} {example}.")
    return key, value


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[str] = ()) -> Iterator[str]:
    """Yields lines of aligned columns. ``right``: names of the columns that are aligned to the right."""
    widths = [max(map(len, cells)) for cells in zip(columns, *rows, strict=True)]
    for row in (columns, *rows):
        cells = zip(columns, row, widths, strict=True)
        yield "  ".join(f"{cell:>{w}}" if name in right else f"{cell:<{w}}" for name, cell, w in cells).rstrip()


def can_ask() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def agreed(question: str) -> bool:
    """Asks on the terminal and returns whether the user agrees."""
    print(printable(f"{question} [y/N] "), end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def show(text: str) -> bool:
    """Prints, also where the reader goes away before the end (``firesteel options | head``): False."""
    try:
        print(printable(text), flush=True)
    except OSError as error:
        if not isinstance(error, BrokenPipeError):
            raise not_written(error) from None
        _give_up_output()
        return False
    return True


def no_script(script: str) -> UsageError:
    """The error if the script is not a file. An option before the script is one of the command's own, perhaps misspelt."""
    if script.startswith("-"):
        return UsageError(
            f"There is no option '{script}'.", hint="The command's own options go before the script; see '--help'."
        )
    return UsageError(f"There is no script '{script}'.", hint="Give the path of a Python file.")


def not_written(error: OSError) -> FiresteelError:
    """The message for an output that was closed; nothing else is written to it."""
    _give_up_output()
    return FiresteelError(f"The output cannot be written: {error.strerror}.")


def _give_up_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python writes the rest when it ends


def wait_for_a_key(options: Options) -> None:
    """Keeps the page of this process up until a key is pressed; does not wait where nobody can press one, or there is no page."""
    from firesteel.ui.process import ui_of

    ui = ui_of(options)
    if ui is None or not can_ask():
        return
    print(f"firesteel: the page stays at {ui.url} until you press a key.", file=sys.stderr, flush=True)
    with suppress(KeyboardInterrupt, EOFError, OSError):
        typer.getchar()


def as_json_text(status: StreamStatus) -> str:
    import msgspec

    return msgspec.json.encode(status).decode()


def ended(entry: StreamEntry) -> str:
    """Returns the sentence that it has ended, and where it can be started again. Raises FiresteelError if it failed."""
    from firesteel.report.fold import how_it_ended

    end = how_it_ended(entry.journal)
    if end is not None and end.status == "FAILED":
        raise FiresteelError(f"{entry.name}: it failed: {end.cause}")
    return f"{entry.name}: it has ended; its checkpoint is '{entry.checkpoint}'."


def is_terminal() -> bool:
    from firesteel.view.screen import is_live

    return sys.stdout is not None and is_live(sys.stdout)
