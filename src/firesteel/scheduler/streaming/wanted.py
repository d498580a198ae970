"""What parallelism is wanted: requirements, slots, and by option load."""

from __future__ import annotations

from dataclasses import dataclass, replace

from firesteel.humanize import plural
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

    def changed(self, event: ClusterChanged) -> Resources:
        """As ``event`` tells. What Spark's dynamic allocation adds and takes for this very query is no signal: or two
        loops would chase each other. Its limit is."""
        cores = max(event.cores, 1) if event.dynamic else event.cores
        return Resources(cores, event.executors, event.excluded, event.complete, event.dynamic, True)

    def says_more_than(self, before: Resources) -> bool:
        """More than dynamic allocation at work."""
        if not before.known or self.dynamic != before.dynamic:
            return True
        return not self.dynamic

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
        self.requirements = requirements
        self.exact = False
        """The user named one number: whatever the cores."""
        self._settings = settings

    def slots(self, resources: Resources) -> int:
        return resources.cores * self._settings.partitions_per_core

    def require(self, requirements: ResourceRequirements, *, exact: bool = False) -> None:
        self.requirements, self.exact = requirements, exact

    def at_start(self, resources: Resources, *, user: bool = False) -> Wish:
        """Of a query that does not run yet."""
        return self._from_slots(resources, user=user)

    def running(self, parallelism: int, resources: Resources, load: int | None, *, user: bool) -> Wish:
        """``load``: partitions that its load needs; None: nobody says. ``user``: the change is the user's own word."""
        wish = self._from_slots(resources, user=user)
        if load is not None and not self.exact:
            wish = self._bound_by_load(wish, parallelism, load)
        if wish.parallelism == parallelism or not self._suffices(parallelism, wish, resources, load):
            return wish
        per_core = self._settings.max_partitions_per_core
        reason = (
            f"{plural(parallelism, 'partition')} on {plural(resources.cores, 'core')}: every core has at least one and "
            f"none more than {per_core}, so nothing is done"
            if load is None
            else f"the load needs {plural(load, 'partition')}, and {parallelism} do on {plural(resources.cores, 'core')}"
        )
        return replace(wish, parallelism=parallelism, rule="the partitions still suffice", reason=reason)

    def _from_slots(self, resources: Resources, *, user: bool) -> Wish:
        needs, slots = self.requirements, self.slots(resources)
        if self.exact:
            there = resources.cores > 0
            reason = f"{plural(needs.lower, 'partition')}, as the user said" + ("" if there else "; no core is there")
            return Wish(needs.lower, there, there, slots, "the user's number", (), reason)
        parallelism = needs.clamp(slots)
        bounds = tuple(
            text for hit, text in ((slots < needs.lower, "lower bound"), (slots > needs.upper, "upper bound")) if hit
        )
        sufficient = slots >= needs.lower
        desired = sufficient and (slots >= needs.upper or resources.complete or resources.dynamic or user)
        reason = (
            f"{plural(resources.cores, 'core')} give {plural(slots, 'slot')}, and {needs.lower} to {needs.upper} "
            f"partitions are required: {parallelism}"
        )
        if resources.excluded:
            reason += f" ({plural(resources.excluded, 'core')} on blocked nodes not counted)"
        if not sufficient:
            reason += f"; not sufficient, at least {plural(needs.lower, 'slot')} must be there"
        return Wish(parallelism, sufficient, desired, slots, "slots within the requirements", bounds, reason)

    def _bound_by_load(self, wish: Wish, running: int, load: int) -> Wish:
        parallelism = max(self.requirements.lower, min(wish.parallelism, load))
        reason = f"the load needs {plural(load, 'partition')}, {running} are there; {wish.reason}"
        # What the load needs is there when the slots for it are: no more are waited for.
        desired = wish.desired or (wish.sufficient and load <= wish.slots)
        return replace(wish, parallelism=parallelism, desired=desired, rule="load within slots", reason=reason)

    def _suffices(self, parallelism: int, wish: Wish, resources: Resources, load: int | None) -> bool:
        needs, cores = self.requirements, resources.cores
        most = cores * self._settings.max_partitions_per_core
        if not (needs.lower <= parallelism <= needs.upper and parallelism <= most):
            return False
        if load is None:
            return cores <= parallelism
        # The load needs no fewer than there are: slots for fewer are no reason to take some away.
        return load >= parallelism > wish.parallelism
