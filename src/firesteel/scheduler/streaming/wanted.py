"""What parallelism is wanted: requirements, slots, and by option load."""

from __future__ import annotations

from dataclasses import dataclass, replace

from firesteel.errors import UsageError
from firesteel.humanize import plural
from firesteel.options import PIPELINE_MAX_PARALLELISM
from firesteel.scheduler.streaming.events import ClusterChanged
from firesteel.scheduler.streaming.requirements import ResourceRequirements
from firesteel.scheduler.streaming.settings import StreamSettings


@dataclass(frozen=True, slots=True)
class Resources:
    """Cores that count, and whether more can come."""

    cores: int = 0
    executors: int = 0
    excluded: int = 0
    complete: bool = False
    dynamic: bool = False
    known: bool = False
    limited: bool = False
    guessed: bool = False
    """Dynamic allocation has made no executor yet: one core is taken to come."""

    def changed(self, event: ClusterChanged) -> Resources:
        """As ``event`` tells. What Spark's dynamic allocation adds and takes for this very query is no signal: or two
        loops would chase each other. Its limit is."""
        cores = max(event.cores, 1) if event.dynamic else event.cores
        guessed = event.dynamic and event.cores == 0
        return Resources(
            cores, event.executors, event.excluded, event.complete, event.dynamic, True, event.limited, guessed
        )

    def says_more_than(self, before: Resources) -> bool:
        """More than dynamic allocation at work."""
        if not before.known or self.dynamic != before.dynamic:
            return True
        if not self.dynamic:
            return True
        return not self.guessed and (before.guessed or (self.limited and self.cores != before.cores))

    def counted_as(self, before: Resources) -> Resources:
        """These, with the cores that were there before."""
        return replace(self, cores=before.cores)


@dataclass(frozen=True, slots=True)
class Wish:
    """What is wanted of a stream. ``parallelism`` is the running one where nothing is."""

    parallelism: int
    sufficient: bool
    desired: bool
    slots: int
    rule: str
    bounds: tuple[str, ...]
    reason: str
    """One sentence with numbers."""


class Wanted:
    def __init__(self, requirements: ResourceRequirements, settings: StreamSettings) -> None:
        """Raises UsageError for a lower bound above the largest parallelism that is allowed."""
        self._settings = settings
        self._check(requirements.lower)
        most = settings.max_parallelism or requirements.upper
        self.requirements = ResourceRequirements(requirements.lower, min(requirements.upper, most))
        self.exact = False
        """The user named one number: whatever the cores."""

    def slots(self, resources: Resources) -> int:
        return resources.cores * self._settings.partitions_per_core

    def require(self, requirements: ResourceRequirements, *, exact: bool = False) -> None:
        """Raises UsageError for more than is allowed; then nothing has changed."""
        self._check(requirements.upper)
        self.requirements, self.exact = requirements, exact

    def _check(self, parallelism: int) -> None:
        most = self._settings.max_parallelism
        if most is not None and parallelism > most:
            raise UsageError(
                f"{plural(parallelism, 'partition')} cannot be had: {PIPELINE_MAX_PARALLELISM.key} allows {most}.",
                hint="Ask for fewer, or start the stream with a larger value.",
            )

    def at_start(self, resources: Resources, *, user: bool = False) -> Wish:
        """Of a query that does not run yet."""
        return self._from_slots(resources, None, user=user)

    def running(self, parallelism: int, resources: Resources, load: int | None, *, user: bool) -> Wish:
        """``load``: cores that its load needs; None: nobody says. ``user``: the change is the user's own word."""
        wish = self._from_slots(resources, load, user=user)
        cores = _needed(resources, load)
        # Where executors come as tasks ask for them, partitions that the load does not need hold some.
        frugal = load is not None and resources.dynamic
        per_core = self._settings.partitions_per_core if frugal else self._settings.max_partitions_per_core
        if self.exact or wish.parallelism == parallelism or not self._suffices(parallelism, cores, per_core):
            return wish
        those = f"the {plural(cores, 'core')} that the load needs" if cores < resources.cores else plural(cores, "core")
        reason = (
            f"{plural(parallelism, 'partition')} on {those}: every core has at least one and none more than {per_core}, "
            "so nothing is done"
        )
        return replace(wish, parallelism=parallelism, rule="the partitions still suffice", reason=reason)

    def _from_slots(self, resources: Resources, load: int | None, *, user: bool) -> Wish:
        needs, slots = self.requirements, self.slots(resources)
        if self.exact:
            there = resources.cores > 0
            reason = f"{plural(needs.lower, 'partition')}, as the user said" + ("" if there else "; no core is there")
            return Wish(needs.lower, there, there, slots, "the user's number", (), reason)
        useful = _needed(resources, load) * self._settings.partitions_per_core
        parallelism = needs.clamp(useful)
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
        verb = "gives" if resources.cores == 1 else "give"
        reason = (
            f"{plural(resources.cores, 'core')} {verb} {plural(self.slots(resources), 'slot')}, and {needs.lower} to "
            f"{needs.upper} partitions are required: {parallelism}"
        )
        if load is not None:
            reason = f"the load needs {plural(load, 'core')}; {reason}"
        if resources.excluded:
            reason += f" ({plural(resources.excluded, 'core')} on blocked nodes not counted)"
        if not sufficient:
            reason += f"; not sufficient, at least {plural(needs.lower, 'slot')} must be there"
        return reason

    def _suffices(self, parallelism: int, cores: int, per_core: int) -> bool:
        """No core that is needed is without a partition, and none has too many."""
        in_bounds = self.requirements.lower <= parallelism <= self.requirements.upper
        return in_bounds and cores <= parallelism <= cores * per_core


def _needed(resources: Resources, load: int | None) -> int:
    return resources.cores if load is None else min(resources.cores, load)
