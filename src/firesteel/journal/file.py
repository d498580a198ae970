"""The journal: an append-only file per job or stream, one JSON record a line, and the instruments that listen beside it.

Records are :mod:`firesteel.scheduler.kernel.records`, :mod:`firesteel.scheduler.streaming.records` and :mod:`firesteel.journal.scripts`; ``docs/journal.md`` describes
the file. A journal is read while it is being written, and after its writer was killed: a last line that was cut off is no
error. What looks like a secret does not get into it (:mod:`firesteel.masking`).
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, BinaryIO, Protocol, get_args

import msgspec

from firesteel.errors import UsageError
from firesteel.journal.listing import CUT_OFF, begins_a_record
from firesteel.journal.locks import hold
from firesteel.journal.pending import Pending
from firesteel.journal.places import SUFFIX, journal_directories, slug
from firesteel.journal.scripts import AnyScriptRecord, QueryRecord, ScriptEnded, ScriptPlanned
from firesteel.masking import Masker
from firesteel.model.arrays import Column
from firesteel.options import JOURNAL_DIR, MAX_REJECTIONS, Options
from firesteel.scheduler.kernel.records import (
    REJECTED,
    RETIRED,
    AnyRecord,
    Decision,
    JobPlanned,
    JobStatusRecord,
    JournalRecord,
    MetricsSnapshot,
    OutputGone,
    SlotUsage,
    StateChange,
)
from firesteel.scheduler.streaming.records import (
    AnyStreamRecord,
    RescaleRecord,
    StreamBatch,
    StreamEnded,
    StreamPlanned,
    StreamStateChange,
    TriggerKind,
)

FORMAT = (2, 7)
"""Major and minor version of what is written. A reader takes any older one, and newer minor ones: those only add fields and
kinds of records. (1 had no header; 2.0 had other words, see ``_in_todays_words``.)"""
GATHERED = 1 << 11
"""Subtasks and records that are kept back at most."""
FLUSH_SECONDS = 1.0
"""Records that nobody waits for (state changes, progress) are written at the latest after this time."""

SKIPPED = "journal"
"""The kind of a decision that stands for a line that cannot be read."""

_MOST_NAMED = 5
_LONGEST_LINE = 1 << 26
_TAIL = 1 << 20
_AWAITED = (
    *(Decision, JobStatusRecord, JobPlanned, StreamPlanned, StreamStateChange, RescaleRecord, StreamEnded),
    *(ScriptPlanned, QueryRecord, ScriptEnded),
)

_CAUSES = {"handed back by a blocked node": REJECTED, f"handed back{RETIRED.removeprefix('rejected')}": RETIRED}
_INPUTS = {"culpable": "counted", "charged": "counted", "rereaders": "invalidated"}
_OLD_RULE, _RULE = "unfinished consumers and rereaders", "unfinished and invalidated consumers"
_PLACEMENT_INPUTS = {"returns": "rejections"}
_PLACEMENT_RULES = {"firesteel.speculative.max-returns": MAX_REJECTIONS.key}
_STEPS = {"hold": "commit barrier"}
"""Words up to format 2.0, and those of today."""
_UNDECIDED = re.compile(r"Vertex (\d+) '.*' is not decided yet: it waits for")

_log = logging.getLogger("firesteel.journal")


class JournalHeader(JournalRecord, frozen=True):
    """First line of a journal since format 2."""

    format: str
    """MAJOR.MINOR."""
    firesteel: str = ""
    """The version that wrote it."""


AnyJournalRecord = AnyRecord | AnyStreamRecord | AnyScriptRecord
"""Of a job, a stream, or an accelerated script."""


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
            except OSError as error:  # a full disk, say: a trace tells nothing more
                self._active.remove(instrument)
                name = (
                    f"The journal {instrument.path}" if isinstance(instrument, Journal) else type(instrument).__name__
                )
                _log.warning("%s failed and takes no further part in this job: %s.", name, error.strerror or error)
            except Exception:
                self._active.remove(instrument)
                _log.exception("%s failed and takes no further part in this job.", type(instrument).__name__)


class Journal:
    """Appends records to ``path``. Decisions and status changes reach the file at once, the rest in bulk.

    A file that is new, or empty, begins with a header.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: BinaryIO | None = path.open("ab", buffering=0)
        hold(self._file.fileno())
        self._pending = Pending()
        self._masker = Masker()
        self._written_at = time.monotonic()
        if not self._file.tell():
            self._pending.add(JournalHeader(at=0.0, format=".".join(map(str, FORMAT)), firesteel=own_version()))

    @classmethod
    def create(cls, options: Options, job_name: str, job_id: str, *, began: float | None = None) -> Journal:
        """A new file in the journal directory, named after time, job name and job id. ``began``: seconds since 1970; None: now.

        Raises UsageError if ``firesteel.journal.directory`` is set and cannot be written; the default directory gives
        way to one under the machine's temporary directory instead.
        """
        name = f"{time.strftime('%Y%m%d-%H%M%S', time.localtime(began))}_{slug(job_name)}_{job_id}{SUFFIX}"
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
        self._pending.add(masked(record, self._masker))
        awaited = isinstance(record, _AWAITED)
        if awaited or self._pending.count >= GATHERED or time.monotonic() - self._written_at >= FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Hands what is buffered to the operating system (no fsync: a journal is not worth a disk's wait)."""
        if self._file is not None and self._pending.count:
            view = memoryview(b"".join(map(encode, self._pending.take())))
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
    return _encoder.encode_lines((record,))


def read(path: str | os.PathLike[str]) -> list[AnyJournalRecord]:
    """All records of a journal, in order. A last line that was cut off is left out, unless it is the only one.

    In the place of a later line that is not a journal record stands a decision that says so (``SKIPPED``). Raises UsageError if the file
    cannot be read, is of a newer format than this, or does not begin with a journal record.
    """
    try:
        written = Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"The journal '{path}' cannot be read: {error.strerror or error}.") from None
    reader = Reader(path)
    records = [*reader.feed(written), *reader.end()]
    if not records:
        reader.check_begun()
    return records


class Reader:
    """Records of a journal out of its bytes, as they come; ``path`` is for what it complains of.

    Raises UsageError for a newer format, and for a line that is not a journal record before one that is.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path
        self._rest = b""
        self._number = 0
        self._is_newer = False
        self._has_begun = False
        """A record was whole."""
        self._at = 0.0
        self._skipped = 0

    def feed(self, written: bytes) -> list[AnyJournalRecord]:
        """Of the lines that end in these bytes, which follow those before."""
        *lines, self._rest = (self._rest + written).split(b"\n")
        return [record for line in lines if (record := self._record(line)) is not None]

    def end(self) -> list[AnyJournalRecord]:
        """Of a last line without an end, if it is whole; its writer may have been killed, or not have finished it yet."""
        try:
            record = None if not self._rest.strip() else self._decoded(self._rest)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return []
        return [] if record is None else [record]

    def check_begun(self) -> None:
        """Raises UsageError where no record was whole so far, and one begins that is cut off, or something that is none."""
        if self._has_begun or self._number > 1 or not self._rest.strip():
            return
        if not begins_a_record(self._rest):
            self._record(self._rest)
            return
        raise UsageError(
            f"The journal '{self._path}' is damaged: {CUT_OFF}.",
            hint="Whoever wrote it was killed as it began, or its disk was full: nothing of the job is in it.",
        )

    def _record(self, line: bytes) -> AnyJournalRecord | None:
        self._number += 1
        if not line.strip():
            return None
        try:
            record = self._decoded(line)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            if self._is_newer and _kind_of(line) not in _KINDS:
                return None
            if self._has_begun:
                return self._without()
            raise UsageError(
                f"Line {self._number} of '{self._path}' is not a journal record.",
                hint="Is this a journal, and written by this version of Firesteel?",
            ) from None
        if record is not None:
            self._has_begun, self._at = True, record.at
        return record

    def _without(self) -> Decision | None:
        """Says that a line was skipped; of very many only the first are named."""
        self._skipped += 1
        if self._skipped > _MOST_NAMED:
            return None
        more = ", nor are some of those after it" if self._skipped == _MOST_NAMED else ""
        reason = f"Line {self._number} of '{self._path}' is not a journal record and was skipped{more}."
        return Decision(at=self._at, what=SKIPPED, reason=reason)

    def _decoded(self, line: bytes) -> AnyJournalRecord | None:
        """None for a header."""
        if self._number <= 1:
            self._is_newer = _is_newer(line, self._path)
        record = _decoder.decode(line)
        return None if isinstance(record, JournalHeader) else _in_todays_words(record)


def skipped(records: Iterable[JournalRecord]) -> list[str]:
    """A sentence for each line that could not be read."""
    return [one.reason for one in records if isinstance(one, Decision) and one.what == SKIPPED]


def _in_todays_words(record: AnyJournalRecord) -> AnyJournalRecord:
    """Returns the record with the words of older formats replaced: causes, inputs and rules of decisions, steps of rescales."""
    if isinstance(record, StateChange) and record.cause in _CAUSES:
        return msgspec.structs.replace(record, cause=_CAUSES[record.cause])
    if isinstance(record, Decision) and record.what in _NAMED:
        record = _cut_at_name(record)
    if isinstance(record, Decision) and record.what in ("failover", "restart"):
        inputs = {_INPUTS.get(name, name): value for name, value in record.inputs.items()}
        return msgspec.structs.replace(record, inputs=inputs, rule=record.rule.replace(_OLD_RULE, _RULE))
    if isinstance(record, Decision) and record.what == "waiting" and not record.inputs:
        waits = [_wait_of_older(str(line)) for line in record.result] if isinstance(record.result, list) else []
        return msgspec.structs.replace(record, inputs={"waits": waits})
    if isinstance(record, Decision) and record.what == "placement":
        inputs = {_PLACEMENT_INPUTS.get(name, name): value for name, value in record.inputs.items()}
        rule = _PLACEMENT_RULES.get(record.rule, record.rule)
        return msgspec.structs.replace(record, inputs=inputs, rule=rule)
    if isinstance(record, RescaleRecord) and not record.trigger_kind:  # up to format 2.6
        steps = {_STEPS.get(name, name): seconds for name, seconds in record.steps.items()}
        kind = TriggerKind.CHECKPOINT.name if record.trigger.startswith("checkpoint ") else ""
        return msgspec.structs.replace(record, steps=steps, trigger_kind=kind)
    return record


_NAMED = ("failover", "placement", "resume", "retired worker", "reuse", "speculation", "winner")
"""Decisions whose reasons have the step's name inside."""


def _cut_at_name(decision: Decision) -> Decision:
    """Up to format 2.6 reasons were sentences only."""
    before, of, after = decision.reason.partition(f" of '{decision.name}'")
    told = {"type": "Told", "before": before, "after": after} if of and "type" not in decision.inputs else {}
    return msgspec.structs.replace(decision, inputs=decision.inputs | told)


def _wait_of_older(sentence: str) -> dict[str, Any]:
    """Up to format 2.5 waits were sentences: of a vertex that was not decided yet, its number is the fact that is needed."""
    found = _UNDECIDED.match(sentence)
    return {"type": "ForDecision", "vertex": int(found[1]), "subtasks": None} if found else {"type": "Told"}


def _is_newer(line: bytes, path: str | os.PathLike[str]) -> bool:
    """Returns True if the first line is a header of a newer minor format. Raises UsageError if it is of a newer major one."""
    try:
        header = _header_decoder.decode(line)
        found = tuple(int(part) for part in header.format.split("."))[:2]
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError):
        return False
    if header.type == JournalHeader.__name__ and found[0] > FORMAT[0]:
        who = f"Firesteel {header.firesteel}" if header.firesteel else "A newer Firesteel"
        raise UsageError(
            f"'{path}' is a journal of format {header.format}; this Firesteel reads formats up to {FORMAT[0]}.",
            hint=f"{who} wrote it: read it with that version.",
        )
    return found > FORMAT


def _kind_of(line: bytes) -> str:
    try:
        return _header_decoder.decode(line).type
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ""


def masked(record: JournalRecord, masker: Masker) -> JournalRecord:
    """The record without what looks secret in it."""
    if isinstance(record, StateChange):
        return msgspec.structs.replace(record, cause=masker.text(record.cause)) if record.cause else record
    if isinstance(record, _NUMBERS):
        return _with_masked_steps(record, masker) if isinstance(record, MetricsSnapshot) else record
    fields = {name: getattr(record, name) for name in record.__struct_fields__}
    changed = {
        name: masker.value(value, name) for name, value in fields.items() if isinstance(value, str | dict | list)
    }
    return msgspec.structs.replace(record, **changed)


def _with_masked_steps(record: MetricsSnapshot, masker: Masker) -> MetricsSnapshot:
    """Numbers of steps have the step's name, which is the user's, before a dot."""
    if not any("." in name for numbers in record.vertices.values() for name in numbers):
        return record
    vertices = {
        vertex: {masker.text(name) if "." in name else name: number for name, number in numbers.items()}
        for vertex, numbers in record.vertices.items()
    }
    return msgspec.structs.replace(record, vertices=vertices)


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
            record = _decoder.decode(line)
            return None if isinstance(record, JournalHeader) else record
    return None


def begins_like_a_journal(path: Path) -> bool:
    """Returns True if the file is empty or its first line is a journal record. Raises OSError."""
    with path.open("rb") as file:
        line = file.readline(_LONGEST_LINE)
    try:
        if line:
            _decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False
    return True


def job_of(path: Path) -> str:
    """The id of the job that the journal is of; empty where it does not begin with one's plan. Raises OSError."""
    with path.open("rb") as file:
        for line in (file.readline(_LONGEST_LINE), file.readline(_LONGEST_LINE)):
            with suppress(msgspec.MsgspecError, UnicodeDecodeError):
                record = _decoder.decode(line)
                if isinstance(record, JobPlanned):
                    return record.job_id
    return ""


def plain(value: Any) -> Any:
    """Converts what JSON lacks: numpy scalars, arrays and columns to numbers and lists, anything else to its text."""
    if isinstance(value, Column):
        return msgspec.Raw(b"[" + b",".join(_encoder.encode(part)[1:-1] for part in value.parts()) + b"]")
    return value.tolist() if hasattr(value, "tolist") else str(value)


_encoder = msgspec.json.Encoder(enc_hook=plain)
_decoder: msgspec.json.Decoder[AnyJournalRecord | JournalHeader] = msgspec.json.Decoder(
    AnyJournalRecord | JournalHeader
)
_NUMBERS = (MetricsSnapshot, SlotUsage, OutputGone, StreamBatch)


class _AnyHeader(msgspec.Struct):
    """The fields that headers of all formats have."""

    type: str
    format: str = ""
    firesteel: str = ""


_header_decoder = msgspec.json.Decoder(_AnyHeader)
_KINDS = frozenset(kind.__name__ for kind in get_args(AnyJournalRecord)) | {JournalHeader.__name__}


@cache
def own_version() -> str:
    """The version of Firesteel; empty: it runs from a folder or a zip."""
    try:
        return version("firesteel")
    except PackageNotFoundError:
        return ""
