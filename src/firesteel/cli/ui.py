"""``firesteel ui``: the history server, over journals of jobs that ended or still run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from firesteel.cli.shared import Config, OptionPairs, given_options

if TYPE_CHECKING:
    from firesteel.options import Options
    from firesteel.ui.catalog.places import Place


def ui(
    places: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[DIRECTORY ...]",
            help="Directories with journals, journals, or URLs of such directories (s3://...); without: where journals are.",
        ),
    ] = None,
    address: Annotated[
        str | None, typer.Option("--address", metavar="HOST", help="Serve it there (rest.bind-address).")
    ] = None,
    port: Annotated[
        str | None,
        typer.Option("--port", metavar="PORT", help="On this port, or the first of a range (rest.bind-port)."),
    ] = None,
    option: OptionPairs = None,
    config: Config = None,
) -> None:
    """Show jobs and streams in a browser, from their journals.

    Until Ctrl-C. At any address but this machine's own, everything needs the token, which is in a file that is named at the start.
    """
    from firesteel.ui.process import missing_extra

    given = _options(given_options(option, configs=config), address, port)
    try:
        from firesteel.ui.server.beside import serve
    except ImportError as error:
        raise missing_extra(error) from None
    serve(given, _places(places or [], given))


def _options(given: Options, address: str | None, port: str | None) -> Options:
    from firesteel.options import BIND_ADDRESS, BIND_PORT, Layer, Options, Origin

    flags = {BIND_ADDRESS.key: (address, "--address"), BIND_PORT.key: (port, "--port")}
    values: Mapping[str, Any] = {key: value for key, (value, _) in flags.items() if value is not None}
    origins = {key: Origin(Layer.COMMAND, flag) for key, (_, flag) in flags.items()}
    return given.merged(Options(values, origins=origins))


def _places(given: list[str], options: Options) -> list[Place]:
    """Without any: the directories of journals that there are. Raises UsageError."""
    from firesteel.errors import UsageError
    from firesteel.journal.places import journal_directories
    from firesteel.ui.catalog.places import place_of

    if given:
        return [place_of(each) for each in given]
    directories: list[Path] = journal_directories(options)
    there = [each for each in directories if each.is_dir()]
    if not there:
        raise UsageError(
            f"There is no journal in {' or '.join(repr(str(each)) for each in directories)} yet.",
            hint="Run a job, or give a directory.",
        )
    return [place_of(str(each)) for each in there]
