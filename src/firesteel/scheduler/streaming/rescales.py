"""The rescales of a stream from the first change to the end: what becomes a :class:`RescaleRecord`."""

from __future__ import annotations

from dataclasses import dataclass, field

from firesteel.humanize import plural
from firesteel.scheduler.kernel.recorder import Recorder
from firesteel.scheduler.streaming.commands import Action
from firesteel.scheduler.streaming.events import RescaleStep
from firesteel.scheduler.streaming.records import EndState, RescaleRecord, Trigger, TriggerCause
from firesteel.scheduler.streaming.running import RunningQuery
from firesteel.scheduler.streaming.wish import Assessment, DowntimePrediction

_OF_THE_USER = (TriggerCause.USER, TriggerCause.UPDATE_REQUIREMENT)


@dataclass(slots=True)
class RescaleInProgress:
    rescale: int
    cause: TriggerCause
    what: str
    first_change: float
    before: int
    requested: int
    action: Action = Action.NOTHING
    sufficient: bool = False
    desired: bool = False
    trigger: Trigger | None = None
    checkpoint: int | None = None
    triggered: float = 0.0
    predicted: float | None = None
    state_bytes: int | None = 0
    """None: not known yet."""
    steps: dict[str, float] = field(default_factory=dict[str, float])
    step: RescaleStep | None = None
    step_at: float = 0.0
    down_since: float | None = None
    """The last commit, or the stop."""
    started: float | None = None
    granted: int = 0
    replayed_rows: int = 0
    downtime: float | None = None
    idle: bool = False
    """It found nothing to read when it was started."""
    reason: str = ""

    def take(self, assessment: Assessment) -> None:
        self.action, self.predicted = assessment.choice.action, assessment.predicted
        self.sufficient, self.desired = assessment.wish.sufficient, assessment.wish.desired


class Rescales:
    """At most one is wanted, or under way, at a time; the one before may still wait for its first batch."""

    def __init__(self, recorder: Recorder, downtime: DowntimePrediction) -> None:
        self._recorder = recorder
        self._prediction = downtime
        self._number = 0
        self.current: RescaleInProgress | None = None
        self._begun: RescaleInProgress | None = None
        """Its query was started, and has not committed a batch."""
        self.last: RescaleRecord | None = None
        """The last rescale that was not ignored."""
        self.made = 0
        """Completed."""

    @property
    def is_under_way(self) -> bool:
        return self.current is not None and self.current.trigger is not None

    def want(self, cause: TriggerCause, what: str, before: int, requested: int) -> RescaleInProgress:
        """A rescale is wanted; the first change of several gives it its cause, but what the user says comes before."""
        if self.current is None:
            self._number += 1
            self.current = RescaleInProgress(self._number, cause, what, self._recorder.at, before, requested)
        current = self.current
        if cause in _OF_THE_USER:
            current.cause, current.what = cause, what
        current.before, current.requested = before, requested
        return current

    def ignore(self, reason: str, assessment: Assessment | None = None) -> None:
        """Ends the current rescale as ignored: it is not wanted any more, or cannot be had; nothing was touched."""
        current, self.current = self.current, None
        if current is not None:
            if assessment is not None and assessment.is_wanted:
                current.take(assessment)
            self._end(current, EndState.IGNORED, reason)

    def trigger(
        self, trigger: Trigger, assessment: Assessment, query: RunningQuery, *, at_barrier: bool, again: float = 0.0
    ) -> RescaleInProgress:
        """It begins, whatever was wanted first. ``again``: seconds that a batch takes which is to be replayed."""
        assert self.current is not None
        self.complete("the next rescale began before its first batch was committed")
        current = self.current
        current.take(assessment)
        if current.predicted is not None:
            current.predicted += again
        current.requested, current.state_bytes = assessment.wish.parallelism, query.state_bytes
        current.trigger, current.triggered = trigger, self._recorder.at
        current.checkpoint = query.batch if query.batch >= 0 else None
        current.steps["wait"] = self._recorder.at - current.first_change
        current.down_since = self._recorder.at if at_barrier else None
        return current

    def made_with_restart(self) -> None:
        """The query failed, and it is made with the restart."""
        if self.current is not None:
            self.current.cause = TriggerCause.RECOVERABLE_FAILOVER

    def falls_back(self, cause: str) -> None:
        """It cannot come to what was requested; the query starts with another parallelism."""
        if self.current is not None:
            self.current.reason = cause

    def committed(self) -> None:
        """A batch of the old query was committed. One that is told when that is stopped changes nothing about its downtime."""
        if self.current is not None and self.current.step in (None, RescaleStep.COMMIT_BARRIER):
            self.current.down_since = self._recorder.at

    def stepped(self, step: RescaleStep, batch: int) -> None:
        if self.current is None:
            return
        self._close_step()
        self.current.step, self.current.step_at = step, self._recorder.at
        if step is RescaleStep.STOP and self.current.down_since is None:
            self.current.down_since = self._recorder.at
        if step is not RescaleStep.COMMIT_BARRIER and batch >= 0:
            self.current.checkpoint = batch

    def started(self, parallelism: int, replayed_rows: int) -> RescaleInProgress | None:
        """The query runs again."""
        current = self.current
        if current is not None:
            self._close_step()
            current.started, current.granted, current.replayed_rows = self._recorder.at, parallelism, replayed_rows
            if parallelism != current.requested:
                current.reason = current.reason or f"{plural(parallelism, 'partition')} were reached"
            self._begun, self.current = current, None
        return current

    def takes_batch(self, *, idle: bool = False) -> None:
        """The new query takes its first batch, or finds that there is none (``idle``)."""
        begun = self._begun
        if begun is not None and begun.downtime is None:
            begun.idle = idle
            since = begun.triggered if begun.down_since is None else begun.down_since
            begun.downtime = self._recorder.at - since

    def first_batch(self, *, idle: bool = False) -> None:
        """The new query has committed its first batch, or found that there is none."""
        begun = self._begun
        if begun is not None and begun.started is not None:
            self.takes_batch(idle=idle)
            begun.steps["first batch"] = self._recorder.at - begun.started
            self.complete()

    def complete(self, reason: str = "") -> None:
        """All is known that will be."""
        begun, self._begun = self._begun, None
        if begun is None:
            return
        if begun.granted != begun.requested:
            self._end(begun, EndState.FAILED, begun.reason or reason)
            return
        if begun.downtime is not None:
            self._learn(begun, begun.downtime)
        self.made += 1
        self._end(begun, EndState.COMPLETED, reason)

    def _learn(self, begun: RescaleInProgress, downtime: float) -> None:
        """From its steps; neither a replay nor the wait for a quiet source's first batch comes with every rescale."""
        steps = begun.steps
        repartition = steps.get(RescaleStep.REPARTITION.value, 0.0)
        if begun.idle:
            restart = steps.get(RescaleStep.STOP.value, 0.0) + steps.get(RescaleStep.START.value, 0.0)
        else:
            restart = downtime - repartition - steps.get(RescaleStep.REPLAY.value, 0.0)
        self._prediction.learn(begun.state_bytes or 0, restart, repartition, begun.before + begun.requested)

    def failed(self, reason: str, parallelism: int) -> None:
        """It did not come to its end; ``parallelism`` is what there is."""
        current = self.current
        if current is not None:
            self._close_step()
            current.granted, self.current = parallelism, None
            self._end(current, EndState.FAILED, reason)

    def _close_step(self) -> None:
        current = self.current
        if current is not None and current.step is not None:
            name = current.step.value
            current.steps[name] = current.steps.get(name, 0.0) + self._recorder.at - current.step_at
            current.step = None

    def _end(self, current: RescaleInProgress, end: EndState, reason: str) -> None:
        record = RescaleRecord(
            at=self._recorder.at,
            event=self._recorder.event,
            rescale=current.rescale,
            cause=current.cause.name,
            what=current.what,
            action=current.action.value,
            before=current.before,
            requested=current.requested,
            granted=current.before if end is EndState.IGNORED else current.granted,
            sufficient=current.sufficient,
            desired=current.desired,
            trigger="" if current.trigger is None else str(current.trigger),
            trigger_kind="" if current.trigger is None else current.trigger.kind.name,
            checkpoint=current.checkpoint,
            first_change=current.first_change,
            triggered=current.triggered,
            steps=current.steps,
            replayed_rows=current.replayed_rows,
            predicted_downtime=current.predicted,
            downtime=current.downtime,
            state_bytes=current.state_bytes or 0,
            end=end.value,
            reason=reason,
        )
        if end is not EndState.IGNORED:
            self.last = record
        self._recorder.record(record)
        self._recorder.tell(f"rescale {current.rescale} {end.value}{f': {reason}' if reason else ''}")
