"""Heavy subpartitions: which of them are divided among several subtasks, and into how many parts.

A subpartition is what a keyed step reads as one, so one key with very many rows makes one subtask slow. A join may part it: the rows
of one side are dealt out, and each subtask that gets some reads the other side's same subpartition whole; where both sides
are heavy, both are dealt out, and each subtask gets one part of either (a grid). That reads rows more than once, so it is
done only as far as it pays, in bytes: the largest subtask has less to read by more than all slots together have more.

A step whose rows may be parted *by value* has one such input. Each subtask reads all of the subpartition and keeps its part: as if
there were another side, that each reads whole, of the bytes that finding the part costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from firesteel.model.job_graph import ShipStrategy
from firesteel.scheduler.kernel.decisions import Undivided, WholeBecause
from firesteel.scheduler.parallelism.model import ConsumedResult, Longs

HEAVY = 1.25
"""A subpartition of more than so many times what a subtask should get is heavy. Ranges so even are called even."""
_LIMITS = 24
"""Limits that are tried between the least that can be had and the largest subpartition."""
_CLOSE = 512
"""The least limit is found to one part in so many."""
_NAMED = 8
"""Subpartitions named in a record at most."""
FINDING = 1 / 8
"""Of what is read to keep a part of it by value, bytes that could be aggregated meanwhile (docs/benchmarks.md)."""
AGAIN = 1 / 4
"""Of what is not divided by value, bytes that come out for the step that follows: of a key with four values or more."""


@dataclass(frozen=True, slots=True, eq=False)
class Division:
    """Divided subpartitions of the two inputs ``members``, or of one, by value, as columns. ``subpartitions``: ascending; ``parts``: of each
    member's rows (n, members); ``sizes``: plain bytes of each member (n, members). int64. A subtask for each pair of parts, and nothing else
    for it.
    """

    members: tuple[int, ...]
    subpartitions: Longs
    parts: Longs
    sizes: Longs

    @property
    def num_subtasks(self) -> int:
        return int(self.parts.prod(axis=1).sum())

    @property
    def largest(self) -> int:
        """Plain bytes of the heaviest of them: what a subtask would have read."""
        return int(self.sizes.sum(axis=1).max())

    @property
    def each(self) -> int:
        """Plain bytes that the largest of the subtasks reads."""
        return int(_of_a_part(self.sizes, self.parts).max())

    def pairs(self) -> tuple[Longs, Longs]:
        """Of each subtask: the place of its subpartition in the columns, and its part of each member's rows (n, members)."""
        count = self.parts.prod(axis=1)
        place = np.repeat(np.arange(len(count)), count)
        rank = np.arange(len(place)) - np.repeat(np.cumsum(count) - count, count)
        if len(self.members) == 1:
            return place, rank[:, np.newaxis]
        first, second = np.divmod(rank, self.parts[place, 1])
        return place, np.stack([first, second], axis=1)

    def bytes_read(self) -> Longs:
        """Plain bytes that each of the subtasks reads; by value, and keeps."""
        place, part = self.pairs()
        sizes, parts = self.sizes[place], self.parts[place]
        return (_up_to(sizes, part + 1, parts) - _up_to(sizes, part, parts)).sum(axis=1)

    def recorded(self) -> list[dict[str, object]]:
        """The heaviest ones, for the record of the decision."""
        heaviest = np.argsort(-self.sizes.sum(axis=1), kind="stable")[:_NAMED]
        columns = self.subpartitions, self.parts, self.sizes, _of_a_part(self.sizes, self.parts)
        return [
            {"subpartition": int(s), "parts": p.tolist(), "bytes": b.tolist(), "each": int(each)}
            for s, p, b, each in zip(*(column[heaviest] for column in columns), strict=True)
        ]


@dataclass(frozen=True, slots=True, eq=False)
class Skew:
    """The outcome for the heavy subpartitions of some inputs. ``undivided``: those that are not, and why; None:
    there are none, or there is nothing to say."""

    division: Division | None = None
    undivided: Undivided | None = None

    @property
    def num_subtasks(self) -> int:
        """The number of subtasks that read divided subpartitions, and nothing else."""
        return 0 if self.division is None else self.division.num_subtasks


NO_SKEW = Skew()


def skew_of(inputs: Sequence[ConsumedResult], subtasks: int, target: int, slots: int) -> Skew:
    """The division for this number of subtasks at most, which are to read about ``target`` bytes each. ``slots``: tasks at once."""
    members = _members(inputs)
    if members is None or subtasks < 2:
        return NO_SKEW
    sizes = np.stack([_folded(inputs[i]) for i in members], axis=1)
    weights = sizes.sum(axis=1)
    heavy = np.flatnonzero(weights > HEAVY * target)
    if not len(heavy):
        return NO_SKEW
    may = np.array([inputs[i].divisible for i in members])
    parts = np.ones((len(heavy), len(members)), np.int64)
    if may.any():
        others = np.delete(weights, heavy)
        plan = _Plan(sizes[heavy], may, int(weights.sum()), int(others.max(initial=0)), len(others), subtasks)
        parts = (_by_value(plan, target) if len(members) == 1 else plan).best(target, slots)[:, : len(members)]
    divided = (parts > 1).any(axis=1)
    chosen = heavy[divided]
    undivided = _undivided([inputs[i] for i in members], sizes, heavy[~divided])
    return Skew(Division(members, chosen, parts[divided], sizes[chosen]) if len(chosen) else None, undivided)


@dataclass(frozen=True, slots=True, eq=False)
class _Plan:
    """``sizes``: of the heavy subpartitions, either side (n, 2). ``may``: which sides may be dealt out. ``largest``: the largest of
    the ``others`` subpartitions, which are not heavy."""

    sizes: Longs
    may: np.ndarray[tuple[int], np.dtype[np.bool_]]
    total: int
    largest: int
    others: int
    subtasks: int
    read_again: int = 0
    """Bytes that another exchange has if anything is divided ..."""
    least_saved: int = 0
    """... and those by which the largest subtask's must be fewer at least."""

    def best(self, target: int, slots: int) -> Longs:
        """The parts of each side (n, 2) by which the largest subtask's bytes, and what each slot has to read more, are least."""
        whole = np.ones_like(self.sizes)
        top = max(int(self.sizes.sum(axis=1).max()), -(-self.total // self.subtasks))
        least = self._least_limit(max(target, self.largest, -(-self.total // self.subtasks), 1), top)
        if least >= top:
            return whole
        found, price = whole, float(top - self.least_saved)
        for limit in np.unique(np.geomspace(least, top, _LIMITS).astype(np.int64)).tolist():
            parts = self._parts(limit)
            if not self._fits(parts, limit):
                continue
            largest, read = self._outcome(parts)
            cost = largest + (read + self.read_again - self.total) / slots
            if cost < price:
                found, price = parts, cost
        return found

    def _least_limit(self, low: int, high: int) -> int:
        """The least bytes that no subtask needs to exceed; ``high`` always does."""
        while high - low > high // _CLOSE:
            limit = (low + high) // 2
            if self._fits(self._parts(limit), limit):
                high = limit
            else:
                low = limit + 1
        return high

    def _parts(self, limit: int) -> Longs:
        """The fewest parts of either side with which no pair of them exceeds the limit; 1 and 1: none, or it need not be."""
        rows, both = np.arange(len(self.sizes)), bool(self.may.all())
        kept = np.argmin(self.sizes, axis=1) if both else np.full(len(rows), np.argmin(self.may))
        small, great = self.sizes[rows, kept], self.sizes[rows, 1 - kept]
        # The smaller side is read whole if it takes half the limit at most, else in parts of so much.
        of_small = np.maximum(-(-2 * small // limit), 1) if both else np.ones_like(small)
        room = limit - -(-small // of_small)
        parts = np.ones_like(self.sizes)
        parts[rows, kept], parts[rows, 1 - kept] = of_small, -(-great // np.maximum(room, 1))
        parts[(small + great <= limit) | (room <= 0)] = 1
        return parts

    def _fits(self, parts: Longs, limit: int) -> bool:
        """Returns True if there are subtasks enough, as if what is not divided could be cut anywhere."""
        divided = (parts > 1).any(axis=1)
        weights = self.sizes.sum(axis=1)
        if (weights[~divided] > limit).any():
            return False
        rest = self.total - int(weights[divided].sum())
        needed = -(-rest // limit) if rest else int(self.others > 0)
        return float(parts[divided].prod(axis=1, dtype=np.float64).sum()) + needed <= self.subtasks

    def _outcome(self, parts: Longs) -> tuple[int, float]:
        """The largest subtask's bytes, and those of all together."""
        divided = (parts > 1).any(axis=1)
        weights = self.sizes.sum(axis=1)
        rest = self.total - int(weights[divided].sum())
        left = max(self.subtasks - int(parts[divided].prod(axis=1).sum()), 1)
        largest = max(int(_of_a_part(self.sizes, parts).max()), -(-rest // left), self.largest if rest else 0)
        read = float((self.sizes * parts[:, ::-1].astype(np.float64))[divided].sum())
        return largest, rest + read


def _by_value(plan: _Plan, target: int) -> _Plan:
    """The plan of one input whose rows are parted by value: another step follows, which reads again what is not divided, and must be worth a
    subtask."""
    finding = np.ceil(plan.sizes * FINDING).astype(np.int64)
    return replace(
        plan,
        sizes=np.hstack((plan.sizes, finding)),
        may=np.array([True, False]),
        total=plan.total + int(finding.sum()),
        read_again=round(AGAIN * (plan.total - int(plan.sizes.sum()))),
        least_saved=target + int(finding.max()),
    )


def _members(inputs: Sequence[ConsumedResult]) -> tuple[int, ...] | None:
    """The two inputs of a join, or the one whose rows may be parted by value, if nothing else is to be cut."""
    cut = [i for i, r in enumerate(inputs) if not r.is_broadcast]
    if len(cut) != (1 if any(r.by_value for r in inputs) else 2):
        return None
    if not all(inputs[i].co_partitioned and inputs[i].ship is ShipStrategy.HASH for i in cut):
        return None
    return None if any(inputs[i].folded() is None for i in cut) else tuple(cut)


def _folded(result: ConsumedResult) -> Longs:
    sizes = result.folded()
    assert sizes is not None
    return sizes


def _undivided(members: Sequence[ConsumedResult], sizes: Longs, whole: Longs) -> Undivided | None:
    """Of the heaviest of these."""
    if not len(whole):
        return None
    heaviest = int(whole[np.argmax(sizes[whole].sum(axis=1))])
    side = members[int(np.argmax(sizes[heaviest]))]
    if not (side.divisible or side.indivisible):
        return None
    return Undivided(
        why=WholeBecause.COSTS,
        subpartition=heaviest,
        bytes=int(sizes[heaviest].sum()),
        others=len(whole) - 1,
        obstacle="" if side.divisible else side.indivisible,
    )


def _of_a_part(sizes: Longs, parts: Longs) -> Longs:
    """Plain bytes of one pair of parts, rounded up."""
    return (-(-sizes // parts)).sum(axis=1)


def _up_to(sizes: Longs, part: Longs, parts: Longs) -> Longs:
    """Bytes of the first so many parts. ``sizes`` times parts could be more than 64 bits hold."""
    each, rest = np.divmod(sizes, parts)
    return each * part + rest * part // parts
