"""Runs a compiled job here: one vertex after another, each in one subtask, by the code that runs in Spark's tasks.

The programs are used as they are, not copies that were pickled: breakpoints in the users' functions stop, and what they raise is raised
here, with its own traceback. Results between vertices lie in a temporary folder until their last reader has finished.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from firesteel.compile.compiled import CompiledJob
from firesteel.model.job_graph import JobVertex
from firesteel.options import MEMORY_PER_TASK, MIB, Options
from firesteel.results.reader import GateReader
from firesteel.results.storage.store import ResultStore, object_name
from firesteel.task.batches import whole
from firesteel.task.functions.instances import let_go
from firesteel.task.functions.user_code import UserFunctionError
from firesteel.task.program import Gate, TaskContext
from firesteel.task.runner import run_task

MEMORY = 256 * MIB
"""Bytes that a vertex may hold before it spills, unless ``firesteel.memory.per-task`` says another number."""
_ONLY = np.zeros(1, dtype=np.int64)
"""Attempt and token of the only partition of a result."""
_WHOLE = np.array([[0, 1, 0, 1]], dtype=np.int32)


def run(compiled: CompiledJob, options: Options) -> dict[int, pa.Table]:
    """The rows of each collect, by its number. The job has no sinks, and no parts that Spark computes. What its functions set up is
    closed.

    Raises what a user's function raised, with a note that names the step, else a FiresteelError.
    """
    with tempfile.TemporaryDirectory(prefix="firesteel-local-") as folder:
        try:
            return _Run(compiled, options, Path(folder)).run()
        finally:
            let_go()


class _Run:
    def __init__(self, compiled: CompiledJob, options: Options, folder: Path) -> None:
        self._compiled, self._memory = compiled, options[MEMORY_PER_TASK] or MEMORY
        self._store = ResultStore(str(folder))
        self._scratch = folder / "scratch"
        graph = compiled.job_graph
        self._unread = {dataset.id: len(graph.consumers(dataset.id)) for dataset in graph.datasets}

    def run(self) -> dict[int, pa.Table]:
        self._scratch.mkdir()
        for vertex in self._compiled.job_graph.vertices:
            try:
                self._run_vertex(vertex)
            except UserFunctionError as error:
                raised = _own(error, vertex, self._compiled.places)
            else:
                continue
            raise raised  # outside of the block above: in there ours would become the context of the user's
        return {handle: self._table(dataset) for handle, dataset in self._compiled.collects.items()}

    def _run_vertex(self, vertex: JobVertex) -> None:
        context = TaskContext(
            job_id="local",
            vertex=vertex.id,
            vertex_name=vertex.name,
            subtask=0,
            attempt=0,
            parallelism=1,
            token=0,
            memory_budget=self._memory,
            scratch=self._scratch,
        )
        run_task(
            vertex.program,
            context,
            [self._gate(edge.dataset) for edge in vertex.inputs],
            self._compiled.splits.get(vertex.id, ()),
            self._store,
            dict.fromkeys(vertex.outputs, 1),
            "none",
        )
        for edge in vertex.inputs:
            self._has_read(edge.dataset)

    def _gate(self, dataset: int) -> Gate:
        """All of a result: its only partition, in one subpartition or one range."""
        in_order = self._compiled.job_graph.datasets[dataset].order is not None
        return Gate(dataset, 1, _ONLY, _ONLY, _WHOLE, boundaries=() if in_order else None)

    def _has_read(self, dataset: int) -> None:
        self._unread[dataset] -= 1
        if self._unread[dataset] == 0 and not self._compiled.job_graph.datasets[dataset].persistent:
            self._store.delete([object_name(dataset, 0, 0, 0)])

    def _table(self, dataset: int) -> pa.Table:
        schema = self._compiled.schemas[dataset]
        return whole(GateReader(self._store, dataset, schema, 1, _ONLY, _ONLY, _WHOLE).read(), schema)


def _own(error: UserFunctionError, vertex: JobVertex, places: Mapping[int, str]) -> BaseException:
    """Returns what the user's function raised, with a note of ours; the error itself where its complaint is ours."""
    raised = error.__cause__
    if raised is None:
        return error
    place = places.get(vertex.id)
    raised.add_note(f"firesteel: {error.message.rstrip('.')}{f' ({place})' if place else ''}.")
    return raised
