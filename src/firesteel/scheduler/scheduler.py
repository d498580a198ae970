"""The scheduler: ``handle(event) -> commands``. No I/O, no clock: the same events give the same commands, always.

A job's state (``job``), what events of executions do to it (``execution_events``), and a list of policies: what follows from that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, get_args

from firesteel.errors import FiresteelError, UsageError
from firesteel.humanize import plural
from firesteel.model.job_graph import JobGraph, ResultPartitionType
from firesteel.options import (
    ADAPTIVE_JOINS,
    RELEASE_DURING_JOB_EXECUTION,
    RUNTIME_FILTER,
    SCHEDULER,
    SPECULATIVE_ENABLED,
    Options,
)
from firesteel.options.checks import check_speculation
from firesteel.scheduler.deployment.deployment import Deployment
from firesteel.scheduler.exchange.merging import Merging
from firesteel.scheduler.exchange.release import Release, ReleaseAtEnd
from firesteel.scheduler.execution_events import ExecutionEvent, ExecutionEvents
from firesteel.scheduler.failover.failover import Failover
from firesteel.scheduler.growth import AdaptiveGrowth, StaticGrowth, UsableSlots
from firesteel.scheduler.inputs import DirectInputs, Inputs
from firesteel.scheduler.invariants import validate
from firesteel.scheduler.job import Job
from firesteel.scheduler.joins.joins import Joins
from firesteel.scheduler.kernel import events as e
from firesteel.scheduler.kernel.commands import Command, JobStatus
from firesteel.scheduler.kernel.waits import ForNothing, ForSinks, ForStart, Wait
from firesteel.scheduler.policy import Hooks, Policy
from firesteel.scheduler.sinks import Sinks
from firesteel.scheduler.slots.allocators import BoundedSlots, Slots
from firesteel.scheduler.slots.manager import JoinSession
from firesteel.scheduler.slots.network_memory import NetworkMemory
from firesteel.scheduler.slots.pool import SlotPool
from firesteel.scheduler.slots.requests import FineGrainedResources, SlotRequests
from firesteel.scheduler.slots.usage import SlotUsageRecorder
from firesteel.scheduler.speculation.detector import SlowTaskDetector
from firesteel.scheduler.speculation.mirrors import Mirrors


def create_scheduler(
    job_graph: JobGraph,
    options: Options,
    inputs: Inputs | None = None,
    side_inputs: DirectInputs | None = None,
    *,
    detector: SlowTaskDetector | None = None,
    join: JoinSession | None = None,
) -> Scheduler:
    """``side_inputs``: through which the user's functions are asked, and numbers that are known late. ``detector``: the one to use where
    speculation is on; None: as the options say. ``join``: registers the job with the slot manager of its session, whose schedulers are used
    one at a time; None: it shares the workers with nobody.

    Raises UsageError for a scheduler that is for streams, speculation or a pipelined exchange that it cannot have, or
    parallelisms that conflict.
    """
    pipelined = [d for d in job_graph.datasets if d.type is ResultPartitionType.PIPELINED]
    check_speculation(options, bool(pipelined))
    name = options[SCHEDULER]
    if name == "Adaptive":
        raise UsageError(
            f"{SCHEDULER.key}: Adaptive is for streams, and '{job_graph.name}' is a batch job.",
            hint="Use AdaptiveBatch or Default.",
        )
    if pipelined and name == "AdaptiveBatch":
        producer = job_graph.vertices[pipelined[0].producer]
        raise UsageError(
            f"The exchange behind '{producer.name}' is pipelined, and {name} decides how parallel a step is from the "
            "finished results it reads: all its exchanges are blocking.",
            hint=f"Set {SCHEDULER.key} to Default, or leave execution.batch-shuffle-mode at ALL_EXCHANGES_BLOCKING.",
        )
    job = Job(job_graph, options, inputs or Inputs(), side_inputs or DirectInputs())
    return Scheduler(job, slots_of(job, join), detector)


def slots_of(job: Job, join: JoinSession | None = None) -> Slots:
    """Slots of their own resources where a slot sharing group has any; no more than there are where a mirror would wait behind them; else
    Spark's own."""
    graph, in_turn = job.graph.job_graph, job.inputs.in_order and job.options[SPECULATIVE_ENABLED]
    if any(graph.group_of(vertex.id).has_resources for vertex in graph.vertices):
        mode, blocklist = job.inputs.slot_mode, job.blocklist
        return SlotPool(graph, mode, job.executions, avoided=lambda: blocklist.avoided, in_turn=in_turn, join=join)
    return BoundedSlots(job.inputs.slots, job.nodes, job.executions, job.blocklist) if in_turn else Slots()


class Scheduler:
    """One job. Feed it every event in the order of arrival; carry out the commands in the order given.

    The first event is JobStarted, the last command a JobStatusChanged to a terminal status; what comes later is ignored.
    """

    def __init__(self, job: Job, slots: Slots, detector: SlowTaskDetector | None = None) -> None:
        self.job = job
        self.job_graph = job.graph.job_graph
        self.options = job.options
        self.recorder = job.recorder
        self.graph = job.graph
        self.executions = job.executions
        self.metrics = job.metrics
        self.allocator = job.slots = slots
        self.merging = Merging(job)
        failover = Failover(job, self.merging)
        self.policies = self._policies(failover, detector)
        job.hooks = Hooks(self.policies)
        self._handlers = self._event_handlers(ExecutionEvents(job, failover))

    def _policies(self, failover: Failover, detector: SlowTaskDetector | None) -> Sequence[Policy]:
        """All that belong to the job, in the order in which they are told, and act. An option that is off: its policy is not there."""
        job, options, slots = self.job, self.options, self.allocator
        usable, adaptive = UsableSlots(job), options[SCHEDULER] == "AdaptiveBatch"
        joins = Joins(job, usable.bound) if adaptive and (options[ADAPTIVE_JOINS] or options[RUNTIME_FILTER]) else None
        pool = slots if isinstance(slots, SlotPool) else None
        network = None if pool is None else NetworkMemory(job, pool)
        requests = None if pool is None else SlotRequests(job, pool)
        self.joins = joins
        found = (
            None
            if pool is None or requests is None or network is None
            else FineGrainedResources(job, pool, requests, network),
            AdaptiveGrowth(job, usable, joins) if adaptive else StaticGrowth(job, usable),
            self.merging,
            Mirrors(job, detector) if options[SPECULATIVE_ENABLED] else None,
            Deployment(job, usable.at_start),
            slots,
            requests,
            job.metrics,
            Release(job) if options[RELEASE_DURING_JOB_EXECUTION] else ReleaseAtEnd(job),
            network,
            failover,
            None if pool is None else SlotUsageRecorder(job, pool),
            Sinks(job),
            joins,
        )
        return [policy for policy in found if policy is not None]

    def _event_handlers(self, executions: ExecutionEvents) -> dict[type[e.Event], Callable[[Any], bool | None]]:
        """True: nothing is possible now that was not before, so that nothing is to be decided or deployed."""
        own: dict[type[e.Event], Callable[[Any], bool | None]] = {
            e.JobStarted: self._started,
            **dict.fromkeys(get_args(ExecutionEvent), executions.told),
            e.TimerFired: self._timer,
            e.ExecutorChanged: lambda event: self._executors((event,)),
            e.ExecutorsChanged: lambda event: self._executors(event.changes),
        }
        for policy in self.policies:
            own.update((event, getattr(policy, name)) for event, name in policy.answers.items())
        return own

    @property
    def status(self) -> JobStatus:
        return self.job.status

    def handle(self, event: e.Event) -> list[Command]:
        """Returns the commands to be carried out now. A late or doubled event gives nothing; nothing is ever done twice."""
        job = self.job
        if job.status.is_terminal:
            return []
        job.recorder.begin(event)
        handler = self._handlers.get(type(event))
        settled = None if handler is None else handler(event)
        if not settled or (self.joins is not None and self.joins.is_open):
            for act in job.hooks.act:
                if not job.goes_on:
                    break
                act()
            job.end_if_nothing_runs()
        for event_handled in job.hooks.event_handled:
            event_handled()
        return job.recorder.take()

    def story(self, vertex: int, subtask: int | None = None) -> list[str]:
        """Returns the lines that tell what happened to a vertex or one of its subtasks, and because of which event; oldest first."""
        return self.recorder.story(vertex, subtask)

    def waiting_for(self) -> list[Wait]:
        """Returns what the job waits for; empty once it has ended: a job must never hang without saying so."""
        job = self.job
        if job.status.is_terminal:
            return []
        if job.status is JobStatus.CREATED:
            return [ForStart()]
        if job.is_committing:
            return [ForSinks()]
        waits = dict.fromkeys(wait for waiting_for in job.hooks.waiting_for for wait in waiting_for())
        return list(waits) or [ForNothing(job.status.value)]

    def validate(self) -> None:
        """Raises AssertionError when an invariant of the control plane is broken. Slow: for tests."""
        validate(self)

    # --- events of the job as a whole --------------------------------------------------------------------------

    def _started(self, event: e.JobStarted) -> None:
        job = self.job
        if job.status is JobStatus.CREATED:
            job.go(JobStatus.RUNNING, f"job '{self.job_graph.name}' started")
            for started in job.hooks.started:
                started()

    def _timer(self, event: e.TimerFired) -> None:
        if not self.job.is_active:
            return
        try:
            self.job.timers.fired(event.timer)
        except FiresteelError as error:  # a slow task strategy of the user's
            self.job.fail(e.FailureCause(e.FailureKind.FATAL, error.message, error.cause_trace, hint=error.hint))

    def _executors(self, changes: Sequence[e.ExecutorChanged]) -> None:
        for change in changes:
            self.job.nodes.change(change)
        for executors_changed in self.job.hooks.executors_changed:
            executors_changed(changes)
        for change in changes:
            what = f"joined with {plural(change.slots, 'slot')}" if change.added else "is gone"
            self.recorder.tell(f"executor {change.executor} on {change.host} {what}")
