"""The intent for a stream, with its cause and the time it became known: slots, requirements, the user's word, load."""

from __future__ import annotations

from firesteel.errors import UsageError
from firesteel.humanize import plural
from firesteel.scheduler.kernel.recorder import Recorder
from firesteel.scheduler.streaming.events import ClusterChanged, RequirementsChanged, RescaleRequested
from firesteel.scheduler.streaming.load import LoadSignal
from firesteel.scheduler.streaming.manager import Direction
from firesteel.scheduler.streaming.records import TriggerCause
from firesteel.scheduler.streaming.rescales import Rescales
from firesteel.scheduler.streaming.slots import Resources
from firesteel.scheduler.streaming.wish import Assessment, Assessor, ResourceRequirements, Wanted, Wish


class Intent:
    def __init__(self, wanted: Wanted, assessor: Assessor, rescales: Rescales, recorder: Recorder) -> None:
        self._wanted = wanted
        self._assessor = assessor
        self._rescales = rescales
        self._recorder = recorder
        self.resources = Resources()
        """Resources that count for decisions."""
        self.there = Resources()
        """Resources as told last."""
        self.assessment: Assessment | None = None
        """Of the running query; None: not looked at yet."""
        self._told_of_load = ""
        self._why = (TriggerCause.INITIAL_SCHEDULE, "the stream was started")

    def cluster_changed(self, event: ClusterChanged, *, started: bool) -> bool:
        """Takes in the change; returns whether anything changed. ``started``: the query was, so that this may be the cause of a rescale."""
        before, self.there = self.there, self.there.changed(event)
        if self.there == before:
            return False
        is_signal = self.there.says_more_than(before)
        self.resources = self.there if is_signal else self.there.counted_as(self.resources)
        if is_signal:
            self._assessor.something_else_changed()
        if started:
            what = event.what or f"{plural(self.there.cores, 'core')} can be used now"
            self._why = (TriggerCause.NEW_RESOURCE_AVAILABLE, what)
        return True

    def user_said(self, event: RequirementsChanged | RescaleRequested) -> bool:
        """Takes in the user's word; returns whether it changes anything."""
        try:
            changed = self._take_word(event)
        except UsageError as error:
            self._recorder.decision("requirements", rule="refused", reason=str(error))
            return False
        if changed:
            # What dynamic allocation does is not a signal; the user's word is one to look at what there is.
            self.resources = self.there
            self._assessor.user_said(go=isinstance(event, RescaleRequested))
        return changed

    def load_said(self, load: LoadSignal) -> None:
        """It was told of a batch, or of none."""
        if load.cores is not None:
            self._why = (TriggerCause.LOAD, f"the load changed ({load.reason})")
        elif load.reason != self._told_of_load:
            self._recorder.decision("load", rule="no signal", reason=load.reason)
        self._told_of_load = "" if load.cores is not None else load.reason

    def query_started(self) -> None:
        """Forgets what was thought of the query before."""
        self.assessment = None

    def look(self, *, said: bool = False) -> bool:
        """Assesses anew; returns whether there is news for the rescale manager. ``said``: by the user, who is owed an answer."""
        before = self.assessment
        now = self.assessment = self._assessor.assess(self.resources)
        if before is not None and before.key == now.key and not said:
            return False
        cause, what = self._why
        self._assessor.decide(now, self.resources, what)
        if now.is_wanted:
            self._rescales.want(cause, what, now.running, now.wish.parallelism)
        if now.refused or not now.is_wanted:
            self._rescales.ignore(now.refused or now.wish.reason, now)
        return True

    def would_want(self) -> Wish | None:
        """Of a query that does not run just now: another parallelism that may be come to; None: there is none."""
        now = self._assessor.assess(self.resources)
        return now.wish if now.direction is not None and now.wish.sufficient else None

    def direction(self) -> Direction | None:
        return None if self.assessment is None else self.assessment.direction

    def has_sufficient(self) -> bool:
        assessment = self.assessment
        return assessment is not None and assessment.direction is not None and assessment.wish.sufficient

    def has_desired(self) -> bool:
        return self.has_sufficient() and self.assessment is not None and self.assessment.wish.desired

    def _take_word(self, event: RequirementsChanged | RescaleRequested) -> bool:
        """Raises UsageError for numbers that no stream can have."""
        if isinstance(event, RequirementsChanged):
            needs = ResourceRequirements(event.lower, event.upper)
            if needs == self._wanted.requirements and not self._wanted.exact:
                return False
            self._wanted.require(needs)
            self._why = (TriggerCause.UPDATE_REQUIREMENT, f"the requirements are now {needs.lower} to {needs.upper}")
        elif event.parallelism is None:
            self._why = (TriggerCause.USER, "the user asked to go ahead")
        else:
            number = event.parallelism
            self._wanted.require(ResourceRequirements(number, number), exact=True)
            self._why = (TriggerCause.USER, f"the user asked for {plural(number, 'partition')}")
        return True
