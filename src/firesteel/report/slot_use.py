"""Use of slots: the share of their time that a step's tasks used from its first launch to its last end, and where the rest went."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from firesteel.humanize import format_seconds, plural
from firesteel.model.job_graph import ResultPartitionType
from firesteel.report.executions import BusySlots, Spans
from firesteel.report.fold import JobFold, VertexHistory
from firesteel.report.slot_sharing import percent

_PIPELINED = ResultPartitionType.PIPELINED.value
_OVERLAP = 1.25
"""So many times the slots, and one, may seem to be busy: clocks differ, and one execution begins as the one before it ends."""
_SHOWN = 0.005
"""Shares below this are not worth words."""


@dataclass(frozen=True, slots=True)
class SlotUse:
    """Of ``slots`` for ``seconds``: shares of their time, from 0 to 1. ``used`` + ``others`` + the three idle ones are 1."""

    slots: int
    seconds: float
    """From the launch of the step's first execution to the end of its last one."""
    used: float
    """By the step's executions, those that failed among them."""
    others: float
    """By other steps meanwhile."""
    begin: float
    """Idle until as many were launched as have slots."""
    between: float
    """Idle later, while some were still to be launched."""
    end: float
    """Idle after the last launch."""

    def words(self) -> str:
        """``95 % of the time of 16 slots used in 1.1 s; idle: 1 % until all had begun, 3 % between subtasks, 1 % at the end``."""
        others = f", and {percent(self.others)} by other steps" if self.others >= _SHOWN else ""
        idle = [
            f"{percent(share)} {where}"
            for share, where in (
                (self.begin, "until all had begun"),
                (self.between, "between subtasks"),
                (self.end, "at the end"),
            )
            if share >= _SHOWN
        ]
        return (
            f"{percent(self.used)} of the time of {plural(self.slots, 'slot')} used in {format_seconds(self.seconds)}{others}"
            f"{'; idle: ' if idle else ''}{', '.join(idle)}"
        )


def uses(fold: JobFold) -> dict[int, SlotUse]:
    """Of the vertices of a job that are done, by number, each among those of its slot sharing group. Where tasks stream to each other, several
    executions have one slot: nothing is told then."""
    if fold.plan is None or any(dataset.get("type") == _PIPELINED for dataset in fold.plan.datasets):
        return {}
    spans = {number: each.spans() for number, each in fold.executions.items()}
    groups: dict[str, list[Spans]] = {}
    for number, each in spans.items():
        groups.setdefault(fold.vertex(number).slot_sharing_group, []).append(each)
    busy = {name: BusySlots(each) for name, each in groups.items()}
    found: dict[int, SlotUse] = {}
    for number, each in spans.items():
        vertex = fold.vertex(number)
        use = slot_use(each, busy[vertex.slot_sharing_group], known_slots(vertex)) if vertex.is_done else None
        if use is not None:
            found[number] = use
    return found


def slot_use(own: Spans, busy: BusySlots, slots: int) -> SlotUse | None:
    """``busy``: all executions that used these slots, the step's own among them. ``slots``: as many as were known of, 0: none; where clearly
    more were busy, as many as those. None: nothing was launched, or it took no time."""
    began, ended = own
    if not len(began):
        return None
    first, last = float(began.min()), float(ended.max())
    if last <= first:
        return None
    most = busy.most(first, last)
    if not slots or most > slots * _OVERLAP + 1:
        slots = most
    launches = np.sort(began)
    full, done = float(launches[min(slots, len(launches)) - 1]), float(launches[-1])
    whole = slots * (last - first)

    def idle(begin: float, end: float) -> float:
        return max(0.0, slots * (end - begin) - busy.between(begin, end)) / whole

    used = min(1.0, float((ended - began).sum()) / whole)
    others = max(0.0, busy.between(first, last) / whole - used)
    return SlotUse(slots, last - first, used, others, idle(first, full), idle(full, done), idle(done, last))


def known_slots(vertex: VertexHistory) -> int:
    """Slots that the vertex' decision on its parallelism saw; 0: none is on record."""
    inputs = vertex.decided.inputs if vertex.decided else {}
    allowed = inputs.get("allowed")
    slots = inputs.get("slots", allowed.get("slots") if isinstance(allowed, Mapping) else None)
    return slots if isinstance(slots, int) else 0
