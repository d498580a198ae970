"""The state of one job, and the verbs that change it: policies read the one, and act by the others alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from firesteel.model.absorbing import Absorbing
from firesteel.model.arrays import Ints, compact, distinct
from firesteel.model.job_graph import JobGraph
from firesteel.options import OFFLOAD_THRESHOLD, Options
from firesteel.scheduler.deployment.descriptors import DeploymentDescriptorFactory
from firesteel.scheduler.inputs import DirectInputs, Inputs
from firesteel.scheduler.kernel.commands import (
    Cancel,
    Deploy,
    JobStatus,
    JobStatusChanged,
    Placement,
    VertexAbsorbed,
)
from firesteel.scheduler.kernel.events import FailureCause
from firesteel.scheduler.kernel.metrics import Metrics
from firesteel.scheduler.kernel.recorder import Recorder
from firesteel.scheduler.kernel.records import GraphChanged, JobStatusRecord
from firesteel.scheduler.kernel.states import IS_PENDING, JOB_STATUSES, SAME_SECONDS, ExecutionState
from firesteel.scheduler.kernel.timers import Timers
from firesteel.scheduler.nodes import Blocklist, Nodes
from firesteel.scheduler.policy import Hooks
from firesteel.scheduler.slots.allocators import ExecutionDeploymentOption, Slots
from firesteel.scheduler.topology.execution_graph import DefaultExecutionGraph, ExecutionJobVertex, IntermediateResult
from firesteel.scheduler.topology.executions import ExecutionTable, Rows
from firesteel.scheduler.topology.groups import EdgeGroups
from firesteel.scheduler.topology.planned import planned_vertex

_ACTIVE = (JobStatus.RUNNING, JobStatus.RESTARTING)


class Job:
    def __init__(self, job_graph: JobGraph, options: Options, inputs: Inputs, side_inputs: DirectInputs) -> None:
        self.options = options
        self.inputs = inputs
        self.side_inputs = side_inputs
        """Through which it asks the user's functions, and for numbers that are known late."""
        self.status = JobStatus.CREATED
        self.cause: FailureCause | None = None
        self._place: tuple[int | None, int | None] = (None, None)
        self.is_committing = False
        """The sinks are being published."""
        recorder = self.recorder = Recorder()
        self.timers = Timers(recorder)
        self.executions = ExecutionTable(recorder.story, len(job_graph.vertices))
        self.graph = DefaultExecutionGraph(
            job_graph.copy(),  # it may change while the job runs
            self.executions,
            recorder.emit,
            inputs.size_buffer_bytes,
            self._withdrawn,
        )
        self.nodes = Nodes()
        self.blocklist = Blocklist(self.nodes, recorder, self.timers)
        self.descriptors = DeploymentDescriptorFactory(self.graph, options[OFFLOAD_THRESHOLD], recorder)
        self.metrics = Metrics(self.graph, recorder)
        self.slots = Slots()
        self.candidates: dict[int, list[Ints]] = {}
        """By number of the block, which is its place in topological order: regions that may be able to run now."""
        self.joined: dict[tuple[int, bool], Rows] = {}
        """Executions that joined others of their subtask and wait for slots, by vertex, and whether they stay wherever Spark starts them."""
        self.hooks = Hooks()

    @property
    def is_active(self) -> bool:
        """Work goes on: RUNNING, or waiting for a restart's delay beside what runs."""
        return self.status in _ACTIVE

    @property
    def is_ending(self) -> bool:
        return self.status in (JobStatus.FAILING, JobStatus.CANCELLING)

    @property
    def goes_on(self) -> bool:
        """Something may still be decided or deployed."""
        return self.is_active and not self.is_committing

    # --- the job as a whole ------------------------------------------------------------------------------------

    def go(self, status: JobStatus, why: str = "") -> None:
        """To a status that does not end the job. No-op when it is there already."""
        if status is not self.status:
            self._change(status, JobStatusChanged(status), why)

    def fail(self, cause: FailureCause, vertex: int | None = None, subtask: int | None = None) -> None:
        """The first cause stays; what runs is cancelled."""
        if not self.is_active:
            return
        self.cause, self._place = cause, (vertex, subtask)
        self._change(JobStatus.FAILING, JobStatusChanged(JobStatus.FAILING, cause, vertex, subtask), cause.message)
        self._end_all(f"the job is failing: {cause.message}")

    def cancel_job(self, reason: str) -> None:
        if self.status is JobStatus.CREATED or self.is_active:
            self._change(JobStatus.CANCELLING, JobStatusChanged(JobStatus.CANCELLING), reason)
            self._end_all(reason)

    def end_if_nothing_runs(self) -> None:
        if not self.is_ending or self.executions.num_pending:
            return
        if self.status is JobStatus.CANCELLING:
            self._change(JobStatus.CANCELED, JobStatusChanged(JobStatus.CANCELED), "")
        else:
            command = JobStatusChanged(JobStatus.FAILED, self.cause, *self._place)
            self._change(JobStatus.FAILED, command, "" if self.cause is None else self.cause.message)

    def finish(self) -> None:
        self._change(JobStatus.FINISHED, JobStatusChanged(JobStatus.FINISHED), "")

    def _change(self, status: JobStatus, command: JobStatusChanged, why: str) -> None:
        if not JOB_STATUSES.allows(self.status, status):
            JOB_STATUSES.check(self.status, status, "The job", why, self.recorder.story())
        self.status = status
        if status.is_terminal:
            for job_ends in self.hooks.job_ends:
                job_ends()
            self.metrics.record()
        if status is JobStatus.FINISHED:
            results = [result for result in self.graph.results if result is not None and result.dataset.persistent]
            command = structs.replace(command, persistent=tuple(map(self.descriptors.gate, results)))
        self.recorder.record(
            JobStatusRecord(at=self.recorder.at, event=self.recorder.event, status=status.value, cause=why)
        )
        self.recorder.tell(f"the job is {status.value}{f': {why}' if why else ''}")
        self.recorder.emit(command)

    def _end_all(self, reason: str) -> None:
        """The job ends: nothing new starts, what runs is cancelled."""
        for vertex in self.graph.vertices:
            if vertex.is_initialized:
                self.cancel(vertex, vertex.deployed_rows(np.arange(vertex.parallelism)), reason)
                self.drop(vertex, vertex.created_rows(np.arange(vertex.parallelism)), reason)

    def _withdrawn(self, result: IntermediateResult, gone: Ints) -> None:
        for withdrawn in self.hooks.withdrawn:
            withdrawn(result, gone)

    # --- what may run ------------------------------------------------------------------------------------------

    def may_run(self, tasks: Mapping[int, Ints]) -> None:
        """Subtasks, by vertex, that were reset, whose delay is over, whose earlier attempt is gone, or whose input is ready."""
        for vertex, subtasks in tasks.items():
            block = self.graph.regions.block(vertex)
            regions = block.of(vertex, subtasks)
            self.candidates.setdefault(block.number, []).append(regions if block.is_trivial else distinct(regions))

    def readers_may_run(self, complete: Iterable[tuple[EdgeGroups, Ints]]) -> None:
        """The consumers of these groups may be able to run now."""
        for edge, groups in complete:
            # What the only region of a block makes for itself is not news to it, and it is large.
            waits = not edge.inside or self.graph.regions.block(edge.vertex).count > 1
            if len(groups) and waits:
                self.may_run({edge.vertex: edge.consumers(groups)})

    def absorb(self, change: Absorbing) -> None:
        """Let a vertex do the work of one before it. Neither is initialised."""
        graph, recorder = self.graph.job_graph, self.recorder
        producer = change.producer(graph)
        self.graph.absorb(change)
        recorder.emit(VertexAbsorbed(change.join, producer, change.build))
        vertex = planned_vertex(graph, graph.vertices[change.join])
        recorder.record(
            GraphChanged(at=recorder.at, event=recorder.event, absorbed=producer, into=change.join, vertex=vertex)
        )

    # --- executions --------------------------------------------------------------------------------------------

    def deploy(self, granted: ExecutionDeploymentOption, placement: Placement | None) -> Deploy:
        """These have slots; returns the command that starts them."""
        self.move(granted.vertex, granted.executions, ExecutionState.SCHEDULED)
        return self.descriptors.deploy(granted, placement)

    def move(
        self,
        vertex: int,
        rows: Rows,
        target: ExecutionState,
        at: float | NDArray[np.float64] | None = None,
        cause: str = "",
        *,
        peaks: Sequence[int] = (),
    ) -> tuple[Ints, Ints]:
        """Bring these (distinct) executions of one vertex to ``target``, and leave a record of it; ``at``: when, unless it was just now.
        ``peaks``: MiB, of those that finished. Returns their subtasks and attempt numbers."""
        names = self.names(rows)
        if not len(rows):
            return names
        self.executions.transition(rows, target, self.recorder.at if at is None else at)
        if cause:
            self.executions.set_cause(rows, cause)
        columns = self._columns(rows, target)
        if peaks:
            columns["peaks"] = list(peaks)
        self.recorder.states(vertex, target, *names, cause, **columns)
        if not IS_PENDING[target] and target != ExecutionState.CREATED:
            for ended in self.hooks.ended:
                ended(rows)
        return names

    def _columns(self, rows: Rows, target: ExecutionState) -> dict[str, list[Any]]:
        """Returns the columns that a state's record has beside names: where it runs, and of a finished one its times and its object."""
        if target not in (ExecutionState.DEPLOYING, ExecutionState.RUNNING, ExecutionState.FINISHED):
            return {}
        table, columns = self.executions, dict[str, list[Any]]()
        nodes = table.node[rows]
        if nodes.any():
            seen = np.bincount(nodes) > 0
            seen[0] = False  # not known
            hosts = [table.node_named(node) for node in np.flatnonzero(seen).tolist()]
            columns = {"hosts": hosts, "nodes": (np.cumsum(seen) - 1)[nodes].tolist()}
        entered = table.times(target, rows)
        if (np.abs(entered - self.recorder.at) > SAME_SECONDS).any():
            columns["times"] = entered.round(4).tolist()
        if target == ExecutionState.FINISHED:
            columns["deployed"] = table.times(ExecutionState.DEPLOYING, rows).round(4).tolist()
            columns["running"] = table.times(ExecutionState.RUNNING, rows).round(4).tolist()
            columns["tokens"] = table.token[rows].tolist()
        return columns

    def created(self, vertex: ExecutionJobVertex, rows: Rows, cause: str) -> None:
        """Record executions that came after the first ones: by a restart, or beside others."""
        table, columns = self.executions, dict[str, Any]()
        if not table.opens[rows].all():
            columns["beside"] = True
        if table.mirror[rows].any():
            columns["mirrors"] = table.mirror[rows].tolist()
        self.recorder.states(vertex.id, ExecutionState.CREATED, *self.names(rows), cause, **columns)

    def names(self, rows: Rows) -> tuple[Ints, Ints]:
        """Subtasks and attempt numbers of executions, int64."""
        table = self.executions
        return table.index[rows].astype(np.int64), compact(table.attempt[rows].astype(np.int64))

    def cancel(self, vertex: ExecutionJobVertex, rows: Rows, reason: str) -> None:
        """Cancel these deployed executions."""
        if len(rows):
            names = self.move(vertex.id, rows, ExecutionState.CANCELING, cause=reason)
            self.recorder.emit(Cancel(vertex.id, *names, reason))

    def drop(self, vertex: ExecutionJobVertex, rows: Rows, reason: str) -> None:
        """Notes that these executions will not be deployed."""
        self.move(vertex.id, rows, ExecutionState.CANCELED, cause=reason)
