"""Costs of a job's steps, out of the journals of its earlier runs: of the newest few, their first and last lines alone.

Whatever is wrong with a journal (cut off, damaged, of another job or version), it tells nothing, and is no error.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from firesteel.journal.listing import HEAD, TAIL, Numbers, Planned, ends_of
from firesteel.journal.places import SUFFIX, journal_directories, slug
from firesteel.model.costs import NO_COSTS, MeasuredStep, StepCost, StepCosts
from firesteel.model.job_graph import JobGraph
from firesteel.options import TARGET_TASK_DURATION, Options

LOOKED_AT = 8
"""Journals of the job's name, the newest ones."""
ENOUGH_RUNS = 3
"""Of each step; older journals are left alone once all have so many."""
_MOST = 1 << 62
"""Larger numbers are nobody's."""
_NUMBERS = {"numBytesConsumed": -1, "accumulateBusyTimeMs": -1, "numBytesProduced": 0}
"""A vertex' metrics (``scheduler.kernel.metrics``), and the value for a missing one: the vertex had not finished, or the journal is older."""
_SNAPSHOT = b'{"type":"MetricsSnapshot"'


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
    with suppress(OSError, msgspec.MsgspecError, ValueError, TypeError, LookupError, OverflowError):
        with path.open("rb") as file:
            head, tail, _ = ends_of(file)
        planned = HEAD.decode(head)
        if isinstance(planned, Planned) and planned.job_name == job_name:
            steps = {int(vertex["id"]): str(vertex["step"]) for vertex in planned.vertices if vertex.get("step")}
            for vertex, numbers in _last_numbers(tail, set(steps)).items():
                size, busy, out = (int(numbers.get(name, default)) for name, default in _NUMBERS.items())
                if all(0 <= number < _MOST for number in (size, busy, out)):
                    yield steps[vertex], MeasuredStep(size, busy / 1e3, out)


def _last_numbers(tail: bytes, wanted: set[int]) -> dict[int, dict[str, float]]:
    """The numbers of each vertex as they were told last. The job's end tells all of them in one line."""
    found: dict[int, dict[str, float]] = {}
    for line in reversed(tail.split(b"\n")):
        if line.startswith(_SNAPSHOT):
            with suppress(msgspec.MsgspecError, UnicodeDecodeError):
                record = TAIL.decode(line)
                told = record.vertices if isinstance(record, Numbers) else {}
                found |= {vertex: one for vertex, one in told.items() if vertex in wanted and vertex not in found}
                if len(found) == len(wanted):
                    break
    return found
