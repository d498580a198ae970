"""Requests that no worker could fulfil: they fail the job at once, or wait for one that can, but not for ever.

What no worker can ever hold is refused before anything is deployed, of later steps too.

As in Flink's batch jobs, time runs only while no worker that is there could hold a slot even if it were empty: a large one
that is busy is worth any wait. That it is another job of the session which keeps it busy makes no difference (in Flink it
does: there a job's slots are those that it was given); it is written down who. So is one on a blocked node: the block ends
after what is slow there. So no mirror's request fails a job: a worker that could hold it runs the original.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from firesteel.humanize import format_seconds
from firesteel.model.arrays import Ints, select
from firesteel.options import SLOT_REQUEST_TIMEOUT
from firesteel.scheduler.job import Job
from firesteel.scheduler.kernel.decisions import Admission, AdmittedBecause, GoesOn
from firesteel.scheduler.kernel.events import (
    Event,
    ExecutionsDeploying,
    ExecutorChanged,
    FailureCause,
    FailureKind,
    WorkersOccupied,
)
from firesteel.scheduler.kernel.waits import MOST_NAMED, ForRoom, ForWorker, Wait
from firesteel.scheduler.policy import Policy
from firesteel.scheduler.slots.network_memory import NetworkMemory
from firesteel.scheduler.slots.pool import OpenRequest, SlotPool
from firesteel.scheduler.slots.resource_profile import ResourceProfile, SlotEnforcement, WorkerResources
from firesteel.scheduler.topology.execution_graph import ExecutionJobVertex
from firesteel.scheduler.topology.executions import Rows

SETTLE_SECONDS = 1.0
"""Workers that come while the job runs are told of one by one: who is there is known so long after the last."""
_PREFIX = "slot-request-"
_OTHER_JOBS = "slots of other jobs"


@dataclass(slots=True)
class _Wait:
    """Of a request that no worker could fulfil since ``since``."""

    request: OpenRequest
    since: float


class SlotRequests(Policy):
    def __init__(self, job: Job, pool: SlotPool) -> None:
        self._pool = pool
        self._job = job
        self._recorder = job.recorder
        self._timers = job.timers
        self._timeout = job.options[SLOT_REQUEST_TIMEOUT]
        self._waits: dict[OpenRequest, _Wait] = {}
        self._settled_at = 0.0
        self._timer_at = 0.0
        """For when the settling timer is set."""
        self._num_waits = 0
        self._behind: dict[OpenRequest, float] = {}
        """Requests that began to wait while other jobs held what could have served them, and since when."""
        self._known: dict[OpenRequest, tuple[int, bool]] = {}
        """By request: a version of the workers, and whether these could fulfil it."""
        self._looked: tuple[int, bool] | None = None
        """The workers among which the groups were last looked for, and whether these were all."""
        self._admits: bool | None = None
        """True: the pool makes executions wait, as last recorded; None: not recorded yet."""

    def workers_changed(self) -> None:
        if self._job.is_active:
            self._settled_at = self._recorder.at + SETTLE_SECONDS

    def refuse_impossible(self) -> None:
        """Fails the job for a group that no worker can ever hold, whether or not it is asked for yet. O(1) unless workers
        came or went."""
        look = self._pool.workers.version, self._recorder.at >= self._settled_at
        if look == self._looked:
            return
        self._looked = look
        for request in self._pool.group_requests():
            if self._can_never_be(request):
                wait = self._for_worker(request)
                message = f"No worker can ever hold what {wait.who} asks for ({wait.asked}): {wait.there}."
                self._fail(request, "never fulfillable", message, _remedy(wait))
                return

    def act(self) -> None:
        """All that is asked for now: what waits for a worker, and what does so no more."""
        pool = self._pool
        if pool.mode.enforcement is SlotEnforcement.TASK_PROFILES and pool.kinds and pool.workers.is_told:
            self._tell_who_admits()
        asked = pool.open_requests()
        for request in self._waits.keys() - asked:
            del self._waits[request]
        for request in asked:
            if self._can_be(request):
                self._goes_on(request)
            elif request not in self._waits:
                self._wait(request)
        if self._behind or not self._pool.session.is_alone:
            self._look_at_other_jobs()

    def _timed_out(self, wait: _Wait) -> None:
        """A wait that is over by now changes nothing."""
        if self._waits.get(wait.request) is wait:
            told = self._for_worker(wait.request)
            asked = f"what {told.who} asks for ({told.asked})"
            message = f"In {format_seconds(self._timeout)} there was {told.none} {asked}: {told.there}."
            hint = f"Start larger workers, ask for less, or raise {SLOT_REQUEST_TIMEOUT.key}."
            self._fail(wait.request, SLOT_REQUEST_TIMEOUT.key, message, hint)

    def waiting_for(self) -> list[Wait]:
        pool, waits = self._pool, list[Wait]()
        for request in pool.open_requests():
            if request in self._waits:
                waits.append(self._for_worker(request))
            elif pool.admits and pool.unmet.get(request):  # else it has its slots, and starts
                waits.append(self._for_room(request))
        return waits

    # --- what can be -------------------------------------------------------------------------------------------

    def _can_be(self, request: OpenRequest) -> bool:
        """Returns whether a worker that is there could hold it if it were empty. Asked once per change."""
        version = self._pool.workers.version
        known = self._known.get(request)
        if known is None or known[0] != version:
            known = self._known[request] = (version, self._pool.could_fulfil(request))
        return known[1]

    def _can_never_be(self, request: OpenRequest) -> bool:
        """No worker that there ever was could hold a slot, and none that is larger will come."""
        workers, mode = self._pool.workers, self._pool.mode
        if mode.grows or mode.enforcement is SlotEnforcement.EXECUTOR_PROFILES or not workers.alive.any():
            return False
        never = any(not workers.ever_held(profile) for profile, _ in request.slots)
        if not never or self._recorder.at >= self._settled_at:
            return never
        if self._timer_at != self._settled_at:
            self._timer_at = self._settled_at
            self._timers.set(f"{_PREFIX}settled", self._settled_at, lambda: None)  # ``refuse_impossible`` looks again
        return False

    def _wait(self, request: OpenRequest) -> None:
        self._num_waits += 1
        wait = self._waits[request] = _Wait(request, self._recorder.at)
        self._timers.set(f"{_PREFIX}{self._num_waits}", wait.since + self._timeout, lambda: self._timed_out(wait))
        self._decide(request, SLOT_REQUEST_TIMEOUT.key, "waits", self._for_worker(request))

    def _goes_on(self, request: OpenRequest) -> None:
        wait = self._waits.pop(request, None)
        if wait is not None:
            self._decide(request, SLOT_REQUEST_TIMEOUT.key, "goes on", self._waited(request, wait.since, others=False))

    def _fail(self, request: OpenRequest, rule: str, message: str, hint: str) -> None:
        self._waits.clear()
        self._decide(request, rule, "fails", {"group": self._pool.groups[request.group]}, reason=message)
        self._job.fail(FailureCause(FailureKind.FATAL, message, hint=hint), request.vertex)

    def _tell_who_admits(self) -> None:
        """Records who admits executions: where Spark counts cores, the workers' sizes decide whether memory has to be counted too."""
        pool = self._pool
        if pool.admits == self._admits:
            return
        self._admits = pool.admits
        named = zip(pool.groups, pool.profiles, strict=True)
        asked = {g: (p.memory + pool.mode.framework) / p.cpu_cores for g, p in named if p.cpu_cores}
        there = pool.workers.least_memory_per_core
        if not self._admits:
            why = AdmittedBecause.CORES_RUN_OUT
        elif pool.memory_binds:
            why = AdmittedBecause.MEMORY_MAY
        else:
            why = AdmittedBecause.OTHER_JOB if pool.session.others_admit else AdmittedBecause.IN_TURN
        self._recorder.decision(
            "slot admission",
            inputs=Admission(asked_bytes_per_core=asked, least_bytes_per_core=there, why=why),
            rule=pool.mode.enforcement.value,
            result="the slot pool" if self._admits else "Spark",
        )

    # --- other jobs --------------------------------------------------------------------------------------------

    def _look_at_other_jobs(self) -> None:
        """Once for a request, and once it has all its slots."""
        unmet = self._pool.unmet
        for request in [request for request in self._behind if request not in unmet]:
            since = self._behind.pop(request)
            self._decide(request, _OTHER_JOBS, "goes on", self._waited(request, since, others=True))
        for request in unmet:
            if request not in self._behind and self._held_by_others(request):
                self._behind[request] = self._recorder.at
                self._decide(request, _OTHER_JOBS, "waits", self._for_room(request))

    def _held_by_others(self, request: OpenRequest) -> tuple[tuple[str, WorkerResources], ...]:
        """Returns what each other job holds of the workers that could serve it."""
        pool = self._pool
        found = pool.session.held_by_others(pool.able_when_empty(request, pool.usable))
        return tuple((name, pool.workers.dimensions.told(held)) for name, held in found)

    # --- as facts ----------------------------------------------------------------------------------------------

    def _for_worker(self, request: OpenRequest) -> ForWorker:
        pool = self._pool
        largest = pool.workers.nearest([profile for profile, _ in request.slots])
        wait = self._waits.get(request)
        return ForWorker(
            *self._asked(request),
            workers=int(pool.workers.alive.sum()),
            are_made=pool.mode.enforcement is SlotEnforcement.EXECUTOR_PROFILES,
            largest=None if largest is None else replace(largest, addresses={}),
            framework=pool.mode.framework,
            seconds=0.0 if wait is None else max(0.0, wait.since + self._timeout - self._recorder.at),
        )

    def _for_room(self, request: OpenRequest) -> ForRoom:
        pool = self._pool
        able = pool.able_when_empty(request, pool.workers.alive)
        return ForRoom(
            *self._asked(request),
            missing=pool.unmet.get(request, 0),
            able=int(able.sum()),
            blocked=int((able & ~pool.usable).sum()),
            held=self._held_by_others(request),
        )

    def _asked(self, request: OpenRequest) -> tuple[str, tuple[str, ...], int, tuple[tuple[ResourceProfile, int], ...]]:
        """The fields of :class:`ForRequest`."""
        steps = self._pool.steps_of(request.group)
        return self._pool.groups[request.group], tuple(steps[:MOST_NAMED]), len(steps), request.slots

    def _waited(self, request: OpenRequest, since: float, *, others: bool) -> GoesOn:
        return GoesOn(group=self._pool.groups[request.group], seconds=self._recorder.at - since, others=others)

    def _decide(self, request: OpenRequest, rule: str, result: str, inputs: Any, **reason: str) -> None:
        name = self._pool.steps_of(request.group)[0]
        self._recorder.decision(
            "slot request", vertex=request.vertex, name=name, inputs=inputs, rule=rule, result=result, **reason
        )


def _remedy(wait: ForWorker) -> str:
    if not wait.lacks:
        larger = " (spark.executor.memoryOverhead)" if wait.framework else ""
        return f"Ask for less, or start larger workers{larger}."
    settings = ", ".join(f"spark.executor.resource.{name}.amount" for name in wait.lacks)
    return (
        f"Start workers that offer {' and '.join(wait.lacks)}: Spark has settings for it ({settings}; with a local master, "
        f"{settings.replace('executor', 'driver')})."
    )


class FineGrainedResources(Policy):
    answers: ClassVar[Mapping[type[Event], str]] = {WorkersOccupied: "workers_occupied"}

    def __init__(self, job: Job, pool: SlotPool, requests: SlotRequests, network: NetworkMemory) -> None:
        self._job = job
        self._pool = pool
        self._requests = requests
        self._network = network

    def executors_changed(self, changes: Sequence[ExecutorChanged]) -> None:
        for change in changes:
            self._pool.workers.change(change)
            self._requests.workers_changed()
            self._network.consider()

    def workers_occupied(self, event: WorkersOccupied) -> None:
        self._pool.workers.occupy(dict(zip(event.executors, event.cores.tolist(), strict=True)))

    def launched(self, vertex: ExecutionJobVertex, rows: Rows, places: Ints, event: ExecutionsDeploying) -> None:
        self._pool.started_on(rows, select(event.executors, places), select(event.nodes, places))

    def act(self) -> None:
        self._requests.refuse_impossible()

    def event_handled(self) -> None:
        self._pool.settle(is_active=self._job.is_active)
        if self._job.status.is_terminal:
            self._pool.session.close()
