"""Sources narrowed by the keys of finished inputs: the keys are read, and the splits listed anew, in a thread of their own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from firesteel.compile.adaptive.narrowing import Keys, Narrowed, narrowed
from firesteel.compile.compiled import CompiledJob
from firesteel.model.absorbing import worker_of
from firesteel.results.reader import GateReader
from firesteel.scheduler.kernel.commands import GateDescriptor, NarrowSource
from firesteel.scheduler.kernel.events import SourceNarrowed
from firesteel.spark.driver.serialise import serialise_program
from firesteel.spark.driver.threads import aside
from firesteel.task.executor.failures import describe_failure
from firesteel.task.program import SourceHead, TakesKeys

_log = logging.getLogger("firesteel.spark")


@dataclass(frozen=True, slots=True)
class NarrowingDone:
    """Put on the job's queue, once for each command. ``found``: None where nothing came of it, for ``reason``."""

    vertex: int
    found: Narrowed | None
    reason: str = ""


class Narrowing:
    """``report`` is called in other threads; ``volume``: bytes per task."""

    def __init__(self, compiled: CompiledJob, store: Any, volume: int, report: Callable[[NarrowingDone], None]) -> None:
        self._compiled, self._store, self._volume, self._report = compiled, store, volume, report

    def start(self, command: NarrowSource) -> None:
        """Returns at once; the answer comes whatever goes wrong."""
        graph = self._compiled.job_graph
        vertex = graph.vertices[command.vertex]
        head, first = vertex.program.head, next(iter(vertex.program.operators), None)
        assert isinstance(head, SourceHead)
        held = {edge.dataset for edge in vertex.inputs if edge.whole}
        schemas = [self._compiled.schemas[found.dataset] for found in command.filters]
        splits = self._compiled.splits[command.vertex]

        def run() -> None:
            try:
                keys = [
                    Keys(found, self._keys(gate, schema, found.keys), found.dataset in held)
                    for found, gate, schema in zip(command.filters, command.gates, schemas, strict=True)
                ]
                found = narrowed(head.source, splits, keys, self._volume, takes_keys=isinstance(first, TakesKeys))
                done = NarrowingDone(command.vertex, found)
            except Exception as error:  # it reads all there is, and whoever reads a lost result says so
                _log.debug("vertex %s was not narrowed", command.vertex, exc_info=error)
                done = NarrowingDone(command.vertex, None, describe_failure(error).message)
            self._report(done)

        aside(run, "firesteel-narrowing")

    def apply(self, done: NarrowingDone, programs: dict[int, bytes], now: float) -> SourceNarrowed:
        """In the job's thread: changes what is deployed from here on; returns the word for the scheduler."""
        if done.found is None:
            return SourceNarrowed(
                at=now, vertex=done.vertex, split_bytes=None, found=f"keys cannot be read: {done.reason}"
            )
        graph, found = self._compiled.job_graph, done.found
        number = worker_of(graph, done.vertex)
        vertex = graph.vertices[number] = replace(
            graph.vertices[number], program=found.program(graph.vertices[number].program)
        )
        programs[vertex.id] = serialise_program(self._compiled, vertex)
        sizes = None
        if found.splits is not None:
            self._compiled.splits[vertex.id] = found.splits
            sizes = np.array([split.bytes for split in found.splits], np.int64)
        return SourceNarrowed(at=now, vertex=done.vertex, split_bytes=sizes, found=found.found)

    def _keys(self, gate: GateDescriptor, schema: pa.Schema, names: Sequence[str]) -> pa.Table:
        whole = np.array([[0, len(gate.attempts), 0, gate.num_subpartitions]], np.int32)
        objects = gate.attempts, gate.tokens, whole, gate.partitions, gate.columns.merged
        reader = GateReader(self._store, gate.dataset, schema, gate.num_subpartitions, *objects)
        batches = (batch.select(list(names)) for batch in reader.read())
        return pa.Table.from_batches(batches, pa.schema([schema.field(name) for name in names]))
