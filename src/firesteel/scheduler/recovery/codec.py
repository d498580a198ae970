"""Events as bytes: the two that come for every subtask by columns, all others pickled, and read by an unpickler that runs no code.

A decoded event is equal to the encoded one, entry by entry; its columns cannot be written.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from firesteel.model.arrays import Floats, Ints, Names
from firesteel.model.steps import reports as step_reports
from firesteel.scheduler.kernel.events import (
    Event,
    ExecutionReports,
    ExecutionsDeploying,
    ExecutionsFinished,
    PartitionReports,
)

PICKLED, FINISHED, DEPLOYING = 0, 1, 2
"""The kinds of encoding."""

_MODULES = (
    "firesteel.scheduler.kernel.events",
    "firesteel.scheduler.recovery.given",
    "firesteel.scheduler.slots.resource_profile",
)
"""Modules whose classes may be pickled, beside the plain data of ``firesteel.model``."""
_SINGLE = {
    ("firesteel.errors", "Stop"),
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    *((f"numpy.{core}.multiarray", name) for core in ("core", "_core") for name in ("_reconstruct", "scalar")),
    *((f"numpy.{core}.numeric", "_frombuffer") for core in ("core", "_core")),
}
"""Single classes, and the functions and classes that rebuild arrays."""


class _Partition(msgspec.Struct, frozen=True, array_like=True):
    """:class:`PartitionReports`; columns as bytes."""

    dataset: int
    written: bytes
    rows: bytes
    stored_bytes: bytes
    sizes: Sequence[bytes] | None
    sketches: Sequence[bytes] | None
    heavy_keys: Sequence[bytes] | None


class _Finished(msgspec.Struct, frozen=True, array_like=True):
    """:class:`ExecutionsFinished`; columns as bytes."""

    at: float
    id: int
    vertex: int
    subtasks: bytes
    attempts: bytes
    tokens: bytes
    deployed_at: bytes
    running_at: bytes
    finished_at: bytes
    rows_in: bytes
    bytes_in: bytes
    rows_out: bytes
    names: tuple[str, ...] | None
    codes: bytes
    partitions: list[_Partition]
    commits: Sequence[tuple[bytes, ...]]
    peak_memory: bytes | None
    steps: list[bytes]


class _Deploying(msgspec.Struct, frozen=True, array_like=True):
    """:class:`ExecutionsDeploying`; columns as bytes."""

    at: float
    id: int
    vertex: int
    subtasks: bytes
    attempts: bytes
    running: bool
    nodes: Sequence[str]
    times: bytes | None
    executors: Sequence[str]


_encoder = msgspec.msgpack.Encoder()
_finished_decoder = msgspec.msgpack.Decoder(_Finished)
_deploying_decoder = msgspec.msgpack.Decoder(_Deploying)


def encode(event: Event) -> tuple[int, bytes]:
    """Returns the kind of encoding, and the event in it."""
    if isinstance(event, ExecutionsFinished):
        return FINISHED, _encoder.encode(_finished(event))
    if isinstance(event, ExecutionsDeploying):
        return DEPLOYING, _encoder.encode(_deploying(event))
    return PICKLED, dump(event)


def decode(kind: int, data: bytes) -> Event:
    """Raises ValueError for what is no event, or of a kind that is not known."""
    if kind == FINISHED:
        return _finished_of(_finished_decoder.decode(data))
    if kind == DEPLOYING:
        return _deploying_of(_deploying_decoder.decode(data))
    event = load(data) if kind == PICKLED else None
    if not isinstance(event, Event):
        raise ValueError(f"no event: kind {kind}")
    return event


def dump(value: Any) -> bytes:
    """Pickles plain data, such as :func:`load` takes."""
    return pickle.dumps(value, protocol=5)


def load(data: bytes) -> Any:
    """Unpickles plain data: events, what they hold, arrays. Raises ValueError for anything else, without having run any of it."""
    try:
        return _PlainUnpickler(_Reader(data)).load()
    except (pickle.UnpicklingError, AttributeError, EOFError, ImportError, IndexError, KeyError, TypeError) as error:
        raise ValueError(f"no plain data: {error}") from error


class _Reader:
    """Bytes as the unpickler reads them."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def read(self, size: int = -1, /) -> bytes:
        end = len(self._data) if size < 0 else self._at + size
        read = self._data[self._at : end]
        self._at += len(read)
        return read

    def readline(self) -> bytes:
        return self.read(self._data.find(b"\n", self._at) + 1 - self._at)


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _SINGLE:
            return super().find_class(module, name)
        if "." not in name and (module in _MODULES or module.startswith("firesteel.model.")):
            found = super().find_class(module, name)
            if isinstance(found, type) and found.__module__ == module:
                return found
        raise pickle.UnpicklingError(f"{module}.{name} is no plain data")


def _finished(event: ExecutionsFinished) -> _Finished:
    reports = event.reports
    return _Finished(
        event.at,
        event.id,
        event.vertex,
        _ints(event.subtasks),
        _ints(event.attempts),
        _ints(reports.tokens),
        _floats(reports.deployed_at),
        _floats(reports.running_at),
        _floats(reports.finished_at),
        _ints(reports.rows_in),
        _ints(reports.bytes_in),
        _ints(reports.rows_out),
        None if reports.nodes is None else reports.nodes.names,
        b"" if reports.nodes is None else reports.nodes.codes.tobytes(),
        [
            _Partition(
                p.dataset, _ints(p.bytes), _ints(p.rows), _ints(p.stored_bytes), p.sizes, p.sketches, p.heavy_keys
            )
            for p in reports.partitions
        ],
        reports.commits,
        None if reports.peak_memory is None else _ints(reports.peak_memory),
        list(map(step_reports.encode, reports.steps)),
    )


def _finished_of(told: _Finished) -> ExecutionsFinished:
    subtasks = _ints_of(told.subtasks)
    reports = ExecutionReports(
        _ints_of(told.tokens),
        _floats_of(told.deployed_at),
        _floats_of(told.running_at),
        _floats_of(told.finished_at),
        _ints_of(told.rows_in),
        _ints_of(told.bytes_in),
        _ints_of(told.rows_out),
        None if told.names is None else Names(told.names, np.frombuffer(told.codes, np.int32)),
        tuple(
            PartitionReports(
                p.dataset,
                _ints_of(p.written),
                _ints_of(p.rows),
                _ints_of(p.stored_bytes),
                p.sizes,
                p.sketches,
                p.heavy_keys,
            )
            for p in told.partitions
        ),
        told.commits,
        None if told.peak_memory is None else _ints_of(told.peak_memory),
        list(map(step_reports.decode, told.steps)),
    )
    return ExecutionsFinished(
        at=told.at,
        id=told.id,
        vertex=told.vertex,
        subtasks=subtasks,
        attempts=_ints_of(told.attempts),
        reports=reports,
    )


def _deploying(event: ExecutionsDeploying) -> _Deploying:
    times = None if event.times is None else _floats(event.times)
    columns = _ints(event.subtasks), _ints(event.attempts)
    return _Deploying(event.at, event.id, event.vertex, *columns, event.running, event.nodes, times, event.executors)


def _deploying_of(told: _Deploying) -> ExecutionsDeploying:
    return ExecutionsDeploying(
        at=told.at,
        id=told.id,
        vertex=told.vertex,
        subtasks=_ints_of(told.subtasks),
        attempts=_ints_of(told.attempts),
        running=told.running,
        nodes=told.nodes,
        times=None if told.times is None else _floats_of(told.times),
        executors=told.executors,
    )


def _ints(column: Ints) -> bytes:
    return np.asarray(column, np.int64).tobytes()


def _floats(column: Floats) -> bytes:
    return np.asarray(column, np.float64).tobytes()


def _ints_of(data: bytes) -> Ints:
    return np.frombuffer(data, np.int64)


def _floats_of(data: bytes) -> Floats:
    return np.frombuffer(data, np.float64)
