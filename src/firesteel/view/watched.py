"""A job that is being watched: what its records say so far, what time it is there, how long a vertex will still take."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

from firesteel.options import MAX_PARALLELISM, PARALLELISM_DEFAULT
from firesteel.report.history import JobHistory, VertexHistory
from firesteel.scheduler.kernel.records import JournalRecord, StateChange

_BEGUN = ("DEPLOYING", "INITIALIZING", "RUNNING")


@dataclass(slots=True)
class TimeLeft:
    """Of one vertex. ``apply`` takes its records in order; times are the job's."""

    begun: dict[tuple[int, int], float] = field(default_factory=dict[tuple[int, int], float])
    """Start time of each execution (subtask, attempt) that runs now: as many as run, not as many as there are."""
    finished: int = 0
    spent: float = 0.0
    """Seconds that the finished ones ran, together."""

    def apply(self, record: StateChange) -> None:
        times = record.times or [record.at] * len(record.subtasks)
        executions = zip(record.subtasks, record.attempts, strict=False)
        if record.state in _BEGUN:
            for execution, at in zip(executions, times, strict=False):
                self.begun.setdefault(execution, at)
            return
        starts = record.deployed or [-1.0] * len(record.subtasks)
        for execution, at, start in zip(executions, times, starts, strict=False):
            began = self.begun.pop(execution, start)
            if record.state == "FINISHED" and began >= 0:
                self.finished += 1
                self.spent += max(0.0, at - began)

    def seconds(self, now: float, waiting: int) -> float | None:
        """With ``waiting`` subtasks still to begin after those that run, as many at once as run now, each taking as long as the
        finished ones did on average. None: none has finished, or none runs."""
        running = len(self.begun)
        if not self.finished or not running:
            return None
        mean = self.spent / self.finished
        still = sum(max(0.0, mean - (now - began)) for began in self.begun.values())
        return (waiting * mean + still) / running


class Watched:
    """``apply`` takes the records of one running job in order."""

    def __init__(self) -> None:
        self.history = JobHistory()
        self._left: dict[int, TimeLeft] = {}
        self._zero = math.inf
        """Value of ``time.monotonic`` at the job's time 0, as far as records tell: each comes a little late."""

    def began_by(self, moment: float) -> None:
        """``moment``: value of ``time.monotonic`` at the job's time 0, at the latest."""
        self._zero = min(self._zero, moment)

    def apply(self, record: JournalRecord) -> None:
        self.began_by(time.monotonic() - record.at)
        self.history.apply(record)
        if isinstance(record, StateChange):
            self._left.setdefault(record.vertex, TimeLeft()).apply(record)

    @property
    def name(self) -> str:
        return self.history.plan.job_name if self.history.plan else "job"

    @property
    def job_id(self) -> str:
        return self.history.plan.job_id if self.history.plan else ""

    @property
    def now(self) -> float:
        """The job's time, in seconds as in its records."""
        return 0.0 if self._zero == math.inf else time.monotonic() - self._zero

    @property
    def seconds(self) -> float:
        """Since it began; of a job that is over, until it ended."""
        began = self.history.started_at
        if began is None or self.history.is_over:
            return self.history.seconds
        return max(0.0, self.now - began)

    def seconds_left(self, vertex: VertexHistory) -> float | None:
        """None: it cannot be known (yet)."""
        left = self._left.get(vertex.id)
        if left is None or vertex.parallelism is None or vertex.is_done or self.history.is_over:
            return None
        return left.seconds(self.now, vertex.counts()[0])

    def bound(self, vertex: VertexHistory) -> int | None:
        """The most subtasks that a vertex whose parallelism is open may get; the number itself where the user has fixed it.
        None: not known."""
        plan = self.history.plan
        if plan is None:
            return None
        described = next((v for n, v in enumerate(plan.vertices) if int(v.get("id", n)) == vertex.id), {})
        fixed, own = described.get("parallelism"), described.get("max_parallelism")
        if isinstance(fixed, int) and fixed > 0:
            return fixed
        default = plan.options.get(PARALLELISM_DEFAULT.key) or MAX_PARALLELISM.default
        common = plan.options.get(MAX_PARALLELISM.key, default)
        return min(int(common), own) if isinstance(own, int) and own > 0 else int(common)


def state_of(history: JobHistory, vertex: VertexHistory) -> str:
    """One word: ``waiting`` (for its inputs), ``queued``, ``running``, ``done``, ``restarting``, ``failed``, ``cancelled``."""
    if vertex.is_done:
        return "done"
    if history.is_over:
        return "failed" if vertex.by_state["FAILED"] else "cancelled" if vertex.states else "not begun"
    if vertex.parallelism is None:
        return "waiting"
    if vertex.counts()[1]:
        return "running"
    return "restarting" if vertex.by_state["FAILED"] or history.status == "RESTARTING" else "queued"
