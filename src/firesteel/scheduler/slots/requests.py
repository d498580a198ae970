"""Requests that no worker could fulfil: they fail the job at once, or wait for one that can, but not for ever.

What no worker can ever hold is refused before anything is deployed, of later steps too.

As in Flink's batch jobs, time runs only while no worker that is there could hold a slot even if it were empty: a large one
that is busy is worth any wait. That it is another job of the session which keeps it busy makes no difference (in Flink it
does: there a job's slots are those that it was given); it is written down who. So is one on a blocked node: the block ends
after what is slow there. So no mirror's request fails a job: a worker that could hold it runs the original.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from firesteel.humanize import format_bytes, format_seconds, plural
from firesteel.model.arrays import Ints, select
from firesteel.options import FRAMEWORK_MEMORY, SLOT_REQUEST_TIMEOUT
from firesteel.scheduler.job import Job
from firesteel.scheduler.kernel.events import (
    Event,
    ExecutionsDeploying,
    ExecutorChanged,
    FailureCause,
    FailureKind,
    WorkersOccupied,
)
from firesteel.scheduler.kernel.waits import ForRequest, Wait
from firesteel.scheduler.policy import Policy
from firesteel.scheduler.slots.network_memory import NetworkMemory
from firesteel.scheduler.slots.pool import OpenRequest, SlotPool
from firesteel.scheduler.slots.resource_profile import ResourceProfile, SlotEnforcement, WorkerResources
from firesteel.scheduler.topology.execution_graph import ExecutionJobVertex
from firesteel.scheduler.topology.executions import Rows

SETTLE_SECONDS = 1.0
"""Workers that come while the job runs are told of one by one: who is there is known so long after the last."""
_PREFIX = "slot-request-"
_MOST_NAMED = 5
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
                self._fail(request, "never fulfillable", self._never(request), self._remedy(request))
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
            hint = f"Start larger workers, ask for less, or raise {SLOT_REQUEST_TIMEOUT.key}."
            self._fail(wait.request, SLOT_REQUEST_TIMEOUT.key, self._too_long(wait.request), hint)

    def waiting_for(self) -> list[Wait]:
        pool, waits = self._pool, list[Wait]()
        for request in pool.open_requests():
            wait = self._waits.get(request)
            if wait is not None:
                left = max(0.0, wait.since + self._timeout - self._recorder.at)
                gives_up = f"The job gives up in {format_seconds(left)} ({SLOT_REQUEST_TIMEOUT.key})."
                waits.append(
                    ForRequest(pool.groups[request.group], f"{_sentence(self._waits_for(request))}. {gives_up}")
                )
            elif pool.admits and pool.unmet.get(request):  # else it has its slots, and starts
                waits.append(ForRequest(pool.groups[request.group], self._busy(request)))
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
        left = f"it gives up in {format_seconds(self._timeout)} unless one comes"
        self._decide(request, SLOT_REQUEST_TIMEOUT.key, "waits", f"{self._waits_for(request)}; {left}")

    def _goes_on(self, request: OpenRequest) -> None:
        wait = self._waits.pop(request, None)
        if wait is not None:
            waited = format_seconds(self._recorder.at - wait.since)
            reason = f"{self._who(request)} waits no more, after {waited}: there is a worker that can hold a slot"
            self._decide(request, SLOT_REQUEST_TIMEOUT.key, "goes on", reason)

    def _fail(self, request: OpenRequest, rule: str, message: str, hint: str) -> None:
        self._waits.clear()
        self._decide(request, rule, "fails", message)
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
        ratios = f"{format_bytes(max(asked.values()))} a core are asked for, {format_bytes(there)} are there"
        if not self._admits:
            reason = f"cores run out before memory ({ratios}): all is given to Spark, which keeps cores apart"
        elif pool.memory_binds:
            reason = (
                f"memory may run out before cores ({ratios}): what has no slot waits, the rest runs where its slot is"
            )
        elif pool.session.others_admit:
            reason = "another job of the session asks for so much memory a core that it may run out before cores: what has no slot waits"
        else:
            reason = "the session serves what came first, and nothing may queue there before a mirror"
        self._recorder.decision(
            "slot admission",
            inputs={"asked_bytes_per_core": asked, "least_bytes_per_core": there},
            rule=pool.mode.enforcement.value,
            result="the slot pool" if self._admits else "Spark",
            reason=reason,
        )

    # --- other jobs --------------------------------------------------------------------------------------------

    def _look_at_other_jobs(self) -> None:
        """Once for a request, and once it has all its slots."""
        unmet = self._pool.unmet
        for request in [request for request in self._behind if request not in unmet]:
            waited = format_seconds(self._recorder.at - self._behind.pop(request))
            reason = f"{self._who(request)} has all its slots, {waited} after other jobs held some of what it asked for"
            self._decide(request, _OTHER_JOBS, "goes on", reason)
        for request in unmet:
            held = self._held_by_others(request) if request not in self._behind else ""
            if held:
                self._behind[request] = self._recorder.at
                self._decide(request, _OTHER_JOBS, "waits", f"{self._wanted(request)}: {held}")

    def _held_by_others(self, request: OpenRequest) -> str:
        """Empty: other jobs hold nothing of the workers that could serve it."""
        pool = self._pool
        found = pool.session.held_by_others(pool.able_when_empty(request, pool.usable))
        return "; ".join(f"job '{name}' holds {pool.workers.dimensions.told(held)}" for name, held in found)

    # --- in words ----------------------------------------------------------------------------------------------

    def _never(self, request: OpenRequest) -> str:
        return f"No worker can ever hold what {self._who(request)} asks for ({self._asked(request)}): {self._there(request)}."

    def _remedy(self, request: OpenRequest) -> str:
        lacks = self._lacks(request, self._pool.workers.nearest([profile for profile, _ in request.slots]))
        if not lacks:
            larger = " (spark.executor.memoryOverhead)" if self._pool.mode.framework else ""
            return f"Ask for less, or start larger workers{larger}."
        settings = ", ".join(f"spark.executor.resource.{name}.amount" for name in lacks)
        return (
            f"Start workers that offer {' and '.join(lacks)}: Spark has settings for it ({settings}; with a local master, "
            f"{settings.replace('executor', 'driver')})."
        )

    def _too_long(self, request: OpenRequest) -> str:
        waited = format_seconds(self._timeout)
        asked = f"what {self._who(request)} asks for ({self._asked(request)})"
        return f"In {waited} there was {self._nobody(request)} {asked}: {self._there(request)}."

    def _waits_for(self, request: OpenRequest) -> str:
        return f"{self._who(request)} waits: there is {self._nobody(request)} {self._asked(request)} ({self._there(request)})"

    def _busy(self, request: OpenRequest) -> str:
        pool = self._pool
        able = pool.able_when_empty(request, pool.workers.alive)
        count, blocked = int(able.sum()), int((able & ~pool.usable).sum())
        who = "1 worker could hold one, but it" if count == 1 else f"{count} workers could hold some, but they"
        if blocked == count:
            why = "is on a blocked node" if count == 1 else "are on blocked nodes"
        else:
            why = "has no room now" if count == 1 else "have no room now"
        held = self._held_by_others(request)
        return _sentence(f"{self._wanted(request)}: {who} {why}{f', and there {held}' if held else ''}.")

    def _wanted(self, request: OpenRequest) -> str:
        slots = plural(self._pool.unmet.get(request, 0), "region" if request.is_region else "slot")
        return f"{self._who(request)} waits for {slots} of {self._asked(request)}"

    def _who(self, request: OpenRequest) -> str:
        steps = self._pool.steps_of(request.group)
        named = ", ".join(f"'{step}'" for step in steps[:_MOST_NAMED])
        more = f" and {len(steps) - _MOST_NAMED} more" if len(steps) > _MOST_NAMED else ""
        return f"group '{self._pool.groups[request.group]}' (step{'s' if len(steps) > 1 else ''} {named}{more})"

    def _asked(self, request: OpenRequest) -> str:
        told = [f"{f'{count} times ' if count > 1 else ''}{_named(profile)}" for profile, count in request.slots]
        return " and ".join(told) + (" at once" if len(told) > 1 or request.slots[0][1] > 1 else "")

    def _nobody(self, request: OpenRequest) -> str:
        """To be followed by what."""
        if self._pool.mode.enforcement is SlotEnforcement.EXECUTOR_PROFILES:
            return "no executor for"
        return "no room, even if nothing ran, for" if request.is_region else "no worker that could hold"

    def _there(self, request: OpenRequest) -> str:
        pool = self._pool
        if pool.mode.enforcement is SlotEnforcement.EXECUTOR_PROFILES:
            others = int(pool.workers.alive.sum())
            return (
                f"there {'is' if others == 1 else 'are'} {plural(others, 'executor')}, of other profiles"
                if others
                else "none is there"
            )
        largest = pool.workers.nearest([profile for profile, _ in request.slots])
        if largest is None:
            return "no worker is there"
        lacks = "".join(f" and no {name}" for name in self._lacks(request, largest))
        each = pool.mode.framework
        framework = f", and each slot takes {format_bytes(each)} more for its Python worker ({FRAMEWORK_MEMORY.key})"
        return f"the largest worker has {largest}{lacks}{framework if each else ''}"

    @staticmethod
    def _lacks(request: OpenRequest, worker: WorkerResources | None) -> list[str]:
        """External resources of which the worker has none at all."""
        external = dict.fromkeys(name for profile, _ in request.slots for name, _ in profile.external)
        return [] if worker is None else [name for name in external if not worker.external.get(name)]

    def _decide(self, request: OpenRequest, rule: str, result: str, reason: str) -> None:
        pool = self._pool
        largest = pool.workers.nearest([profile for profile, _ in request.slots])
        self._recorder.decision(
            "slot request",
            vertex=request.vertex,
            name=pool.steps_of(request.group)[0],
            inputs={
                "group": pool.groups[request.group],
                "asked": self._asked(request),
                "workers": int(pool.workers.alive.sum()),
                "largest": "" if largest is None else str(largest),
            },
            rule=rule,
            result=result,
            reason=reason,
        )


def _named(profile: ResourceProfile) -> str:
    return str(profile) if profile.is_specified else "any size"


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


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
