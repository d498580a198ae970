"""Identities of vertices as they are deployed: all that their executions do, but for what each of them reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from firesteel.compile.compiled import CompiledJob
from firesteel.compile.identity.facts import digest
from firesteel.compile.identity.prints import JobPrints
from firesteel.model.absorbing import worker_of
from firesteel.task.program import ResultOutput, SourceHead, VertexProgram

UNKNOWN = b""


def outputs_of(compiled: CompiledJob, vertex: int) -> tuple[int, ...]:
    """The data sets that a vertex writes, in the order of its program's outputs."""
    program: VertexProgram = compiled.job_graph.vertices[vertex].program
    return tuple(output.dataset for output in program.outputs if isinstance(output, ResultOutput))


class Identities:
    """``prints``: made when the job was compiled; None: nobody could."""

    def __init__(self, compiled: CompiledJob, prints: JobPrints | None) -> None:
        """``compiled``: as it is deployed. Its graph changes while the job runs; no source has been narrowed yet."""
        self._compiled, self._prints = compiled, prints
        self._listed = {id(splits): vertex for vertex, splits in compiled.splits.items()}
        self._splits = list(compiled.splits.values())  # so that no other list gets the number of one of them
        self._known: dict[int, tuple[Any, Any, bytes]] = {}

    def of(self, vertex: int, subpartitions: Mapping[int, int]) -> bytes:
        """``subpartitions``: data set to how many of them it writes. Empty: it may do something else when it does the same."""
        graph, splits = self._compiled.job_graph, self._compiled.splits.get(vertex)
        program = graph.vertices[vertex].program
        known = self._known.get(vertex)
        if known is None or known[0] is not program or known[1] is not splits:
            known = self._known[vertex] = (program, splits, self._made(vertex, program, splits))
        if known[2] == UNKNOWN:
            return UNKNOWN
        counts = [subpartitions[dataset] for dataset in outputs_of(self._compiled, vertex)]
        return digest(known[2], *(count.to_bytes(8, "little") for count in counts))

    def _made(self, vertex: int, program: VertexProgram, splits: Sequence[Any] | None) -> bytes:
        prints, graph = self._prints, self._compiled.job_graph
        if prints is None:
            return UNKNOWN
        made = prints.of_program(program)
        parts = [one for one in range(len(graph.vertices)) if worker_of(graph, one) == vertex]
        if made.unprovable or any(prints.vertices[part].unprovable for part in parts):
            return UNKNOWN
        read: bytes | None = b""
        if splits is not None:
            listed = self._listed.get(id(splits))
            read = self._read(prints, program, splits) if listed is None else prints.vertices[listed].input
        return UNKNOWN if read is None else digest(made.program, read)

    @staticmethod
    def _read(prints: JobPrints, program: VertexProgram, splits: Sequence[Any]) -> bytes | None:
        """Of splits that were listed anew."""
        return prints.read(program.head.source, splits) if isinstance(program.head, SourceHead) else None
