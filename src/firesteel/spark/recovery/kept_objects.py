"""Objects that earlier jobs have left, and the executions that wrote them: each is used once."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from firesteel.recovery.log import FencedError
from firesteel.recovery.objects import AT_ONCE, ObjectPath
from firesteel.results.storage.store import object_name
from firesteel.scheduler.recovery.earlier import EarlierJob, FinishedExecution
from firesteel.task.executor.information import TASK_BITS

Link = tuple[FinishedExecution, int, str]
"""An execution, a data set that it wrote, and the name that the object of it gets."""


@dataclass(frozen=True)
class LeftJob:
    """A job that left ``earlier`` in its log, and objects in ``directory``."""

    job_id: str
    directory: Path | ObjectPath
    earlier: EarlierJob


class KeptObjects:
    """``jobs``: those to be looked into first come first. ``directory``: of the present job. ``shared``: others use them as well, so that they stay
    where they are."""

    def __init__(self, jobs: Sequence[LeftJob], directory: Path | ObjectPath, *, shared: bool = False) -> None:
        self.job_id = jobs[0].job_id
        self.shared = shared
        self.bases: set[int] = set()
        """Of the tokens of all that was taken."""
        self._directory = directory
        self._is_over = threading.Event()
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

    def link_all(self, wanted: Sequence[Link]) -> Iterator[bool]:
        """As ``link``, of one after another; where each costs a request, several at once."""
        if isinstance(self._directory, Path):
            yield from (self.link(*one) for one in wanted)
            return
        with ThreadPoolExecutor(AT_ONCE) as pool:
            yield from pool.map(self._link_one, wanted)

    def _link_one(self, wanted: Link) -> bool:
        return self.link(*wanted)

    def link(self, one: FinishedExecution, dataset: int, name: str) -> bool:
        """Makes the object that it wrote for a data set of its own the present job's, by the name ``name``. False: it is gone. On an object store raises
        FencedError once the present job is over."""
        directory, old = self._from[id(one)].directory, object_name(dataset, one.subtask, one.attempt, one.token)
        if isinstance(directory, Path):
            assert isinstance(self._directory, Path), "both are below one root"
            return self._linked(directory / old, self._directory / name)
        assert isinstance(self._directory, ObjectPath), "both are below one root"
        return old in self._stored[directory] and self._copied_there(directory / old, self._directory / name)

    def close(self) -> None:
        """The present job is over: nothing comes into its directory any more that is not on its way already."""
        self._is_over.set()

    def _linked(self, source: Path, target: Path) -> bool:
        try:
            os.link(source, target)
        except FileExistsError:
            return True
        except FileNotFoundError:
            return False
        except OSError:  # a file system without links
            return _copied(source, target) if self.shared else _moved(source, target)
        return True

    def _copied_there(self, source: ObjectPath, target: ObjectPath) -> bool:
        """By the store itself."""
        if self._is_over.is_set():  # what a store is told to put where a directory has gone, it puts
            raise FencedError("The job is over.")
        try:
            source.copy_to(target)
        except OSError:
            return False
        return True

    def _is_whole(self, one: FinishedExecution) -> bool:
        return self._stored[self._from[id(one)].directory].issuperset(object_names(one))


def _names_in(directory: Path | ObjectPath) -> set[str]:
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
