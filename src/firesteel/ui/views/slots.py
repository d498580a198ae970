"""Slots over time: of each slot sharing group how many were in use, of how many, and how many executions waited; and the nodes they are on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from firesteel.report.executions import Executions, Floats, Ints
from firesteel.report.fold import JobFold
from firesteel.report.history import VertexHistory
from firesteel.scheduler.kernel.states import ExecutionState
from firesteel.ui.views.structs import MOST_ITEMS, Count, NodeUse, Page, SlotUse, page
from firesteel.view.over_time import running

MOST_GROUPS = 24
"""The others, those with the fewest slots in use, are not told over time."""
LATE = 0.25
"""Executions that have ended and are not told of yet, at most, as a part of the slots."""
MOST_STEPS = 2400
"""Of all groups together; each has at most ..."""
MOST_STEPS_EACH = 300


def slots_over_time(fold: JobFold) -> list[SlotUse]:
    """By group, at most MOST_GROUPS; of a job without groups one; none where nothing was launched."""
    apart = _tasks(fold)
    names = sorted(fold.groups) or [""]
    steps = min(MOST_STEPS_EACH, MOST_STEPS // min(len(names), MOST_GROUPS))
    found = [each for name in names if (each := _use(fold, name, apart, steps)) is not None]
    chosen = sorted(found, key=lambda each: -each.most_running)[:MOST_GROUPS]
    return sorted(chosen, key=lambda each: each.group)


def _tasks(fold: JobFold) -> set[int]:
    """The vertices whose executions have a slot of their own: of those that stream to each other in one task the last."""
    plan = fold.plan
    pipelined = {
        int(each["id"]): int(each["producer"]) for each in (plan.datasets if plan else []) if each.get("type") == "pipelined"
    }  # fmt: skip
    last = {vertex: vertex for vertex in fold.vertices}
    for consumer in sorted(last):
        for dataset in fold.reads(consumer):
            joined = last.get(pipelined.get(dataset, -1))
            if joined is not None:
                last = {vertex: consumer if own == joined else own for vertex, own in last.items()}
    return set(last.values())


def _use(fold: JobFold, group: str, apart: set[int], steps: int) -> SlotUse | None:
    members = [each for each in fold.vertices.values() if each.slot_sharing_group == group]
    columns = [fold.executions[each.id] for each in members if each.id in apart and each.id in fold.executions]
    busy = _counted(_launched(columns, fold.now), fold, steps)
    most = max((each.count for each in busy), default=0)
    total, end = _total(members, most), fold.now - fold.zero
    if total is not None:
        busy = [Count(at=each.at, count=min(each.count, total)) for each in busy]
    told = fold.waiting.get(group)
    queued = _counted(_queued(columns, fold.now), fold, steps) if told is None else list(_told(told, fold.zero))
    if not busy and not queued:
        return None
    return SlotUse(
        group=group,
        end=end,
        running=busy,
        waiting=queued,
        most_running=most if total is None else min(most, total),
        most_waiting=max((each.count for each in queued), default=0),
        total=total,
        share=min(1.0, _seconds(columns, fold.now) / (total * end)) if total and end > 0 else None,
    )


def _launched(columns: Iterable[Executions], now: float) -> Iterator[tuple[Floats, Floats]]:
    """(launch, end) of the executions that Spark has launched."""
    for each in columns:
        there = ~np.isnan(each.began)
        ended = np.where(np.isnan(each.ended), now, each.ended)
        yield each.began[there], ended[there]


def _queued(columns: Iterable[Executions], now: float) -> Iterator[tuple[Floats, Floats]]:
    """(asked for, launched or given up) of the executions that were queued with Spark."""
    for each in columns:
        there = ~np.isnan(each.asked)
        until = np.fmin(each.began, each.ended)
        yield each.asked[there], np.where(np.isnan(until), now, until)[there]


def _counted(spans: Iterator[tuple[Floats, Floats]], fold: JobFold, steps: int) -> list[Count]:
    starts, ends = (np.concatenate(side) for side in zip((np.zeros(0), np.zeros(0)), *spans, strict=True))
    points = running(starts - fold.zero, ends - fold.zero, steps)
    return [Count(at=max(0.0, at), count=int(count)) for at, count in points]


def _told(waiting: Sequence[tuple[float, int]], zero: float) -> Iterator[Count]:
    for at, count in waiting:
        yield Count(at=at - zero, count=count)


def _total(members: Iterable[VertexHistory], most: int) -> int | None:
    """As decisions on parallelism were taken with; None: it is not known, or the cluster has far more by now. Ends of what fails are told a little
    late, so that for a moment a few more may seem to run than there are slots."""
    decisions = [each.decided for each in members]
    allowed = [each.inputs.get("allowed") for each in decisions if each is not None]
    told = [each.get("slots") for each in allowed if isinstance(each, dict)]
    total = max((each for each in told if isinstance(each, int)), default=0)
    return total if total > 0 and most <= (1 + LATE) * total else None


def _seconds(columns: Iterable[Executions], now: float) -> float:
    """In which slots were in use, together."""
    return float(sum(np.maximum(ends - starts, 0.0).sum() for starts, ends in _launched(columns, now)))


def nodes_page(fold: JobFold, *, offset: int = 0, limit: int = MOST_ITEMS) -> Page[NodeUse]:
    """The busiest first. Attempts of which it is not known where they ran are left out."""
    there = [each for _, each in sorted(fold.executions.items()) if each.count]
    names = list(dict.fromkeys(name for each in there for name in each.nodes))
    place = {name: k for k, name in enumerate(names)}
    node: Ints = np.concatenate([np.zeros(0, np.int32), *(_places(each, place) for each in there)])
    known = node >= 0

    def column(parts: Iterator[Floats]) -> Floats:
        return np.concatenate([np.zeros(0), *parts])[known]

    node, state = node[known], column(each.state.astype(np.float64) for each in there)
    mirror = column(each.mirror.astype(np.float64) for each in there) > 0
    seconds, slowness = column(each.seconds(fold.now) for each in there), column(map(_slowness, there))
    counts = np.bincount(node, minlength=len(names))
    blocked = {block.node for block in fold.blocked}

    def use(number: int) -> NodeUse:
        here = node == number
        ratios = slowness[here]
        ratios = ratios[~np.isnan(ratios)]
        return NodeUse(
            node=names[number],
            attempts=int(counts[number]),
            running=int(np.isin(state[here], (ExecutionState.DEPLOYING, ExecutionState.RUNNING)).sum()),
            finished=int((state[here] == ExecutionState.FINISHED).sum()),
            failed=int((state[here] == ExecutionState.FAILED).sum()),
            mirrors=int(mirror[here].sum()),
            seconds=float(np.nansum(seconds[here])),
            slowness=float(np.median(ratios)) if len(ratios) else None,
            is_blocked=names[number] in blocked,
        )

    return page(np.argsort(-counts, kind="stable").tolist(), use, offset, limit)


def _places(executions: Executions, place: dict[str, int]) -> Ints:
    """Of each execution, the place of its node; -1: not known."""
    return np.array([*(place[name] for name in executions.nodes), -1], np.int32)[executions.node]


def _slowness(executions: Executions) -> Floats:
    """Of each that finished, how long it ran as a multiple of the median of all those; NaN: it did not, or there is none."""
    seconds = np.where(executions.won(), executions.seconds(), np.nan)
    known = seconds[~np.isnan(seconds)]
    median = float(np.median(known)) if len(known) else 0.0
    return seconds / median if median else np.full(len(seconds), np.nan)
