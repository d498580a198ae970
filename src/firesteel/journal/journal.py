"""The journal: an append-only file per job or stream, one JSON record a line, and the instruments that listen beside it.

Records are :mod:`firesteel.scheduler.records` and :mod:`firesteel.scheduler.streaming.records`. A journal is read while it is being written, and after its writer was
killed: a last line that was cut off is no error.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import msgspec

from firesteel.errors import UsageError
from firesteel.journal.locks import hold
from firesteel.journal.places import SUFFIX, journal_directories, slug
from firesteel.journal.places import find as find  # noqa: PLC0414 - where readers look for it
from firesteel.journal.places import journals as journals  # noqa: PLC0414
from firesteel.options import JOURNAL_DIR, Options
from firesteel.scheduler.records import AnyRecord, Decision, JobPlanned, JobStatusRecord, JournalRecord
from firesteel.scheduler.streaming.records import (
    AnyStreamRecord,
    RescaleRecord,
    StreamEnded,
    StreamPlanned,
    StreamStateChange,
)

BUFFER_BYTES = 1 << 16
FLUSH_SECONDS = 1.0
"""Records that nobody waits for (state changes, progress) are written at the latest after this time."""

_LONGEST_LINE = 1 << 26
_TAIL = 1 << 20
_AWAITED = (Decision, JobStatusRecord, JobPlanned, StreamPlanned, StreamStateChange, RescaleRecord, StreamEnded)

_log = logging.getLogger("firesteel.journal")

AnyJournalRecord = AnyRecord | AnyStreamRecord
"""Of a job, or of a stream."""


class Instrument(Protocol):
    """Whoever wants to hear of a job's records: the journal, the progress view, a test."""

    def record(self, record: JournalRecord) -> None: ...
    def close(self) -> None: ...


class Instruments:
    """Hands every record to all instruments. One that raises is logged once and removed: watching a job never breaks it."""

    def __init__(self, instruments: Iterable[Instrument] = ()) -> None:
        self._active = list(instruments)
        self._journal = next((i for i in self._active if isinstance(i, Journal)), None)

    def journal_path(self) -> Path | None:
        """The file of the journal among them, also after its end."""
        return None if self._journal is None else self._journal.path

    def record(self, record: JournalRecord) -> None:
        self._call("record", record)

    def close(self) -> None:
        """Closes all that are left; safe to call twice."""
        self._call("close")
        self._active = []

    def _call(self, method: str, *args: Any) -> None:
        for instrument in tuple(self._active):
            try:
                getattr(instrument, method)(*args)
            except Exception:
                self._active.remove(instrument)
                _log.exception("%s failed and takes no further part in this job.", type(instrument).__name__)


class Journal:
    """Appends records to ``path``. Decisions and status changes reach the file at once, the rest in bulk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: BinaryIO | None = path.open("ab", buffering=0)
        hold(self._file.fileno())
        self._pending = bytearray()
        self._written_at = time.monotonic()

    @classmethod
    def create(cls, options: Options, job_name: str, job_id: str) -> Journal:
        """A new file in the journal directory, named after time, job name and job id.

        Raises UsageError if ``firesteel.journal.directory`` is set and cannot be written; the default directory gives
        way to one under the machine's temporary directory instead.
        """
        name = f"{time.strftime('%Y%m%d-%H%M%S')}_{slug(job_name)}_{job_id}{SUFFIX}"
        directories = journal_directories(options)
        for number, directory in enumerate(directories, 1):
            try:
                directory.mkdir(parents=True, exist_ok=True)
                return cls((directory / name).absolute())
            except OSError as error:
                if number == len(directories):
                    raise UsageError(
                        f"The journal cannot be written to '{directory}': {error.strerror or error}.",
                        hint=f"Set '{JOURNAL_DIR.key}' to a directory that can be written.",
                    ) from None
        raise AssertionError("there is always a directory to try")

    def record(self, record: JournalRecord) -> None:
        self._pending += encode(record)
        awaited = isinstance(record, _AWAITED)
        if awaited or len(self._pending) >= BUFFER_BYTES or time.monotonic() - self._written_at >= FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Hands what is buffered to the operating system (no fsync: a journal is not worth a disk's wait)."""
        if self._file is not None and self._pending:
            view = memoryview(bytes(self._pending))
            self._pending.clear()
            while view:
                view = view[self._file.write(view) or 0 :]
        self._written_at = time.monotonic()

    def close(self) -> None:
        if self._file is not None:
            try:
                self.flush()
            finally:
                self._file.close()
                self._file = None


def encode(record: JournalRecord) -> bytes:
    """The record's line in a journal."""
    return _encoder.encode(record) + b"\n"


def read(path: str | os.PathLike[str]) -> list[AnyJournalRecord]:
    """All records of a journal, in order. A last line that was cut off is left out.

    Raises UsageError if the file cannot be read or a line before the last one is no journal record.
    """
    try:
        lines = Path(path).read_bytes().split(b"\n")
    except OSError as error:
        raise UsageError(f"The journal '{path}' cannot be read: {error.strerror or error}.") from None
    records: list[AnyJournalRecord] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            records.append(_decoder.decode(line))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            if number == len(lines):  # the writer was killed, or has not finished this line yet
                break
            raise UsageError(
                f"Line {number} of '{path}' is not a journal record.",
                hint="Is this a journal, and written by this version of Firesteel?",
            ) from None
    return records


def last_record(path: str | os.PathLike[str]) -> AnyJournalRecord | None:
    """The last whole record of a journal, however long it is; None: there is none, or the file cannot be read."""
    try:
        with Path(path).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
            lines = file.read().split(b"\n")
    except OSError:
        return None
    for line in reversed(lines):
        with suppress(msgspec.MsgspecError, UnicodeDecodeError):
            return _decoder.decode(line)
    return None


def begins_like_a_journal(path: Path) -> bool:
    """Whether the file is empty or its first line is a journal record. Raises OSError."""
    with path.open("rb") as file:
        line = file.readline(_LONGEST_LINE)
    try:
        if line:
            _decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False
    return True


def _plain(value: Any) -> Any:
    """What JSON lacks: numpy scalars and arrays become numbers and lists, anything else its text."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


_encoder = msgspec.json.Encoder(enc_hook=_plain)
_decoder: msgspec.json.Decoder[AnyJournalRecord] = msgspec.json.Decoder(AnyJournalRecord)
