"""Assesses the parallelism a running stream should have, the action that gets it there, and whether anything stands against it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from firesteel.humanize import format_seconds
from firesteel.options import MAX_DOWNTIME
from firesteel.scheduler.kernel.recorder import Recorder
from firesteel.scheduler.streaming.commands import Action
from firesteel.scheduler.streaming.rescaling.downtime import DowntimePrediction
from firesteel.scheduler.streaming.rescaling.manager import Direction
from firesteel.scheduler.streaming.running import RunningQuery
from firesteel.scheduler.streaming.settings import StreamSettings
from firesteel.scheduler.streaming.wanted.cheapest_action import Choice, choose
from firesteel.scheduler.streaming.wanted.load import LoadSignal
from firesteel.scheduler.streaming.wanted.parallelism import Wanted, Wish
from firesteel.scheduler.streaming.wanted.slots import Resources

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
