"""The beginning of a job: from nothing, or where another driver has left it."""

from __future__ import annotations

import json
import logging
import pickle
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from firesteel.recovery.files import FileLog
from firesteel.recovery.log import FencedError
from firesteel.results.storage.owner import myself
from firesteel.scheduler.kernel import events as ev
from firesteel.scheduler.kernel.commands import Command, JobStatusChanged
from firesteel.scheduler.recovery.outstanding import Name
from firesteel.scheduler.recovery.reconcile import Found, events_after, kept_tokens
from firesteel.scheduler.recovery.records import AnyLogRecord, DriverBegan, LogHeader, SinkStep
from firesteel.scheduler.recovery.replay import Replayed
from firesteel.scheduler.recovery.side_inputs import SideInputs
from firesteel.spark.driver.narrowing import NarrowingDone
from firesteel.spark.recovery.gate import NO_RECOVERY, JobLog, Recovery, WithoutLog
from firesteel.spark.storage.cleaning import quietly

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


class Beginning(Protocol):
    """``at``: the job's clock as it begins. ``begin_sink`` is called for each sink, in the job's thread; then ``recovery``, with a pickled
    copy of each; then ``events``: those by which the scheduler is brought to where the job begins, each to be handled before the next."""

    @property
    def at(self) -> float: ...
    def begin_sink(self, vertex: int, place: int, sink: Any) -> None: ...
    def recovery(self, copies: Mapping[tuple[int, int], bytes]) -> Recovery: ...
    def events(self, driver: Driver) -> Iterator[ev.Event]: ...


@dataclass(frozen=True, slots=True)
class DriverIdentity:
    """Names a driver: its number among those of the job, the base of its tokens, and its Spark application."""

    epoch: int
    token_base: int
    application: str


@dataclass(eq=False)
class NewLog:
    """A driver's part of a job's log, to be opened in ``directory``. ``header``: of the job's first driver; ``read_until``: what this one has
    read of earlier ones' parts."""

    directory: Path
    driver: DriverIdentity
    side_inputs: SideInputs
    header: LogHeader | None = None
    read_until: dict[str, int] = field(default_factory=dict[str, int])
    steps: list[SinkStep] = field(default_factory=list[SinkStep])

    def begun(self, vertex: int, place: int, sink: Any) -> None:
        state = getattr(sink, "state", None)
        told = b"" if state is None else json.dumps(state()).encode()
        self.steps.append(SinkStep(vertex, place, "begun", told))

    def open(self, at: float, copies: Mapping[tuple[int, int], bytes]) -> JobLog:
        """``copies``: of the sinks, pickled, by vertex and place. Raises OSError."""
        file = FileLog(self.directory, self.driver.epoch)
        for (vertex, place), copy in copies.items():
            file.put(copy_name(vertex, place), copy)
        return JobLog(file, self._first(at), self.side_inputs)

    def _first(self, at: float) -> list[AnyLogRecord]:
        mark = myself()
        began = DriverBegan(
            epoch=self.driver.epoch,
            nonce=self.driver.token_base,
            host=mark["host"],
            pid=mark["pid"],
            started=mark["started"],
            application=self.driver.application,
            wall=time.time(),
            at=at,
            read_until=self.read_until,
        )
        return [began, *(() if self.header is None else (self.header,)), *self.steps]


@dataclass(eq=False)
class FromNothing:
    """``log``: None: the job has none."""

    job_id: str = ""
    log: NewLog | None = None
    at: float = 0.0

    def begin_sink(self, vertex: int, place: int, sink: Any) -> None:
        sink.begin(self.job_id)
        if self.log is not None:
            self.log.begun(vertex, place, sink)

    def recovery(self, copies: Mapping[tuple[int, int], bytes]) -> Recovery:
        try:
            return NO_RECOVERY if self.log is None else self.log.open(self.at, copies)
        except OSError as error:  # there is no log that anybody could resume from
            return WithoutLog(f"{type(error).__name__}: {error}")

    def events(self, driver: Driver) -> Iterator[ev.Event]:
        yield ev.JobStarted(at=driver.now())


@dataclass(eq=False)
class GoesOn:
    """``carried``: what the replay has to carry out again in the driver, in order."""

    job_id: str
    log: NewLog
    replayed: Replayed
    carried: Sequence[Command | NarrowingDone]
    unrepeatable: Sequence[int] = ()
    """Vertices whose rows Spark's own plan parts."""
    _lost: list[ev.OutputsLost] = field(default_factory=list[ev.OutputsLost])

    @property
    def at(self) -> float:
        return self.replayed.at

    def begin_sink(self, vertex: int, place: int, sink: Any) -> None:
        """Takes over what it had staged; where that cannot be it begins anew under another name, and all of it is made again. Raises
        FencedError where it was about to be published."""
        begun = self._copy(vertex, place)
        if not (begun is not None and can_go_on(sink) and sink.go_on(begun)):
            if self.replayed.outstanding.publishing is not None:
                raise FencedError(f"Job {self.job_id} cannot go on: what it had staged for '{sink.name}' is gone.")
            if begun is not None:
                quietly(lambda: begun.abort([]))
            sink.begin(f"{self.job_id}e{self.log.driver.epoch}")
            self._lose(vertex)
        self.log.begun(vertex, place, sink)

    def _copy(self, vertex: int, place: int) -> Any:
        """The sink as its driver had begun it; None: it cannot be read."""
        try:
            return pickle.loads((self.log.directory / copy_name(vertex, place)).read_bytes())
        except Exception:
            _log.debug("sink %s of vertex %s cannot be read", place, vertex, exc_info=True)
            return None

    def _lose(self, vertex: int) -> None:
        names = [name[1:] for name in self.replayed.outstanding.commits if name[0] == vertex]
        if names and not any(lost.vertex == vertex for lost in self._lost):
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


def can_go_on(sink: Any) -> bool:
    """Returns whether the sink may take over what another driver had staged (``FileSink.go_on``)."""
    return bool(getattr(sink, "goes_on", False))


def copy_name(vertex: int, place: int) -> str:
    """The object beside the log with a sink as it was after ``begin``."""
    return f"sink-{vertex}-{place}.pkl"
