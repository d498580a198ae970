"""Wishes to a job or stream that runs: of one of this process, or of a stream over its control socket. Each call only
takes the wish in, and returns at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from firesteel.control.client import StreamClient
from firesteel.control.messages import Call, Request
from firesteel.control.names import StreamEntry, known_streams
from firesteel.control.server import StreamHandler
from firesteel.errors import UsageError
from firesteel.scheduler.streaming.records import StreamStatus


class JobHandler:
    """A batch job, which can only be cancelled. ``cancel``: returns at once."""

    def __init__(self, cancel: Callable[[], None]) -> None:
        self._cancel = cancel

    def status(self) -> None:
        return None

    def cancel(self) -> None:
        self._cancel()

    def stop(self) -> NoReturn:
        raise UsageError("A batch job has no checkpoint to stop at.", hint="Cancel it.")

    def rescale(self, parallelism: int | None) -> NoReturn:
        raise UsageError(
            "A batch job is not rescaled.", hint="What each step's parallelism is decided from is told by it."
        )

    def update_requirements(self, lower: int | None, upper: int | None) -> NoReturn:
        raise UsageError("A batch job has no requirements.", hint="Its bounds are options: min- and max-parallelism.")


class SocketHandler:
    """A stream of another process on this machine. Raises FiresteelError where it does not answer."""

    def __init__(self, entry: StreamEntry) -> None:
        self._entry = entry

    def status(self) -> StreamStatus:
        return self._call(Request(call=Call.STATUS))

    def cancel(self) -> None:
        self._call(Request(call=Call.CANCEL))

    def stop(self) -> None:
        self._call(Request(call=Call.STOP))

    def rescale(self, parallelism: int | None) -> None:
        self._call(Request(call=Call.RESCALE, parallelism=parallelism))

    def update_requirements(self, lower: int | None, upper: int | None) -> None:
        self._call(Request(call=Call.REQUIREMENTS, lower=lower, upper=upper))

    def _call(self, request: Request) -> StreamStatus:
        with StreamClient(self._entry) as client:
            return client.call(request, seconds=5.0)


Handler = JobHandler | SocketHandler | StreamHandler
"""Raises UsageError for what cannot be asked of it."""


def handler_of_stream(journal: str) -> SocketHandler | None:
    """Of the stream that writes this journal; None: it does not run on this machine, or is another user's."""
    path = Path(journal)
    for entry, live in known_streams():
        if live and entry.journal and Path(entry.journal) == path:
            return SocketHandler(entry)
    return None
