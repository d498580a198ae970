"""The adaptive scheduler of a stream: states, and what each event means in each of them (FLIP-160, FLIP-461)."""

from __future__ import annotations

from firesteel.humanize import plural
from firesteel.model.slot_sharing_group import DEFAULT_SLOT_SHARING_GROUP, SlotSharingGroup
from firesteel.options import Options
from firesteel.scheduler.failover.restart_strategies import RestartStrategy
from firesteel.scheduler.failover.restart_strategies import restart_strategy as strategy_of
from firesteel.scheduler.kernel.commands import Command
from firesteel.scheduler.kernel.recorder import Recorder
from firesteel.scheduler.kernel.timers import Timers
from firesteel.scheduler.streaming import events as told
from firesteel.scheduler.streaming.checkpoint_stats import (
    CheckpointStatsTracker,
    FailedCheckpoints,
    Patience,
    max_delay,
    may_begin_at_restart,
    may_tell,
    patience,
)
from firesteel.scheduler.streaming.commands import (
    Continue,
    EndStream,
    Rescale,
    SetCommitBarrier,
    StartQuery,
    StopQuery,
)
from firesteel.scheduler.streaming.intent import Intent
from firesteel.scheduler.streaming.load import load_signal
from firesteel.scheduler.streaming.manager import Delays, Direction, FirstChanges, RescaleManager
from firesteel.scheduler.streaming.records import StreamEnded, StreamStateChange, StreamStatus, Trigger, TriggerKind
from firesteel.scheduler.streaming.rescales import RescaleInProgress, Rescales
from firesteel.scheduler.streaming.running import RunningQuery
from firesteel.scheduler.streaming.settings import StreamSettings
from firesteel.scheduler.streaming.slots import said_in_vain, slots_of_stream
from firesteel.scheduler.streaming.states import SCHEDULER_STATES, Phase, SchedulerState
from firesteel.scheduler.streaming.status import (
    IN_STATE,
    decide_recovery,
    decide_restart,
    decide_start,
    left,
    record_plan,
    stream_status,
    while_executing,
    while_rescaling,
)
from firesteel.scheduler.streaming.submission import Submission
from firesteel.scheduler.streaming.waits import Awaited, StreamWait
from firesteel.scheduler.streaming.wish import Assessment, Assessor, DowntimePrediction, ResourceRequirements, Wanted

S = SchedulerState
COARSE = SlotSharingGroup(DEFAULT_SLOT_SHARING_GROUP)
STORY_LENGTH = 200
"""Lines kept in memory; the journal keeps all."""
_REWRITES = (told.RescaleStep.REPARTITION, told.RescaleStep.START)
"""Steps of a rescale in which a failure is the rescale's own; before them it is the query's, whatever is to become of it."""
_DOWN = (S.WAITING_FOR_RESOURCES, S.RESTARTING, S.CREATING_EXECUTION_GRAPH)
_OVER = told.QueryFailed | told.QueryStopped | told.QueryFinished


class AdaptiveScheduler:
    """``handle`` each event, execute what it returns, in order. No I/O, no clock: time is what events say.

    A query at its commit barrier is answered in the same ``handle`` by Continue, Rescale or StopQuery. While a Rescale or StopQuery is
    outstanding, that is the answer to a commit which was told before. Events of a run that is over, late ones
    and doubled ones change nothing; nothing does after EndStream.
    """

    def __init__(
        self,
        name: str,
        checkpoint: str,
        requirements: ResourceRequirements,
        options: Options,
        *,
        restart_strategy: RestartStrategy | None = None,
        stream_id: str = "",
        group: SlotSharingGroup = COARSE,
        cpus: int = 1,
    ) -> None:
        """``group``: what a slot of the stream needs. ``cpus``: cores that Spark gives to each task of the session.

        Raises UsageError for options that conflict, or that no stream can have.
        """
        self.name = name
        self.checkpoint = checkpoint
        self._stream_id = stream_id or name
        self._options = options
        self._settings = settings = StreamSettings.of(options)
        self._delays = Delays(
            settings.cooldown_up,
            settings.cooldown_down,
            settings.stabilization,
            lambda: self.max_delay,
            pause=lambda: self._assessor.pause,
        )
        self._strategy = restart_strategy or strategy_of(options, name)
        self._recorder = Recorder(STORY_LENGTH)
        self._timers = Timers(self._recorder)
        self._machine = StateMachine(name, self._recorder)
        self._group = group
        self._wanted = Wanted(requirements, settings, slots_of_stream(group, settings, cpus))
        self._submission = Submission(
            self._wanted, self._settings, self._recorder, self._timers, start=self._create, give_up=self._fail
        )
        self._load = load_signal(self._settings)
        downtime = DowntimePrediction()
        self._query = RunningQuery(self._recorder)
        self._rescales = Rescales(self._recorder, downtime)
        self._assessor = Assessor(
            self._wanted, self._load, self._query, downtime=downtime, settings=self._settings, recorder=self._recorder
        )
        self._stats = CheckpointStatsTracker(
            self._recorder,
            self._timers,
            settings.checkpoint_timeout,
            self._checkpoint_completed,
            self._checkpoint_failed,
        )
        self._failed_checkpoints = FailedCheckpoints(self._settings.failed_checkpoints)
        self._is_stuck = False
        """Failed checkpoints are the trigger that begins a rescale now."""
        self._intent = Intent(self._wanted, self._assessor, self._rescales, self._recorder)
        self._manager: RescaleManager | None = None
        self._since = FirstChanges()  # of the rescale manager that was, while there is none
        self._cooldown_since: float | None = None
        self._old_run = 0
        """Of the query that a rescale under way is to stop."""
        self._asked = 0
        self._alive = False
        """A query runs, or is about to: it is to be stopped before the end."""
        self._barrier_on = False
        self._at_barrier: int | None = None
        """Batch after which the query waits at its commit barrier while this event is handled; None: it does not."""
        self._stopping = self._canceled = False
        self._end = ("FINISHED", "")
        self._cause = ""

    def handle(self, event: told.AnyStreamEvent) -> list[Command]:
        """Returns the commands to be carried out now. Raises ValueError, with the story, for a move that no table has."""
        self._recorder.begin(event)
        if self.state is S.FINISHED:
            return []
        self._at_barrier = self._batch_at_barrier(event)
        # A query at its commit barrier is at a checkpoint: better than any timer.
        if not isinstance(event, _OVER) and self._at_barrier is None:
            self._timers.fire_due()
        self._dispatch(event)
        self._timers.fire_due()
        self._settle()
        return self._recorder.take()

    @property
    def state(self) -> SchedulerState:
        return self._machine.state

    @property
    def phase(self) -> Phase | None:
        """Of the rescale manager, in Executing."""
        return self._manager.phase if self._manager is not None and self.state is S.EXECUTING else None

    @property
    def parallelism(self) -> int:
        """0: not known yet."""
        return self._query.parallelism

    @property
    def max_delay(self) -> float:
        """Returns the seconds that a wanted rescale waits for a checkpoint as things are now."""
        settings = self._settings
        return max_delay(settings.max_delay, self._stats.interval, settings.failed_checkpoints)

    def story(self) -> list[str]:
        """Returns the lines that tell what happened, oldest first."""
        return self._recorder.story()

    def status(self, at: float | None = None) -> StreamStatus:
        """The live view; ``at``: now, else the time of the last event."""
        now = self._recorder.at if at is None else max(at, self._recorder.at)
        assessment = self._intent.assessment
        wanted = self.parallelism or self._asked if assessment is None else assessment.wish.parallelism
        return stream_status(
            self._query,
            self._rescales,
            self._wanted.requirements,
            self._intent.there,
            name=self.name,
            checkpoint=self.checkpoint,
            state=self.state.value,
            phase="" if self.phase is None else self.phase.value,
            wanted=wanted,
            slots=self._wanted.slots(self._intent.there),
            slot_sharing_group=self._wanted.of_executors.group,
            waits=self._waits(now),
            cause=self._end[1] if self.state is S.FINISHED else self._cause,
        )

    # -- checkpoints (CheckpointStatsListener)

    def _checkpoint_completed(self) -> None:
        self._failed_checkpoints.clear()
        manager = self._manager
        if self.state is not S.EXECUTING or manager is None:
            return
        # The commit barrier is set from now on: it works here, if no batch has begun since, else at the next commit. Nothing is replayed for it.
        if self._at_barrier is None and self._query.plan.has_commit_barrier and manager.would_rescale:
            return
        batch = self._query.batch
        manager.on_trigger(Trigger(TriggerKind.CHECKPOINT, batch) if batch >= 0 else Trigger(TriggerKind.IDLE))

    def _checkpoint_failed(self) -> None:
        manager = self._manager
        since = self._since if manager is None else manager.since
        if not self._failed_checkpoints.failed(changed=since.sufficient is not None):
            return
        if self.state is S.EXECUTING and manager is not None and self._alive:
            count = self._failed_checkpoints.count
            self._failed_checkpoints.clear()
            self._is_stuck = True
            manager.on_trigger(Trigger(TriggerKind.FAILED_CHECKPOINTS, count))
            self._is_stuck = False

    # -- the world of the rescale manager (RescaleEnvironment)

    def direction(self) -> Direction | None:
        return self._intent.direction()

    def has_sufficient(self) -> bool:
        return self._intent.has_sufficient()

    def has_desired(self) -> bool:
        return self._intent.has_desired()

    def rescale(self, trigger: Trigger) -> None:
        assessment = self._intent.assessment
        assert assessment is not None
        how = self._patience()
        self._leave_executing()
        aim = f"{plural(assessment.wish.parallelism, 'partition')} instead of {self.parallelism}"
        self._machine.go(S.RESTARTING, f"{trigger}: {aim}")
        self._begin_rescale(trigger, assessment, how)

    def _patience(self) -> Patience:
        if self._at_barrier is not None:
            return Patience()
        if not self._query.plan.has_commit_barrier:
            return Patience(replay=True, again=self._stats.again)
        return patience(self._stats, self._assessor, self._delays, self._recorder.at, stuck=self._is_stuck)

    def _begin_rescale(self, trigger: Trigger, assessment: Assessment, how: Patience) -> None:
        query = self._query
        current = self._rescales.trigger(
            trigger, assessment, query, at_barrier=self._at_barrier is not None, again=how.again
        )
        self._old_run, self._asked, self._alive = query.run, current.requested, True
        self._cooldown_since = None
        self._assessor.followed()
        self._failed_checkpoints.clear()
        self._recorder.emit(
            Rescale(
                rescale=current.rescale,
                run=query.next_run(),
                parallelism=current.requested,
                action=current.action,
                replay=how.replay,
                within=how.within,
            )
        )

    # -- events

    def _dispatch(self, event: told.AnyStreamEvent) -> None:
        match event:
            case told.StreamSubmitted():
                self._submitted()
            case told.ClusterChanged():
                if self._intent.cluster_changed(event, started=self._query.run > 0):
                    self._look()
            case told.RequirementsChanged() | told.RescaleRequested():
                if self._intent.user_said(event):
                    self._look(said=True)
            case told.StopRequested() | told.CancelRequested():
                self._end_requested(isinstance(event, told.CancelRequested))
            case told.TimerFired():
                self._timers.fired(event.timer)
            case told.RescaleStepped() | told.RescaleFailed():
                self._rescale_told(event)
            case _:
                self._of_query(event)

    def _of_query(self, event: told.AnyStreamEvent) -> None:
        match event:
            case _ if not self._alive:
                self._recorder.tell(f"{type(event).__name__} is of a query that is over")
            case told.QueryStarted() if event.run == self._query.run:
                self._started(event)
            case told.BatchStarted() if self._is_current(event.run) and event.batch > self._query.batch:
                self._batch_started(event)
            case told.BatchCommitted() if self._is_current(event.run) and event.batch > self._query.batch:
                self._committed(event)
            case told.QueryIdle() if event.run == self._query.run and event.batch >= self._query.begun:
                self._idle()
            case told.QueryFailed() if self._is_current(event.run):
                self._failed(event)
            case told.QueryStopped() | told.QueryFinished() if event.run == self._query.run:
                self._over(event)
            case _:
                self._recorder.tell(f"{type(event).__name__} is stale")

    def _is_current(self, run: int) -> bool:
        return run == self._query.run or (run == self._old_run and self._rescales.is_under_way)

    def _submitted(self) -> None:
        if self.state is not S.CREATED:
            return
        self._plan()
        self._wait_for_resources("the stream was started")

    def _plan(self) -> None:
        names = {"stream_id": self._stream_id, "name": self.name, "checkpoint": self.checkpoint}
        warnings = [*self._settings.warnings, *said_in_vain(self._group, self._options)]
        record_plan(self._recorder, self._wanted.requirements, self._options, warnings, self._group, **names)

    def _look(self, *, said: bool = False) -> None:
        """Something changed that parallelism depends on. ``said``: by the user."""
        if self.state is S.WAITING_FOR_RESOURCES:
            self._submission.changed(self._intent.resources)
        if self.state in _DOWN and self.parallelism and not self._rescales.is_under_way:
            # It counts from now, though the query that is to follow it does not run yet.
            wish = self._intent.would_want()
            self._since = FirstChanges() if wish is None else self._since.seen(self._recorder.at, desired=wish.desired)
        elif self.state is S.EXECUTING and self._manager is not None and self._intent.look(said=said):
            self._manager.on_change()

    # -- waiting for resources and starting

    def _wait_for_resources(self, why: str) -> None:
        self._machine.go(S.WAITING_FOR_RESOURCES, why)
        self._submission.begin(self._intent.resources)

    def _create(self, why: str) -> None:
        """Start the query with what there is."""
        self._submission.close()
        wish, needs = self._wanted.at_start(self._intent.resources), self._wanted.requirements
        self._asked = decide_start(
            self._recorder, self._intent.resources, needs, wish, before=self.parallelism, why=why
        )
        self._start_query(why)

    def _start_query(self, why: str) -> None:
        self._machine.go(S.CREATING_EXECUTION_GRAPH, why)
        self._submission.starts(self._intent.resources)
        self._alive = True
        self._recorder.emit(StartQuery(run=self._query.next_run(), parallelism=self._asked))

    def _started(self, event: told.QueryStarted) -> None:
        if self.state not in (S.CREATING_EXECUTION_GRAPH, S.RESTARTING):
            return
        query, rescaled = self._query, self._rescales.is_under_way
        query.started(event.plan, event.batch, self._asked)
        self._stats.query_started(event.plan.trigger_interval)
        self._load.started(self._busy(), event.plan.trigger_interval)
        self._cause = ""
        decide_recovery(self._recorder, event)
        if rescaled:
            self._after_rescale(self._rescales.started(query.parallelism, event.replayed_rows))
        self._enter_executing()

    # -- executing

    def _enter_executing(self) -> None:
        if self.state is S.RESTARTING:
            self._machine.go(S.CREATING_EXECUTION_GRAPH, "the query is started")
        self._machine.go(S.EXECUTING, "the query runs", phase=Phase.COOLDOWN.value)
        # A restart after a failure is not a rescale: the cooldown goes on.
        if self._cooldown_since is None:
            self._cooldown_since = self._recorder.at
        self._barrier_on = False
        self._intent.query_started()
        self._manager = RescaleManager(
            self,
            self._delays,
            self._recorder,
            self._timers,
            cooldown_since=self._cooldown_since,
            since=self._since,
            observe=self._machine.phase_changed,
        )
        self._since = FirstChanges()
        if self._stopping:
            self._stop_with_savepoint()
            return
        self._look()

    def _after_rescale(self, current: RescaleInProgress | None) -> None:
        if current is not None and current.granted == current.requested:
            self._since = FirstChanges()
            self._assessor.granted()
        elif current is not None:
            self._assessor.failed(current.reason)

    def _leave_executing(self) -> None:
        manager = self._manager
        if manager is not None:
            self._since = manager.since
            manager.close()
            self._manager = None
        self._stats.no_batch()
        self._query.tell()
        self._barrier_on = False

    def _batch_started(self, event: told.BatchStarted) -> None:
        if event.run != self._query.run or event.batch <= self._query.begun:
            return
        self._query.began(event.batch)
        if self.state is S.EXECUTING:
            self._rescales.takes_batch()
            self._stats.batch_started()
            self._look()

    def _committed(self, event: told.BatchCommitted) -> None:
        self._query.committed(event)
        if event.run != self._query.run:
            self._rescales.committed()
            self._query.tell()  # with the parallelism that it had
            return
        if self.state is not S.EXECUTING:
            return
        self._rescales.first_batch()
        self._load.batch(event, self._busy())
        self._intent.load_said(self._load)
        self._look()
        self._stats.batch_committed(event.duration)

    def _idle(self) -> None:
        if self.state is S.EXECUTING:
            self._rescales.first_batch(idle=True)
            self._query.idled()
            self._load.idle(self._recorder.at, self._busy())
            self._intent.load_said(self._load)
            self._look()
            self._stats.idle()

    def _busy(self) -> int:
        """Cores that the query can keep busy."""
        return self._wanted.of_executors.busy(self.parallelism, self._intent.resources)

    def _batch_at_barrier(self, event: told.AnyStreamEvent) -> int | None:
        if not isinstance(event, told.BatchCommitted | told.QueryIdle):
            return None
        return event.batch if event.at_barrier and event.run == self._query.run else None

    def _settle(self) -> None:
        """Answers a query at its commit barrier; sets the barrier while a rescale would, or may, follow the next checkpoint."""
        if self.state not in (S.EXECUTING, S.CREATING_EXECUTION_GRAPH):
            return
        run, manager, wanted = self._query.run, self._manager, False
        if self.state is S.EXECUTING and manager is not None and self._query.plan.has_commit_barrier:
            tells = may_tell(self._intent.assessment, self._load, self._stats, self._recorder.at)
            wanted = manager.would_rescale or (tells and manager.phase is not Phase.COOLDOWN)
        if wanted != self._barrier_on:
            self._barrier_on = wanted
            self._recorder.emit(SetCommitBarrier(run=run, on=wanted))
        if self._at_barrier is not None:
            self._recorder.emit(Continue(run=run, batch=self._at_barrier))

    # -- rescaling

    def _rescale_told(self, event: told.RescaleStepped | told.RescaleFailed) -> None:
        current = self._rescales.current
        is_late = self.state not in (S.RESTARTING, S.CREATING_EXECUTION_GRAPH, S.CANCELING)
        if current is None or current.rescale != event.rescale or is_late:
            self._recorder.tell(f"{type(event).__name__} is stale")
            return
        if isinstance(event, told.RescaleStepped):
            self._rescales.stepped(event.step, event.batch)
            if event.step is told.RescaleStep.START and not current.reason:
                self._query.repartitioned(current.requested)
            if event.step is told.RescaleStep.START and self.state is S.RESTARTING:
                back = "back to " if current.reason else ""
                self._machine.go(S.CREATING_EXECUTION_GRAPH, f"{back}{plural(self.parallelism, 'partition')}")
            return
        self._rescales.falls_back(event.cause)
        self._asked = event.parallelism
        self._query.repartitioned(event.parallelism)
        if event.final:
            self._rescales.failed(event.cause, event.parallelism)
            self._fail(event.cause)

    # -- failures

    def _failed(self, event: told.QueryFailed) -> None:
        if event.run != self._query.run:
            self._recorder.tell(f"the query failed while it was to be stopped: {event.cause}")
            return
        self._alive = False
        if self.state in (S.CANCELING, S.FAILING):
            self._finish()
            return
        if event.batch is None:
            self._stats.no_batch()
        else:
            self._stats.batch_failed()
        self._end_failed_rescale(event.cause)
        self._cause = event.cause
        verdict = decide_restart(self._recorder, self._strategy, event)
        if verdict.delay is None:
            self._fail(event.cause)
        else:
            self._restart_after(verdict.delay, verdict.reason)

    def _end_failed_rescale(self, cause: str) -> None:
        """The first batch after a rescale failed, or the first start."""
        self._rescales.complete(f"it failed before its first batch was committed: {cause}")
        current = self._rescales.current
        if current is None or current.trigger is None:
            return
        if current.step is told.RescaleStep.START and not current.reason:
            self._asked = current.requested
            self._query.repartitioned(current.requested)
            self._rescales.started(current.requested, 0)
            self._rescales.complete(f"its first start failed: {cause}")
            return
        if current.reason or current.step in _REWRITES:
            self._assessor.failed(current.reason or cause)
        self._rescales.failed(current.reason or cause, self.parallelism)

    def _restart_after(self, delay: float, why: str) -> None:
        self._leave_executing()
        if self.state is not S.RESTARTING:
            self._machine.go(S.RESTARTING, why)
        self._timers.set("restart", self._recorder.at + delay, self._restart)

    def _restart(self) -> None:
        if not self._submission.is_enough_again(self._intent.resources):
            self._wait_for_resources("the delay of the restart is over, and slots are too few")
            return
        self._asked = self._query.parallelism or self._wanted.at_start(self._intent.resources).parallelism
        if self._rescales_with_restart():
            return
        self._start_query("the delay of the restart is over")

    def _rescales_with_restart(self) -> bool:
        """The query is down anyway, and the failed batch is replayed anyway: a checkpoint is not waited for."""
        if not self.parallelism or self._cooldown_since is None:  # what was started last never ran
            return False
        self._intent.look()
        now, current = self._intent.assessment, self._rescales.current
        if (
            now is None
            or current is None
            or not may_begin_at_restart(
                now,
                self._delays,
                self._recorder.at,
                cools_since=self._cooldown_since,
                since=self._since,
                failed=self._failed_checkpoints.is_trigger,
            )
        ):
            return False
        self._rescales.made_with_restart()
        self._begin_rescale(Trigger(TriggerKind.RESTART), now, Patience(replay=True))
        return True

    # -- the end

    def _end_requested(self, cancel: bool) -> None:
        if cancel:
            self._end = ("CANCELED", "cancelled by its user")
        elif self._stopping:
            return
        if self.state is S.CANCELING and self._canceled:
            return
        self._stopping, self._canceled = True, cancel
        if self.state is S.CREATED:
            self._plan()
        if self.state in (S.CREATED, S.WAITING_FOR_RESOURCES):
            self._submission.close()
            self._finish()
        elif self.state is S.EXECUTING and not cancel:
            self._stop_with_savepoint()
        elif self.state is not S.CANCELING or cancel:
            self._cancel(savepoint=not cancel)

    def _stop_with_savepoint(self) -> None:
        self._leave_executing()
        self._machine.go(S.STOP_WITH_SAVEPOINT, "stopped by its user")
        self._recorder.emit(StopQuery(run=self._query.run, savepoint=True))

    def _cancel(self, *, savepoint: bool) -> None:
        self._leave_executing()
        self._timers.cancel("restart")
        if self.state is not S.CANCELING:
            self._machine.go(S.CANCELING, "stopped by its user" if savepoint else "cancelled by its user")
        if self._alive:
            self._recorder.emit(StopQuery(run=self._query.run, savepoint=savepoint))
        else:
            self._finish()

    def _over(self, event: told.QueryStopped | told.QueryFinished) -> None:
        """The query is gone: as was asked, or by itself."""
        if self.state is S.RESTARTING:
            return
        self._alive = False
        if isinstance(event, told.QueryStopped) and not event.committed:
            self._recorder.tell("a batch is left to be replayed")
        if self.state is S.CREATING_EXECUTION_GRAPH:
            self._machine.go(S.EXECUTING, "the query ran")
        self._leave_executing()
        self._finish()

    def _fail(self, cause: str) -> None:
        self._end = ("FAILED", cause)
        self._submission.close()
        self._leave_executing()
        if self.state is not S.WAITING_FOR_RESOURCES:
            self._machine.go(S.FAILING, cause)
        self._finish()

    def _finish(self) -> None:
        status, cause = self._end
        self._rescales.complete("the stream ended before a batch was committed")
        if self._rescales.is_under_way:
            self._rescales.failed("the stream ended first", self.parallelism)
        self._rescales.ignore("the stream ended first")
        self._machine.go(S.FINISHED, cause)
        self._timers.cancel("restart")
        self._recorder.record(StreamEnded(at=self._recorder.at, event=self._recorder.event, status=status, cause=cause))
        failed = status == "FAILED"
        self._recorder.emit(EndStream(failed=failed, cause=cause if failed else ""))

    def _waits(self, now: float) -> StreamWait | None:
        match self.state:
            case S.WAITING_FOR_RESOURCES:
                there, needed = self._wanted.slots(self._intent.resources), self._wanted.least_slots
                seconds = left(self._submission.until, now)
                wait = StreamWait(awaited=Awaited.SLOTS, seconds=seconds, slots=there, needed=needed)
            case S.EXECUTING if (assessment := self._intent.assessment) is not None and self._manager is not None:
                wait = while_executing(assessment, self._manager, now, self._assessor.failure)
            case S.RESTARTING if self._rescales.is_under_way:
                wait = while_rescaling(self._rescales.current)
            case S.RESTARTING:
                seconds = left(self._timers.when("restart"), now)
                wait = StreamWait(awaited=Awaited.RESTART, seconds=seconds, reason=self._cause, stops=self._stopping)
            case _:
                wait = IN_STATE.get(self.state)
        return wait


class StateMachine:
    def __init__(self, name: str, recorder: Recorder) -> None:
        self._name = name
        self._recorder = recorder
        self.state = SchedulerState.CREATED

    def go(self, state: SchedulerState, cause: str, phase: str = "") -> None:
        """Raises ValueError, with the story, for a move that is not in the table."""
        who = f"The scheduler of '{self._name}'"
        SCHEDULER_STATES.check(self.state, state, who, cause, self._recorder.story())
        self.state = state
        self._record(phase, cause)
        self._recorder.tell(f"{state.value} ({cause})")

    def phase_changed(self, phase: Phase, cause: str) -> None:
        if self.state is SchedulerState.EXECUTING:
            self._record(phase.value, cause)

    def _record(self, phase: str, cause: str) -> None:
        at, event = self._recorder.at, self._recorder.event
        self._recorder.record(StreamStateChange(at=at, event=event, state=self.state.value, phase=phase, cause=cause))
