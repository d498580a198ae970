"""Parts that commands share: the options that many take, and printing."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from firesteel.cli.completion import complete_job, complete_option
from firesteel.errors import FiresteelError, UsageError
from firesteel.humanize import printable

if TYPE_CHECKING:
    from firesteel.options import Options

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
    """Key and value. Raises UsageError for what is no option."""
    key, equals, value = (part.strip() for part in pair.partition("="))
    if not equals or not key:
        raise UsageError(f"'{flag} {pair}' is not an option.", hint=f"Write {flag} {example}.")
    return key, value


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[str] = ()) -> Iterator[str]:
    """Lines of aligned columns. ``right``: columns of numbers."""
    widths = [max(map(len, cells)) for cells in zip(columns, *rows, strict=True)]
    for row in (columns, *rows):
        cells = zip(columns, row, widths, strict=True)
        yield "  ".join(f"{cell:>{w}}" if name in right else f"{cell:<{w}}" for name, cell, w in cells).rstrip()


def can_ask() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def agreed(question: str) -> bool:
    """Asks on the terminal."""
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

    url = ui_of(options).url
    if url is None or not can_ask():
        return
    print(f"firesteel: the page stays at {url} until you press a key.", file=sys.stderr, flush=True)
    with suppress(KeyboardInterrupt, EOFError, OSError):
        typer.getchar()
