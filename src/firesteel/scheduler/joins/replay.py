"""Joins decided again from a job's records, under other options: each from the bytes that its sides had in that run.

A join that would be done otherwise changes what the joins after it hold beside it, which is followed. What it would do to the order
of events is not known: one that came too late stays so.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from firesteel.scheduler.joins.broadcast import HASH, JoinChoice, JoinSizes, decide_join
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
    was: JoinChoice
    would_be: JoinChoice


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
    replay, was, would_be = Replay(), _Tasks(), _Tasks()
    inputs: dict[int, list[int]] = {}
    joins: dict[int, int] = {}
    """Vertex to the join that is decided as it now, where that is another one's."""
    broadcast = set[int]()
    """Joins that would be."""
    one_step: dict[int, int] = {}
    """Second of two steps that were one: the first."""
    for record in records:
        if isinstance(record, JobPlanned):
            inputs = {int(v.get("id", n)): list(v.get("inputs") or []) for n, v in enumerate(record.vertices)}
        elif isinstance(record, GraphChanged) and record.into not in one_step:
            joins[record.into] = joins.get(record.absorbed, record.absorbed)
        elif isinstance(record, Decision) and record.what == "two steps" and record.result == "one step":
            first = one_step[record.vertex] = int(record.inputs["first"])
            was.join(first, record.vertex, ())
            if first not in broadcast:  # it would stay apart
                would_be.join(first, record.vertex, ())
        elif isinstance(record, Decision) and record.what == "join" and record.vertex in inputs:
            join, sizes = joins.get(record.vertex, record.vertex), JoinSizes.of_columns(record.inputs)
            decided = JoinChoice(str(record.result), record.rule, record.reason)
            chosen = decided if options.is_adaptive else _NOT_ADAPTIVE
            if sizes is not None:
                probe = inputs[join][1 - sizes.build]
                changed = _changed(replace(sizes, held=would_be.held(probe, join)), options)
                chosen = decide_join(changed) if options.is_adaptive else _NOT_ADAPTIVE
                for tasks, choice, made_from in ((was, decided, sizes), (would_be, chosen, changed)):
                    if choice.is_broadcast:
                        tasks.join(probe, join, made_from.held_with_it)
            if chosen.is_broadcast:
                broadcast.add(join)
            replay.joins.append(Redecided(join, record.vertex, record.name, decided, chosen))
    replay.was, replay.would_be = was.together, would_be.together
    return replay


_NOT_ADAPTIVE = JoinChoice(HASH, "not adaptive", "hash: both sides are exchanged, as firesteel.join.adaptive is false")


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
