"""Steps fused into job vertices, and each vertex' program."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import pyarrow as pa

from firesteel.compile.adaptive.one_step import InOneStep
from firesteel.compile.chaining import chain_obstacle, fusion_obstacle, hashed_by, output_obstacle
from firesteel.compile.plan import Feed, PlannedStep
from firesteel.compile.stream_graph import (
    ChainedStep,
    CollectStep,
    DataFrameStep,
    KeyedStep,
    SinkStep,
    SortStep,
    SourceStep,
)
from firesteel.errors import UsageError
from firesteel.task.operators.composed import ComposedOperator, FromGate, FromOperator
from firesteel.task.operators.groups import CountValues
from firesteel.task.operators.join import HashJoin, divisibility_of
from firesteel.task.program import GateHead, Head, KeyedHead, KeyedOperator, Operator, SourceHead, SparkHead


@dataclass(slots=True, eq=False)
class KeyedPart:
    """A keyed operator in a head: each of its inputs is a list of gates and of other keyed parts."""

    step: PlannedStep
    operator: KeyedOperator
    inputs: list[list[Feed | KeyedPart]]
    schemas: list[pa.Schema]
    behind: list[Operator] = field(default_factory=list)
    """Operators chained behind it, before the next keyed operator."""


@dataclass(slots=True, eq=False)
class Vertex:
    """A job vertex in the making."""

    steps: list[PlannedStep]
    gates: list[Feed] = field(default_factory=list)
    sides: dict[str, Feed] = field(default_factory=dict)
    keyed: KeyedPart | None = None
    operators: list[Operator] = field(default_factory=list)
    """Behind the head."""
    ends: list[PlannedStep] = field(default_factory=list)
    """Sinks and collects."""
    first_step: Vertex | None = None
    """The vertex before it that may become a part of it (``compile.adaptive.two_steps``)."""
    in_one_step: InOneStep | None = None
    """Its program where it does."""

    @property
    def first(self) -> PlannedStep:
        return self.steps[0]

    def head(self) -> Head:
        if self.keyed is not None:
            return _keyed_head(self.keyed, self.gates)
        if self.gates:
            return GateHead(tuple(range(len(self.gates))))
        work = self.first.work
        return SourceHead(work.source) if isinstance(work, SourceStep) else SparkHead()


def fuse(steps: list[PlannedStep]) -> tuple[list[Vertex], dict[PlannedStep, Vertex]]:
    """The vertices (in topological order) and the vertex of each step. ``steps``: every step behind its inputs."""
    fuser = _Fuser()
    for step in steps:
        fuser.add(step)
    return fuser.sorted(), fuser.vertex_of


class _Fuser:
    def __init__(self) -> None:
        self.vertex_of: dict[PlannedStep, Vertex] = {}
        self._vertices: list[Vertex] = []

    def add(self, step: PlannedStep) -> None:
        work = step.work
        if isinstance(work, SourceStep | DataFrameStep):
            self._new(step)
        elif isinstance(work, KeyedStep):
            self._add_keyed(step, work)
        elif isinstance(work, SortStep):
            self._add_sort(step, work)
        elif isinstance(work, SinkStep | CollectStep):
            self._add_end(step)
        elif isinstance(work, ChainedStep):
            self._add_operator(step, work)
        else:  # a union that must be one result
            self._new(step).gates = step.feeds

    def _new(self, step: PlannedStep) -> Vertex:
        vertex = Vertex([step])
        self._vertices.append(vertex)
        self.vertex_of[step] = vertex
        return vertex

    def _add_operator(self, step: PlannedStep, work: ChainedStep) -> None:
        vertex = None
        if chain_obstacle(step) is None:
            vertex = self.vertex_of[step.feeds[0].source]
            if _sides_clash([vertex], step):
                vertex = None
        if vertex is None:
            vertex = self._new(step)
            vertex.gates = step.feeds
        else:
            vertex.steps.append(step)
            self.vertex_of[step] = vertex
        vertex.operators.append(called(work.operator, step))
        vertex.sides.update(step.sides)

    def _add_end(self, step: PlannedStep) -> None:
        if output_obstacle(step) is None:
            vertex = self.vertex_of[step.feeds[0].source]
            self.vertex_of[step] = vertex
        else:
            vertex = self._new(step)
            vertex.gates = step.feeds
        vertex.ends.append(step)

    def _add_keyed(self, step: PlannedStep, work: KeyedStep) -> None:
        lying = self._lying_right(step, work)
        step.hashed = hashed_by(step, work, all(lying))
        vertex = self._new(step)
        operator = work.direct if lying and all(lying) else work.operator
        part = KeyedPart(step, called(operator, step), [], [])
        for feeds, taken in zip(step.inputs, lying, strict=True):
            members: list[Feed | KeyedPart] = []
            for feed in feeds:
                members.append(self._absorb(self.vertex_of[feed.source], vertex) if taken else feed)
                if not taken:
                    vertex.gates.append(feed)
            part.inputs.append(members)
            part.schemas.append(feeds[0].source.schema if taken else feeds[0].schema)
        vertex.keyed = part
        vertex.steps.remove(step)
        vertex.steps.append(step)
        vertex.sides.update(step.sides)

    def _add_sort(self, step: PlannedStep, work: SortStep) -> None:
        vertex = self._new(step)
        vertex.gates = step.feeds
        vertex.keyed = KeyedPart(step, called(work.operator, step), [list(step.feeds)], [step.feeds[0].schema])

    def _lying_right(self, step: PlannedStep, work: KeyedStep) -> list[bool]:
        """Per input: does it lie in the right subpartitions already, so that this step can join its vertex?"""
        ordered = len(step.feeds) > 1
        lying = [
            bool(keys) and all(fusion_obstacle(step, feed, keys, ordered) is None for feed in feeds)
            for feeds, keys in zip(step.inputs, work.keys, strict=True)
        ]
        if work.direct is not work.operator and not all(lying):
            return [False] * len(lying)
        absorbed = [f.source for feeds, taken in zip(step.inputs, lying, strict=True) if taken for f in feeds]
        vertices = [self.vertex_of[source] for source in absorbed]
        if _sides_clash(vertices, step) or len(_parallelisms(vertices)) > 1:
            return [False] * len(lying)
        return lying

    def _absorb(self, other: Vertex, into: Vertex) -> KeyedPart:
        """Puts a whole keyed vertex into another one, whose input it becomes."""
        assert other.keyed is not None
        part = other.keyed
        part.behind.extend(other.operators)
        into.gates.extend(other.gates)
        into.sides.update(other.sides)
        into.steps[:0] = other.steps
        for step in other.steps:
            self.vertex_of[step] = into
        self._vertices.remove(other)
        return part

    def sorted(self) -> list[Vertex]:
        """Every vertex behind those it reads; otherwise in the order of their first steps."""
        order: list[Vertex] = []
        done: set[Vertex] = set()
        waiting = list(self._vertices)
        while waiting:
            ready = next(v for v in waiting if all(self.vertex_of[f.source] in done for f in _reads(v)))
            waiting.remove(ready)
            done.add(ready)
            order.append(ready)
        return order


def called(operator: Any, step: PlannedStep) -> Any:
    """The operator of a user's function, which its errors name, with the name that the user gave the step, and with where it hands rows
    that it cannot do."""
    if step.route is not None:
        operator = replace(operator, on_error=replace(operator.on_error, output=step.route))
    name = step.node.config.name
    return operator if name is None or not hasattr(operator, "fn") else replace(operator, name=name)


def _parallelisms(vertices: list[Vertex]) -> set[int]:
    set_ones = (step.node.config.parallelism for vertex in vertices for step in vertex.steps)
    return {parallelism for parallelism in set_ones if parallelism is not None}


def _reads(vertex: Vertex) -> list[Feed]:
    return [*vertex.gates, *vertex.sides.values()]


def _sides_clash(vertices: list[Vertex], step: PlannedStep) -> bool:
    """Side inputs are told apart by name within a task: one name, one stream."""
    named: dict[str, PlannedStep] = {}
    for name, feed in [*(item for v in vertices for item in v.sides.items()), *step.sides]:
        if named.setdefault(name, feed.source) is not feed.source:
            return True
    return False


def _keyed_head(part: KeyedPart, gates: list[Feed]) -> KeyedHead:
    numbers = tuple(range(len(gates)))
    if all(len(i) == 1 and isinstance(i[0], Feed) for i in part.inputs):
        return KeyedHead(part.operator, numbers)
    position = {id(feed): number for number, feed in enumerate(gates)}
    composed = ComposedOperator(_composed_name(part), tuple(f.keys for f in gates), _tree(part, position))
    return KeyedHead(composed, numbers)


def _composed_name(part: KeyedPart) -> str:
    inner = [_composed_name(m) for members in part.inputs for m in members if isinstance(m, KeyedPart)]
    return " -> ".join([*inner, part.operator.name])


def _tree(part: KeyedPart, position: dict[int, int]) -> FromOperator:
    inputs = tuple(
        tuple(_tree(m, position) if isinstance(m, KeyedPart) else FromGate(position[id(m)]) for m in members)
        for members in part.inputs
    )
    return FromOperator(part.operator, inputs, tuple(part.schemas), tuple(part.behind))


class Divisibility(NamedTuple):
    """The fields of an edge's ``JobEdge`` that say whether several subtasks may share a subpartition."""

    divisible: bool = False
    indivisible: str = ""
    by_value: bool = False


def divisibility(head: Head) -> list[Divisibility]:
    """Of each gate of a keyed head."""
    if not isinstance(head, KeyedHead):
        return []
    operator = head.operator
    if isinstance(operator, CountValues):
        return [Divisibility(divisible=True, by_value=True) if operator.group_keys else Divisibility()]
    if isinstance(operator, HashJoin):
        return [Divisibility(may, why) for may, why in divisibility_of(operator.divided_as)]
    why = ""
    if isinstance(operator, ComposedOperator) and _has_join(operator.root):
        why = f"'{operator.name}' is one task, with unions or other steps by key"
    return [Divisibility(indivisible=why)] * len(head.gates)


def _has_join(node: FromOperator) -> bool:
    inner = (feed for feeds in node.inputs for feed in feeds)
    return isinstance(node.operator, HashJoin) or any(isinstance(f, FromOperator) and _has_join(f) for f in inner)


def settings(vertex: Vertex) -> tuple[int | None, int | None]:
    """The parallelism and the max parallelism of a vertex, from what was set on its steps. Raises UsageError."""
    steps = [*vertex.steps, *vertex.ends]
    chosen = [(s.node.config.parallelism, s) for s in steps if s.node.config.parallelism is not None]
    parallelism = chosen[0][0] if chosen else None
    if any(s.is_global for s in steps):
        wrong = [s for p, s in chosen if p != 1]
        if wrong:
            raise UsageError(
                f"{_cap(wrong[0])} has parallelism {wrong[0].node.config.parallelism}, but it works on all rows together, "
                "in one subtask.",
                hint="Remove set_parallelism there.",
            )
        parallelism = 1
    maxima = [(s.node.config.max_parallelism, s) for s in steps if s.node.config.max_parallelism is not None]
    smallest = min(maxima, key=lambda m: m[0] or 0, default=(None, None))
    if parallelism is not None and smallest[0] is not None and parallelism > smallest[0]:
        raise UsageError(
            f"{_cap(smallest[1])} has max parallelism {smallest[0]}, below the parallelism {parallelism} of its task.",
            hint="Raise set_max_parallelism or lower set_parallelism.",
        )
    return parallelism, smallest[0]


def _cap(step: PlannedStep | None) -> str:
    text = "" if step is None else str(step.node)
    return text[:1].upper() + text[1:]
