"""Slot sharing groups as the records tell of them: what their slots need, how many were held, what of them was used."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from firesteel.humanize import format_bytes, format_count, format_seconds, plural
from firesteel.scheduler.kernel.records import SlotUsage
from firesteel.scheduler.slots.resource_profile import ResourceProfile

MIB = 1 << 20


@dataclass(slots=True)
class GroupHistory:
    """One slot sharing group. Times as in the records."""

    name: str
    profile: ResourceProfile = ResourceProfile.UNKNOWN
    """Of one slot, as last written down: network memory enters it when it is known. UNKNOWN: a coarse group."""
    asked: int = 0
    """Executions that wait for a slot now."""
    held: int = 0
    most_asked: int = 0
    most_held: int = 0
    waited: float = 0.0
    """Seconds in which any execution waited."""
    core_seconds: float = 0.0
    gib_seconds: float = 0.0
    is_used: bool = False

    def apply(self, record: SlotUsage) -> None:
        if record.profile:
            self.profile = ResourceProfile.of_numbers(record.profile)
        self.is_used = True
        self.asked, self.held = record.asked, record.held
        self.most_asked, self.most_held = max(self.most_asked, record.asked), max(self.most_held, record.held)
        self.core_seconds, self.gib_seconds = record.core_seconds, record.gib_seconds
        self.waited = record.waited_seconds

    @property
    def needs(self) -> str:
        """``2 cores, 2 GiB heap, 1 gpu`` of a slot."""
        return str(self.profile) if self.profile.is_specified else "coarse, slots as they are"


@dataclass(slots=True)
class Peaks:
    """Most resident memory of the workers of a vertex's subtasks, in MiB; of those that finished."""

    by_subtask: dict[int, int] = field(default_factory=dict)

    @property
    def largest(self) -> tuple[int, int]:
        """(subtask, MiB); of several the first subtask."""
        return min(self.by_subtask.items(), key=lambda item: (-item[1], item[0]))

    @property
    def median(self) -> float:
        return statistics.median(self.by_subtask.values())


Groups = Mapping[str, GroupHistory]


def group_lines(
    group: GroupHistory, vertices: list[int], at_once: int, largest_peak: int, framework: int | None
) -> Iterator[str]:
    """Yields lines on a group: the needs of a slot, the group's vertices, what its slots came to.

    ``at_once``: executions that are known to have run together. ``largest_peak``: MiB, 0 where not watched. ``framework``: bytes
    that a worker may hold beside its slot; None: not known.
    """
    members = ", ".join(f"[{number}]" for number in vertices)
    yield f"{group.name}: {group.needs}{f'; {members}' if members else ''}."
    if not group.is_used:
        return
    most = max(group.most_held, at_once)
    waited = f", {format_count(group.most_asked)} waited at most" if group.most_asked else ""
    waited += f" ({format_seconds(group.waited)} in all)" if group.waited else ""
    if not most:
        yield f"No slot was held{waited}."
        return
    seconds = f"{_amount(group.core_seconds)} core-seconds, {_amount(group.gib_seconds)} GiB-seconds"
    share = _share(group.profile, largest_peak, framework)
    used = f"; at most {share} of a slot's memory was used" if share else ""
    yield f"{plural(most, 'slot')} held at once at most{waited}; {seconds} held in all{used}."


def peaks_text(peaks: Peaks, profile: ResourceProfile, framework: int | None) -> str:
    """``at most 312 MiB (subtask 7), median 240 MiB, of 768 MiB that a worker may hold (41 %).``"""
    subtask, most = peaks.largest
    median = f", median {format_bytes(peaks.median * MIB)}" if len(peaks.by_subtask) > 1 else ""
    limit = worker_limit(profile, framework)
    of = f", of {format_bytes(limit)} that a worker may hold ({percent(most * MIB / limit)})" if limit else ""
    return f"at most {format_bytes(most * MIB)} (subtask {subtask}){median}{of}"


def worker_limit(profile: ResourceProfile, framework: int | None) -> int | None:
    """Most resident bytes of a worker with such a slot; None: not known, or not limited."""
    if framework is None or not profile.is_specified or not profile.memory:
        return None
    return profile.memory + framework


def waiting_text(groups: Groups) -> str:
    """``12 of gpu, 3 of light``: executions that wait for a slot; empty: none."""
    return ", ".join(f"{format_count(group.asked)} of {name}" for name, group in sorted(groups.items()) if group.asked)


def _share(profile: ResourceProfile, largest_peak: int, framework: int | None) -> str:
    limit = worker_limit(profile, framework)
    return percent(largest_peak * MIB / limit) if limit and largest_peak else ""


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _amount(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
