"""Corrected scripts on simulated clusters: a random job is cut off, some of its steps are changed, and another job keeps what it can of it.

Which executions are kept is decided by the real code (``scheduler.recovery.earlier``, ``spark.recovery.deployments``); objects and threads are the simulation's.
A book of its own (:class:`Contents`) knows what each object holds, from the programs' versions and from what they were told to read. So a wrong answer is
seen where it is given, not where it is read.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
from tests.simulation.drivers import MortalDrivers, mortal
from tests.simulation.job import SimulatedJob
from tests.simulation.plane import Plane
from tests.simulation.random_jobs import RandomJob, random_job

from firesteel.errors import UsageError
from firesteel.model.absorbing import worker_of
from firesteel.model.arrays import Ints
from firesteel.model.job_graph import (
    IntermediateDataSet,
    JobGraph,
    JobVertex,
    ResultPartitionType,
    ShipStrategy,
    SourceInfo,
)
from firesteel.options import SPECULATIVE_ENABLED
from firesteel.scheduler.kernel import commands as c
from firesteel.scheduler.kernel import events as e
from firesteel.scheduler.recovery.earlier import FinishedExecution, earlier_job
from firesteel.scheduler.recovery.records import AnyLogRecord, Identified
from firesteel.simulation.cluster.runs import RunState
from firesteel.simulation.dice import Dice
from firesteel.simulation.job import Outcome
from firesteel.simulation.violation import check
from firesteel.simulation.workload import Workload
from firesteel.spark.recovery.deployments import Answered, Noted, Port
from firesteel.spark.recovery.kept_objects import KeptObjects, LeftJob
from firesteel.task.program import ResultOutput

Execution = tuple[int, int, int]
"""Vertex, subtask, attempt."""
NOTHING = pa.schema([])
LINK_SECONDS = 0.01


@dataclass(frozen=True)
class Script:
    """A job with versions of the programs of its vertices, by their uids; 0 where none is named."""

    job: RandomJob
    versions: Mapping[str, int]

    @property
    def graph(self) -> JobGraph:
        return self.job.graph

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Vertices by their uids, which stay where numbers do not."""
        return {vertex.uid: vertex.id for vertex in self.graph.vertices}

    @cached_property
    def lineages(self) -> dict[str, bytes]:
        """Of each vertex, by its uid: what it and all before it do."""
        found: dict[str, bytes] = {}
        for vertex in self.graph.vertices:
            parts = sorted(self.graph.vertices[one].uid for one in {vertex.id, *self.before(vertex.id)})
            found[vertex.uid] = _digest([(uid, self.versions.get(uid, 0)) for uid in parts])
        return found

    def before(self, vertex: int) -> set[int]:
        """All that its rows come from, however far."""
        read = self.producers(vertex)
        return set(read).union(*(self.before(one) for one in read))

    def producers(self, vertex: int) -> list[int]:
        """That it reads. (A source that another vertex's rows have narrowed does what nobody can tell, and is never kept: :class:`Notes`.)"""
        return [self.graph.datasets[edge.dataset].producer for edge in self.graph.vertices[vertex].inputs]

    def is_as_in(self, other: Script, uid: str) -> bool:
        """Returns whether the vertex and all before it do the same there."""
        return self.lineages[uid] == other.lineages.get(uid)

    def changed(self, rng: random.Random) -> dict[str, int]:
        """Versions: others of one or two steps, or of none."""
        uids = [vertex.uid for vertex in self.graph.vertices]
        chosen = rng.sample(uids, min(len(uids), rng.choice((0, 1, 1, 2))))
        return {**self.versions, **{uid: self.versions.get(uid, 0) + 1 for uid in chosen}}


NEW = "uid-new"


def _with_another_source(graph: JobGraph) -> JobGraph:
    """The same with a source before all others, so that each vertex and data set has another number."""
    kept = IntermediateDataSet(0, 0, ShipStrategy.GLOBAL, persistent=True)
    new = JobVertex(0, "new", NEW, outputs=[0], source=SourceInfo(np.array([5], np.int64)))
    moved = [
        replace(
            vertex,
            id=vertex.id + 1,
            inputs=[replace(edge, dataset=edge.dataset + 1) for edge in vertex.inputs],
            outputs=[dataset + 1 for dataset in vertex.outputs],
            filters=tuple(replace(f, join=f.join + 1, dataset=f.dataset + 1) for f in vertex.filters),
            first_step=None if vertex.first_step is None else vertex.first_step + 1,
        )
        for vertex in graph.vertices
    ]
    datasets = [replace(dataset, id=dataset.id + 1, producer=dataset.producer + 1) for dataset in graph.datasets]
    return JobGraph(graph.name, [new, *moved], [kept, *datasets], graph.slot_sharing_groups)


class Sizes(Workload):
    """What a vertex writes has the same sizes whatever its number is, and others where it, or one before it, is of another version."""

    def __init__(self, script: Script, like: Workload) -> None:
        vars(self).update(vars(like))
        self._row, self._total = lru_cache(1024)(self._make_row), lru_cache(1024)(self._add_up)
        first = replace(script, versions={})
        self._numbers: dict[int, int] = {}
        for dataset in script.graph.datasets:
            uid = script.graph.vertices[dataset.producer].uid
            other = 0 if script.is_as_in(first, uid) else 1 + script.lineages[uid][0]
            own = dataset.id - (NEW in script.numbers) if uid != NEW else 63
            self._numbers[dataset.id] = own + 64 * other

    def _span(self, dataset: int, *where: int) -> Ints:
        return super()._span(self._numbers[dataset], *where)


class Contents:
    """What each object of a job holds, as a digest. ``told``: of those that earlier jobs have written, by token."""

    def __init__(self, script: Script, told: dict[int, bytes]) -> None:
        self._script, self._told = script, told
        self._of: dict[Execution, bytes] = {}
        self._plane: Plane | None = None

    def serve(self, plane: Plane) -> None:
        self._plane = plane

    def deployed(self, command: c.Deploy) -> None:
        """What the deployed executions will have written."""
        program = self.program(command.vertex)
        for place, (subtask, attempt) in enumerate(
            zip(command.subtasks.tolist(), command.attempts.tolist(), strict=True)
        ):
            read = [self._read(gate, ranges, place) for gate, ranges in zip(command.gates, command.ranges, strict=True)]
            splits = b"" if command.splits is None else command.splits.of(place).tobytes()
            told = (program, subtask, command.parallelism, *command.subpartitions.values(), splits, *read)
            self._of[command.vertex, subtask, attempt] = _digest(*told)

    def program(self, vertex: int) -> bytes:
        """Of all vertices whose work it does, as far as it reads them; those that were narrowed read other splits."""
        assert self._plane is not None
        graph = self._plane.graph
        parts = [one.id for one in graph.vertices if worker_of(graph, one.id) == vertex]
        uids = [self._script.graph.vertices[one].uid for one in parts]
        named = [(uid, self._script.versions.get(uid, 0)) for uid in uids]
        source = graph.vertices[vertex].source
        return _digest(repr(named).encode(), b"" if source is None else source.split_bytes.tobytes())

    def of(self, execution: Execution) -> bytes:
        return self._of[execution]

    def of_token(self, token: int) -> bytes:
        if token in self._told:
            return self._told[token]
        assert self._plane is not None
        runs = self._plane.runs
        row = token - 1
        return self._of[int(runs.vertex[row]), int(runs.subtask[row]), int(runs.attempt[row])]

    def all_told(self) -> dict[int, bytes]:
        """By token."""
        assert self._plane is not None
        runs = self._plane.runs
        rows = [row for row in range(runs.size) if row + 1 not in self._told and runs.vertex[row] >= 0]
        return self._told | {row + 1: self.of_token(row + 1) for row in rows}

    def _read(self, gate: c.GateDescriptor, ranges: c.InputRanges, place: int) -> bytes:
        numbers = np.arange(len(gate.tokens)) if gate.partitions is None else gate.partitions
        told: list[Any] = [gate.num_subpartitions, *(gate.boundaries or ())]
        for row in range(int(ranges.offsets[place]), int(ranges.offsets[place + 1])):
            first, end, low, high = ranges.rects[row].tolist()
            share = b"" if ranges.shares is None else ranges.shares[row].tobytes()
            mine = np.flatnonzero((numbers >= first) & (numbers < end))
            told += [first, end, low, high, share]
            if low < high and not gate.pipelined:
                told += [self.of_token(token) for token in gate.tokens[mine].tolist()]
        return _digest(*told)


@dataclass
class Left:
    """A job that was cut off or has ended, and what is left of it. ``retained``: nothing was deleted because nobody read it any more."""

    name: str
    script: Script
    log: Sequence[Sequence[AnyLogRecord]]
    plane: Plane
    contents: dict[int, bytes]
    retained: bool

    def node(self, dataset: int, token: int) -> int | None:
        """Where the object lies; None: it is gone."""
        storage, tokens = self.plane.storage, np.array([token])
        there = bool(storage.is_readable(dataset, tokens)[0])
        if not there and self.retained and not self.plane.ledger.is_void(token):
            there = bool(storage.was_deleted(dataset, tokens)[0])
        return storage.node_of(token) if there else None


class Kept(KeptObjects):
    """Objects are those of the simulated storages."""

    def __init__(self, left: Sequence[Left], plane: Plane, dice: Dice, *, shared: bool) -> None:
        self.left = {one.name: one for one in left}
        jobs = [LeftJob(one.name, Path("/nowhere") / one.name, earlier_job(one.log)) for one in left]
        super().__init__(jobs, Path("/nowhere"), shared=shared)
        self.jobs = jobs
        self._plane, self._dice = plane, dice
        if shared or dice.happens(0.5):  # what was staged is not taken over
            for job in jobs:
                self.strike([one for one in job.earlier.finished if one.commits])

    def link(self, one: FinishedExecution, dataset: int, name: str) -> bool:
        new = int(name[1:].split("-", maxsplit=1)[0])
        node = self._where(one, dataset)
        if self._dice.happens(self._plane.world.faults.damage / 10):
            node = None  # it vanishes just now
        self._plane.storage.link(new, self._plane.graph.datasets[new].producer, one.token, node)
        return node is not None

    def is_whole(self, one: FinishedExecution) -> bool:
        return self._is_whole(one)

    def _is_whole(self, one: FinishedExecution) -> bool:
        return all(self._where(one, dataset) is not None for dataset in one.datasets)

    def _where(self, one: FinishedExecution, dataset: int) -> int | None:
        return self.left[self.job_of(one)].node(dataset, one.token)


class Notes(Noted):
    """Writes to the simulated log. A source that was narrowed does what nobody can tell."""

    def __init__(self, contents: Contents, plane: Plane, note: Callable[[AnyLogRecord], None]) -> None:
        self._contents, self._plane, self._note = contents, plane, note
        first = plane.graph.vertices
        self._splits = {v.id: v.source.split_bytes for v in first if v.source is not None}

    def note(self, command: c.Deploy) -> bytes:
        outputs = tuple(self._plane.graph.vertices[command.vertex].outputs)
        identity = b""
        if not any(part in self._splits and self._is_narrowed(part) for part in range(len(self._plane.graph.vertices))):
            counts = (command.subpartitions[dataset] for dataset in outputs)
            identity = _digest(self._contents.program(command.vertex), *counts)
        columns = (column.astype(np.int32).tobytes() for column in (command.subtasks, command.attempts))
        self._note(Identified(command.vertex, identity, outputs, *columns))
        return identity

    def _is_narrowed(self, part: int) -> bool:
        source = self._plane.graph.vertices[worker_of(self._plane.graph, part)].source
        return source is None or len(source.split_bytes) != len(self._splits[part])


class Later:
    """The worker's thread, in virtual time."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane

    def call(self, action: Callable[[], Any]) -> None:
        self._plane.message(LINK_SECONDS, action)


class Answers(Answered):
    """The real answers, of a simulated job's first driver; later ones only note. Checks that what is kept holds just what would be written."""

    def __init__(
        self, job: SimulatedJob, contents: Contents, left: Sequence[Left], offset: int, *, shared: bool
    ) -> None:
        self._job, self._contents, self._left, self._offset, self._is_shared = job, contents, left, offset, shared
        self.kept: dict[int, set[int]] = {}
        """By vertex: subtasks of which an execution was kept."""
        self.ran: dict[int, set[int]] = {}
        self.again: set[int] = set()
        """Vertices of which a second attempt was sent."""

    def serve(self, plane: Plane) -> None:
        """Called once, before the job starts."""
        self.plane = plane
        self._contents.serve(plane)
        plane.runs.leave_out(self._offset)
        for vertex in plane.graph.vertices:
            vertex.program = SimpleNamespace(outputs=[ResultOutput(dataset, NOTHING) for dataset in vertex.outputs])
        self._notes = Notes(self._contents, plane, self.note)
        if not self._left:
            return
        dice = Dice(plane.world.seed, f"kept {self._offset}")
        self.objects = Kept(self._left, plane, dice, shared=self._is_shared)
        plane.clock.advance(max(job.earlier.at for job in self.objects.jobs))
        compiled: Any = SimpleNamespace(job_graph=plane.graph)
        port = Port(self, self.put, lambda: plane.clock.now, lambda command: plane.carry_out([command]))  # type: ignore[arg-type]
        super().__init__(self._notes, compiled, self.objects, None, port)
        self._worker = Later(plane)  # type: ignore[assignment]

    def left(self, command: c.Deploy) -> c.Deploy | None:
        self._contents.deployed(command)
        if command.attempts.any():
            self.again.add(command.vertex)
        rest: c.Deploy | None = command
        if self._left and not self.plane.driver:
            rest = super().left(command)
        else:
            self._notes.note(command)
        if rest is not None:
            self.ran.setdefault(command.vertex, set()).update(rest.subtasks.tolist())
        return rest

    def merge(self, command: c.MergePartitions, start: Callable[[c.MergePartitions], None]) -> None:
        if self._left and not self.plane.driver:
            super().merge(command, start)
        else:
            start(command)

    # --- the driver, as the real one's gate and queue ---

    def note(self, record: AnyLogRecord) -> None:
        drivers = self._job.drivers
        assert isinstance(drivers, MortalDrivers)
        drivers.note(record)

    def put(self, event: e.Event) -> None:
        self.plane.message(0.0, lambda: self._told(event))

    def _told(self, event: e.Event) -> None:
        match event:
            case e.ExecutionsFinished():
                self._check(event)
                self._over(event)
            case e.ExecutionsFailed():
                self._over(event)
            case _:
                pass
        self._job.tell(event)

    def _over(self, event: e.ExecutionsFinished | e.ExecutionsFailed) -> None:
        runs = self.plane.runs
        runs.state[runs.find(event.vertex, event.subtasks, event.attempts)] = RunState.TOLD

    def _check(self, event: e.ExecutionsFinished) -> None:
        columns = event.subtasks.tolist(), event.attempts.tolist(), event.reports.tokens.tolist()
        for subtask, attempt, token in zip(*columns, strict=True):
            holds = self._contents.of_token(token) == self._contents.of((event.vertex, subtask, attempt))
            check(holds, f"subtask {subtask} of vertex {event.vertex} is kept, and would have written something else")
            self.plane.runs.is_of_another(token, event.vertex, subtask, attempt)
            self.kept.setdefault(event.vertex, set()).add(subtask)


@dataclass(frozen=True)
class Correction:
    """``script``: of a job that keeps what it can of ``left``."""

    script: Script
    left: Sequence[Left]
    shared: bool
    calm: bool
    """Nothing goes wrong, so that it is known what is kept."""

    def run(
        self, dice: random.Random, name: str, *, to_its_end: bool, counted: Counter[str]
    ) -> tuple[Left, Outcome | None]:
        job = self.script.job
        contents = Contents(self.script, {token: held for one in self.left for token, held in one.contents.items()})
        pinned = self._pinned()
        scheduler, drivers = mortal(lambda side_inputs: job.scheduler(side_inputs, pinned=pinned))
        offset = max((one.plane.runs.size for one in self.left), default=0)
        answers: list[Answers] = []

        def made(simulated: SimulatedJob) -> Answers:
            answers.append(Answers(simulated, contents, self.left, offset, shared=self.shared))
            return answers[0]

        simulated = SimulatedJob(scheduler, job.world, drivers=drivers, deployments=made, validate_every=50)
        ends = 1 << 30 if to_its_end else dice.choice((5, 20, 40, 80, 1 << 30))
        simulated.start()
        while simulated.plane.ended is None and simulated.events < ends:
            simulated.step()
        self._check(simulated, answers[0])
        counted["jobs"] += 1
        counted["events"] += simulated.events
        counted["kept"] += sum(map(len, answers[0].kept.values()))
        counted["ran"] += sum(map(len, answers[0].ran.values()))
        log = simulated.drivers
        assert isinstance(log, MortalDrivers)
        left = Left(name, self.script, log.log, simulated.plane, contents.all_told(), self.shared)
        return left, simulated.outcome() if simulated.plane.ended is not None else None

    def _pinned(self) -> dict[int, int]:
        """As parallel as equal vertices were: in the first of the jobs that had one."""
        found: dict[int, int] = {}
        for one in reversed(self.left):
            parallelism = earlier_job(one.log).parallelism
            for uid, vertex in self.script.numbers.items():
                then = one.script.numbers.get(uid)
                if then in parallelism and self.script.is_as_in(one.script, uid):
                    found[vertex] = parallelism[then]
        return found

    # --- what must be kept, and what must not --------------------------------------------------------------------

    def _check(self, simulated: SimulatedJob, answers: Answers) -> None:
        """What is behind a change holds something else, if it has read any of that (:class:`Contents`)."""
        for vertex, subtasks in answers.kept.items():
            uid = self.script.graph.vertices[vertex].uid
            known = any(one.script.versions.get(uid, 0) == self.script.versions.get(uid, 0) for one in self.left)
            check(known, f"subtasks {sorted(subtasks)} of vertex {vertex} are kept, and its program has changed")
        if self.calm and self.left and not simulated.plane.driver:
            self._check_all_kept(answers)

    def _check_all_kept(self, answers: Answers) -> None:
        """Nothing ran again that had finished, if its objects are there and nothing before it ran, or was sent again."""
        then, earlier = self.left[0].script, answers.objects.jobs[0].earlier
        for vertex, again in answers.ran.items():
            uid = self.script.graph.vertices[vertex].uid
            if not self.script.is_as_in(then, uid) or self.script.before(vertex) & (answers.ran.keys() | answers.again):
                continue
            own = [one for one in earlier.finished if one.vertex == then.numbers[uid] and one.key]
            whole = [one for one in own if answers.objects.is_whole(one)]
            lost = sorted(again & {one.subtask for one in whole if not one.commits})
            check(not lost, f"subtasks {lost} of vertex {vertex} had finished, are there, and run again")


def corrected_jobs(seed: int) -> Counter[str]:
    """A job that is cut off, corrected and cut off again, until the last one ends. Its groups have no resources. Returns counts. Raises ViolationError; UsageError where the
    job asks for what cannot be."""
    dice = random.Random(f"corrections of {seed}")
    calm, shared = dice.random() < 0.5, dice.random() < 0.5
    dies = 0.0 if calm else dice.choice((0.0, 0.0, 0.05))
    versions: Mapping[str, int] = {}
    left: list[Left] = []
    counted: Counter[str] = Counter()
    rounds = dice.choice((2, 2, 3))
    for number in range(rounds):
        job = random_job(seed, faults=not calm)  # its vertices are this round's own
        if any(dataset.type is ResultPartitionType.PIPELINED for dataset in job.graph.datasets):
            return counted  # of which nothing is kept
        if dice.random() < 0.3:
            job = replace(job, graph=_with_another_source(job.graph))
        script = Script(job, versions)
        script = replace(script, job=_adjusted(script, calm=calm, dies=dies, round_seed=seed + number))
        correction = Correction(script, left, shared, calm)
        try:
            one, ended = correction.run(dice, f"job {number}", to_its_end=number == rounds - 1, counted=counted)
        except UsageError as error:
            check(not left, f"job {number} is refused, and the one before it was not: {error}")
            raise
        if ended is not None and job.forgiving:
            check(ended.status is c.JobStatus.FINISHED, f"job {number} is {ended.status.value}")
        left = [one, *left]
        versions = script.changed(dice)
    return counted


def _adjusted(script: Script, *, calm: bool, dies: float, round_seed: int) -> RandomJob:
    """The job in a world of this round: other dice, and sizes by the versions."""
    job, world = script.job, script.job.world
    faults = replace(world.faults, cancel_after=0.0, sinks_fail=0.0, driver_dies=dies, max_driver_deaths=3)
    world = replace(world, faults=faults, seed=round_seed, workload=Sizes(script, world.workload))
    options = job.options.with_values({SPECULATIVE_ENABLED.key: False}) if calm else job.options
    return replace(job, options=options, world=world)


def _digest(*told: Any) -> bytes:
    return hashlib.blake2b(repr(told).encode(), digest_size=16).digest()
