"""Results that jobs have left to others (``firesteel.results.reuse``): found by what their vertices do, without reading their logs, and used beside
other jobs that use them.

Of all jobs below the storage directory only the owners' marks are read, which have the lineages of their vertices in short; then the logs of the few that
have most of what the present job does. Nothing is answered because of these: executions are told apart one by one, as those of a corrected script.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from firesteel.errors import FiresteelError, UsageError
from firesteel.humanize import first_of, plural
from firesteel.model.costs import StepCosts
from firesteel.options import RECOVERY_MODE, RESULTS_REUSE, STORAGE_DIR
from firesteel.recovery.objects import ObjectPath
from firesteel.recovery.places import job_and_epoch
from firesteel.recovery.retention import FINISHED, LINES
from firesteel.recovery.takeover import FoundJob, find_job
from firesteel.recovery.uses import Use, begin_use
from firesteel.results.storage.owner import says_dead
from firesteel.scheduler.inputs import Inputs
from firesteel.scheduler.kernel.records import Decision
from firesteel.scheduler.recovery.records import DriverBegan, Ended, LogHeader
from firesteel.spark.recovery.corrected import Correction, Staged, correction_of, lines_of
from firesteel.spark.recovery.header import FROM_NOTHING, Before
from firesteel.spark.recovery.kept_objects import KeptObjects, LeftJob
from firesteel.spark.storage.directories import Place, marks_in, open_root

MOST_USED = 8
"""Jobs whose results are used by one."""
_LINE_BYTES = 8
_log = logging.getLogger("firesteel.recovery")


def lines_in_short(header: LogHeader) -> tuple[str, ...]:
    """The lineages of the job's vertices, as far as others may use what they have written."""
    known = [one for one in lines_of(header, sinks_run=True).lineages() if one is not None]
    return tuple(one[:_LINE_BYTES].hex() for one in known)


def check_reuse(root: Path | ObjectPath | None) -> None:
    """``root``: of results; None: no log is written. Raises UsageError where nothing can be used again."""
    if root is None:
        raise UsageError(
            f"{RESULTS_REUSE.key} = true needs the logs of jobs, and none are written.",
            hint=f"Set {STORAGE_DIR.key} to a directory of a file system, or on S3, and leave {RECOVERY_MODE.key} unset.",
        )


@dataclass(frozen=True, slots=True)
class _Left:
    """A job that has ended, by its owner's mark."""

    name: str
    job_id: str
    lines: frozenset[str]
    has_finished: bool
    at: float
    is_alike: bool
    """It had the present one's place in a script, or looks like it and was of this process."""


@dataclass(frozen=True, slots=True)
class _Used:
    correction: Correction
    directory: Path | ObjectPath
    use: Use


@dataclass(eq=False)
class ReusedJobs:
    """``names``: of the present job's vertices. ``alike``: the job with which it is compared in words; None: there is none."""

    names: Sequence[str]
    jobs: list[_Used] = field(default_factory=list[_Used])
    alike: Correction | None = None
    _kept: KeptObjects | None = None
    staged: Mapping[tuple[int, int], Staged] = field(default_factory=dict[tuple[int, int], Staged])
    """Nothing: what writes an output runs in every job."""

    @property
    def origins(self) -> Mapping[int, str]:
        return {base: job_id for used in self.jobs for base, job_id in used.correction.found.origins.items()}

    @property
    def bases(self) -> Collection[int]:
        return set() if self._kept is None else self._kept.bases

    @property
    def before(self) -> Before:
        """The clock goes on behind all that was written: what is used happened before."""
        corrections = [used.correction for used in self.jobs]
        if not corrections:
            return FROM_NOTHING
        return Before(max(one.earlier.at for one in corrections), uses=tuple(one.found.job_id for one in corrections))

    def given(self, given: Inputs) -> Inputs:
        """It decides as those did, about what they have had as well."""
        pinned, costs = dict[int, int](), dict(given.costs.by_step)
        for used in reversed(self.jobs):
            pinned |= used.correction.pinned()
            then = used.correction.costs()
            costs |= {} if then is None else then.by_step
        return replace(given, costs=StepCosts(costs), pinned=pinned)

    def kept(self, directory: Path | ObjectPath) -> KeptObjects:
        left = [LeftJob(used.correction.found.job_id, used.directory, used.correction.earlier) for used in self.jobs]
        self._kept = KeptObjects(left, directory, shared=True)
        for job in left:
            self._kept.strike([one for one in job.earlier.finished if one.commits])
        return self._kept

    def check_held(self) -> None:
        """Results that others may use as well are nobody's own."""

    def abandon(self) -> None:
        """A job that failed may be resumed, and needs all that it had staged."""

    def leave(self, *, finished: bool) -> None:
        for used in self.jobs:
            used.use.end()

    def lines(self) -> list[str]:
        """A sentence for each vertex."""
        return [f"'{name}' {self._line(vertex)}" for vertex, name in enumerate(self.names)]

    def _line(self, vertex: int) -> str:
        job = self._job_of(vertex)
        if job is None:
            return f"runs: {self._why(vertex)}."
        then = job.matches[vertex].then
        assert then is not None
        of = plural(job.earlier.parallelism.get(then, 0), "subtask")
        return f"is taken from job {job.found.job_id}: {job.finished(vertex):,} of {of}."

    def _job_of(self, vertex: int) -> Correction | None:
        return next((used.correction for used in self.jobs if used.correction.finished(vertex)), None)

    def _why(self, vertex: int) -> str:
        if self.alike is None:
            return "no job has left anything like it"
        return self.alike.matches[vertex].why or "nothing of it had finished"

    def decision(self) -> Decision:
        """Says what is used, of which job, and why the first of the others runs."""
        said = list(self._said())
        others = [vertex for vertex in range(len(self.names)) if self._job_of(vertex) is None]
        if others and self.alike is not None:
            said.append(f"'{self.names[others[0]]}' runs: {self._why(others[0])}.")
        jobs = [used.correction.found.job_id for used in self.jobs]
        return Decision(
            at=0.0,
            what="reuse",
            inputs={"jobs": jobs} if jobs else {},
            result="uses results" if jobs else "nothing is used",
            reason=" ".join(said),
        )

    def _said(self) -> Iterator[str]:
        if not self.jobs:
            yield "No results of earlier jobs are used."
        for job in (used.correction for used in self.jobs):
            own = [f"'{name}'" for vertex, name in enumerate(self.names) if self._job_of(vertex) is job]
            if own:
                ended = "" if job.found.has_finished else ", which did not finish"
                yield f"Results of job {job.found.job_id} ('{job.found.header.job_name}'{ended}) are used for {first_of(own, 8)}."


def reused(root: Path | ObjectPath, present: LogHeader, place: Place) -> ReusedJobs:
    """Finds what the present job may use, and holds it. Raises OSError."""
    found = ReusedJobs([vertex["name"] for vertex in present.plan.vertices])
    left = _left(root, place)
    alike = max((one for one in left if one.is_alike), key=lambda one: one.at, default=None)
    missing = set(lines_in_short(present))
    origins: dict[int, str] = {}
    for _ in range(2 * MOST_USED):
        best = max(left, key=lambda one: (len(missing & one.lines), one.has_finished, one.at), default=None)
        if best is None or not missing & best.lines or len(found.jobs) == MOST_USED:
            break
        left.remove(best)
        used = _used(root, best, present, origins)
        if used is not None:
            found.jobs.append(used)
            origins |= used.correction.found.origins
            missing -= best.lines if best.has_finished else set()
    found.alike = _alike(root, alike, present, found)
    return found


def _left(root: Path | ObjectPath, place: Place) -> list[_Left]:
    found: list[_Left] = []
    fs, path = open_root(str(root))
    for mark, name, _ in marks_in(fs, path):
        owned = job_and_epoch(name)
        if owned is None or not isinstance(mark.get(LINES), list) or not says_dead(mark):
            continue
        is_alike = mark.get("in_script") == place.in_script or mark.get("in_process") == place.in_process
        at = mark.get("at", 0.0)
        found.append(_Left(name, owned[0], frozenset(mark[LINES]), FINISHED in mark, at, is_alike))
    return found


def _used(root: Path | ObjectPath, left: _Left, present: LogHeader, origins: Mapping[int, str]) -> _Used | None:
    """Holds what the job has left. None: it is being removed, cannot be read, has nothing of use, or tokens that are another job's in what was
    found before (``origins``): then nobody could tell its objects from that one's."""
    directory = root / left.name
    use = begin_use(directory)
    if use is None:
        return None
    correction = _compared(root, left, present)
    if correction is not None and correction.keeps and correction.found.directory == directory:
        own = correction.found.origins
        if all(origins.get(base, job_id) == job_id for base, job_id in own.items()):
            return _Used(correction, directory, use)
    use.end()
    return None


def _compared(root: Path | ObjectPath, left: _Left, present: LogHeader) -> Correction | None:
    try:
        correction = correction_of(find_job(root, left.job_id), present, sinks_run=True)
    except (FiresteelError, ValueError, OSError):  # of use, and not necessary
        _log.debug("nothing of job %s can be used", left.job_id, exc_info=True)
        return None
    return replace(correction, found=_in_short(correction.found))


def _in_short(found: FoundJob) -> FoundJob:
    """Without what was folded already: it is held as long as the present job runs."""
    told = [entry for entry in found.log.entries if isinstance(entry[0], DriverBegan | Ended)]
    return replace(found, log=replace(found.log, entries=told))


def _alike(root: Path | ObjectPath, left: _Left | None, present: LogHeader, found: ReusedJobs) -> Correction | None:
    """The comparison with the job which is most like the present one, by its place."""
    corrections = [used.correction for used in found.jobs]
    if left is not None:
        known = next((one for one in corrections if one.found.job_id == left.job_id), None)
        return known or _compared(root, left, present)
    return corrections[0] if corrections else None
