"""The fingerprints of a compiled job's vertices. Taken before its sinks begin, and before anything is read.

Sources are known split by split: rows that travel in the split, files as their storage tells them apart, what a source says itself.
A file is known by its path, size and time of change. On the local file system by the time of the change of its status too, which nobody can
set back. One that was changed just now counts as not known: it could change again within the same tick of its storage's clock.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from firesteel.compile.attempts import SAID_BY_USER
from firesteel.compile.compiled import CompiledJob
from firesteel.compile.identity.facts import Fact, VertexPrint, digest, limited, of_names
from firesteel.compile.identity.modules import library_version, local_time, python_version
from firesteel.compile.identity.named import ALWAYS
from firesteel.compile.identity.walk import Known, Walk
from firesteel.connectors.base import Split
from firesteel.connectors.files.paths import WRITTEN_ONCE, InputFile, Location, local_path
from firesteel.connectors.files.reading.source import FileSource
from firesteel.connectors.memory import RangeSource, TableSource
from firesteel.connectors.stored import StoredSource
from firesteel.errors import UsageError, error_words
from firesteel.model.job_graph import JobVertex
from firesteel.task.program import ResultOutput, SinkOutput, SourceHead, SparkHead, VertexProgram

_SETTLED = 2_000_000_000
"""Nanoseconds after which a file that changes gets another time: object stores count whole seconds."""


@dataclass(frozen=True, slots=True)
class InputPrints:
    """``splits``: 16 bytes for each, in order; None: nobody can tell whether it gives the same rows. ``why``: of the first such, in words that follow
    the vertex' name."""

    splits: tuple[bytes | None, ...]
    why: str = ""

    @property
    def whole(self) -> bytes | None:
        """Of all splits in order; None where one is not known."""
        known = [one for one in self.splits if one is not None]
        return digest(*known) if len(known) == len(self.splits) and not self.why else None


def input_prints(source: Any, splits: Sequence[Split], now_ns: int, known: Known) -> InputPrints:
    """``now_ns``: since 1970, before anything is read."""
    walk = Walk(known)
    if isinstance(source, FileSource):
        return _of_files(walk, source, splits, now_ns)
    if isinstance(source, TableSource | RangeSource):
        return InputPrints(tuple(digest(walk.encoded(split.payload)) for split in splits))
    if isinstance(source, StoredSource):
        return _none(splits, "reads rows that an earlier job of the same process has kept")
    return _of_users(walk, source, splits)


def _none(splits: Sequence[Split], why: str) -> InputPrints:
    return InputPrints((None,) * len(splits), why)


def _of_users(walk: Walk, source: Any, splits: Sequence[Split]) -> InputPrints:
    says = getattr(source, "fingerprint", None)
    try:
        told = None if says is None else says()
    except Exception as error:
        raise UsageError(
            f"fingerprint() of source '{source.name}' failed: {error_words(error)}.",
            hint="Let it return None where it does not know.",
        ) from error
    if told is not None and not isinstance(told, bytes):
        raise UsageError(
            f"fingerprint() of source '{source.name}' gave a {type(told).__name__}.",
            hint="Let it return bytes that are others whenever its rows are, or None.",
        )
    if told is None:
        return _none(splits, f"reads {source.name}, which does not say by a fingerprint whether its rows are the same")
    found = tuple(digest(told, walk.encoded(split.payload)) for split in splits)
    return InputPrints(found, next(iter(walk.reasons()), ""))


def _of_files(walk: Walk, source: FileSource, splits: Sequence[Split], now_ns: int) -> InputPrints:
    files = {file.path: file for file in source.found.files}
    place = Location(source.found.filesystem, "", source.found.prefix)
    versions: dict[str, bytes | None] = {}
    found: list[bytes | None] = []
    why = ""
    for split in splits:
        paths = source.paths_of(split.payload)
        for path in paths:
            if path not in versions:
                versions[path] = _version(files[path], place.at(path), now_ns)
        unknown = next((path for path in paths if versions[path] is None), None)
        if unknown is not None:
            why = why or f"reads {place.at(unknown).label}, of which it is not known whether it has changed since"
        found.append(None if unknown is not None else digest(walk.encoded(split.payload), *_told(versions, paths)))
    return InputPrints(tuple(found), why)


def _told(versions: Mapping[str, bytes | None], paths: Sequence[str]) -> list[bytes]:
    return [versions[path] or b"" for path in dict.fromkeys(paths)]


def _version(file: InputFile, place: Location, now_ns: int) -> bytes | None:
    """None: it says too little."""
    changed = ""
    if file.version not in ("", WRITTEN_ONCE):
        local = local_path(place)
        try:
            times = [int(file.version), *([local.stat().st_ctime_ns] if local is not None else [])]
        except OSError:
            return None
        if max(times) > now_ns - _SETTLED:
            return None
        changed = " ".join(map(str, times))
    return of_names(file.path, str(file.size), changed or file.version) if file.version else None


_DATAFRAME = "reads a DataFrame, whose rows Spark computes anew"


@dataclass(frozen=True, slots=True)
class _SinkPrint:
    digest: bytes
    facts: dict[str, Fact]
    unprovable: dict[str, None]


class JobPrints:
    """``vertices``: of all vertices, by number, as they were compiled. ``now_ns``: since 1970; None: the machine's clock. ``pure``: names of
    modules and functions of libraries that the user says are pure."""

    def __init__(self, job: CompiledJob, now_ns: int | None = None, pure: Collection[str] = ()) -> None:
        self.known = Known(pure)
        self._now = time.time_ns() if now_ns is None else now_ns
        self._sinks: dict[int, tuple[Any, _SinkPrint]] = {}
        self.vertices = [self._of_vertex(job, vertex) for vertex in job.job_graph.vertices]

    def of_program(self, program: VertexProgram) -> VertexPrint:
        """Of a program that was made since, of one or several of the job's: of a vertex that absorbed another. Says nothing of its input."""
        return self._of_program(program)

    def read(self, source: Any, splits: Sequence[Split]) -> bytes | None:
        """Of all that a source reads; None: nobody can tell. What has changed since the fingerprints were made is not known."""
        return input_prints(source, splits, self._now, self.known).whole

    def _of_vertex(self, job: CompiledJob, vertex: JobVertex) -> VertexPrint:
        made = self._of_program(vertex.program)
        unprovable = list(made.unprovable)
        if vertex.other_rows.startswith(SAID_BY_USER):
            unprovable.append(f"may give other rows ({vertex.other_rows})")
        read: bytes | None = b""
        if isinstance(vertex.program.head, SparkHead):
            read, unprovable = None, [*unprovable, _DATAFRAME]
        elif isinstance(vertex.program.head, SourceHead):
            prints = input_prints(vertex.program.head.source, job.splits[vertex.id], self._now, self.known)
            read, unprovable = prints.whole, [*unprovable, *([prints.why] if prints.why else [])]
        return replace(made, input=read, unprovable=tuple(unprovable))

    def _of_program(self, program: VertexProgram) -> VertexPrint:
        walk = Walk(self.known, _routes(program), dict(program.builds))
        for name, version in _always():
            walk.note(f"library {name}", of_names(version), version)
        parts = [digest(name.encode(), found) for name, found in self._parts(walk, program)]
        whole = digest(*parts, walk.finish(), *(of_names(*one) for one in _always()))
        return VertexPrint(whole, b"", limited(dict(sorted(walk.facts.items()))), tuple(sorted(walk.reasons())))

    def _parts(self, walk: Walk, program: VertexProgram) -> Iterator[tuple[str, bytes]]:
        """The parts of the program, each with its digest, which are noted."""
        head = program.head
        name = f"source {getattr(head.source, 'name', '')}" if isinstance(head, SourceHead) else "step that begins it"
        yield self._noted(walk, name, digest(walk.encoded(head)))
        for operator in program.operators:
            yield self._noted(walk, f"step {operator.name}", digest(walk.encoded(operator)))
        for place, output in enumerate(program.outputs):
            if isinstance(output, SinkOutput):
                yield self._noted(walk, f"sink {getattr(output.sink, 'name', place)}", self._sink(walk, output.sink))
            else:
                assert isinstance(output, ResultOutput)
                yield self._noted(walk, f"step that ends in output {place}", digest(walk.encoded(output)))
        gates = program.gate_schemas, program.orders, program.side_inputs, tuple(gate for _, gate in program.builds)
        yield self._noted(walk, "step that reads its inputs", digest(walk.encoded(gates)))

    @staticmethod
    def _noted(walk: Walk, name: str, found: bytes) -> tuple[str, bytes]:
        walk.note(name, found)
        return name, found

    def _sink(self, walk: Walk, sink: Any) -> bytes:
        """A sink of the user's is looked into once: it may hold the job's id when that runs."""
        if id(sink) not in self._sinks:
            own = Walk(self.known)
            whole = digest(own.encoded(sink), own.finish())
            self._sinks[id(sink)] = sink, _SinkPrint(whole, own.facts, dict.fromkeys(own.reasons()))
        found = self._sinks[id(sink)][1]
        for name, fact in found.facts.items():
            walk.note(name, fact.digest, fact.shown)
        walk.unprovable |= found.unprovable
        return found.digest


def _routes(program: VertexProgram) -> dict[int, int]:
    outputs = [(place, one.route) for place, one in enumerate(program.outputs) if isinstance(one, ResultOutput)]
    return {route: place for place, route in outputs if route is not None}


def _always() -> list[tuple[str, str]]:
    return [
        ("Python", python_version()),
        ("of local time", local_time()),
        *((name, library_version(name) or "") for name in ALWAYS),
    ]
