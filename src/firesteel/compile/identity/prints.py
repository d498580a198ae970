"""The fingerprints of a compiled job's vertices. Taken before its sinks begin, and before anything is read."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from firesteel.compile.attempts import SAID_BY_USER
from firesteel.compile.compiled import CompiledJob
from firesteel.compile.identity import inputs
from firesteel.compile.identity.facts import Fact, VertexPrint, digest, limited, of_names
from firesteel.compile.identity.modules import library_version, local_time, python_version
from firesteel.compile.identity.named import ALWAYS
from firesteel.compile.identity.walk import Known, Walk
from firesteel.connectors.base import Split
from firesteel.model.job_graph import JobVertex
from firesteel.task.program import ResultOutput, SinkOutput, SourceHead, SparkHead, VertexProgram

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
        self._known = Known(pure)
        self._now = time.time_ns() if now_ns is None else now_ns
        self._sinks: dict[int, tuple[Any, _SinkPrint]] = {}
        self.vertices = [self._of_vertex(job, vertex) for vertex in job.job_graph.vertices]

    def of_program(self, program: VertexProgram) -> VertexPrint:
        """Of a program that was made since, of one or several of the job's: of a vertex that absorbed another. Says nothing of its input."""
        return self._of_program(program)

    def read(self, source: Any, splits: Sequence[Split]) -> bytes | None:
        """Of all that a source reads; None: nobody can tell. What has changed since the fingerprints were made is not known."""
        return inputs.input_prints(source, splits, self._now).whole

    def _of_vertex(self, job: CompiledJob, vertex: JobVertex) -> VertexPrint:
        made = self._of_program(vertex.program)
        unprovable = list(made.unprovable)
        if vertex.other_rows.startswith(SAID_BY_USER):
            unprovable.append(f"may give other rows ({vertex.other_rows})")
        read: bytes | None = b""
        if isinstance(vertex.program.head, SparkHead):
            read, unprovable = None, [*unprovable, _DATAFRAME]
        elif isinstance(vertex.program.head, SourceHead):
            prints = inputs.input_prints(vertex.program.head.source, job.splits[vertex.id], self._now)
            read, unprovable = prints.whole, [*unprovable, *([prints.why] if prints.why else [])]
        return replace(made, input=read, unprovable=tuple(unprovable))

    def _of_program(self, program: VertexProgram) -> VertexPrint:
        walk = Walk(self._known, _routes(program), dict(program.builds))
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
            own = Walk(self._known)
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
