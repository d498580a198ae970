"""The loop that runs one job: messages, ends of batches and timers in, events to the scheduler, commands carried out.

One thread per job owns everything here. Whatever may take long (Spark jobs, deletions, publishing) runs in other threads,
which only put something on this one's queue.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import groupby
from queue import Empty, SimpleQueue
from typing import Any

import msgspec
from msgspec import structs

from firesteel.compile.adaptive.joins import absorb_in
from firesteel.compile.compiled import CompiledJob
from firesteel.model.absorbing import Absorbing
from firesteel.options import DATA_VOLUME_PER_TASK
from firesteel.recovery.log import Durable, LogLost
from firesteel.report.decisions import with_reason
from firesteel.report.waits import in_words
from firesteel.scheduler.kernel import events as ev
from firesteel.scheduler.kernel.commands import (
    BlockNodes,
    Cancel,
    CancelTimer,
    Command,
    CommitSinks,
    Deploy,
    DeployRegions,
    DiscardExecutions,
    DropBlobs,
    DropSizes,
    JobStatus,
    JobStatusChanged,
    LoadSizes,
    MergePartitions,
    NarrowSource,
    Placement,
    Record,
    ReleaseMerged,
    ReleasePartitions,
    SetTimer,
    ShareBlockedNode,
    StoreBlob,
    StoreSizes,
    VerifyPartitions,
    VertexAbsorbed,
)
from firesteel.scheduler.kernel.records import Decision
from firesteel.scheduler.kernel.waits import ForStart, Wait
from firesteel.spark.driver.batch import Batch, BatchCode, BatchEnded, BatchRunner, fused
from firesteel.spark.driver.cancelling import CANCEL_PATIENCE_SECONDS, Cancelling
from firesteel.spark.driver.channel import Channel
from firesteel.spark.driver.messages import TaskMessages
from firesteel.spark.driver.narrowing import Narrowing, NarrowingDone
from firesteel.spark.driver.postmortem import PostMortem
from firesteel.spark.driver.serialise import serialise_program
from firesteel.spark.driver.spark_errors import was_cancelled
from firesteel.spark.driver.threads import Clock
from firesteel.spark.placement import pools
from firesteel.spark.placement.avoidance import Avoidance
from firesteel.spark.placement.node_names import NodeNames
from firesteel.spark.placement.status_store import SparkStatus
from firesteel.spark.placement.watch import LOOK_SECONDS, Killer, TaskGone, TasksLost, Watcher
from firesteel.spark.recovery.beginning import Beginning, Driver, FromNothing
from firesteel.spark.recovery.deployments import Port
from firesteel.spark.recovery.gate import Gate, Recovery
from firesteel.spark.session.own_workers import AS_THEY_ARE, OwnWorkers
from firesteel.spark.slots.provisioning import REGISTERING_PAUSE, SlotProvisioning
from firesteel.spark.slots.session_account import SessionJob, alone
from firesteel.spark.standing.work import NotTaken, Standing, TurnLost, no_standing_tasks
from firesteel.spark.storage.blob_server import BlobFailed, BlobServer
from firesteel.spark.storage.cleaning import Cleaner
from firesteel.spark.storage.merge import Merger
from firesteel.spark.storage.outputs import Outputs, SinkSteps
from firesteel.spark.storage.sizes_files import SizesFiles
from firesteel.task.executor.information import Blob, VertexInformation
from firesteel.task.program import ResultOutput

QUIET_SECONDS = 60.0
"""After so long without news the journal is told what the job waits for; again after twice as long, and so on."""

SNAPSHOT_SECONDS = 0.25
SNAPSHOT_SHARE = 0.05
"""Other threads see the state of so long ago at most; the snapshots take at most this part of the job's thread."""

GATHER_SECONDS = 0.02
"""Messages that come one by one cost several times more than together: while very many executions are open, so that nothing waits for
the driver, those of so long a time are taken together."""
MANY_OPEN = 64

_log = logging.getLogger("firesteel.spark")


@dataclass(eq=False)
class DriverInput:
    """Everything a job needs, checked and serialised."""

    compiled: CompiledJob
    context: Any
    scheduler: Any
    job_id: str
    store: Any
    job: Blob
    programs: dict[int, bytes]
    """Vertex to its cloudpickled program."""
    record: Callable[[Any], None]
    token_of: Callable[[int], int] = int
    """Names what a task of Spark's writes (``JobInformation.token_of``)."""
    scratch: str | None = None
    """A directory of the job's on the driver's machine, if it has one."""
    nodes: NodeNames = field(default_factory=NodeNames)
    look_seconds: float = LOOK_SECONDS
    slot_provisioning: SlotProvisioning = field(default_factory=SlotProvisioning)
    memory_budget: int = 0
    """Bytes that a task may use for its data."""
    data_volume: int = DATA_VOLUME_PER_TASK.default
    """Plain bytes that a subtask should read."""
    session: SessionJob = field(default_factory=alone)
    own_workers: OwnWorkers = AS_THEY_ARE
    recovery: Recovery = Gate
    beginning: Beginning = field(default_factory=FromNothing)
    standing: Standing = no_standing_tasks
    finishing: Callable[[], Any] = lambda: None
    """Called before anybody can read that the job has finished."""


@dataclass(eq=False)
class JobEnd:
    status: JobStatusChanged
    decisions: list[Decision]
    had_zombies: bool
    """Executions were cancelled; their Python workers may write for a few seconds yet."""


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """The state of a running job for other threads. ``waiting_for``: what it waits for, in sentences; empty at its end."""

    status: JobStatus = JobStatus.CREATED
    waiting_for: tuple[str, ...] = ()


class JobDriver:
    """``run`` is called once, in the job's thread; ``cancel``, ``status`` and ``waiting_for`` from anywhere."""

    def __init__(self, given: DriverInput) -> None:
        self._in = given
        self._clock = clock = Clock(given.beginning.at)
        self._queue: SimpleQueue[Any] = SimpleQueue()
        self._gate = given.recovery(self._queue.put, clock.now, self._execute)
        self._channel = Channel(given.context, given.job_id, self._queue.put)
        self._runner = BatchRunner(given.context, self._queue.put, given.own_workers)
        self._standing = given.standing(self._queue.put, clock.now)
        steps = SinkSteps(given.compiled, self._gate.step, given.beginning.published) if self._gate.lasts else None
        self.outputs = Outputs(
            *(given.compiled, given.store, given.job_id, self._queue.put, clock.now),
            steps=steps,
            publishing=given.beginning.in_run.publishing,
        )
        self._blobs = BlobServer(given.store, given.job_id, self._queue.put)
        self._files = Cleaner(given.store, given.job_id, "sizes")
        self._sizes = SizesFiles(given.scratch, self._queue.put, clock.now, self._files.call)
        self._merger = Merger(
            given.context,
            given.store,
            given.job,
            given.job_id,
            token_of=given.token_of,
            schema_of=self._schema_of,
            report=self._queue.put,
            now=clock.now,
        )
        self._narrowing = Narrowing(given.compiled, given.store, given.data_volume, self._queue.put)
        self._addressed: dict[int, tuple[Batch, int]] = {}
        """By the number that messages carry: the batch and the vertex."""
        self._active: dict[int, Batch] = {}
        self._others = given.session.listen(self._queue.put, clock.now)
        self._status = SparkStatus(given.context)
        self._post_mortem = PostMortem(self._status, given.nodes, given.store, of_wall=clock.of_wall, now=clock.now)
        self._killer = Killer(self._status.kill, self._queue.put)
        self._cancelling = Cancelling(
            self._active,
            lambda batch: self._standing if batch.standing else self._killer,
            in_spark=self._cancel_in_spark,
            discard=self.outputs.discard,
            feed=self._feed,
            put=self._queue.put,
            now=clock.now,
            token_of=given.token_of,
        )
        port = Port(self._gate, self._queue.put, clock.now, self._execute, self.outputs.commits)
        self._deployments = given.beginning.deployments(given.compiled, port)
        self._timers: dict[str, float] = {}
        self._vertices: dict[int, tuple[Any, Blob]] = {}
        self._avoidance = Avoidance(given.context, given.store, given.job, given.job_id, nodes=given.nodes)
        self._messages = TaskMessages(
            self._addressed,
            self._cancelling,
            self._post_mortem,
            self.outputs.commits,
            feed=self._feed,
            rejected=self._rejected,
            nodes=given.nodes,
            clock=clock,
        )
        self._decisions: list[Decision] = []
        self._quiet = QUIET_SECONDS
        self._word_due = QUIET_SECONDS
        self._end: JobStatusChanged | None = None
        self._cancelled = threading.Event()
        self._snapshot = JobSnapshot(waiting_for=tuple(in_words([ForStart()], given.compiled.job_graph)))
        """Replaced by the job's thread alone, read by others."""
        self._has_news = False
        """The scheduler was told of something after the snapshot was taken."""
        self._snapshot_due = 0.0
        self._takers: dict[type[Any], Callable[[Any], None]] = {
            BatchEnded: self._batch_ended,
            ev.ExecutionsDeploying: self._launched,
            ev.ExecutorChanged: self._executor_changed,
            TaskGone: self._cancelling.task_gone,
            TasksLost: self._cancelling.tasks_lost,
            TurnLost: self._turn_lost,
            NotTaken: self._not_taken,
            Durable: self._gate.take,
            LogLost: self._gate.take,
            NarrowingDone: self._narrowed,
            BlobFailed: lambda item: self._execute(Record(item.as_decision(self._now()))),
        }
        """By class, what takes an item of the queue; all others are events for the scheduler alone."""
        self._actions: dict[type[Command], Callable[[Any], None]] = {
            Record: self._record,
            VertexAbsorbed: self._absorb,
            Deploy: self._deploy,
            DeployRegions: self._deploy,
            BlockNodes: self._avoidance.block,
            ShareBlockedNode: self._others.block,
            Cancel: self._cancelling.cancel,
            ReleasePartitions: self.outputs.release,
            StoreBlob: lambda command: self._blobs.store(command.digest, command.data),
            DropBlobs: lambda command: self._blobs.drop(command.digests),
            VerifyPartitions: self.outputs.verify,
            DiscardExecutions: self.outputs.discard,
            StoreSizes: self._sizes.store,
            LoadSizes: self._sizes.load,
            DropSizes: self._sizes.drop,
            MergePartitions: lambda command: self._deployments.merge(command, self._merger.start),
            NarrowSource: self._narrowing.start,
            ReleaseMerged: self.outputs.release_merged,
            SetTimer: self._set_timer,
            CancelTimer: self._cancel_timer,
            CommitSinks: self.outputs.publish,
            JobStatusChanged: self._status_changed,
        }

    def cancel(self, reason: str) -> None:
        self._cancelled.set()
        self._queue.put(ev.CancelRequested(at=self._now(), reason=reason))

    def waiting_for(self) -> list[str]:
        """Returns what the job waited for when it last had news, in sentences."""
        return list(self._snapshot.waiting_for)

    @property
    def status(self) -> JobStatus:
        return self._snapshot.status

    def run(self) -> JobEnd:
        """Runs the job to its end. Raises only for a fault of ours; nothing is left running either way."""
        watcher = Watcher(
            self._status,
            self._in.nodes,
            lambda: [batch for batch in list(self._active.values()) if not batch.standing],
            self._queue.put,
            launches=self._standing.launches,
            gone=self._standing.executors_gone,
            killer=self._killer,
            of_wall=self._clock.of_wall,
            seconds=self._in.look_seconds,
            slot_provisioning=self._in.slot_provisioning,
            slots_of_others=self._in.session.slots_of_others,
        )
        try:
            if self._in.slot_provisioning.mode is not None:
                self._hear_of_workers(watcher)
            watcher.start()
            for event in self._in.beginning.events(self._port()):
                self._feed(event)
            while self._end is None:
                self._digest(self._next_items())
            return JobEnd(self._end, self._decisions, self._cancelling.had_zombies or self._merger.has_zombies)
        finally:
            watcher.stop()
            self._stop_everything()

    def _hear_of_workers(self, watcher: Watcher) -> None:
        """Before the job starts: its requests are to be held against all workers there are, not against the first."""
        with suppress(Exception):  # Spark may be stopping; the first batch will tell
            watcher.look_at_executors()
            while self._in.slot_provisioning.awaits_executors() and not self._cancelled.wait(REGISTERING_PAUSE):
                watcher.look_at_executors()
        items = [self._queue.get() for _ in range(self._queue.qsize())]
        for item in items:
            if isinstance(item, ev.ExecutorChanged):
                self._take(item)
            else:  # cancelled before it began
                self._queue.put(item)

    # --- what comes in ---------------------------------------------------------------------------------------

    def _next_items(self) -> list[Any]:
        """Waits for something to do; takes all there is."""
        now = self._now()
        due = min([*self._timers.values(), *self._cancelling.due(), *self._standing.due(), self._word_due])
        if self._has_news:
            due = min(due, self._snapshot_due)
        items: list[Any] = []
        try:
            items.append(self._queue.get(timeout=max(0.0, due - now)))
            if sum(len(batch.open) for batch in self._active.values()) >= MANY_OPEN:
                self._cancelled.wait(GATHER_SECONDS)
            while True:
                items.append(self._queue.get_nowait())
        except Empty:
            return items

    def _digest(self, items: Sequence[Any]) -> None:
        for are_messages, run in groupby(items, lambda item: isinstance(item, bytes)):
            if are_messages:
                self._messages.take(list(run))
            else:
                for item in run:
                    self._take(item)
        self._fire_timers()
        self._say_what_is_awaited(bool(items))
        self._take_snapshot()

    def _take(self, item: Any) -> None:
        self._takers.get(type(item), self._feed)(item)

    def _not_taken(self, item: NotTaken) -> None:
        self._execute(Record(item.decision))
        self._runner.start(item.batch, item.code)

    def _narrowed(self, done: NarrowingDone) -> None:
        self._gate.narrowed(done)
        self._feed(self._narrow(done))

    def _executor_changed(self, event: ev.ExecutorChanged) -> None:
        self._avoidance.executor_changed(event)
        self._feed(event)

    def _say_what_is_awaited(self, news: bool) -> None:
        """A job must never hang without saying what it waits for."""
        now = self._now()
        if news:
            self._quiet = QUIET_SECONDS
        elif now >= self._word_due:
            waits, told = self._awaited()
            inputs = {"waits": msgspec.to_builtins(waits)}
            self._in.record(Decision(at=now, what="waiting", inputs=inputs, result=told, reason=" ".join(told)))
            self._quiet *= 2
        else:
            return
        self._word_due = now + self._quiet

    def _take_snapshot(self) -> None:
        """When there is news, and not so often that it would hold the job up."""
        begun = self._now()
        if self._has_news and begun >= self._snapshot_due and self._end is None:
            self._snapshot = replace(self._snapshot, waiting_for=tuple(self._awaited()[1]))
            self._has_news = False
            now = self._now()
            self._snapshot_due = now + max(SNAPSHOT_SECONDS, (now - begun) / SNAPSHOT_SHARE)

    def _awaited(self) -> tuple[list[Wait], list[str]]:
        """What the job waits for, and the same in words."""
        with self._in.session.turn():
            waits: list[Wait] = self._in.scheduler.waiting_for()
        return waits, in_words(waits, self._in.compiled.job_graph)

    def _launched(self, event: ev.ExecutionsDeploying) -> None:
        """Passes on the launches that the watcher saw, less what has reported or was let go since."""
        pairs = zip(event.subtasks.tolist(), event.attempts.tolist(), strict=True)
        batches = [b for b in self._active.values() if event.vertex in b.vertices and not b.cancelled]
        keep = [k for k, (s, a) in enumerate(pairs) if any(b.open.get((event.vertex, s)) == a for b in batches)]
        if keep:
            nodes = [event.nodes[k] for k in keep] if event.nodes else event.nodes
            times = None if event.times is None else event.times[keep]
            executors = [event.executors[k] for k in keep] if event.executors else event.executors
            subtasks, attempts = event.subtasks[keep], event.attempts[keep]
            columns = {"subtasks": subtasks, "attempts": attempts, "nodes": nodes, "executors": executors}
            self._feed(structs.replace(event, times=times, **columns))

    def _turn_lost(self, lost: TurnLost) -> None:
        events = list(self._post_mortem.of_turn(lost))
        lost.batch.close_task(lost.subtask)
        for event in events:
            self._feed(event)

    def _rejected(self, nodes: Sequence[str]) -> None:
        for decision in self._avoidance.rejected(nodes, self._now()):
            self._execute(Record(decision))

    def _batch_ended(self, ended: BatchEnded) -> None:
        batch = ended.batch
        self._messages.take(ended.results)
        if self._cancelling.lingers(ended):
            return
        self._messages.forget(batch.numbers)
        if self._active.pop(batch.id, None) is None:
            return  # it was given up before
        self._cancelling.has_ended(batch)
        pools.give_back(batch.pool)
        if not batch.open:
            return
        if batch.cancelled:
            self._cancelling.report_cancelled(batch)
        elif ended.error is not None and was_cancelled(ended.error):
            self._cancelling.leaves_zombies()
            self._feed(ev.CancelRequested(at=self._now(), reason="cancelled in Spark"))
            self._cancelling.report_cancelled(batch)
        else:
            self._report_given_up(batch, ended.error)

    def _report_given_up(self, batch: Batch, error: BaseException | None) -> None:
        """Reports the culprit as failed; its siblings are sent again by the scheduler, uncounted."""
        self._cancelling.leaves_zombies()
        _log.debug("batch %s was given up", batch.tag, exc_info=error)
        events = list(self._post_mortem.of_batch(batch, error))
        self._cancelling.follow(batch)
        batch.open.clear()
        for event in events:
            self._feed(event)

    def _fire_timers(self) -> None:
        now = self._now()
        for timer in [t for t, at in self._timers.items() if at <= now]:
            if self._timers.pop(timer, None) is None:  # cancelled by what an earlier one caused
                continue
            self._feed(ev.TimerFired(at=now, timer=timer))
        self._cancelling.fire(self._batch_ended)
        self._standing.fire()

    # --- what goes out ---------------------------------------------------------------------------------------

    def _feed(self, event: ev.Event) -> None:
        if self._end is not None:
            return
        self._has_news = True
        with self._in.session.turn():
            commands = self._in.scheduler.handle(event)
        self._gate.heard(event, commands)

    def _execute(self, command: Command) -> None:
        action = self._actions.get(type(command))
        if action is None:
            raise TypeError(f"the runtime knows no command {type(command).__name__}")
        action(command)

    def _record(self, command: Record) -> None:
        record = with_reason(command.record)
        if isinstance(record, Decision):
            self._decisions.append(record)
        self._in.record(record)

    def _schema_of(self, dataset: int) -> Any:
        """Of the rows that a vertex writes for a data set."""
        graph = self._in.compiled.job_graph
        outputs: Sequence[Any] = graph.vertices[graph.datasets[dataset].producer].program.outputs
        return next(o.schema for o in outputs if isinstance(o, ResultOutput) and o.dataset == dataset)

    def _set_timer(self, command: SetTimer) -> None:
        self._timers[command.timer] = command.at

    def _cancel_timer(self, command: CancelTimer) -> None:
        self._timers.pop(command.timer, None)

    def _status_changed(self, command: JobStatusChanged) -> None:
        if command.status.is_terminal:
            self._snapshot = JobSnapshot(command.status, ())
            self._end = command
        else:
            self._snapshot = replace(self._snapshot, status=command.status)

    def _absorb(self, command: VertexAbsorbed) -> None:
        """The same change as the scheduler made, in what is deployed from here on."""
        compiled = self._in.compiled
        absorb_in(compiled, Absorbing(command.vertex, command.build))
        self._in.programs[command.vertex] = serialise_program(compiled, compiled.job_graph.vertices[command.vertex])

    def _narrow(self, done: NarrowingDone) -> ev.SourceNarrowed:
        return self._narrowing.apply(done, self._in.programs, self._now())

    def _deploy(self, command: Deploy | DeployRegions) -> None:
        """One Spark job for all whose executions share tasks, or none where they are small."""
        left = self._deployments.left(command)
        if left is None:
            return
        for deploys in fused(left, [dataset.producer for dataset in self._in.compiled.job_graph.datasets]):
            self._start(deploys)

    def _start(self, deploys: Sequence[Deploy]) -> None:
        given, graph = self._in, self._in.compiled.job_graph
        vertices = [graph.vertices[deploy.vertex] for deploy in deploys]
        n, parallelism = len(deploys[0].subtasks), deploys[0].parallelism
        title = f"{graph.name}: {' + '.join(vertex.name for vertex in vertices)}"
        description = f"{title} ({n} of {parallelism} subtasks)" if n != parallelism else f"{title} ({n} subtasks)"
        placement = deploys[0].placement or Placement()
        pool = self._avoidance.pool(placement)
        batch = Batch.of(len(self._addressed), deploys, given.job_id, description, pool)
        batch.exclusive = not all(vertex.supports_concurrent_attempts for vertex in vertices)
        batch.by_partition = vertices[0].id in given.compiled.dataframes
        self._active[batch.id] = batch
        self._addressed.update({batch.id + k: (batch, vertex.id) for k, vertex in enumerate(vertices)})
        code = BatchCode(
            job=given.job,
            vertices=tuple(map(self._vertex_blob, deploys)),
            splits=tuple(given.compiled.splits.get(vertex.id, ()) for vertex in vertices),
            accumulator=self._channel.accumulator,
            blobs=self._blobs,
            dataframe=given.compiled.dataframes.get(vertices[0].id),
            locations=self._avoidance.locations(placement),
            slots=given.slot_provisioning.slots_of(deploys, given.memory_budget),
        )
        decision = self._standing.takes(batch, code)
        if decision is not None:
            self._execute(Record(decision))
            return
        self._standing.make_room(sum(len(b.open) for b in self._active.values() if not b.standing))
        self._runner.start(batch, code)

    def _vertex_blob(self, deploy: Deploy) -> Blob:
        """Serialised once per vertex; again only when its shape was decided anew."""
        shape = (deploy.parallelism, dict(deploy.subpartitions))
        known = self._vertices.get(deploy.vertex)
        if known is None or known[0] != shape:
            vertex = self._in.compiled.job_graph.vertices[deploy.vertex]
            code, group = self._in.programs[deploy.vertex], vertex.slot_sharing_group
            information = VertexInformation(deploy.vertex, vertex.name, *shape, code, group)
            known = self._vertices[deploy.vertex] = (shape, Blob.of(information))
        return known[1]

    def _cancel_in_spark(self, batch: Batch) -> None:
        (self._standing if batch.standing else self._runner).cancel(batch)

    # --- the end ---------------------------------------------------------------------------------------------

    def _port(self) -> Driver:
        return Driver(
            execute=self._execute,
            narrowed=self._narrow,
            staged=self.outputs.commits.update,
            delete=self.outputs.delete,
            stored=self._in.store.list,
            now=self._now,
        )

    def _stop_everything(self) -> None:
        """Nothing of the job goes on when this returns, but Python workers that Spark has yet to kill."""
        for batch in self._active.values():
            self._cancelling.leaves_zombies()
            self._cancel_in_spark(batch)
        until = time.monotonic() + CANCEL_PATIENCE_SECONDS
        for batch in self._active.values():
            batch.ended.wait(max(0.0, until - time.monotonic()))
            pools.give_back(batch.pool)
        self._standing.close(max(0.0, until - time.monotonic()))
        self._merger.stop(max(0.0, until - time.monotonic()))
        self._avoidance.stop(max(0.0, until - time.monotonic()))
        self._active.clear()
        self._channel.close()
        self._blobs.close()
        self._files.close()
        self._sizes.close()
        self._deployments.close()
        self.outputs.close()
        self._in.session.close()
        status = None if self._end is None else self._end.status
        if status is JobStatus.FINISHED:
            self._in.finishing()
        self._gate.close(status)

    def _now(self) -> float:
        return self._clock.now()
