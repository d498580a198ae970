"""Attempts over time, per node and slot: as many marks as a picture has room for, however many attempts there are.

Spark does not say which slot of a node an attempt had, so slots are the fewest lanes in which no two overlap (the first free one, by
time of launch). Nodes with more slots than there are lanes for get one lane each, in which marks stand for several attempts.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from firesteel.humanize import plural
from firesteel.report.executions import Executions, Flags, Floats, Ints, sentences
from firesteel.report.fold import JobFold, VertexHistory
from firesteel.scheduler.kernel.states import ExecutionState
from firesteel.ui.views.structs import (
    MOST_ITEMS,
    Count,
    Lane,
    Mark,
    Moment,
    NodeUse,
    Page,
    SlotUse,
    Span,
    Timeline,
    page,
)
from firesteel.view.svg import running

MOST_NODES = 64
MOST_LANES = 192
"""Slots apart; where there are more, each node has one lane."""
MOST_MARKS = 1600
MOST_MOMENTS = 100
COLUMNS = 400
"""Parts of the window: attempts that begin and end within so few of them share a mark."""
_STATES = ("finished", "cancelled", "running", "failed")
"""By how much a mark of several is about it: the last one there is gives its state."""
_RESTARTS = {"restart": "restart", "failover": "restart", "recovery": "driver restart"}


@dataclass(frozen=True, slots=True)
class _Bars:
    """Attempts in the window as columns."""

    vertex: Ints
    row: Ints
    node: Ints
    """Place in the names of nodes; the last one: not known."""
    begin: Floats
    end: Floats
    state: NDArray[np.int8]
    """Place in _STATES."""
    mirror: Flags
    won: Flags

    def of(self, places: Ints) -> _Bars:
        return _Bars(*(getattr(self, name)[places] for name in self.__slots__))

    def __len__(self) -> int:
        return len(self.begin)


def timeline(
    fold: JobFold, vertex: int | None = None, begin: float | None = None, end: float | None = None
) -> Timeline:
    """``vertex``: of one alone. ``begin``, ``end``: seconds since the job began; None: all of it. A window that is empty, or lies
    outside of the job, is all of it."""
    total = fold.now - fold.zero
    low, high = _window(begin, end, total)
    names, bars = _bars(fold, vertex, low, high)
    lanes, left_out = _lanes(fold, names, bars, low, high)
    occurring = {int(v): fold.vertex(int(v)).name for v in np.unique(bars.vertex)}
    return Timeline(
        begin=low,
        end=high,
        job_seconds=total,
        lanes=lanes,
        blocked=blocked(fold, low, high),
        moments=_moments(fold, low, high),
        attempts=len(bars),
        mirrors=int(bars.mirror.sum()),
        vertices=occurring,
        is_aggregated=any(mark.count > 1 for lane in lanes for mark in lane.marks),
        nodes_left_out=left_out,
    )


def _window(begin: float | None, end: float | None, total: float) -> tuple[float, float]:
    low = 0.0 if begin is None or not np.isfinite(begin) else max(0.0, begin)
    high = total if end is None or not np.isfinite(end) else min(end, total)
    return (low, high) if low < high else (0.0, max(total, 1e-3))


def _bars(fold: JobFold, vertex: int | None, low: float, high: float) -> tuple[list[str], _Bars]:
    """The names of nodes, sorted, and the attempts that were launched, by time of launch."""
    chosen = {
        number: each for number, each in sorted(fold.executions.items()) if vertex in (None, number) and each.count
    }
    names = sorted({name for each in chosen.values() for name in each.nodes}, key=_as_people_count)
    parts = [_bars_of(fold, number, each, names) for number, each in chosen.items()]
    if not parts:
        empty, no_times = np.zeros(0, np.int32), np.zeros(0)
        flags = np.zeros(0, np.bool_)
        return names, _Bars(empty, empty, empty, no_times, no_times, empty.astype(np.int8), flags, flags)
    joined = _Bars(*(np.concatenate([getattr(part, name) for part in parts]) for name in _Bars.__slots__))
    inside = np.flatnonzero((joined.end >= low) & (joined.begin <= high))
    return names, joined.of(inside[np.argsort(joined.begin[inside], kind="stable")].astype(np.int32))


def _bars_of(fold: JobFold, vertex: int, executions: Executions, names: list[str]) -> _Bars:
    rows = np.flatnonzero(~np.isnan(executions.began)).astype(np.int32)
    place = {name: k for k, name in enumerate(names)}
    numbers = np.array([*(place[name] for name in executions.nodes), len(names)], np.int32)
    states = np.full(len(ExecutionState), _STATES.index("running"), np.int8)
    states[ExecutionState.FINISHED] = _STATES.index("finished")
    states[ExecutionState.FAILED] = _STATES.index("failed")
    states[[ExecutionState.CANCELED, ExecutionState.CANCELING]] = _STATES.index("cancelled")
    begin = executions.began[rows] - fold.zero
    ended = executions.ended[rows] - fold.zero
    return _Bars(
        vertex=np.full(len(rows), vertex, np.int32),
        row=rows,
        node=numbers[executions.node[rows]],
        begin=begin,
        end=np.maximum(np.where(np.isnan(ended), fold.now - fold.zero, ended), begin),
        state=states[executions.state[rows]],
        mirror=executions.mirror[rows],
        won=executions.won()[rows] & executions.raced()[rows],
    )


def _lanes(fold: JobFold, names: list[str], bars: _Bars, low: float, high: float) -> tuple[list[Lane], int]:
    """Lanes, and the number of nodes that there is no lane for: those with the fewest attempts that were never blocked."""
    counts = np.bincount(bars.node, minlength=len(names) + 1)
    there = np.flatnonzero(counts)
    troubled = {block.node for block in fold.blocks}
    calm = np.array([*(name not in troubled for name in names), True])
    chosen = there[np.lexsort((-counts[there], calm[there]))][:MOST_NODES]
    by_node = {node: np.flatnonzero(bars.node == node).astype(np.int32) for node in sorted(chosen.tolist())}
    slots = {node: _slots(bars.begin[places], bars.end[places]) for node, places in by_node.items()}
    apart = sum(int(each.max()) + 1 for each in slots.values())
    if apart > MOST_LANES:
        bins = np.linspace(low, high, min(COLUMNS, MOST_MARKS // len(by_node)) + 1)
        strips = [(node, None, _strip(fold, bars.of(places), bins)) for node, places in by_node.items()]
        chosen_lanes: list[tuple[int, int | None, list[Mark]]] = [*strips]
    else:
        marker = _Marker(fold, bars, high - low, most=MOST_MARKS // max(1, apart))
        chosen_lanes = [
            (node, slot, marker.marks(places[slots[node] == slot]))
            for node, places in by_node.items()
            for slot in range(int(slots[node].max()) + 1)
        ]
    lanes = [
        Lane(node=names[node] if node < len(names) else "", slot=slot, marks=marks)
        for node, slot, marks in chosen_lanes
    ]
    return lanes, len(there) - len(chosen)


def _as_people_count(name: str) -> list[tuple[int, str]]:
    """``node-9`` comes before ``node-10``."""
    return [(int(part), "") if part.isascii() and part.isdigit() else (0, part) for part in re.split(r"(\d+)", name)]


def _slots(begin: Floats, end: Floats) -> Ints:
    """The lane of each bar, the lowest free one; bars come by their begin."""
    found = np.zeros(len(begin), np.int32)
    free: list[int] = []
    busy: list[tuple[float, int]] = []
    for k, (a, b) in enumerate(zip(begin.tolist(), end.tolist(), strict=True)):
        while busy and busy[0][0] <= a:
            heapq.heappush(free, heapq.heappop(busy)[1])
        slot = heapq.heappop(free) if free else len(busy)
        found[k] = slot
        heapq.heappush(busy, (b, slot))
    return found


def _strip(fold: JobFold, bars: _Bars, bins: Floats) -> list[Mark]:
    """A mark for each part of the window in which anything ran, of attempts that may overlap."""
    starts, ends = np.sort(bars.begin), np.sort(bars.end)
    active = np.searchsorted(starts, bins[1:], "left") - np.searchsorted(ends, bins[:-1], "left")
    vertices = np.unique(bars.vertex)
    worked = np.array([_worked(bars.of(np.flatnonzero(bars.vertex == v).astype(np.int32)), bins) for v in vertices])
    busy = worked.sum(axis=0) / np.diff(bins)
    marks: list[Mark] = []
    for k in np.flatnonzero(active > 0).tolist():
        low, high = float(bins[k]), float(bins[k + 1])
        inside = bars.of(np.flatnonzero((bars.begin < high) & (bars.end >= low)).astype(np.int32))
        most = int(vertices[int(worked[:, k].argmax())])
        marks.append(_together(fold, inside, (low, high), float(busy[k]), most))
    return marks


def _worked(bars: _Bars, bins: Floats) -> Floats:
    """Seconds that these attempts ran, together, in each part."""

    def since(times: Floats) -> Floats:
        """At each bound, the seconds since each of the times before it, together."""
        ordered = np.sort(times)
        before = np.searchsorted(ordered, bins)
        return before * bins - np.concatenate([[0.0], np.cumsum(ordered)])[before]

    return np.diff(since(bars.begin) - since(bars.end))


def _together(fold: JobFold, bars: _Bars, span: tuple[float, float], busy: float, most: int) -> Mark:
    """One mark for several attempts; ``most``: the vertex that ran longest."""
    counts = np.bincount(bars.state, minlength=len(_STATES))
    told = ", ".join(f"{counts[k]:,} {name}" for k, name in enumerate(_STATES) if counts[k])
    vertices = len(np.unique(bars.vertex))
    whose = _name(fold, most) if vertices == 1 else f"{vertices} vertices, most of {_name(fold, most)}"
    return Mark(
        begin=span[0],
        end=span[1],
        vertex=most,
        state=_STATES[int(np.flatnonzero(counts)[-1])],
        count=len(bars),
        failed=int(counts[_STATES.index("failed")]),
        busy=busy,
        is_mirror=bool(bars.mirror.any()),
        won=bool(bars.won.any()),
        label=f"{plural(len(bars), 'attempt')} of {whose}: {told}",
    )


def _name(fold: JobFold, vertex: int) -> str:
    return f"[{vertex}] {fold.vertex(vertex).name}"


class _Marker:
    """Makes the marks of a slot's lane: of each bar its own, where there is room; else one of neighbours."""

    def __init__(self, fold: JobFold, bars: _Bars, seconds: float, most: int) -> None:
        self._fold = fold
        self._bars = bars
        self._width = seconds / COLUMNS
        self._most = max(most, 1)

    def marks(self, places: Ints) -> list[Mark]:
        width, groups = self._width, _groups(self._bars, places, self._width)
        while len(groups) > self._most:
            width *= 2
            groups = _groups(self._bars, places, width)
        return [self._single(int(group[0])) if len(group) == 1 else self._several(group) for group in groups]

    def _single(self, place: int) -> Mark:
        bars = self._bars
        vertex, row = int(bars.vertex[place]), int(bars.row[place])
        executions = self._fold.executions[vertex]
        life = executions.as_attempt(row)
        sentence = sentences([life], self._fold.now, is_over=self._fold.is_over)[0]
        won = bool(bars.won[place])
        subtask = int(executions.subtask[row])
        return Mark(
            begin=float(bars.begin[place]),
            end=float(bars.end[place]),
            vertex=vertex,
            state=_STATES[bars.state[place]],
            subtask=subtask,
            attempt=life.number,
            is_mirror=life.is_mirror,
            won=won,
            label=f"subtask {subtask} of {_name(self._fold, vertex)}, {sentence}{' and won' if won else ''}",
        )

    def _several(self, places: Ints) -> Mark:
        bars = self._bars.of(places)
        begin, end = float(bars.begin.min()), float(bars.end.max())
        took = np.bincount(bars.vertex, weights=bars.end - bars.begin)
        most = int(took.argmax()) if took.any() else int(bars.vertex[0])
        busy = float((bars.end - bars.begin).sum() / max(end - begin, 1e-9))
        return _together(self._fold, bars, (begin, end), busy, most)


def _groups(bars: _Bars, places: Ints, width: float) -> list[Ints]:
    """Bars that do not overlap, by their begin, those together that begin and end within ``width``."""
    cuts: list[int] = []
    first = -np.inf
    for k, (begin, end) in enumerate(zip(bars.begin[places].tolist(), bars.end[places].tolist(), strict=True)):
        if end - first > width:
            first = begin
            if k:
                cuts.append(k)
    return np.split(places, cuts) if len(places) else []


def blocked(fold: JobFold, low: float = 0.0, high: float = np.inf) -> list[Span]:
    """The times in which nodes were blocked, within the window. Of one that still is, until now."""
    spans: list[Span] = []
    for block in fold.blocks:
        begin = block.start - fold.zero
        end = (block.end if block.is_over else min(block.end, fold.now)) - fold.zero
        if end >= low and begin <= high:
            spans.append(
                Span(node=block.node, begin=begin, end=max(begin, end), is_over=block.is_over, cause=block.cause)
            )
    return spans


def _moments(fold: JobFold, low: float, high: float) -> list[Moment]:
    found = sorted(_all_moments(fold), key=lambda moment: moment.at)
    inside = [moment for moment in found if low <= moment.at <= high]
    return _thinned(inside)


def _all_moments(fold: JobFold) -> Iterator[Moment]:
    for decision in fold.all_decisions:
        if decision.what in _RESTARTS:
            kind = _RESTARTS[decision.what]
            yield Moment(at=decision.at - fold.zero, kind=kind, text=decision.reason or decision.what)
    for vertex in fold.vertices.values():
        for failure in vertex.failures:
            several = plural(len(failure.subtasks), "attempt")
            line = failure.cause.strip().split("\n", 1)[0]
            yield Moment(
                at=failure.at - fold.zero,
                kind="failure",
                text=f"{several} of [{vertex.id}] {vertex.name} failed{f': {line}' if line else ''}",
            )
    for status in fold.statuses:
        if status.status not in ("CREATED", "RUNNING", "FINISHED"):
            yield Moment(at=status.at - fold.zero, kind="status", text=status.status)


def _thinned(moments: Sequence[Moment]) -> list[Moment]:
    """At most MOST_MOMENTS: what restarts the driver and the job's status come first, then restarts, then failures."""
    if len(moments) <= MOST_MOMENTS:
        return list(moments)
    rank = {"driver restart": 0, "status": 1, "restart": 2, "failure": 3}
    chosen = sorted(range(len(moments)), key=lambda k: (rank[moments[k].kind], k))[:MOST_MOMENTS]
    return [moments[k] for k in sorted(chosen)]


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
        share=min(1.0, _busy_seconds(columns, fold.now) / (total * end)) if total and end > 0 else None,
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


def _busy_seconds(columns: Iterable[Executions], now: float) -> float:
    return float(sum(np.nansum(each.seconds(now)) for each in columns))


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
