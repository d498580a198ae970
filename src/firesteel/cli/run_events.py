"""``firesteel run --json``: what happens as JSON lines; the format is that of ``journal.json_events``."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import typer

from firesteel.cli import script
from firesteel.errors import FiresteelError, UsageError


class Told:
    """The target of the lines. Without a stream nothing is written. ``name``: of the file, if it is one."""

    def __init__(self, stream: TextIO | None, name: str | None = None) -> None:
        self._stream = stream
        self._name = name

    def say(self, event: str, **fields: Any) -> None:
        """A reader that has gone away disturbs nobody; of a file that takes nothing any more is told once."""
        from firesteel.view.json_events import write_event

        if self._stream is None:
            return
        try:
            write_event(self._stream, event, **fields)
        except (OSError, ValueError) as error:
            if self._name is not None and not isinstance(error, BrokenPipeError):
                why = getattr(error, "strerror", None) or error
                print(f"firesteel: Not all events could be written to '{self._name}': {why}.", file=sys.stderr)
                self._name = None

    def error(self, error: FiresteelError) -> None:
        kind = type(error).__name__
        self.say(
            "error",
            kind=kind,
            message=error.message,
            hint=error.hint,
            trace=error.cause_trace,
            exit_code=error.exit_code,
        )

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
    told = Told(stream, None if file == "-" else file)
    from firesteel.view import progress

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
