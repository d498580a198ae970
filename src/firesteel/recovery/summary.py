"""A job's log in short, as people ask for it: how much of each step had finished, and how far each output had come."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from firesteel.recovery.takeover import FoundJob
from firesteel.scheduler.kernel.events import ExecutionsFinished
from firesteel.scheduler.recovery.codec import FINISHED, decode
from firesteel.scheduler.recovery.records import AnyLogRecord, Deployed, DriverBegan, Ended, LogHeader, SinkStep, Told

_BEGUN = "begun"


@dataclass(slots=True)
class Step:
    """A vertex of the job's graph. ``subtasks``: None: not decided yet; ``finished``: those that had, some time; ``datasets``: that it makes."""

    vertex: int
    name: str
    datasets: frozenset[int]
    subtasks: int | None = None
    finished: set[int] = field(default_factory=set[int])


@dataclass(slots=True)
class Output:
    """A sink at its ``place`` among those of a vertex. ``step``: how far it had come (``SinkStep``); ``recovers``: it can say what it has published."""

    vertex: int
    place: int
    name: str
    step: str = _BEGUN
    recovers: bool = False

    @property
    def may_be_out(self) -> bool:
        return self.step in ("publishing", "published")


@dataclass(frozen=True, slots=True)
class Summary:
    """``drivers``: how many the job has had; ``ended``: the status it has ended with, empty if its driver died before."""

    steps: list[Step]
    outputs: list[Output]
    drivers: int
    ended: str = ""

    @property
    def finished(self) -> int:
        return sum(len(step.finished) for step in self.steps)

    @property
    def subtasks(self) -> int:
        """Of the steps whose number is decided."""
        return sum(step.subtasks or 0 for step in self.steps)


def summary(job: FoundJob) -> Summary:
    """Folds the records of the present generation. Raises ValueError for an event that this version cannot read."""
    steps = _steps(job.header)
    outputs: dict[tuple[int, int], Output] = {}
    ended = ""
    for record in _of_generation(job):
        match record:
            case Told(event_kind=kind, event=event) if kind == FINISHED:
                told = decode(event)
                assert isinstance(told, ExecutionsFinished)
                steps[told.vertex].finished.update(told.subtasks.tolist())
            case Deployed():
                steps[record.vertex].subtasks = record.parallelism
            case SinkStep():
                where = record.vertex, record.sink
                output = outputs.setdefault(where, Output(*where, steps[record.vertex].name))
                if record.step == _BEGUN:
                    output.recovers = bool(record.state)
                else:
                    output.step = record.step
            case Ended():
                ended = record.status
            case DriverBegan():
                ended = ""
            case _:
                pass
    return Summary(list(steps.values()), list(outputs.values()), job.driver.epoch, ended)


def _steps(header: LogHeader) -> dict[int, Step]:
    made: dict[int, set[int]] = {}
    for dataset in header.plan.datasets:
        made.setdefault(dataset["producer"], set()).add(dataset["id"])
    return {vertex["id"]: _step(vertex, made.get(vertex["id"], ())) for vertex in header.plan.vertices}


def _step(vertex: dict[str, Any], datasets: Iterable[int]) -> Step:
    parallelism = vertex["parallelism"]
    return Step(vertex["id"], vertex["name"], frozenset(datasets), parallelism if parallelism > 0 else None)


def _of_generation(job: FoundJob) -> Iterator[AnyLogRecord]:
    records = [record for entry in job.log.entries for record in entry]
    headers = [place for place, record in enumerate(records) if isinstance(record, LogHeader)]
    yield from records[headers[-1] :]
