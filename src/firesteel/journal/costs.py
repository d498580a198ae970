"""Costs of a job's steps, out of the journals of its earlier runs: of the newest few, their first and last lines alone.

Whatever is wrong with a journal (cut off, damaged, of another job or version), it tells nothing, and is no error.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from firesteel.journal.listing import ends_of
from firesteel.journal.places import SUFFIX, journal_directories, slug
from firesteel.model.job_graph import JobGraph
from firesteel.model.steps.costs import NO_COSTS, MeasuredStep, StepCost, StepCosts
from firesteel.options import TARGET_TASK_DURATION, Options

LOOKED_AT = 8
"""Journals of the job's name, the newest ones."""
ENOUGH_RUNS = 3
"""Of each step; older journals are left alone once all have so many."""
_MOST = 1 << 62
"""Larger numbers are nobody's."""
_SNAPSHOT = b'{"type":"MetricsSnapshot"'


class _Step(msgspec.Struct):
    id: int
    step: str = ""


class _Planned(msgspec.Struct, tag="JobPlanned"):
    job_name: str
    vertices: list[_Step]


class _Cost(
    msgspec.Struct, rename={"bytes": "numBytesConsumed", "busy": "accumulateBusyTimeMs", "out": "numBytesProduced"}
):
    """A vertex' metrics (``scheduler.kernel.metrics``); -1: it had not finished, or an older Firesteel wrote them."""

    bytes: int = -1
    busy: int = -1
    out: int = 0


class _Numbers(msgspec.Struct, tag="MetricsSnapshot"):
    vertices: dict[int, _Cost] = {}


_planned = msgspec.json.Decoder(_Planned)
_numbers = msgspec.json.Decoder(_Numbers)


def earlier_costs(graph: JobGraph, options: Options, own: Path | None = None) -> StepCosts:
    """Returns what the steps of this job cost in its earlier runs, as far as their journals tell. ``own``: the journal of this run.
    Never raises; reads nothing where ``target-task-duration`` is 0."""
    steps = {vertex.step for vertex in graph.vertices if vertex.step}
    if not steps or not options[TARGET_TASK_DURATION]:
        return NO_COSTS
    found: dict[str, list[MeasuredStep]] = {step: [] for step in steps}
    with suppress(OSError):
        for path in _newest(options, graph.name, own):
            for step, measured in _measured(path, graph.name):
                if step in found:
                    found[step].append(measured)
            if all(len(runs) >= ENOUGH_RUNS for runs in found.values()):
                break
    costs = {step: StepCost.of(runs) for step, runs in found.items()}
    return StepCosts({step: cost for step, cost in costs.items() if cost is not None})


def _newest(options: Options, job_name: str, own: Path | None) -> list[Path]:
    """Journals of jobs of this name, by the names of their files, which begin with the time. The newest first."""
    middle = f"_{slug(job_name)}_"
    found: list[os.DirEntry[str]] = []
    for directory in journal_directories(options):
        with suppress(FileNotFoundError), os.scandir(directory) as entries:
            found += [
                e
                for e in entries
                if middle in e.name and e.name.endswith(SUFFIX) and (own is None or e.name != own.name)
            ]
    found.sort(key=lambda entry: entry.name, reverse=True)
    return [Path(entry.path) for entry in found[:LOOKED_AT] if entry.is_file()]


def _measured(path: Path, job_name: str) -> Iterator[tuple[str, MeasuredStep]]:
    """Yields the steps of one journal whose vertices had all finished, by identity."""
    with suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError):
        with path.open("rb") as file:
            head, tail, _ = ends_of(file)
        planned = _planned.decode(head)
        if planned.job_name == job_name:
            steps = {vertex.id: vertex.step for vertex in planned.vertices if vertex.step}
            for vertex, cost in _last_numbers(tail, set(steps)).items():
                if all(0 <= number < _MOST for number in (cost.bytes, cost.busy, cost.out)):
                    yield steps[vertex], MeasuredStep(cost.bytes, cost.busy / 1e3, cost.out)


def _last_numbers(tail: bytes, wanted: set[int]) -> dict[int, _Cost]:
    """The numbers of each vertex as they were told last. The job's end tells all of them in one line."""
    found: dict[int, _Cost] = {}
    for line in reversed(tail.split(b"\n")):
        if line.startswith(_SNAPSHOT):
            with suppress(msgspec.MsgspecError, UnicodeDecodeError):
                numbers = _numbers.decode(line).vertices
                found |= {vertex: cost for vertex, cost in numbers.items() if vertex in wanted and vertex not in found}
                if len(found) == len(wanted):
                    break
    return found
