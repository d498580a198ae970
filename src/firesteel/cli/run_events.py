"""``firesteel run --json``: what happens as JSON lines; the format is that of ``journal.json_events``."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

import typer

from firesteel.cli import script
from firesteel.errors import FiresteelError, JobExecutionError, UsageError


class Told:
    """Where the lines go. Without a stream nothing is told."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def say(self, event: str, **fields: Any) -> None:
        """A reader that has gone away disturbs nobody."""
        from firesteel.journal.json_events import write_event

        if self._stream is not None:
            with suppress(OSError, ValueError):
                write_event(self._stream, event, **fields)

    def error(self, error: FiresteelError) -> None:
        trace = error.cause_trace if isinstance(error, JobExecutionError) else None
        kind = type(error).__name__
        self.say("error", kind=kind, message=error.message, hint=error.hint, trace=trace, exit_code=error.exit_code)

    def ended(self, code: int) -> int:
        self.say("exit", code=code)
        return code


@contextmanager
def events(on_stderr: bool, file: str | None) -> Generator[Told]:
    """On stderr they stand for progress and for sentences on errors; in a file they come beside them. Raises UsageError."""
    if on_stderr and file is not None:
        raise UsageError("--json and --json-file were given.", hint="Leave one out.")
    if not on_stderr and file is None:
        yield Told(None)
        return
    stream = sys.stderr if on_stderr else sys.stdout if file == "-" else _opened(str(file))
    told = Told(stream)
    from firesteel.journal import progress

    if stream is not None:
        progress.tell_as_json(stream, alone=on_stderr)
    with script.errors_told(told.error, alone=on_stderr):
        try:
            yield told
        except FiresteelError as error:
            raise typer.Exit(told.ended(script.report(error))) from None


def _opened(file: str) -> TextIO:
    try:
        return Path(file).open("w", encoding="utf-8")  # until the process ends: jobs may outlive the script
    except OSError as error:
        raise UsageError(
            f"'{file}' cannot be written: {error.strerror}.", hint="Give --json-file another path."
        ) from None
