"""What a running stream should come to, by which action, and whether anything stands against it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from firesteel.humanize import format_seconds
from firesteel.options import MAX_DOWNTIME
from firesteel.scheduler.streaming.actions import Choice, choose
from firesteel.scheduler.streaming.commands import Action
from firesteel.scheduler.streaming.downtime import DowntimePrediction
from firesteel.scheduler.streaming.load import LoadSignal
from firesteel.scheduler.streaming.recorder import StreamRecorder
from firesteel.scheduler.streaming.rescale_manager import Direction
from firesteel.scheduler.streaming.running import RunningQuery
from firesteel.scheduler.streaming.settings import StreamSettings
from firesteel.scheduler.streaming.wanted import Resources, Wanted, Wish

MOST_FAILURES = 3
"""Rescales to one number that may fail in a row before the user is to ask for it again."""


@dataclass(frozen=True, slots=True)
class Assessment:
    wish: Wish
    running: int
    choice: Choice
    predicted: float
    refused: str = ""
    """Why it is not to be had; a sentence."""
    awaits_word: str = ""
    """Why the user is to say so first; a sentence."""

    @property
    def is_wanted(self) -> bool:
        return self.wish.parallelism != self.running

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
        recorder: StreamRecorder,
    ) -> None:
        self._wanted = wanted
        self._load = load
        self._query = query
        self._downtime = downtime
        self._settings = settings
        self._recorder = recorder
        self._failures: dict[int, list[str]] = {}
        self.user_word = False
        """The change is what the user said: no more slots are waited for."""
        self.go = False
        """Whatever the downtime."""

    def user_said(self, *, go: bool) -> None:
        self.user_word = True
        self.go = go
        self._failures.clear()

    def failed(self, parallelism: int, cause: str) -> None:
        """A rescale to this number."""
        self._failures.setdefault(parallelism, []).append(cause or "an unknown fault")

    def granted(self) -> None:
        """A rescale came to what was wanted."""
        self._failures.clear()

    def followed(self) -> None:
        """A rescale begins: what the user said so far is done with it."""
        self.user_word = self.go = False

    def assess(self, resources: Resources) -> Assessment:
        query = self._query
        wish = self._wanted.running(query.parallelism, resources, self._load.cores, user=self.user_word)
        choice = choose(query.plan, query.parallelism, wish.parallelism, pinned=query.pinned)
        predicted = self._downtime.predict(choice.action, query.state_bytes)
        if wish.parallelism == query.parallelism:
            self.user_word = self.go = False
            return Assessment(wish, query.parallelism, choice, predicted)
        refused = choice.refusal or self._given_up(wish.parallelism)
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
            inputs["predicted downtime"] = round(assessment.predicted, 3)
            then = assessment.refused or assessment.awaits_word or choice.reason
            reason += f". {then[:1].upper()}{then[1:]}"
        self._recorder.decision(
            "rescale" if assessment.is_wanted else "parallelism",
            inputs=inputs,
            rule=wish.rule,
            bounds=list(wish.bounds),
            result=Action.NOTHING.value if assessment.direction is None else wish.parallelism,
            reason=f"{what}: {reason}" if what else reason,
        )

    def _given_up(self, parallelism: int) -> str:
        causes = self._failures.get(parallelism, [])
        if len(causes) < MOST_FAILURES:
            return ""
        last = causes[-1].splitlines()[0].rstrip(".")
        return (
            f"{parallelism} partitions were tried {len(causes)} times and not come to, last because: {last}. Ask for a "
            "rescale to try again."
        )

    def _awaits_word(self, predicted: float) -> str:
        if self.go or predicted <= self._settings.max_downtime:
            return ""
        return (
            f"it would keep the stream from its work for about {format_seconds(predicted)}, and {MAX_DOWNTIME.key} "
            f"allows {format_seconds(self._settings.max_downtime)}: it waits for the user's word"
        )
