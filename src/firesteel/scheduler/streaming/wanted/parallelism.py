"""The wanted parallelism: requirements, slots, and by option load."""

from __future__ import annotations

from dataclasses import dataclass, replace

from firesteel.errors import UsageError
from firesteel.humanize import plural
from firesteel.options import PIPELINE_MAX_PARALLELISM
from firesteel.scheduler.streaming.settings import StreamSettings
from firesteel.scheduler.streaming.wanted.requirements import ResourceRequirements
from firesteel.scheduler.streaming.wanted.slots import CoarseSlots, Resources, Slots


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
