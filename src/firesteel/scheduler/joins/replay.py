"""Joins decided again from a job's records, under other options: each from the bytes that its sides had in that run.

A join that would be done otherwise changes what the joins after it hold beside it, which is followed. What it would do to the order
of events is not known: one that came too late stays so.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from firesteel.model.absorbing import SIDES
from firesteel.scheduler.joins.broadcast import HASH, decide_join
from firesteel.scheduler.kernel.decisions import HashJoin, JoinSizes
from firesteel.scheduler.kernel.records import Decision, GraphChanged, JobPlanned, JournalRecord


@dataclass(frozen=True, slots=True)
class JoinOptions:
    """The options that a join is decided by. None: as they were in that run."""

    memory: int | None = None
    """Bytes of one task."""
    volume: int | None = None
    """Bytes per task."""
    is_adaptive: bool = True


@dataclass(frozen=True, slots=True)
class Redecided:
    """A join as it was decided, by its first vertex and by the one in whose tasks it was when that was decided, and as it would be."""

    join: int
    vertex: int
    name: str
    was: Decision
    would_be: Decision


@dataclass(slots=True)
class Replay:
    joins: list[Redecided] = field(default_factory=list[Redecided])
    """In the order of their decisions."""
    was: dict[int, frozenset[int]] = field(default_factory=dict[int, "frozenset[int]"])
    """The vertices, as they were planned, that were in one task with a vertex; those that were alone are left out."""
    would_be: dict[int, frozenset[int]] = field(default_factory=dict[int, "frozenset[int]"])

    def has_moved(self, vertex: int) -> bool:
        """Returns whether the tasks of a vertex would do other work than they did."""
        return self.was.get(vertex) != self.would_be.get(vertex)


def replay_joins(records: Iterable[JournalRecord], options: JoinOptions) -> Replay:
    """Empty where the plan is not among the records, or no join was decided."""
    replaying = _Replaying(options)
    for record in records:
        replaying.take(record)
    return Replay(replaying.joins, replaying.was.together, replaying.would_be.together)


class _Replaying:
    def __init__(self, options: JoinOptions) -> None:
        self.joins: list[Redecided] = []
        self.was, self.would_be = _Tasks(), _Tasks()
        self._options = options
        self._inputs: dict[int, list[int]] = {}
        """Of each vertex, as it was planned."""
        self._joins: dict[int, int] = {}
        """Vertex to the join that is decided as it now, where that is another one's."""
        self._one_step: set[int] = set()
        """Second steps that were one with their first."""
        self._broadcast: set[int] = set()
        """Joins that would be."""

    def take(self, record: JournalRecord) -> None:
        if isinstance(record, JobPlanned):
            self._inputs = {int(v.get("id", n)): list(v.get("inputs") or []) for n, v in enumerate(record.vertices)}
        elif isinstance(record, GraphChanged) and record.into not in self._one_step:
            self._joins[record.into] = self._joins.get(record.absorbed, record.absorbed)
        elif isinstance(record, Decision) and record.vertex in self._inputs:
            if record.what == "two steps" and record.result == "one step":
                self._become_one(int(record.inputs["first"]), record.vertex)
            elif record.what == "join":
                self._decide(record, record.vertex)

    def _become_one(self, first: int, second: int) -> None:
        self._one_step.add(second)
        self.was.join(first, second, ())
        if first not in self._broadcast:  # it would stay apart
            self.would_be.join(first, second, ())

    def _decide(self, record: Decision, vertex: int) -> None:
        join, is_adaptive = self._joins.get(vertex, vertex), self._options.is_adaptive
        would_be = record if is_adaptive else _decided(record, HashJoin(), HASH, "not adaptive")
        if "build" in record.inputs:
            sizes = msgspec.convert(record.inputs | {"type": JoinSizes.__name__}, JoinSizes)  # none up to format 2.7
            probe = self._inputs[join][1 - SIDES.index(sizes.build)]
            changed = _changed(replace(sizes, held=self.would_be.held(probe, join)), self._options)
            if is_adaptive:
                would_be = _decided(record, changed, *decide_join(changed))
            for tasks, decision, made_from in ((self.was, record, sizes), (self.would_be, would_be, changed)):
                if decision.result != HASH:
                    tasks.join(probe, join, made_from.held_with_it)
        if would_be.result != HASH:
            self._broadcast.add(join)
        self.joins.append(Redecided(join, vertex, record.name, record, would_be))


def _decided(record: Decision, facts: JoinSizes | HashJoin, result: str, rule: str) -> Decision:
    return replace(record, inputs=msgspec.to_builtins(facts), rule=rule, result=result, reason="")


def _changed(sizes: JoinSizes, options: JoinOptions) -> JoinSizes:
    if options.memory is not None:
        sizes = replace(sizes, memory=options.memory)
    return sizes if options.volume is None else sizes.with_volume(options.volume)


class _Tasks:
    """Vertices that share their tasks, and the build sides that these hold."""

    def __init__(self) -> None:
        self.together: dict[int, frozenset[int]] = {}
        self._held: dict[frozenset[int], tuple[int, ...]] = {}

    def held(self, *vertices: int) -> tuple[int, ...]:
        """Bytes of the sides that the tasks of these vertices hold, one after another."""
        return tuple(size for vertex in vertices for size in self._held.get(self._with(vertex), ()))

    def join(self, probe: int, join: int, held: tuple[int, ...]) -> None:
        both = self._with(probe) | self._with(join)
        self._held[both] = held
        self.together.update(dict.fromkeys(both, both))

    def _with(self, vertex: int) -> frozenset[int]:
        return self.together.get(vertex, frozenset((vertex,)))
