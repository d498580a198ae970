"""Summaries of many journals, from their first and last lines alone: thousands are listed in a second or two.

Kept light (no numpy, no scheduler): it is what ``firesteel history`` and completion start with.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import msgspec

from firesteel.journal.locks import is_held
from firesteel.journal.places import id_of

HEAD_BYTES = 1 << 16
TAIL_BYTES = 1 << 18
LONGEST_LINE = 1 << 26
RUNNING, BROKEN_OFF, UNFINISHED, DAMAGED = "running", "broken off", "unfinished", "damaged"
STATUSES = ("finished", "failed", "cancelled", RUNNING, BROKEN_OFF, UNFINISHED, DAMAGED)
"""``broken off``: its process is gone. ``unfinished``: whether it still runs cannot be known (no locks on that file system)."""
CUT_OFF = "it is cut off within its first record"
"""Of a journal, in words: whoever wrote it was killed as it began, or its disk was full."""
EMPTY = "it is empty"
OPEN = (RUNNING, BROKEN_OFF, UNFINISHED)
"""Words for a job whose journal has no end: whether the job still runs is checked each time."""
ENDED = {"FINISHED": "finished", "FAILED": "failed", "CANCELED": "cancelled"}
"""The status at the end of a journal to its word."""
_BEGIN = b'{"type":"'
_FAILED = b'"state":"FAILED"'
_TOLD = tuple(
    b'{"type":"%s"' % kind for kind in (b"JobStatusRecord", b"StreamEnded", b"ScriptEnded", b"MetricsSnapshot")
)
"""Lines begin so that the end and the numbers are folded from."""


@dataclass(frozen=True, slots=True)
class Listed:
    """One journal. Numbers are None where its lines do not tell them."""

    path: Path
    kind: str
    """``job``, ``stream``, or ``script``: one that was accelerated."""
    job_id: str
    name: str
    status: str
    """One of STATUSES."""
    began: float
    """Seconds since 1970."""
    seconds: float | None = None
    """Until it ended; of one that runs, until now; else until its last record."""
    vertices: int | None = None
    subtasks: int | None = None
    rows_in: int | None = None
    """Bytes that sources read."""
    rows_out: int | None = None
    """Bytes of the steps that no other step reads: sinks, collected results."""
    restarts: int | None = None
    failures: int | None = None
    """Times that executions failed; None also where the journal is too long to be read for it."""
    cause: str = ""
    """The reason for which it failed, was cancelled, or is damaged."""
    after: str = ""
    """The job that it goes on from, keeping what had finished."""
    uses: tuple[str, ...] = ()
    """The jobs whose results it uses."""


class Planned(msgspec.Struct, tag="JobPlanned"):
    job_id: str
    job_name: str
    vertices: list[dict[str, Any]]
    at: float = 0.0
    """On the clock of the job that it goes on from, or whose results it uses, if there is one: how far that had come."""
    after: str = ""
    uses: tuple[str, ...] = ()


class _StreamPlanned(msgspec.Struct, tag="StreamPlanned"):
    stream_id: str
    name: str
    at: float = 0.0
    """Times in a stream's journal are those of the clock."""


class _ScriptPlanned(msgspec.Struct, tag="ScriptPlanned"):
    script_id: str
    name: str


class _Change(msgspec.Struct):
    subtasks: list[int]


class _Ended(msgspec.Struct):
    at: float
    status: str
    cause: str = ""


class _Status(_Ended, tag="JobStatusRecord"):
    pass


class _StreamEnded(_Ended, tag="StreamEnded"):
    pass


class _ScriptEnded(_Ended, tag="ScriptEnded"):
    pass


class Numbers(msgspec.Struct, tag="MetricsSnapshot"):
    job: dict[str, float] = {}
    vertices: dict[int, dict[str, float]] = {}


class _At(msgspec.Struct):
    at: float


_Head = Planned | _StreamPlanned | _ScriptPlanned
_End = _Status | _StreamEnded | _ScriptEnded
HEAD: msgspec.json.Decoder[_Head] = msgspec.json.Decoder(_Head)
TAIL: msgspec.json.Decoder[_End | Numbers] = msgspec.json.Decoder(_End | Numbers)
_change: msgspec.json.Decoder[_Change] = msgspec.json.Decoder(_Change)
_at: msgspec.json.Decoder[_At] = msgspec.json.Decoder(_At)
_ANY = (msgspec.MsgspecError, UnicodeDecodeError)


def listed(paths: Iterable[Path]) -> Iterator[Listed]:
    """Of these journals, the one that began last first; each is read when it is asked for. Never raises."""
    dated = [(began_at(path), path) for path in paths]
    for began, path in sorted(dated, key=lambda each: (-each[0], each[1].name)):
        yield _read(path, began)


def began_at(path: Path) -> float:
    """Seconds since 1970: from the file's name, else when it was last written; 0: it is gone."""
    named = began_in_name(path.name)
    if named is None:
        with suppress(OSError):
            return path.stat().st_mtime
    return named or 0.0


def began_in_name(name: str) -> float | None:
    """Seconds since 1970, as the name of a journal's file says."""
    try:
        return time.mktime(time.strptime(name[:15], "%Y%m%d-%H%M%S"))
    except (ValueError, OverflowError):
        return None


def _read(path: Path, began: float) -> Listed:
    try:
        with path.open("rb") as file:
            return listed_of(file, path, began, lambda: is_held(path))
    except OSError as error:
        return damaged(path, began, error.strerror or str(error))


def listed_of(file: Readable, path: Path, began: float, is_held: Callable[[], bool | None]) -> Listed:
    """Of a journal that is open; ``path`` is for its id and for who shows it. ``is_held``: as of ``locks``, asked where it does not
    say that it ended. Never raises."""
    head = tail = b""
    try:
        head, tail, whole = ends_of(file)
        planned = HEAD.decode(head)
    except OSError as error:
        return damaged(path, began, error.strerror or str(error))
    except _ANY:
        return damaged(path, began, _why(file, head, tail))
    ends, numbers, last = _folded(tail)
    kind, job_id, name = _title(planned)
    status = ENDED.get(ends.status) if ends is not None else None
    seconds = None if last is None else max(0.0, last - _zero(planned))
    if status is None:
        held = is_held()
        status = UNFINISHED if held is None else RUNNING if held else BROKEN_OFF
        seconds = max(0.0, time.time() - began) if held else seconds
    cause = ends.cause if ends is not None and status in ("failed", "cancelled") else ""
    found = Listed(path, kind, job_id, name, status, began, seconds, cause=cause)
    if not isinstance(planned, Planned):
        return found
    failures = sum(map(_failed, tail.split(b"\n"))) if whole and _FAILED in tail else 0 if whole else None
    try:
        return _with_numbers(found, planned, numbers, failures)
    except (ValueError, TypeError):  # JSON of the right form that is not a job's
        return damaged(path, began, "its plan is not that of a job")


def _why(file: Readable, head: bytes, tail: bytes) -> str:
    """The reason for which it cannot be read. ``head``, ``tail``: as ``ends_of`` gives them."""
    if not head.strip():
        return EMPTY
    if not tail and begins_a_record(head):
        with suppress(OSError):
            file.seek(-1, 2)
            if file.read(1) != b"\n":
                return CUT_OFF
    return "its first line is not that of a journal"


def begins_a_record(rest: bytes) -> bool:
    """Returns whether these bytes, behind which no line ends, are the beginning of a record."""
    return rest.startswith(_BEGIN) or (rest != b"" and _BEGIN.startswith(rest))


def _title(planned: _Head) -> tuple[str, str, str]:
    """Kind, id and name."""
    match planned:
        case Planned():
            return "job", planned.job_id, planned.job_name
        case _StreamPlanned():
            return "stream", planned.stream_id, planned.name
        case _ScriptPlanned():
            return "script", planned.script_id, planned.name


def _zero(planned: _Head) -> float:
    """The clock's time as it began: of a stream, and of a job that goes on where another one was, or uses what that has left."""
    match planned:
        case _StreamPlanned():
            return planned.at
        case Planned() if planned.after or planned.uses:
            return planned.at
        case _:
            return 0.0


def _failed(line: bytes) -> int:
    """Executions that the line says have failed."""
    if _FAILED in line:
        with suppress(*_ANY):
            return len(_change.decode(line).subtasks)
    return 0


def _with_numbers(found: Listed, planned: Planned, numbers: Numbers, failures: int | None) -> Listed:
    inputs = {int(producer) for vertex in planned.vertices for producer in vertex.get("inputs") or ()}
    by_id = {int(vertex.get("id", n)): vertex for n, vertex in enumerate(planned.vertices)}
    sources = [number for number, vertex in by_id.items() if not vertex.get("inputs")]
    ends = [number for number in by_id if number not in inputs]
    told = numbers.vertices
    return replace(
        found,
        vertices=len(planned.vertices),
        subtasks=_sum(told, told, "parallelism"),
        rows_in=_sum(told, sources, "numRecordsIn"),
        rows_out=_sum(told, ends, "numRecordsOut"),
        restarts=int(numbers.job["numRestarts"]) if "numRestarts" in numbers.job else None,
        failures=failures,
        after=planned.after,
        uses=planned.uses,
    )


def _sum(told: dict[int, dict[str, float]], chosen: Iterable[int], name: str) -> int | None:
    found = [int(told[number][name]) for number in chosen if name in told.get(number, {})]
    return sum(found) if found else None


class Readable(Protocol):
    """A file to read in, here or on an object store."""

    def read(self, size: int = -1, /) -> bytes: ...
    def seek(self, offset: int, whence: int = 0, /) -> Any: ...
    def tell(self) -> int: ...


def ends_of(file: Readable) -> tuple[bytes, bytes, bool]:
    """(first line after the header, last lines, whether these are all there are). Raises OSError."""
    file.seek(0, 2)
    size = file.tell()
    file.seek(0)
    written = file.read(HEAD_BYTES)
    start = 0
    if written.startswith(b'{"type":"JournalHeader"'):
        start = written.find(b"\n") + 1
    head = written[start:]
    if size > len(written) and b"\n" not in head:
        file.seek(start)
        head = _first_line(file)
    line, _, rest = head.partition(b"\n")
    if size <= len(written):
        return line, rest, True
    first = start + len(line) + 1
    begin = max(first, size - TAIL_BYTES)
    file.seek(begin)
    return line, file.read(), begin == first


def _first_line(file: Readable) -> bytes:
    """From here to the line's end, or to where nobody would want it whole."""
    parts: list[bytes] = []
    length = 0
    while length < LONGEST_LINE and (part := file.read(1 << 20)):
        parts.append(part)
        length += len(part)
        if b"\n" in part:
            break
    return b"".join(parts)


def _folded(tail: bytes) -> tuple[_End | None, Numbers, float | None]:
    """(the last status, numbers as last told, time of the last record). Lines that cannot be read are left out."""
    end: _End | None = None
    numbers, last = Numbers(job={}, vertices={}), None
    lines = tail.split(b"\n")
    for line in lines:
        if line.startswith(_TOLD):
            with suppress(*_ANY):
                record = TAIL.decode(line)
                if isinstance(record, Numbers):
                    numbers.job.update(record.job)
                    numbers.vertices.update(record.vertices)
                else:
                    end = record
    for line in reversed(lines):
        with suppress(*_ANY):
            last = _at.decode(line).at
            break
    return end, numbers, last


def damaged(path: Path, began: float, why: str) -> Listed:
    """Of a journal that cannot be read."""
    return Listed(path, "job", id_of(path), path.name, DAMAGED, began, cause=why)
