"""Records of a job's log: the events that its scheduler was told, the facts about data that followed, and what drivers and sinks did.

An event and its facts stand in one frame (:class:`Told` first), so that they are there together or not at all. Records are plain
data, in msgpack; only the event itself is bytes of ``codec``.
"""

from __future__ import annotations

from typing import Any

import msgspec

from firesteel.scheduler.kernel.records import JobPlanned

FORMAT = 4
"""Of the log; a reader takes no other."""


class LogRecord(msgspec.Struct, frozen=True, tag_field="kind", array_like=True):
    """One record."""


class LogHeader(LogRecord, frozen=True, tag="header"):
    """The first record of a job's log."""

    format: int
    firesteel: str
    versions: dict[str, str]
    """Of Python and of the libraries that matter."""
    job_id: str
    job_name: str
    run: str
    """The process of the script, which may run several jobs; ``ordinal``: which of them this is, from 0."""
    ordinal: int
    script: str
    arguments: list[str]
    plan: JobPlanned
    graph_digest: bytes
    """Of all that the scheduler reads of the job graph."""
    given: bytes
    """All else that the scheduler was made with (``codec.dump``)."""
    prints: list[Any]
    """Fingerprint of each vertex, as plain data."""


class DriverBegan(LogRecord, frozen=True, tag="driver"):
    """First record of each driver's part of the log."""

    epoch: int
    nonce: int
    """Base of its tokens: their upper bits."""
    host: str
    pid: int
    started: str | None
    application: str
    wall: float
    """Seconds since 1970, for people."""
    at: float
    """The job's clock, which does not count the time without a driver."""
    read_until: dict[str, int] = {}
    """File to the bytes it read of earlier drivers' parts: what they wrote behind that is void."""


class Told(LogRecord, frozen=True, tag="told"):
    """An event as the scheduler was told it (``codec.encode``). ``answers``: what the user's functions answered meanwhile."""

    event_kind: str
    event: bytes
    answers: tuple[Any, ...] = ()


class Deployed(LogRecord, frozen=True, tag="deployed"):
    """Executions of one vertex that were deployed. ``outputs``: subpartitions by place of output;
    ``subtasks``, ``attempts``: int32; ``inputs``: 16 bytes each, a digest of all that the execution reads."""

    vertex: int
    parallelism: int
    outputs: tuple[int, ...]
    subtasks: bytes
    attempts: bytes
    inputs: bytes


class Identified(LogRecord, frozen=True, tag="identified"):
    """These executions (int32) are about to be started. ``identity``: of all that they do, but for what each of them reads
    (``Deployed.inputs``); empty: nobody can tell. ``datasets``: that they write, in the order of the program's outputs."""

    vertex: int
    identity: bytes
    datasets: tuple[int, ...]
    subtasks: bytes
    attempts: bytes


class NarrowedTo(LogRecord, frozen=True, tag="narrowed"):
    """A source was narrowed: its program and splits lie in the object, which was put before this was written."""

    vertex: int
    object: str
    digest: bytes


class SinkStep(LogRecord, frozen=True, tag="sink"):
    """``step``: "begun", "publishing", "published", "released" or "taken back". ``state``: with "begun", what the sink needs to go on, JSON."""

    vertex: int
    sink: int
    step: str
    state: bytes = b""


class Kept(LogRecord, frozen=True, tag="kept"):
    """The executions of these subtasks (int32) are an earlier job's."""

    vertex: int
    subtasks: bytes
    job_id: str


class Alive(LogRecord, frozen=True, tag="alive"):
    """The driver lives, and had nothing else to write."""

    at: float


class Ended(LogRecord, frozen=True, tag="ended"):
    """The job is over, and did not finish; ``status``: how it ended, at ``wall``, in seconds since 1970."""

    status: str
    wall: float


class JobOver(LogRecord, frozen=True, tag="over"):
    """In the log of a script's run: a job of it, whose header came before, has published its outputs, or will not. ``out``: "all", "some" or
    "none" of them are; ``wall``: when, in seconds since 1970; ``journal``: its path, empty if there is none."""

    ordinal: int
    job_id: str
    out: str
    wall: float
    journal: str


AnyLogRecord = (
    LogHeader | DriverBegan | Told | Deployed | Identified | NarrowedTo | SinkStep | Kept | Alive | Ended | JobOver
)

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[AnyLogRecord])


def encode_records(records: list[AnyLogRecord]) -> bytes:
    """Returns the payload of one frame."""
    return _encoder.encode(records)


def decode_records(payload: bytes) -> list[AnyLogRecord]:
    """Raises ValueError (``msgspec.DecodeError`` is one) for what is not a frame's payload."""
    return _decoder.decode(payload)
