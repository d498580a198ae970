"""Objects that earlier jobs have left, and the executions that wrote them: each is used once."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from firesteel.results.storage.store import object_name
from firesteel.scheduler.recovery.earlier import EarlierJob, FinishedExecution
from firesteel.task.executor.information import TASK_BITS


@dataclass(frozen=True)
class LeftJob:
    """A job that left ``earlier`` in its log, and objects in ``directory``."""

    job_id: str
    directory: Path
    earlier: EarlierJob


class KeptObjects:
    """``jobs``: those to be looked into first come first. ``directory``: of the present job. ``shared``: others use them as well, so that they stay
    where they are."""

    def __init__(self, jobs: Sequence[LeftJob], directory: Path, *, shared: bool = False) -> None:
        self.job_id = jobs[0].job_id
        self.shared = shared
        self.bases: set[int] = set()
        """Of the tokens of all that was taken."""
        self._directory = directory
        self._from: dict[int, LeftJob] = {}
        self._stored = {job.directory: _names_in(job.directory) for job in jobs}
        self._by_key: dict[bytes, list[FinishedExecution]] = {}
        for job in jobs:
            self._add(job)

    def _add(self, job: LeftJob) -> None:
        for one in job.earlier.finished:
            if one.key:
                self._from[id(one)] = job
                self._by_key.setdefault(one.key, []).append(one)

    def take(self, key: bytes, *, whole: bool) -> FinishedExecution | None:
        """The execution with this key: one whose objects are there, if any is. ``whole``: only such a one. None: there is none, or none is left.
        Of several jobs that have had one execution from each other, it is taken once."""
        found = self._by_key.get(key)
        if not found:
            return None
        best = next((one for one in found if self._is_whole(one)), None)
        if best is None and whole:
            return None
        best = best or found[0]
        self._by_key[key] = [one for one in found if one.token != best.token]
        self.bases.add(best.token >> TASK_BITS << TASK_BITS)
        return best

    def job_of(self, one: FinishedExecution) -> str:
        """The id of the job that left it."""
        return self._from[id(one)].job_id

    def strike(self, executions: Iterable[FinishedExecution]) -> None:
        """These are of no use any more."""
        for one in executions:
            with suppress(KeyError, ValueError):
                self._by_key[one.key].remove(one)

    def link(self, one: FinishedExecution, dataset: int, name: str) -> bool:
        """Makes the object that it wrote for a data set of its own the present job's, by the name ``name``. False: it is gone."""
        source = self._from[id(one)].directory / object_name(dataset, one.subtask, one.attempt, one.token)
        target = self._directory / name
        try:
            os.link(source, target)
        except FileExistsError:
            return True
        except FileNotFoundError:
            return False
        except OSError:  # a file system without links
            return _copied(source, target) if self.shared else _moved(source, target)
        return True

    def _is_whole(self, one: FinishedExecution) -> bool:
        return self._stored[self._from[id(one)].directory].issuperset(object_names(one))


def _names_in(directory: Path) -> set[str]:
    """Empty: somebody has taken the job over or removed it just now."""
    with suppress(OSError):
        return {path.name for path in directory.iterdir()}
    return set()


def object_names(one: FinishedExecution) -> list[str]:
    """The names of all that it wrote."""
    return [object_name(dataset, one.subtask, one.attempt, one.token) for dataset in one.datasets]


def _moved(source: Path, target: Path) -> bool:
    try:
        source.rename(target)
    except OSError:
        return False
    return True


def _copied(source: Path, target: Path) -> bool:
    """No reader finds a part of it."""
    partial = target.with_name(f"{target.name}.part")
    try:
        shutil.copyfile(source, partial)
        partial.rename(target)
    except OSError:
        with suppress(OSError):
            partial.unlink()
        return False
    return True
