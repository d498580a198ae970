"""A job that is not the same as the one that it goes on from: which steps are as they were, what of theirs is kept, and why the others run again."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from firesteel.compile.compiled import CompiledJob
from firesteel.compile.identity.facts import VertexPrint, differences, digest
from firesteel.connectors.base import BEGUN
from firesteel.errors import FiresteelError
from firesteel.humanize import first_of, plural
from firesteel.model.costs import StepCosts
from firesteel.model.reports import Opening
from firesteel.recovery.frames import DamagedLogError
from firesteel.recovery.objects import ObjectPath
from firesteel.recovery.takeover import FoundJob, end_uses_of, find_job, is_held, removed_just_now, take_over
from firesteel.recovery.uses import Use, begin_use
from firesteel.scheduler.inputs import Inputs
from firesteel.scheduler.recovery import codec
from firesteel.scheduler.recovery.earlier import EarlierJob, FinishedExecution, earlier_job
from firesteel.scheduler.recovery.records import LogHeader
from firesteel.spark.recovery.beginning import may_change_jobs
from firesteel.spark.recovery.header import Before
from firesteel.spark.recovery.kept_objects import KeptObjects, LeftJob, object_names
from firesteel.spark.storage.directories import MOST_KEPT, JobStorage, Place, abandon_sinks
from firesteel.spark.storage.outputs import sink_steps

_log = logging.getLogger("firesteel.recovery")


@dataclass(frozen=True)
class Staged:
    """All that finished executions of a vertex had staged for one of its sinks. ``state``: of the sink, as it was told."""

    executions: Sequence[FinishedExecution]
    state: bytes


@dataclass(frozen=True)
class Correction:
    """``matches``: by vertex of the present job, that of ``found`` which it is equal to. ``inputs``: the vertices that it reads."""

    found: FoundJob
    earlier: EarlierJob
    names: Sequence[str]
    inputs: Sequence[Sequence[int]]
    matches: Sequence[Match]

    @property
    def keeps(self) -> bool:
        """Returns whether anything at all may be kept."""
        return any(self.finished(vertex) for vertex in range(len(self.names)))

    def finished(self, vertex: int) -> int:
        """The number of subtasks that had finished of the vertex that is equal to this one."""
        then = self.matches[vertex].then
        return 0 if then is None else self.earlier.subtasks(then)

    def pinned(self) -> dict[int, int]:
        """As parallel as equal vertices were, so that each of their executions has an equal one."""
        found = ((vertex, match.then) for vertex, match in enumerate(self.matches) if match.then is not None)
        return {vertex: self.earlier.parallelism[then] for vertex, then in found if then in self.earlier.parallelism}

    def costs(self) -> StepCosts | None:
        """The costs of steps with which it was decided."""
        with suppress(ValueError):
            return codec.load(self.found.header.given).costs
        return None

    def lines(self, stored: Collection[str]) -> list[str]:
        """A sentence for each vertex. ``stored``: names of the objects that are there."""
        gone = self._gone(stored)
        return [f"'{name}' {self._line(vertex, gone[vertex])}" for vertex, name in enumerate(self.names)]

    def _line(self, vertex: int, gone: int) -> str:
        match, finished = self.matches[vertex], self.finished(vertex)
        if match.then is None:
            return f"runs again: {match.why}."
        if not finished:
            return "runs: nothing of it had finished."
        of = plural(self.earlier.parallelism.get(match.then, 0), "subtask")
        said = f"is kept: {finished - gone:,} of {of}."
        if gone:
            said += f" The results of {gone:,} were removed when they had been read, and are needed again."
        return said

    def _gone(self, stored: Collection[str]) -> list[int]:
        """The number of finished subtasks of each vertex that must run again, for their results are gone and somebody has to read them."""
        gone = [0] * len(self.names)
        for vertex in reversed(range(len(self.names))):
            readers = [k for k, read in enumerate(self.inputs) if vertex in read]
            if any(gone[k] or not self._is_whole(k) for k in readers):
                own = (one for one in self.earlier.finished if one.vertex == self.matches[vertex].then)
                gone[vertex] = sum(not set(object_names(one)) <= set(stored) for one in own)
        return gone

    def _is_whole(self, vertex: int) -> bool:
        then = self.matches[vertex].then
        return then is not None and 0 < self.earlier.parallelism.get(then, 0) <= self.finished(vertex)

    def reason(self) -> str:
        """A sentence on what is kept, one on what runs, and the first reason for that."""
        job, header = self.found, self.found.header
        ended = f"ended as {job.ended.status}" if job.ended is not None else "broke off"
        runs = [self._run(vertex) for vertex in range(len(self.names)) if not self._is_whole(vertex)]
        kept = sum(self.finished(vertex) for vertex in range(len(self.names)))
        said = kept_in_words(kept, sum(self.earlier.parallelism.values()), runs)
        first = next(
            (f" '{name}': {m.why}." for name, m in zip(self.names, self.matches, strict=True) if m.then is None), ""
        )
        return f"The job goes on from job {job.job_id} ('{header.job_name}'), which {ended}: {said}{first}"

    def _run(self, vertex: int) -> str:
        """The vertex, as one that is not kept whole."""
        then = self.matches[vertex].then
        return left_of(
            self.names[vertex], self.finished(vertex), 0 if then is None else self.earlier.parallelism.get(then, 0)
        )


def kept_in_words(kept: int, subtasks: int, runs: Sequence[str]) -> str:
    """Sentences behind a colon. ``kept``: of the ``subtasks`` that were known by then; ``runs``: vertices that are not kept whole (``left_of``)."""
    left = f"{first_of(runs, 8)} {'runs' if len(runs) == 1 else 'run'}" if runs else "nothing is left to run"
    return f"{kept:,} of the {subtasks:,} subtasks known by then had finished, and are kept as far as their results are there; {left}."


def left_of(name: str, kept: int, subtasks: int) -> str:
    """``'read'``; of one that is kept in part ``'read' (2 of 5 subtasks)``."""
    return f"'{name}' ({subtasks - kept:,} of {plural(subtasks, 'subtask')})" if kept else f"'{name}'"


def correction_of(found: FoundJob, present: LogHeader, *, sinks_run: bool = False) -> Correction:
    """``sinks_run``: steps that write outputs are equal to no others. Raises DamagedLogError."""
    try:
        earlier = earlier_job(found.log.entries)
    except ValueError as error:
        raise DamagedLogError(f"The log of job {found.job_id} has an event that cannot be read: {error}.") from error
    now, then = (lines_of(header, sinks_run=sinks_run) for header in (present, found.header))
    return Correction(found, earlier, now.names, now.inputs, matches(replace(then, opened=earlier.opened), now))


@dataclass(frozen=True, slots=True)
class Taken:
    """A job that is this process' now. ``earlier``: all that its log tells; ``use``: by which nobody on another machine removes it."""

    found: FoundJob
    earlier: EarlierJob
    storage: JobStorage
    use: Use | None


@dataclass(eq=False)
class CorrectedJob:
    """``taken``: the jobs that were taken over for the present one: the last one first, then those that it had been kept from itself."""

    correction: Correction
    taken: list[Taken]

    @property
    def origins(self) -> Mapping[int, str]:
        found: dict[int, str] = {}
        for job in self.taken:
            found |= job.found.origins
        return found

    @property
    def bases(self) -> Collection[int]:
        return self.origins

    @property
    def before(self) -> Before:
        return Before(self.correction.earlier.at, self.correction.found.job_id)

    def given(self, given: Inputs) -> Inputs:
        """It decides as that one did."""
        return replace(given, costs=self.correction.costs() or given.costs, pinned=self.correction.pinned())

    def kept(self, directory: Path | ObjectPath) -> KeptObjects:
        """``directory``: of the present job."""
        kept = KeptObjects(
            [LeftJob(job.found.job_id, job.found.directory, job.earlier) for job in self.taken], directory
        )
        staged = {id(one) for own in self.staged.values() for one in own.executions}
        for job in self.taken:
            kept.strike([one for one in job.earlier.finished if one.commits and id(one) not in staged])
        return kept

    def adopt(self, compiled: CompiledJob) -> None:
        """Finds out what had been staged for sinks that can take it over."""
        steps = sink_steps(self.correction.found.log.entries)
        finished = self.correction.earlier.finished
        for vertex, sinks in compiled.sinks.items():
            then = self.correction.matches[vertex].then
            if then is None or not all(map(may_change_jobs, sinks)):
                continue
            own = [one for one in finished if one.vertex == then and one.key and len(one.commits) == len(sinks)]
            states = [dict(steps.get((then, place), ())).get(BEGUN, b"") for place in range(len(sinks))]
            if own and all(states):
                for place, state in enumerate(states):
                    self.staged[vertex, place] = Staged(own, state)
                    self._adopted.add((then, place))

    staged: dict[tuple[int, int], Staged] = field(default_factory=dict[tuple[int, int], Staged])
    """By vertex and place of the present job's sinks."""
    _adopted: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    """The same by vertex and place of the earlier job's."""

    def abandon(self) -> None:
        """Removes what was staged for sinks that nobody takes over. (That of jobs before the last one was seen to by the next one.)"""
        abandon_sinks(self.taken[0].found.directory, but=self._adopted)

    def check_held(self) -> None:
        """Raises FiresteelError where another driver has taken one of them over: it goes on from the same, and would publish the same."""
        for job in self.taken:
            if not is_held(job.found):
                raise FiresteelError(
                    f"{job.found.label}, from which this one goes on, was taken over by another driver or removed, so this one does not publish its outputs: "
                    "they might be published twice.",
                    hint="Look at what is there, and let that driver end, before you run the script again.",
                )

    def leave(self, *, finished: bool) -> None:
        """The present job is over: nobody asks for them again if it has finished, but those that use them already; else the next one may. Never
        raises."""
        for job in reversed(self.taken):  # the last job is the one that was left last
            if job.use is not None:
                job.use.end()
            if not _is_held(job.found):
                continue
            if finished and end_uses_of(job.found):
                job.storage.remove()
            else:
                job.storage.keep()


@dataclass(frozen=True, slots=True)
class Taking:
    """``root``: the directory of results; ``retain``, ``place``: of the present job (``JobStorage``)."""

    root: Path | ObjectPath
    retain: float
    place: Place

    def take(self, found: FoundJob) -> tuple[FoundJob, Use | None]:
        """Makes the job this process', and holds what it left, from before that on, as far as that can be held. Raises UsageError where another driver was
        faster, or has removed it, DamagedLogError, OSError."""
        use = begin_use(found.directory, own=True)
        with ExitStack() as undo:
            if use is not None:
                undo.callback(use.end)
            taken = take_over(found)
            if use is None and not is_held(taken):
                raise removed_just_now(found)
            self.storage(taken).claim()
            undo.pop_all()
        return taken, use

    def storage(self, taken: FoundJob) -> JobStorage:
        epoch, retain = taken.epoch, self.retain
        return JobStorage(str(self.root), taken.job_id, "", epoch=epoch, retain=retain, place=self.place)


def corrected(compiled: CompiledJob, correction: Correction, taking: Taking, use: Use | None) -> CorrectedJob:
    """``correction``: of a job that was taken; ``use``: by which it is held. Takes those that this one was kept from, too, of many the last ones."""
    found = correction.found
    job = CorrectedJob(correction, [Taken(found, correction.earlier, taking.storage(found), use)])
    after = found.header.plan.after
    while after and len(job.taken) < MOST_KEPT:
        try:
            found, use = taking.take(find_job(taking.root, after))
            job.taken.append(Taken(found, earlier_job(found.log.entries), taking.storage(found), use))
        except (FiresteelError, ValueError, OSError):  # of use, and not necessary
            _log.debug("nothing of job %s is left", after, exc_info=True)
            break
        after = found.header.plan.after
    job.adopt(compiled)
    return job


def _is_held(found: FoundJob) -> bool:
    """False also where the storage does not answer: what another driver may have is not touched."""
    with suppress(OSError):
        return is_held(found)
    return False


def lines_of(header: LogHeader, *, sinks_run: bool = False) -> Lines:
    """The vertices of the header's job. ``sinks_run``: nobody can tell that one which writes an output is equal to another."""
    prints = [msgspec.convert(one, VertexPrint, builtin_types=(bytes,)) for one, _ in header.prints]
    vertices: Sequence[Mapping[str, Any]] = header.plan.vertices
    if sinks_run:
        why = ("writes an output, as such steps always do",)
        prints = [replace(p, unprovable=why) if v["sink"] else p for p, v in zip(prints, vertices, strict=True)]
    return Lines([one["name"] for one in vertices], prints, [one["inputs"] for one in vertices])


@dataclass(frozen=True, slots=True)
class Lines:
    """The vertices of a job, in topological order. ``inputs``: the vertices whose rows each of them reads. ``opened``: by vertex, what its
    function was seen to open."""

    names: Sequence[str]
    prints: Sequence[VertexPrint]
    inputs: Sequence[Sequence[int]]
    opened: Mapping[int, Opening] = field(default_factory=dict[int, Opening])

    def lineages(self) -> list[bytes | None]:
        """A digest for each vertex, of what it and all before it do; None: nobody can tell."""
        found: list[bytes | None] = []
        for vertex, (own, read) in enumerate(zip(self.prints, self.inputs, strict=True)):
            before = [found[producer] for producer in read]
            known = [one for one in before if one is not None]
            if own.unprovable or vertex in self.opened or own.input is None or len(known) < len(before):
                found.append(None)
            else:
                found.append(digest(own.program, own.input, *known))
        return found


@dataclass(frozen=True, slots=True)
class Match:
    """``then``: the vertex of the earlier job that did the same to the same; None: there is none, for the reason ``why``, which follows the
    vertex' name."""

    then: int | None
    why: str = ""


def matches(then: Lines, now: Lines) -> list[Match]:
    """For each vertex of the present job, one that does the same to the same, from the sources on. Equal ones are matched in their order.

    Nothing is answered from another run because of these: executions are told apart one by one. They say beforehand what may be kept, in words.
    """
    free: dict[bytes, list[int]] = {}
    for vertex, lineage in enumerate(then.lineages()):
        if lineage is not None:
            free.setdefault(lineage, []).append(vertex)
    found: list[Match] = []
    for vertex, lineage in enumerate(now.lineages()):
        same = free.get(lineage, []) if lineage is not None else []
        found.append(Match(same.pop(0)) if same else Match(None, _why(then, now, vertex, found)))
    return found


def _why(then: Lines, now: Lines, vertex: int, before: Sequence[Match]) -> str:
    own = now.prints[vertex]
    named = [k for k, name in enumerate(then.names) if name == now.names[vertex]]
    namesakes = [then.prints[k] for k in named]
    found = [differences(one, own) for one in namesakes]
    again = [now.names[producer] for producer in now.inputs[vertex] if before[producer].then is None]
    if own.unprovable:
        why = own.unprovable[0]
    elif not namesakes:
        why = "is new"
    elif all(found):
        why = min(found, key=len)[0]
    elif opened := [then.opened[k] for k in named if k in then.opened]:
        why = str(opened[0])
    elif again:
        why = f"reads '{again[0]}', which runs again"
    elif own.input is None:
        why = "reads something of which nobody can tell whether it has changed"
    elif any(one.unprovable or one.input is None for one in namesakes):
        why = "read something then of which nobody can tell whether it has changed since"
    else:
        why = "reads other steps than it did"
    return why
