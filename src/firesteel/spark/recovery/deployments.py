"""Deployments before they are carried out: executions that an earlier job has finished are answered by what it left, the others run.

An answer is an ordinary ``ExecutionsFinished``, with the report of then, behind links to the objects of then. So the scheduler knows
nothing of it, and a restart, a lost object or a cancellation is what it always is.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

import msgspec
import numpy as np

from firesteel.compile.compiled import CompiledJob
from firesteel.compile.identity.facts import digest
from firesteel.compile.identity.prints import JobPrints
from firesteel.model.absorbing import worker_of
from firesteel.model.descriptors import DIGEST_BYTES
from firesteel.results.storage.store import object_name
from firesteel.scheduler.kernel import events as ev
from firesteel.scheduler.kernel.commands import (
    Deploy,
    DeployRegions,
    GateDescriptor,
    InputRanges,
    MergePartitions,
    Record,
)
from firesteel.scheduler.kernel.decisions import KeptSubtasks
from firesteel.scheduler.kernel.records import Decision
from firesteel.scheduler.recovery.earlier import FinishedExecution, execution_key
from firesteel.scheduler.recovery.facts import facts_of
from firesteel.scheduler.recovery.reconcile import not_merged
from firesteel.scheduler.recovery.records import Identified, Kept
from firesteel.spark.recovery.gate import Execute, Gate, Now, Put
from firesteel.spark.recovery.kept_objects import KeptObjects, Link
from firesteel.spark.storage.cleaning import Cleaner
from firesteel.task.program import ResultOutput, SourceHead, VertexProgram

_log = logging.getLogger("firesteel.recovery")
Deployment = Deploy | DeployRegions
_ALL = ""
_GONE = ev.FailureCause(ev.FailureKind.DRIVER, "what it reads was not kept from an earlier job")


class Deployments:
    """All run: nothing is known of other jobs, and nobody will ask for this one's executions."""

    def left(self, command: Deployment) -> Deployment | None:
        """Returns what is to be run of a deployment; None: nothing."""
        return command

    def merge(self, command: MergePartitions, start: Callable[[MergePartitions], None]) -> None:
        """Has it merged by ``start``, if that can be."""
        start(command)

    def close(self) -> None:
        """Waits for what was begun."""


@dataclass(frozen=True, slots=True)
class Port:
    """The job's driver, as deployments need it. ``put``: on its queue; ``commits``: takes those of an execution (``Outputs.commits``)."""

    gate: Gate
    put: Put
    now: Now
    execute: Execute
    commits: dict[tuple[int, int, int, int], tuple[bytes, ...]] = field(
        default_factory=dict[tuple[int, int, int, int], "tuple[bytes, ...]"]
    )


class Noted(Deployments):
    """Each execution is written to the log with its identity, so that a later job may find it."""

    def __init__(self, compiled: CompiledJob, identities: Identities, gate: Gate) -> None:
        self._compiled, self._identities, self._gate = compiled, identities, gate

    def left(self, command: Deployment) -> Deployment | None:
        if isinstance(command, Deploy):
            self.note(command)
        return command

    def note(self, command: Deploy) -> bytes:
        """Returns the identity of the executions."""
        identity = self._identities.of(command.vertex, command.subpartitions)
        columns = (column.astype(np.int32).tobytes() for column in (command.subtasks, command.attempts))
        self._gate.note(Identified(command.vertex, identity, outputs_of(self._compiled, command.vertex), *columns))
        return identity


class Answered(Deployments):
    """``kept``: the executions of earlier jobs, each to be used once. ``job_id``: of the last of those jobs."""

    def __init__(self, noted: Noted, compiled: CompiledJob, kept: KeptObjects, store: Any, port: Port) -> None:
        self._noted, self._compiled, self._kept, self._port = noted, compiled, kept, port
        self._worker = Cleaner(store, kept.job_id, "kept")
        self._absent: dict[int, dict[int, int]] = {}
        """Data set, partition and token of what was answered although its object is gone. Written by the worker, before it tells."""
        self._story: dict[int, Counter[str]] = {}
        """By vertex: executions that were kept, by job; and all, as those of no job."""

    def left(self, command: Deployment) -> Deployment | None:
        """Executions that pipeline their rows run together, or not at all: they always run."""
        if isinstance(command, DeployRegions):
            return command
        identity = self._noted.note(command)
        found = self._found(command, identity)
        if found:
            self._worker.call(lambda: self._answer(command, found))
        self._tell(command, Counter(self._kept.job_of(one) for _, one in found))
        rest = np.setdiff1d(np.arange(len(command.subtasks)), [place for place, _ in found])
        return self._readable(command.select(rest)) if len(rest) else None

    def merge(self, command: MergePartitions, start: Callable[[MergePartitions], None]) -> None:
        """Objects that are gone are merged by nobody: whoever reads them is kept, too, or has them made again."""
        gate = command.gate
        if len(self._absent_of(gate)):
            self._port.put(not_merged(gate.dataset, command.merge, self._port.now(), "they were not kept"))
        else:
            start(command)

    def close(self) -> None:
        self._kept.close()
        self._worker.close()

    def _found(self, command: Deploy, identity: bytes) -> list[tuple[int, FinishedExecution]]:
        """Places of executions, each with the one that answers it."""
        if identity == UNKNOWN:
            return []
        (fact,) = facts_of([command])
        persistent = self._is_persistent(command)
        keys = [fact.inputs[at : at + DIGEST_BYTES] for at in range(0, len(fact.inputs), DIGEST_BYTES)]
        taken = ((k, self._kept.take(execution_key(identity, key), whole=persistent)) for k, key in enumerate(keys))
        return [(place, one) for place, one in taken if one is not None]

    def _is_persistent(self, command: Deploy) -> bool:
        datasets = self._compiled.job_graph.datasets
        return any(datasets[dataset].persistent for dataset in command.subpartitions)

    def _tell(self, command: Deploy, kept: Counter[str]) -> None:
        """Once, when all subtasks of the vertex were deployed."""
        story = self._story.setdefault(command.vertex, Counter())
        before = story[_ALL]
        story.update(kept)
        story[_ALL] += len(command.subtasks)
        jobs = sorted(story.keys() - {_ALL})
        if not jobs or not before < command.parallelism <= story[_ALL]:
            return
        name, count = self._compiled.job_graph.vertices[command.vertex].name, story.total() - story[_ALL]
        facts = KeptSubtasks(job=jobs[0], jobs=jobs, kept=count, subtasks=command.parallelism)
        decision = Decision(
            at=self._port.now(),
            what="reuse" if self._kept.shared else "resume",
            vertex=command.vertex,
            name=name,
            inputs=msgspec.to_builtins(facts),
            rule="executions of the same program that have read the same",
            result="kept",
        )
        self._port.execute(Record(decision))

    # --- in the worker's thread ---

    def _answer(self, command: Deploy, found: Sequence[tuple[int, FinishedExecution]]) -> None:
        """Each execution is answered, whatever happens: the scheduler waits for it."""
        try:
            self._bring_all(command, found)
        except Exception:
            _log.debug("vertex %s is not kept", command.vertex, exc_info=True)
            self._port.put(self._failed(command, np.array([place for place, _ in found])))

    def _bring_all(self, command: Deploy, found: Sequence[tuple[int, FinishedExecution]]) -> None:
        """Links their objects; one event for all that one event had told of."""
        datasets = outputs_of(self._compiled, command.vertex)
        there = self._kept.link_all([link for place, one in found for link in _links(command, place, one, datasets)])
        failed: list[int] = []
        for _, run in groupby(found, lambda one: id(one[1].event)):
            own: list[tuple[int, FinishedExecution]] = []
            for place, one in run:
                gone = [dataset for dataset in datasets if not next(there)]
                if self._does_without(gone, int(command.subtasks[place]), one.token):
                    own.append((place, one))
                else:
                    failed.append(place)
            if own:
                self._port.put(self._finished(command, own, datasets))
        if failed:
            self._port.put(self._failed(command, np.array(failed)))

    def _does_without(self, gone: Sequence[int], subtask: int, token: int) -> bool:
        """``gone``: data sets of which the execution's objects are. False: one of them is needed for certain."""
        if any(self._compiled.job_graph.datasets[dataset].persistent for dataset in gone):
            return False
        for dataset in gone:
            self._absent.setdefault(dataset, {})[subtask] = token
        return True

    def _finished(
        self, command: Deploy, own: Sequence[tuple[int, FinishedExecution]], datasets: Sequence[int]
    ) -> ev.ExecutionsFinished:
        places = np.array([place for place, _ in own])
        subtasks, attempts = command.subtasks[places], command.attempts[places]
        first = own[0][1]
        renamed = dict(zip(first.datasets, datasets, strict=True))
        reports = first.event.reports.select(np.array([one.place for _, one in own]))
        partitions = tuple(replace(one, dataset=renamed[one.dataset]) for one in reports.partitions)
        for subtask, attempt, (_, one) in zip(subtasks.tolist(), attempts.tolist(), own, strict=True):
            if one.commits:
                self._port.commits[command.vertex, subtask, attempt, one.token] = one.commits
        self._port.gate.note(Kept(command.vertex, subtasks.astype(np.int32).tobytes(), self._kept.job_of(first)))
        return ev.ExecutionsFinished(
            at=self._port.now(),
            vertex=command.vertex,
            subtasks=subtasks,
            attempts=attempts,
            reports=replace(reports, partitions=partitions),
        )

    def _failed(self, command: Deploy, places: ev.Ints) -> ev.ExecutionsFailed:
        columns = command.subtasks[places], command.attempts[places]
        return ev.ExecutionsFailed(
            at=self._port.now(),
            vertex=command.vertex,
            subtasks=columns[0],
            attempts=columns[1],
            cause=_GONE,
            counted=False,
        )

    # --- what must run again because somebody has to read it ---

    def _readable(self, command: Deploy) -> Deploy | None:
        """The executions whose input is there. What the others miss is told as lost, and they are to be sent again behind it."""
        blocked = np.zeros(len(command.subtasks), np.bool_)
        for gate, ranges in zip(command.gates, command.ranges, strict=True):
            absent = self._absent_of(gate)
            if len(absent):
                reads = _reads(ranges, absent)
                blocked |= reads.any(axis=1)
                self._lose(gate, absent[reads.any(axis=0)])
        if not blocked.any():
            return command
        self._port.put(self._failed(command, np.flatnonzero(blocked)))
        rest = np.flatnonzero(~blocked)
        return command.select(rest) if len(rest) else None

    def _absent_of(self, gate: GateDescriptor) -> ev.Ints:
        """Partitions of the gate whose objects are gone, ascending."""
        absent = dict(self._absent.get(gate.dataset, {}))
        if not absent:
            return np.zeros(0, np.int64)
        numbers = np.arange(len(gate.tokens)) if gate.partitions is None else gate.partitions
        named = zip(numbers.tolist(), gate.tokens.tolist(), strict=True)
        return np.array([partition for partition, token in named if absent.get(partition) == token], np.int64)

    def _lose(self, gate: GateDescriptor, partitions: ev.Ints) -> None:
        if not len(partitions):
            return
        places = partitions if gate.partitions is None else np.searchsorted(gate.partitions, partitions)
        for partition in partitions.tolist():
            self._absent[gate.dataset].pop(partition, None)
        columns = gate.attempts[places], gate.tokens[places]
        self._port.put(
            ev.PartitionsLost(
                at=self._port.now(),
                dataset=gate.dataset,
                partitions=partitions,
                attempts=columns[0],
                tokens=columns[1],
                excused=True,
            )
        )


def _links(command: Deploy, place: int, one: FinishedExecution, datasets: Sequence[int]) -> Iterator[Link]:
    """Of the objects of one that answers the execution at this place. ``datasets``: that these are of now."""
    subtask, attempt = int(command.subtasks[place]), int(command.attempts[place])
    for old, new in zip(one.datasets, datasets, strict=True):
        yield one, old, object_name(new, subtask, attempt, one.token)


def _reads(ranges: InputRanges, partitions: ev.Ints) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """By subtask and partition (ascending): True where it reads something of it."""
    first, end = (np.searchsorted(partitions, ranges.rects[:, column]) for column in (0, 1))
    found = np.zeros((ranges.parallelism, len(partitions)), np.bool_)
    for subtask, low, high in _spans(ranges, first, end):
        found[subtask, low:high] = True
    return found


def _spans(ranges: InputRanges, first: ev.Ints, end: ev.Ints) -> Iterator[tuple[int, int, int]]:
    owners = np.repeat(np.arange(ranges.parallelism), np.diff(ranges.offsets))
    hits = np.flatnonzero(first < end)
    yield from zip(owners[hits].tolist(), first[hits].tolist(), end[hits].tolist(), strict=True)


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
