"""``firesteel stream``: runs a stream, and asks or tells a running one from another terminal.

What is spoken with is found by name or by checkpoint (``control.names``); how things went is read from journals.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from firesteel.cli.shared import (
    Config,
    Master,
    OptionPairs,
    Quiet,
    Ui,
    agreed,
    as_json_text,
    can_ask,
    ended,
    given_options,
    no_script,
    number,
    show,
    whole,
)
from firesteel.errors import FiresteelError, UsageError

if TYPE_CHECKING:
    from firesteel.control.client import StreamClient
    from firesteel.control.messages import StreamStatus
    from firesteel.control.names import StreamEntry
    from firesteel.journal.file import AnyJournalRecord

stream_app = typer.Typer(
    help="Run streams that rescale, and control running ones.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

POLL_SECONDS = 0.2
TAKEN_IN_SECONDS = 3.0
"""A stream that does anything at all has taken a wish in by then."""
Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="A stream's name or the end of it, or its checkpoint's path.",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Lower = Annotated[
    int | None, typer.Option("--lower", parser=whole("--lower"), metavar="N", help="The least partitions.")
]
Upper = Annotated[
    int | None, typer.Option("--upper", parser=whole("--upper"), metavar="N", help="The most partitions.")
]


@stream_app.command(context_settings={"ignore_unknown_options": True})
def run(
    *,
    script: Annotated[str, typer.Argument(metavar="SCRIPT", help="A Python file that defines build(spark).")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGUMENTS]", help="The arguments in sys.argv.")
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option("--checkpoint", metavar="DIR", help="Where the stream's progress and state lie: a path or URL."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="Its name (default: the end of the checkpoint's path)."),
    ] = None,
    lower: Lower = None,
    upper: Upper = None,
    option: OptionPairs = None,
    config: Config = None,
    master: Master = None,
    quiet: Quiet = False,
    with_ui: Ui = False,
) -> None:
    """Run the stream of a script.

    The script defines build(spark), which returns a DataStreamWriter that is not started. Ctrl-C lets the running batch
    finish and stops; a second one stops at once.
    """
    options = given_options(option, quiet, config, with_ui=with_ui)
    if not Path(script).is_file():
        raise no_script(script)
    from firesteel.cli.streams.run import StreamJob, run_stream

    job = StreamJob(checkpoint=checkpoint, name=name, lower=lower, upper=upper, master=master, options=options)
    raise typer.Exit(run_stream(Path(script), arguments or [], job))


@stream_app.command("list")
def list_streams(
    every: Annotated[bool, typer.Option("--all", help="Include streams that have ended.")] = False,
    as_json: AsJson = False,
) -> None:
    """List your streams on this machine."""
    from firesteel.cli.streams.listing import streams_json, streams_text
    from firesteel.control.names import known_streams

    chosen = [each for each in known_streams() if each.live or every]
    show(streams_json(chosen) if as_json else streams_text(chosen))


@stream_app.command()
def status(
    name: Name,
    watch: Annotated[bool, typer.Option("--watch", help="Keep showing it until the stream ends.")] = False,
    interval: Annotated[
        float,
        typer.Option(
            "--interval",
            parser=number("--interval", float, "number"),
            metavar="SECONDS",
            help="The interval of --watch.",
        ),
    ] = 0.5,
    as_json: AsJson = False,
) -> None:
    """Show how a stream is just now.

    State and phase, partitions now and wanted, batches, rates, state, the last rescale, what it waits for.
    """
    from firesteel.view.stream_view import status_text

    if not 0.05 <= interval <= 3600:
        raise UsageError(f"--interval {interval:g} must be between 0.05 and 3600 seconds.")
    with connect(name) as client:
        if watch:
            from firesteel.cli.streams.watch import watch as watch_stream

            watch_stream(client, interval, as_json)
        else:
            found = client.status()
            show(as_json_text(found) if as_json else status_text(found))


@stream_app.command()
def requirements(
    name: Name, lower: Lower = None, upper: Upper = None, yes: Yes = False, as_json: AsJson = False
) -> None:
    """Show or change a stream's bounds.

    Between how many partitions it may have; what is left out stays as it is.
    """
    from firesteel.control.messages import Call, Request

    changes = lower is not None or upper is not None
    with connect(name) as client:
        if changes:
            agree(client.entry, name, "Change the bounds of", yes)
        before = client.status()
        asked = (before.lower if lower is None else lower, before.upper if upper is None else upper)
        after = client.call(Request(call=Call.REQUIREMENTS, lower=lower, upper=upper)) if changes else before
        if (after.lower, after.upper) != asked:
            after = _until(client, lambda now: (now.lower, now.upper) == asked, TAKEN_IN_SECONDS)
    was = f" (it was {before.lower} to {before.upper})" if changes else ""
    text = f"{_whose(after) if changes else after.name}: {asked[0]} to {asked[1]} partitions{was}. {_now(after)}"
    show(as_json_text(after) if as_json else text)


@stream_app.command()
def rescale(
    name: Name,
    parallelism: Annotated[
        int | None,
        typer.Argument(
            metavar="[PARTITIONS]",
            parser=whole("PARTITIONS"),
            help="The new parallelism; without, what the scheduler wants, whatever the downtime.",
        ),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it is done; exit 1 if it fails.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Rescale a stream at its next checkpoint."""
    from firesteel.control.messages import rescaling

    request = rescaling(parallelism)
    with connect(name) as client:
        agree(client.entry, name, "Rescale", yes)
        before = client.status()
        if parallelism is not None and before.parallelism == parallelism == before.wanted:
            show(as_json_text(before) if as_json else f"{_whose(before)}: it has {parallelism} partitions already.")
            return
        after = client.call(request)
        if wait:
            after = _until_rescaled(client, before, parallelism)
    show(as_json_text(after) if as_json else _rescaled(before, after, wait))
    if wait and _came_to_nothing(before, after):
        raise typer.Exit(1)


@stream_app.command()
def stop(
    name: Name,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="At once: the running batch is done again by the next start.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it has ended (the default).")] = True,
    yes: Yes = False,
) -> None:
    """Let the running batch finish, and stop.

    The checkpoint stays: the next start goes on from there.
    """
    from firesteel.control.client import StreamGone
    from firesteel.control.messages import Call, Request
    from firesteel.view.stream_view import OVER

    with connect(name) as client:
        agree(client.entry, name, "Cancel" if cancel else "Stop", yes)
        last = client.call(Request(call=Call.CANCEL if cancel else Call.STOP))
        try:
            while wait and last.state != OVER:
                time.sleep(POLL_SECONDS)
                last = client.status()
        except StreamGone:
            show(ended(client.entry))
            return
    if last.state != OVER:
        show(f"{_whose(last)}: it is being {'cancelled' if cancel else 'stopped'}.")
    elif last.cause:
        raise FiresteelError(f"{_whose(last)}: it failed: {last.cause}")
    else:
        show(f"{last.name}: it has ended; its checkpoint is '{last.checkpoint}'.")


@stream_app.command()
def history(name: Name, option: OptionPairs = None) -> None:
    """Print every rescale of a stream.

    Cause, numbers, trigger, waits, downtime, end. Also of a stream that is over.
    """
    from firesteel.report.stream_report import stream_history

    show(stream_history(_records(name, option)))


@stream_app.command()
def explain(name: Name, option: OptionPairs = None) -> None:
    """Print what a stream decided, and why.

    Also of a stream that is over.
    """
    from firesteel.report.stream_report import explain_stream

    show(explain_stream(_records(name, option)))


def connect(name: str) -> StreamClient:
    """Raises FiresteelError, with how it ended as far as that is known, for a stream that does not run."""
    from firesteel.control.client import StreamClient, StreamGone
    from firesteel.control.names import find_stream
    from firesteel.report.fold import how_it_ended

    entry = find_stream(name)
    try:
        return StreamClient(entry)
    except StreamGone as gone:
        end = how_it_ended(entry.journal)
        if end is None or not end.cause:
            raise
        raise FiresteelError(f"{gone.message} {end.status}: {end.cause.splitlines()[0]}", hint=gone.hint) from None


def agree(entry: StreamEntry, name: str, what: str, yes: bool) -> None:
    """Asks, on a terminal, before a stream is changed that was named and not pointed at, and lies elsewhere than here.

    ``what``: "Stop". Raises FiresteelError where the answer is no.
    """
    from firesteel.control.places import canonical, local_path

    place = local_path(entry.checkpoint)
    is_here = place is not None and place.is_relative_to(Path.cwd().resolve())
    if yes or is_here or canonical(name) == canonical(entry.checkpoint) or not can_ask():
        return
    if not agreed(f"{what} the stream '{entry.name}' on '{entry.checkpoint}' (process {entry.pid})?"):
        raise FiresteelError("Nothing was changed.", hint="Use --yes, or give the checkpoint, to skip the question.")


def _whose(status: StreamStatus) -> str:
    return f"{status.name} ({status.checkpoint})"


def _records(name: str, option: list[str] | None) -> list[AnyJournalRecord]:
    """Of the stream's journal; ``name`` may be whatever ``firesteel explain`` takes, too."""
    from firesteel.control.names import NoStream, find_stream, is_place
    from firesteel.journal.file import read
    from firesteel.journal.lookup import find
    from firesteel.report.fold import kind_of

    options = given_options(option)
    try:
        entry = find_stream(name)
    except NoStream as unknown:
        if is_place(name) and not Path(name).is_file():
            raise
        try:
            path = find(name, options)
        except UsageError:
            raise unknown from None
    else:
        if not entry.journal:
            raise UsageError(f"The stream '{name}' keeps no journal.")
        path = Path(entry.journal)
    records = read(path)
    if kind_of(records) != "stream":
        raise UsageError(
            f"'{path}' is not a journal of a stream.", hint="For a job: firesteel explain, firesteel history."
        )
    return records


def _until(client: StreamClient, reached: Callable[[StreamStatus], bool], seconds: float) -> StreamStatus:
    """The status in which it is reached, or the last within so many seconds."""
    deadline = time.monotonic() + seconds
    while not reached(now := client.status()) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    return now


def _until_rescaled(client: StreamClient, before: StreamStatus, parallelism: int | None) -> StreamStatus:
    """Until this rescale, not an earlier one that was under way, has ended, or for some time none is wanted: its record comes
    with the first batch, which may take long."""
    settled: float | None = None
    while True:
        now = client.status()
        last = now.last_rescale
        if last is not None and last != before.last_rescale and parallelism in (None, last.requested):
            return now
        if now.state != "Executing" or now.parallelism != now.wanted:
            settled = None
        elif settled is None:
            settled = time.monotonic()
        elif time.monotonic() - settled >= TAKEN_IN_SECONDS:
            return now
        time.sleep(POLL_SECONDS)


def _came_to_nothing(before: StreamStatus, after: StreamStatus) -> bool:
    last = after.last_rescale
    return last is not None and last != before.last_rescale and last.end != "completed"


def _rescaled(before: StreamStatus, after: StreamStatus, waited: bool) -> str:
    from firesteel.report.stream_report import rescale_sentence

    if waited and after.last_rescale is not None and after.last_rescale != before.last_rescale:
        return f"{_whose(after)}: {rescale_sentence(after.last_rescale)}."
    said = "no rescale is needed" if waited else "a rescale was asked for"
    if waited and after.parallelism != before.parallelism:
        said = f"{before.parallelism} -> {after.parallelism} partitions; the first batch with them is still to come"
    return f"{_whose(before)}: {said}. {_now(after)}"


def _now(status: StreamStatus) -> str:
    from firesteel.view.stream_view import status_line

    return f"Now: {status_line(status)}."
