"""Assesses the parallelism a running stream should have, the action that gets it there, and whether anything stands against it."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from firesteel.errors import UsageError
from firesteel.humanize import format_seconds, plural
from firesteel.options import MAX_DOWNTIME, PIPELINE_MAX_PARALLELISM
from firesteel.scheduler.kernel.recorder import Recorder
from firesteel.scheduler.streaming.commands import Action
from firesteel.scheduler.streaming.events import StreamPlan
from firesteel.scheduler.streaming.load import LoadSignal
from firesteel.scheduler.streaming.manager import Direction
from firesteel.scheduler.streaming.running import RunningQuery
from firesteel.scheduler.streaming.settings import StreamSettings
from firesteel.scheduler.streaming.slots import CoarseSlots, Resources, Slots

_LEAST_PAUSE, _MOST_PAUSE = 10.0, 3600.0

_WELL_BELOW = 0.8
"""Part of the longest downtime that a prediction must fall to before the user is not asked any more."""


def pause_after(failures: int, cooldown: float) -> float:
    """Seconds after so many failed rescales in a row before the next try; there is always another one."""
    if not failures:
        return 0.0
    first = max(cooldown, _LEAST_PAUSE)
    return max(first, min(first * 2.0 ** min(failures - 1, 32), _MOST_PAUSE))


@dataclass(frozen=True, slots=True)
class Assessment:
    wish: Wish
    running: int
    choice: Choice
    predicted: float | None
    """Downtime, seconds; None: not known."""
    refused: str = ""
    """Why it is not to be had; a sentence."""
    awaits_word: str = ""
    """Why the user is to say so first; a sentence."""

    @property
    def is_wanted(self) -> bool:
        return self.wish.parallelism != self.running

    @property
    def awaits_batch(self) -> bool:
        """The downtime is known with the next batch."""
        return self.is_wanted and bool(self.awaits_word) and self.predicted is None

    @property
    def direction(self) -> Direction | None:
        """None: there is nothing that may be done."""
        if not self.is_wanted or self.refused or self.awaits_word:
            return None
        return Direction.UP if self.wish.parallelism > self.running else Direction.DOWN

    @property
    def key(self) -> tuple[object, ...]:
        """Two with the same one are not told apart in the journal."""
        wish = self.wish
        stands = (bool(self.refused), bool(self.awaits_word))
        return (wish.parallelism, self.running, wish.sufficient, wish.desired, wish.slots, wish.rule, *stands)


class Assessor:
    def __init__(
        self,
        wanted: Wanted,
        load: LoadSignal,
        query: RunningQuery,
        *,
        downtime: DowntimePrediction,
        settings: StreamSettings,
        recorder: Recorder,
    ) -> None:
        self._wanted = wanted
        self._load = load
        self._query = query
        self._downtime = downtime
        self._settings = settings
        self._recorder = recorder
        self._failures = 0
        self.failure = ""
        """Why the last rescale failed; empty: it did not, or the user has had a word since."""
        self.user_word = False
        """The change is what the user said: no more slots are waited for."""
        self.go = False
        """Whatever the downtime."""
        self._awaits = False
        """The last prediction made it wait for the user's word."""
        self._replay_left = 0.0

    def user_said(self, *, go: bool) -> None:
        self.user_word = True
        self.go = go
        self.granted()

    def failed(self, cause: str) -> None:
        """A rescale was, not the query in it."""
        self._failures += 1
        self.failure = cause or "an unknown fault"

    def granted(self) -> None:
        """A rescale came to what was wanted."""
        self._failures, self.failure = 0, ""

    @property
    def pause(self) -> float:
        """Seconds from the start after a failed rescale to the next one."""
        return pause_after(self._failures, max(self._settings.cooldown_up, self._settings.cooldown_down))

    def something_else_changed(self) -> None:
        """Forgets the user's word: it was said of other circumstances."""
        self.user_word = self.go = False

    def followed(self) -> None:
        """A rescale begins: what the user said so far is done with it."""
        self.user_word = self.go = False

    def assess(self, resources: Resources) -> Assessment:
        query = self._query
        wish = self._wanted.running(query.parallelism, resources, self._load.cores, user=self.user_word)
        choice = choose(query.plan, query.parallelism, wish.parallelism, pinned=query.pinned)
        predicted = self._predicted(choice.action, query.parallelism + wish.parallelism)
        if wish.parallelism == query.parallelism:
            self.user_word = self.go = False
            return Assessment(wish, query.parallelism, choice, predicted)
        refused = choice.refusal
        awaits = "" if refused else self._awaits_word(predicted)
        return Assessment(wish, query.parallelism, choice, predicted, refused, awaits)

    def decide(self, assessment: Assessment, resources: Resources, what: str) -> None:
        wish, choice = assessment.wish, assessment.choice
        inputs: dict[str, Any] = {
            "cores": resources.cores,
            "slots": wish.slots,
            "lower": self._wanted.requirements.lower,
            "upper": self._wanted.requirements.upper,
            "running": assessment.running,
            "sufficient": wish.sufficient,
            "desired": wish.desired,
        }
        if self._load.cores is not None:
            inputs["cores for the load"] = self._load.cores
        reason = wish.reason
        if self._load.reason and self._load.cores is not None:
            reason += f"; {self._load.reason}"
        if assessment.is_wanted:
            inputs |= {"action": choice.action.value, "state bytes": self._query.state_bytes}
            inputs["predicted downtime"] = None if assessment.predicted is None else round(assessment.predicted, 3)
            then = assessment.refused or assessment.awaits_word or choice.reason
            reason += f". {then[:1].upper()}{then[1:]}"
            if self._failures:
                inputs |= {"failed rescales": self._failures, "pause": self.pause}
                reason += f"; not before {format_seconds(self.pause)} have passed, for the last rescale failed"
        self._recorder.decision(
            "rescale" if assessment.is_wanted else "parallelism",
            inputs=inputs,
            rule=wish.rule,
            bounds=list(wish.bounds),
            result=Action.NOTHING.value if assessment.direction is None else wish.parallelism,
            reason=f"{what}: {reason}" if what else reason,
        )

    def _predicted(self, action: Action, partitions: int) -> float | None:
        state_bytes = self._query.state_bytes
        if state_bytes is None and action is Action.REPARTITION:
            return None
        return self._downtime.predict(action, state_bytes or 0, partitions)

    def may_replay(self, seconds: float) -> bool:
        """Returns whether the downtime is still allowed with a replay of so many seconds."""
        return self.go or math.isinf(self._settings.max_downtime) or seconds <= self._replay_left

    def _awaits_word(self, predicted: float | None) -> str:
        most = self._settings.max_downtime
        self._replay_left = most - (predicted or 0.0)
        if self.go or math.isinf(most):
            self._awaits = False
            return ""
        # Once it waits, a prediction that moves about the limit is not news.
        self._awaits = predicted is None or predicted > most * (_WELL_BELOW if self._awaits else 1.0)
        if not self._awaits:
            return ""
        if predicted is None:
            return (
                f"the downtime is not known before a batch is committed, and "
                f"{MAX_DOWNTIME.key} allows {format_seconds(most)}: it waits for that batch, or for the user's confirmation"
            )
        return (
            f"the stream would be down for about {format_seconds(predicted)}, and {MAX_DOWNTIME.key} "
            f"allows {format_seconds(most)}: it waits for the user's confirmation"
        )


@dataclass(frozen=True, slots=True)
class Wish:
    """The parallelism wanted of a stream, and why. ``parallelism`` is the running one where nothing is."""

    parallelism: int
    sufficient: bool
    desired: bool
    slots: int
    rule: str
    bounds: tuple[str, ...]
    reason: str
    """One sentence with numbers."""


class Wanted:
    def __init__(
        self, requirements: ResourceRequirements, settings: StreamSettings, slots: Slots | None = None
    ) -> None:
        """``slots``: None: coarse ones. Raises UsageError for a lower bound above the largest parallelism that is allowed."""
        self._settings = settings
        self.of_executors = slots or CoarseSlots(settings)
        self._check(requirements.lower)
        most = settings.max_parallelism or requirements.upper
        self.requirements = ResourceRequirements(requirements.lower, min(requirements.upper, most))
        self.exact = False
        """The user named one number: whatever the cores."""

    def slots(self, resources: Resources) -> int:
        return self.of_executors.there(resources)

    @property
    def least_slots(self) -> int:
        """Slots that must be there for what is wanted."""
        return 1 if self.exact and not self.of_executors.bound else self.requirements.lower

    def require(self, requirements: ResourceRequirements, *, exact: bool = False) -> None:
        """Raises UsageError for more than is allowed; then nothing has changed."""
        self._check(requirements.upper)
        self.requirements, self.exact = requirements, exact

    def _check(self, parallelism: int) -> None:
        most = self._settings.max_parallelism
        if most is not None and parallelism > most:
            raise UsageError(
                f"{plural(parallelism, 'partition')} is not possible: {PIPELINE_MAX_PARALLELISM.key} allows {most}.",
                hint="Ask for fewer, or start the stream with a larger value.",
            )

    def at_start(self, resources: Resources, *, user: bool = False) -> Wish:
        """Of a query that does not run yet."""
        return self._from_slots(resources, None, user=user)

    def running(self, parallelism: int, resources: Resources, load: int | None, *, user: bool) -> Wish:
        """``load``: cores that its load needs; None: nobody says. ``user``: the change is the user's own word."""
        wish = self._from_slots(resources, load, user=user)
        needs = self.requirements
        if self.exact or wish.parallelism == parallelism or not needs.lower <= parallelism <= needs.upper:
            return wish
        why = self.of_executors.still_suffice(parallelism, resources, load)
        if not why:
            return wish
        cores = resources.needed(load)
        those = f"the {plural(cores, 'core')} that the load needs" if cores < resources.cores else plural(cores, "core")
        reason = f"{plural(parallelism, 'partition')} on {those}: {why}, so nothing is done"
        return replace(wish, parallelism=parallelism, rule="the partitions still suffice", reason=reason)

    def _from_slots(self, resources: Resources, load: int | None, *, user: bool) -> Wish:
        needs, slots = self.requirements, self.slots(resources)
        if self.exact:
            there = slots >= self.least_slots
            reason = f"{plural(needs.lower, 'partition')}, as the user asked"
            reason += "" if there else f"; {self._too_few(resources)}"
            return Wish(needs.lower, there, there, slots, "the user's number", (), reason)
        useful = self.of_executors.needed(resources, load)
        parallelism = needs.clamp(useful)
        if self.of_executors.bound and slots:
            parallelism = min(parallelism, slots)
        hits = ((useful < needs.lower, "lower bound"), (useful > needs.upper, "upper bound"))
        bounds = tuple(text for hit, text in hits if hit)
        sufficient = slots >= needs.lower
        # With fewer cores needed than there are, no more are waited for.
        enough = slots >= needs.upper or resources.complete or useful < slots
        enough = enough or (resources.dynamic and not resources.guessed)
        rule = "slots within the requirements" if useful == slots else "slots that the load needs"
        reason = self._reason(resources, load, parallelism, sufficient=sufficient)
        return Wish(parallelism, sufficient, sufficient and (enough or user), slots, rule, bounds, reason)

    def _reason(self, resources: Resources, load: int | None, parallelism: int, *, sufficient: bool) -> str:
        needs = self.requirements
        reason = f"{self.of_executors.told(resources)}, and {needs.lower} to {needs.upper} partitions are required: {parallelism}"
        if load is not None:
            reason = f"the load needs {plural(load, 'core')}; {reason}"
        if resources.excluded:
            reason += f" ({plural(resources.excluded, 'core')} on blocked nodes not counted)"
        if not sufficient:
            reason += f"; not sufficient, at least {plural(needs.lower, 'slot')} must be there"
        return reason

    def _too_few(self, resources: Resources) -> str:
        return self.of_executors.told(resources) if resources.cores else "no core is there"


MOST_PARTITIONS = 32_768
"""As Flink's largest ``maxParallelism``."""


def check_partitions(number: object) -> None:
    """Raises UsageError unless a stream can have so many partitions."""
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= MOST_PARTITIONS:
        raise UsageError(
            f"A stream cannot have {number!r} partitions.",
            hint=f"Give a whole number from 1 to {MOST_PARTITIONS:,}.",
        )


@dataclass(frozen=True, slots=True)
class ResourceRequirements:
    """Bounds of the parallelism of a stream: the number of partitions that its state has.

    ``lower``: not rescaled with slots for fewer, and not started before the wait for them is over
    (``jobmanager.adaptive-scheduler.submission.resource-wait-timeout``). ``upper``: never more. A *slot* is one partition's
    place; a core of Spark gives ``firesteel.stream.partitions-per-core`` of them, or executors as many as fit, of those that the
    stream's slot sharing group describes. Raises UsageError unless 1 <= lower <= upper <= 32,768.
    """

    lower: int = 1
    upper: int = 128

    def __post_init__(self) -> None:
        for name, value in (("lower", self.lower), ("upper", self.upper)):
            if isinstance(value, bool) or not isinstance(value, int):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise UsageError(f"'{name}' of the resource requirements is {value!r}; it must be a whole number.")
        if not 1 <= self.lower <= self.upper <= MOST_PARTITIONS:
            raise UsageError(
                f"Resource requirements of {self.lower} to {self.upper} cannot be met.",
                hint=f"They must be from 1 to {MOST_PARTITIONS:,}, and 'lower' no more than 'upper'.",
            )

    def clamp(self, parallelism: int) -> int:
        return max(self.lower, min(parallelism, self.upper))


_ENDS = (
    "its trigger (availableNow or once) ends the query by itself, and a restart would read what came meanwhile too: the "
    "next run begins with what is wanted then"
)


@dataclass(frozen=True, slots=True)
class Choice:
    action: Action
    reason: str
    refusal: str = ""
    """Why it cannot be done; then nothing is touched."""


def choose(plan: StreamPlan, before: int, wanted: int, *, pinned: bool) -> Choice:
    """``pinned``: the checkpoint holds state of ``before`` partitions."""
    if wanted == before:
        return Choice(Action.NOTHING, f"{plural(before, 'partition')} as it is")
    refusal = plan.refusal or ("" if plan.continuous else _ENDS)
    if refusal:
        return Choice(Action.NOTHING, refusal, refusal)
    if not plan.stateful:
        return Choice(Action.RESTART, "no stateful operator: the new number counts from the next start")
    if not pinned:
        return Choice(Action.RESTART, "no batch has begun, so that no state is there to rewrite")
    return Choice(Action.REPARTITION, f"the state of {', '.join(plan.stateful)} is rewritten")


_RESTART = 1.5
_REWRITE = 1.5
_PER_BYTE = 30.0 / (1 << 30)
_PER_PARTITION = 0.03
"""Seconds, as measured on two cores; wrong by some factor elsewhere, which the first rescales show."""
_RESCALES = 5


class DowntimePrediction:
    """Stop and start, what rewriting costs whatever the state, and what it costs per byte are learnt one by one."""

    def __init__(self) -> None:
        self._restarts: deque[float] = deque(maxlen=_RESCALES)
        self._rewrites: deque[float] = deque(maxlen=_RESCALES)
        self._per_byte: deque[float] = deque(maxlen=_RESCALES)

    def predict(self, action: Action, state_bytes: int, partitions: int = 0) -> float:
        """Seconds from the last commit before to the first batch after, without a replay. ``partitions``: read and written."""
        if action is Action.NOTHING:
            return 0.0
        restart = _median(self._restarts, _RESTART)
        if action is Action.RESTART:
            return restart
        rewrite = _median(self._rewrites, _REWRITE) + _PER_PARTITION * partitions
        return restart + rewrite + _median(self._per_byte, _PER_BYTE) * state_bytes

    def learn(self, state_bytes: int, restart: float, repartition: float = 0.0, partitions: int = 0) -> None:
        """``restart``: seconds of the downtime without those of the ``repartition``; 0: there was none."""
        if restart > 0:
            self._restarts.append(restart)
        if repartition <= 0:
            return
        repartition = max(0.0, repartition - _PER_PARTITION * partitions)
        for_bytes = _median(self._per_byte, _PER_BYTE) * state_bytes
        constant = _median(self._rewrites, _REWRITE)
        if for_bytes <= constant:
            self._rewrites.append(max(0.0, repartition - for_bytes))
        else:
            self._per_byte.append(max(0.0, repartition - constant) / state_bytes)


def _median(samples: deque[float], before: float) -> float:
    return median(samples) if samples else before
