"""Aggregations in two steps: counts of distinct values, which nothing before an exchange can fold into few rows.

Behind the exchange by key one subtask would get all values of a key with very many, and of an aggregation without keys one subtask gets all values
there are. So such a vertex is made as two: the first counts parts of the values, the second adds the counts up. When the values are
there, the scheduler decides (``scheduler.two_steps``): where the first step would divide nothing, the second absorbs it, and the vertex
is the one that it would have been.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from firesteel.compile.adaptive.one_step import Undivided
from firesteel.compile.plan import Feed, PlannedStep
from firesteel.compile.stream_graph import KeyedStep
from firesteel.compile.vertices import KeyedPart, Vertex
from firesteel.model.job_graph import ShipStrategy
from firesteel.options import CUT, JOIN_SKEW, SCHEDULER, Options
from firesteel.task.operators.groups import AddCounts, CountValues, SqlGroups


def divides_values(options: Options) -> bool:
    """Returns whether the scheduler that the options name may decide on two steps."""
    adaptive = options[SCHEDULER] == "AdaptiveBatch" and options[CUT] == "by-bytes"
    return adaptive and options[JOIN_SKEW] == "auto"


def parted(vertices: Iterable[Vertex], vertex_of: dict[PlannedStep, Vertex]) -> list[Vertex]:
    """The same vertices, each that can be two behind its first step (``Vertex.first_step``, ``Vertex.in_one_step``)."""
    return [part for vertex in vertices for part in _parted(vertex, vertex_of)]


def _parted(vertex: Vertex, vertex_of: dict[PlannedStep, Vertex]) -> Iterator[Vertex]:
    steps = _steps(vertex)
    if steps is not None:
        count, add = steps
        assert vertex.keyed is not None
        first = _first_step(vertex, count)
        vertex_of[first.first] = first
        vertex.in_one_step = _undivided(vertex, first, add)
        between = Feed(first.first, vertex.gates[0].ship, add.keys[0], None, count.schema)
        vertex.first_step, vertex.gates = first, [between]
        vertex.keyed = KeyedPart(vertex.keyed.step, add, [[between]], [between.schema])
        yield first
    yield vertex


def _steps(vertex: Vertex) -> tuple[CountValues, AddCounts] | None:
    if vertex.keyed is None or len(vertex.gates) != 1 or vertex.keyed.inputs != [vertex.gates]:
        return None
    operator = vertex.keyed.operator
    return operator.in_two if isinstance(operator, SqlGroups) else None


def _first_step(vertex: Vertex, count: CountValues) -> Vertex:
    (whole,) = (step for step in vertex.steps if isinstance(step.work, KeyedStep))
    feed = replace(vertex.gates[0], ship=ShipStrategy.HASH, keys=count.keys[0])
    work = KeyedStep(count, count, count.keys)
    step = PlannedStep(whole.node, work, count.schema, [[feed]], group=whole.group, reads=1)
    return Vertex([step], [feed], keyed=KeyedPart(step, count, [[feed]], [feed.schema]))


def _undivided(vertex: Vertex, first: Vertex, add: AddCounts) -> Undivided:
    """The vertex as it is where nothing is divided. Without keys the values lie by their hash all the same, so that they are counted
    unit by unit."""
    if add.keys[0]:
        return Undivided(vertex.head(), tuple(vertex.operators))
    return Undivided(first.head(), (add, *vertex.operators))
