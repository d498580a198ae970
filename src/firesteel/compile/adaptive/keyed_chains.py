"""Joins that a step by the same key follows: one vertex, or two.

In one vertex the rows of the join need no exchange; but then none of its sides can be broadcast, and none of its subpartitions divided,
for both leave its rows elsewhere than by the key. So such a vertex is made as two, each that follows behind the one before, and decided
when it runs (``scheduler.two_steps``): a join that is broadcast, or divided, stays by itself; else the step that follows absorbs it.

Only where it can pay: the join must be a semi join, or what follows must combine rows before the exchange that it would get, or be a join
itself, which may be broadcast too; or one side is to be broadcast because the user says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from firesteel.compile.adaptive.one_step import Unexchanged
from firesteel.compile.chaining import partitioned_by
from firesteel.compile.plan import Feed, PlannedStep
from firesteel.compile.stream_graph import KeyedStep
from firesteel.compile.vertices import KeyedPart, Vertex, called, settings
from firesteel.model.absorbing import SIDES
from firesteel.options import ADAPTIVE_JOINS, CUT, JOIN_SKEW, SCHEDULER, Options
from firesteel.task.operators.join import HashJoin


def parts_joins(options: Options) -> bool:
    """Returns whether the scheduler that the options name may broadcast a join, or divide what it reads."""
    adaptive = options[SCHEDULER] == "AdaptiveBatch"
    divides = options[CUT] == "by-bytes" and options[JOIN_SKEW] == "auto"
    return adaptive and (options[ADAPTIVE_JOINS] or divides)


def joins_apart(vertices: Iterable[Vertex], vertex_of: dict[PlannedStep, Vertex]) -> list[Vertex]:
    """The same vertices, each that begins with a join that may be apart behind that join."""
    return [part for vertex in vertices for part in _apart(vertex, vertex_of)]


def _apart(vertex: Vertex, vertex_of: dict[PlannedStep, Vertex]) -> Iterator[Vertex]:
    while (first := _first(vertex, _chain(vertex))) is not None:
        for step in first.steps:
            vertex_of[step] = first
        yield first
    yield vertex


def _chain(vertex: Vertex) -> list[KeyedPart]:
    """The parts from the one that reads the vertex' first gate on, each the first input of the next."""
    chain = [] if vertex.keyed is None else [vertex.keyed]
    while chain and len(chain[-1].inputs[0]) == 1 and isinstance(inner := chain[-1].inputs[0][0], KeyedPart):
        chain.append(inner)
    return chain[::-1]


def _first(vertex: Vertex, chain: list[KeyedPart]) -> Vertex | None:
    """The vertex of the join that the vertex begins with, taken out of it; None: there is none, or it is better as it is."""
    if len(chain) < 2 or not _reads_two_streams(chain[0], vertex.gates):
        return None
    join, follower = chain[:2]
    if not _can_exchange(follower) or not (_pays(chain) or join.step.node.config.broadcast in SIDES):
        return None
    (feed,) = follower.step.inputs[0]
    steps = _steps(join, feed)
    first = Vertex(steps, vertex.gates[:2], keyed=replace(join, behind=[]), operators=join.behind)
    rest = [step for step in vertex.steps if step not in steps]
    set_apart = {settings(one) for one in (first, vertex, replace(vertex, steps=rest))}
    if any(step.sides for step in steps) or len(set_apart) > 1:
        return None
    work = follower.step.work
    assert isinstance(work, KeyedStep) and vertex.keyed is not None
    operator = called(work.operator, follower.step)
    apart = replace(
        follower, operator=operator, inputs=[[feed], *follower.inputs[1:]], schemas=[feed.schema, *follower.schemas[1:]]
    )
    first.first_step, first.in_one_step = vertex.first_step, vertex.in_one_step
    vertex.steps, vertex.gates = rest, [feed, *vertex.gates[2:]]
    vertex.keyed = _with(vertex.keyed, follower, apart)
    vertex.first_step, vertex.in_one_step = first, Unexchanged(follower.operator, feed.source.schema)
    return first


def _reads_two_streams(part: KeyedPart, gates: list[Feed]) -> bool:
    """Returns whether it is a join of just the first two gates."""
    feeds = [feed for feeds in part.inputs for feed in feeds]
    return isinstance(part.operator, HashJoin) and len(part.inputs) == len(feeds) == 2 and feeds == gates[:2]


def _can_exchange(part: KeyedPart) -> bool:
    """Returns whether its first input may be exchanged, with everything else that it reads left as it is."""
    work, (feed,) = part.step.work, part.step.inputs[0]
    assert isinstance(work, KeyedStep)
    if work.direct is not work.operator and len(part.inputs) > 1:
        return False
    return partitioned_by(feed.source) == work.keys[0] == feed.keys


def _pays(chain: list[KeyedPart]) -> bool:
    """Returns whether the first part is there to drop rows, or the second part combines rows before their exchange, or is a join that may be
    broadcast, too, and what follows that pays as well."""
    first, follower = chain[:2]
    if isinstance(first.operator, HashJoin) and first.operator.how == "semi":
        return True
    (feed,) = follower.step.inputs[0]
    if feed.combiner is not None:
        return True
    if not isinstance(follower.operator, HashJoin) or any(isinstance(one, KeyedPart) for one in follower.inputs[1]):
        return False
    return len(follower.inputs[1]) == 1 and (len(chain) == 2 or _pays(chain[1:]))


def _steps(join: KeyedPart, feed: Feed) -> list[PlannedStep]:
    """The join's steps, up to the one whose rows travel in ``feed``."""
    steps = [feed.source]
    while steps[-1] is not join.step:
        steps.append(steps[-1].feeds[0].source)
    return steps[::-1]


def _with(part: KeyedPart, old: KeyedPart, new: KeyedPart) -> KeyedPart:
    """The tree with another part in the place of one that is first in it."""
    if part is old:
        return new
    (inner,) = part.inputs[0]
    assert isinstance(inner, KeyedPart)
    return replace(part, inputs=[[_with(inner, old, new)], *part.inputs[1:]])
