"""The beginning of a job: from nothing, or where another driver has left it."""

from __future__ import annotations

import json
import logging
import pickle
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from firesteel.compile.compiled import CompiledJob
from firesteel.compile.identity.ours import is_ours
from firesteel.compile.identity.prints import JobPrints
from firesteel.connectors.base import BEGUN, PUBLISHED
from firesteel.errors import FiresteelError
from firesteel.recovery.files import open_log
from firesteel.recovery.log import FencedError
from firesteel.recovery.objects import ObjectPath
from firesteel.recovery.uses import USED
from firesteel.results.storage.owner import myself
from firesteel.scheduler.inputs import SideInputs
from firesteel.scheduler.kernel import events as ev
from firesteel.scheduler.kernel.commands import Command, JobStatusChanged
from firesteel.scheduler.recovery.outstanding import Name
from firesteel.scheduler.recovery.reconcile import Found, events_after, kept_tokens
from firesteel.scheduler.recovery.records import AnyLogRecord, DriverBegan, LogHeader, SinkStep
from firesteel.scheduler.recovery.replay import Replayed
from firesteel.spark.driver.narrowing import NarrowingDone
from firesteel.spark.recovery.deployments import Deployments, Identities, Noted, Port
from firesteel.spark.recovery.gate import Gate, LogGate, Recovery
from firesteel.spark.recovery.runs import NO_RUN, PlaceInRun
from firesteel.spark.storage.cleaning import quietly
from firesteel.spark.storage.outputs import last_step

_log = logging.getLogger("firesteel.recovery")
_OBJECT = re.compile(r"d(\d+)-(?:p\d+-a\d+|m\d+-\d+)-t(\d+)\.fsr")


@dataclass(frozen=True, slots=True)
class Driver:
    """The job's driver, as far as a job that goes on has to do with it. ``staged``: takes the commit messages of what sinks have staged;
    ``stored``: names of objects; ``delete``: of those that are of no use."""

    execute: Callable[[Command], None]
    narrowed: Callable[[NarrowingDone], Any]
    staged: Callable[[Mapping[Name, tuple[bytes, ...]]], None]
    stored: Callable[[], list[str]]
    delete: Callable[[Sequence[str]], None]
    now: Callable[[], float]


@dataclass(frozen=True, slots=True)
class DriverIdentity:
    """Names a driver: its number among those of the job, the base of its tokens, and its Spark application."""

    epoch: int
    token_base: int
    application: str


@dataclass(eq=False)
class NewLog:
    """A driver's part of a job's log, to be opened in ``directory``. ``prints``: of the job as it was compiled; ``header``: of its first
    driver; ``read_until``: what this one has read of earlier ones' parts; ``retains``: other jobs may use what this one has written."""

    directory: Path | ObjectPath
    driver: DriverIdentity
    side_inputs: SideInputs
    prints: JobPrints | None = None
    header: LogHeader | None = None
    read_until: dict[str, int] = field(default_factory=dict[str, int])
    retains: bool = False
    steps: list[SinkStep] = field(default_factory=list[SinkStep])

    def begun(self, vertex: int, place: int, sink: Any) -> None:
        told = json.dumps(sink.state()).encode() if can_recover(sink) else b""
        self.steps.append(SinkStep(vertex, place, BEGUN, told))

    def open(self, at: float, copies: Mapping[tuple[int, int], bytes]) -> Recovery:
        """``copies``: of the sinks, pickled, by vertex and place. Raises OSError."""
        file = open_log(self.directory, self.driver.epoch, self.read_until)
        for (vertex, place), copy in copies.items():
            file.put(copy_name(vertex, place), copy)
        if self.retains and isinstance(self.directory, Path):
            file.put(USED, b"")
        return partial(LogGate, file=file, first=self._first(at), side_inputs=self.side_inputs, retains=self.retains)

    def noted(self, compiled: CompiledJob, port: Port) -> Noted:
        return Noted(compiled, Identities(compiled, self.prints), port.gate)

    def _first(self, at: float) -> list[AnyLogRecord]:
        began = DriverBegan(
            epoch=self.driver.epoch,
            nonce=self.driver.token_base,
            **myself(),
            application=self.driver.application,
            wall=time.time(),
            at=at,
            read_until=self.read_until,
        )
        return [began, *(() if self.header is None else (self.header,)), *self.steps]


@dataclass(eq=False)
class FromNothing:
    """``log``: None: the job has none. ``at``: the job's clock as it begins; ``published``: sinks whose output an earlier driver has published;
    ``in_run``: the job as one of its script's. ``begin_sink`` is called for each sink, in the job's thread; then ``recovery``, with a pickled copy of
    each; then ``deployments``, and ``events``: those by which the scheduler is brought to where the job begins, each to be handled before the next."""

    job_id: str = ""
    log: NewLog | None = None
    at: float = 0.0
    published: Sequence[Any] = ()
    in_run: PlaceInRun = NO_RUN

    def begin_sink(self, vertex: int, place: int, sink: Any) -> None:
        sink.begin(self.job_id)
        if self.log is not None:
            self.log.begun(vertex, place, sink)

    def recovery(self, copies: Mapping[tuple[int, int], bytes]) -> Recovery:
        try:
            return Gate if self.log is None else self.log.open(self.at, copies)
        except OSError as error:  # there is no log that anybody could resume from
            return partial(Gate, lost=f"{type(error).__name__}: {error}")

    def deployments(self, compiled: CompiledJob, port: Port) -> Deployments:
        return Deployments() if self.log is None else self.log.noted(compiled, port)

    def events(self, driver: Driver) -> Iterator[ev.Event]:
        yield ev.JobStarted(at=driver.now())


@dataclass(eq=False)
class GoesOn:
    """As :class:`FromNothing`. ``carried``: what the replay has to carry out again in the driver, in order."""

    job_id: str
    log: NewLog
    replayed: Replayed
    carried: Sequence[Command | NarrowingDone]
    unrepeatable: Sequence[int] = ()
    """Vertices whose rows Spark's own plan parts."""
    published: list[Any] = field(default_factory=list[Any])
    in_run: PlaceInRun = NO_RUN
    _lost: list[ev.OutputsLost] = field(default_factory=list[ev.OutputsLost])

    @property
    def at(self) -> float:
        return self.replayed.at

    def begin_sink(self, vertex: int, place: int, sink: Any) -> None:
        """Takes over what it had staged; where that cannot be it begins anew under another name, and all of it is made again. Raises
        FencedError where it was about to be published."""
        steps = self.replayed.outstanding.sink_steps.get((vertex, place), {})
        step = last_step(steps)
        if can_recover(sink):
            self._recover(vertex, place, sink, step, steps.get(BEGUN, b""))
        elif step == PUBLISHED:
            self.published.append(sink)
        else:
            self._begin_anew(vertex, place, sink)
        self.log.begun(vertex, place, sink)

    def _recover(self, vertex: int, place: int, sink: Any, step: str, state: bytes) -> None:
        publishing = self.replayed.outstanding.publishing
        if publishing is None:
            staged = {name[1:]: own for name, own in self.replayed.outstanding.commits.items() if name[0] == vertex}
            names, commits = list(staged), [own[place] for own in staged.values()]
        else:
            names, commits = [], [own[place] for _, own in publishing.winners.get(vertex, ())]
        winners = [pickle.loads(commit) for commit in commits]
        try:
            found = sink.recover(self.job_id, winners, json.loads(state or b"{}"), step=step)
        except FiresteelError as error:
            if publishing is None:
                raise
            raise FencedError(f"Job {self.job_id} cannot go on. {error.message}", hint=error.hint) from error
        if found.published:
            self.published.append(sink)
        elif publishing is None:
            self._lose(vertex, [names[k] for k in found.missing])
        elif found.missing:
            if step == BEGUN:
                quietly(lambda: sink.abort([]))
            raise FencedError(f"Job {self.job_id} cannot go on: what it had staged for '{sink.name}' is gone.")

    def _begin_anew(self, vertex: int, place: int, sink: Any) -> None:
        if self.replayed.outstanding.publishing is not None:
            raise FencedError(f"Job {self.job_id} cannot go on: '{sink.name}' cannot take over what it had staged.")
        begun = self._copy(vertex, place)
        if begun is not None:
            quietly(lambda: begun.abort([]))
        sink.begin(f"{self.job_id}e{self.log.driver.epoch}")
        self._lose(vertex, [name[1:] for name in self.replayed.outstanding.commits if name[0] == vertex])

    def _copy(self, vertex: int, place: int) -> Any:
        """The sink as its driver had begun it; None: it cannot be read."""
        try:
            return pickle.loads((self.log.directory / copy_name(vertex, place)).read_bytes())
        except Exception:
            _log.debug("sink %s of vertex %s cannot be read", place, vertex, exc_info=True)
            return None

    def _lose(self, vertex: int, names: Sequence[tuple[int, int, int]]) -> None:
        """``names``: subtask, attempt and token of each execution."""
        if names:
            subtasks, attempts, tokens = np.array(names, np.int64).T
            self._lost.append(
                ev.OutputsLost(at=self.at, vertex=vertex, subtasks=subtasks, attempts=attempts, tokens=tokens)
            )

    def recovery(self, copies: Mapping[tuple[int, int], bytes]) -> Recovery:
        """Raises FencedError where nothing can be written: a job that goes on would publish what the log says is not published."""
        try:
            return self.log.open(self.at, copies)
        except OSError as error:
            raise FencedError(f"Job {self.job_id} cannot go on, for its log cannot be written: {error}.") from error

    def deployments(self, compiled: CompiledJob, port: Port) -> Deployments:
        return self.log.noted(compiled, port)

    def events(self, driver: Driver) -> Iterator[ev.Event]:
        outstanding = self.replayed.outstanding
        for item in self.carried:
            if isinstance(item, NarrowingDone):
                driver.narrowed(item)
            else:
                driver.execute(item)
        self.carried = ()  # as many records as the job has had
        driver.staged(outstanding.commits)
        stored = {name: match for name in driver.stored() if (match := _OBJECT.fullmatch(name))}
        for command in outstanding.commands():
            driver.execute(command)
        if outstanding.ended is not None:
            return
        driver.execute(JobStatusChanged(self.replayed.scheduler.status))
        tokens: dict[int, list[int]] = {}
        for match in stored.values():
            tokens.setdefault(int(match[1]), []).append(int(match[2]))
        columns = {dataset: np.array(own, np.int64) for dataset, own in tokens.items()}
        found = Found(stored=columns, staged_lost=self._lost, unrepeatable=self.unrepeatable)
        yield from events_after(self.replayed, found, driver.now)
        kept = self._kept()
        driver.delete([name for name, match in stored.items() if (int(match[1]), int(match[2])) not in kept])

    def _kept(self) -> set[tuple[int, int]]:
        """Data set and token of each object that may be read yet."""
        kept = {
            (dataset, token)
            for dataset, tokens in kept_tokens(self.replayed.scheduler).items()
            for token in tokens.tolist()
        }
        merged = self.replayed.outstanding.merged.items()
        return kept | {(dataset, token) for dataset, tokens in merged for token in tokens}


Beginning = FromNothing | GoesOn


def can_recover(sink: Any) -> bool:
    """Returns whether the sink can say what another driver had staged and published (``connectors.base.Sink``)."""
    return callable(getattr(sink, "recover", None)) and callable(getattr(sink, "state", None))


def may_change_jobs(sink: Any) -> bool:
    """Returns whether another job may take over what the sink has staged. One of the user's knows only that its own job goes on."""
    return can_recover(sink) and is_ours(type(sink))


def copy_name(vertex: int, place: int) -> str:
    """The object beside the log with a sink as it was after ``begin``."""
    return f"sink-{vertex}-{place}.pkl"
