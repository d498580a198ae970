"""The ways in which a join may be done: what forbids that one of its sides is given whole to every task, and the program where it is.

Every obstacle is found before the job runs, in words, so that the decision at run time is about bytes alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from firesteel.compile.adaptive.one_step import in_one_step
from firesteel.compile.compiled import CompiledJob
from firesteel.compile.plan import PlannedStep
from firesteel.compile.stream_graph import Chaining
from firesteel.compile.vertices import Vertex
from firesteel.model.absorbing import SIDES, Absorbing, absorb, obstacle
from firesteel.model.job_graph import JobGraph, JoinInfo
from firesteel.task.operators.join import BroadcastJoin, HashJoin, build_sides
from firesteel.task.program import KeyedHead, SparkHead, VertexProgram

HINTS = (*SIDES, "never")
"""Values of ``broadcast`` of a join, by their numbers."""


def join_info(vertex: Vertex, number: int, graph: JobGraph, vertices: Sequence[Vertex]) -> JoinInfo | None:
    """The join with which vertex ``number`` begins; None where it does not begin with just one.

    ``graph``: complete but for the joins of its vertices. ``vertices``: in the order of their numbers.
    """
    head = vertex.head()
    if not isinstance(head, KeyedHead) or not isinstance(head.operator, HashJoin):
        return None
    operator, hint = head.operator, vertex.first.node.config.broadcast
    found = [next(_obstacles(operator, Absorbing(number, side), graph, vertices), "") for side in (0, 1)]
    return JoinInfo(operator.how, (found[0], found[1]), None if hint is None else HINTS.index(hint))


def absorb_in(job: CompiledJob, change: Absorbing) -> None:
    """Makes the change in all of a compiled job: graph, program, splits, places."""
    graph = job.job_graph
    producer = change.producer(graph)
    if change.build is None:
        first, second = (graph.vertices[vertex].program for vertex in (producer, change.join))
        program = in_one_step(first, second, job.in_one_step[change.join])
    else:
        program = absorbed_program(graph, change)
    absorb(graph, change)
    graph.vertices[change.join].program = program
    if producer in job.splits:
        job.splits[change.join] = job.splits.pop(producer)
    places = (job.places.get(vertex, "") for vertex in (producer, change.join))
    job.places[change.join] = ", ".join(dict.fromkeys(place for place in places if place))


def absorbed_program(graph: JobGraph, change: Absorbing) -> VertexProgram:
    """The program of the join behind the change; ``graph``: before it."""
    join: VertexProgram = graph.vertices[change.join].program
    producer: VertexProgram = graph.vertices[change.producer(graph)].program
    assert isinstance(join.head, KeyedHead) and change.build is not None
    gates, side = change.gates(graph), f"data set {graph.vertices[change.join].inputs[change.build].dataset}"
    assert isinstance(join.head.operator, HashJoin)
    operator = BroadcastJoin(join.head.operator, change.build, side)
    kept = [k for k, place in enumerate(gates) if place >= 0]
    orders = (*producer.orders, *(join.orders[k] for k in kept))
    return replace(
        producer,
        operators=(*producer.operators, operator, *join.operators),
        outputs=join.outputs,
        gate_schemas=(*producer.gate_schemas, *(join.gate_schemas[k] for k in kept)),
        gate_orders=orders,
        side_inputs=(*producer.side_inputs, *_moved(join.side_inputs, gates)),
        builds=(*producer.builds, (side, gates[change.build]), *_moved(join.builds, gates)),
    )


def _moved(named: Sequence[tuple[str, int]], gates: Sequence[int]) -> tuple[tuple[str, int], ...]:
    return tuple((name, gates[gate]) for name, gate in named)


def _obstacles(join: HashJoin, change: Absorbing, graph: JobGraph, vertices: Sequence[Vertex]) -> Iterator[str]:
    """Why the build side cannot be given whole to the tasks of the other side's producer."""
    assert change.build is not None
    build, probe = SIDES[change.build], f"the {SIDES[1 - change.build]} side"
    if change.build not in build_sides(join.how):
        yield f"rows of the {build} side without a match come out of a {join.how} join, once each"
    elif change.build not in build_sides(join.divided_as):
        yield "a join by the nearest time looks the left rows up in the whole right side"
    if found := obstacle(graph, change):
        yield found
    producer = change.producer(graph)
    program: VertexProgram = graph.vertices[producer].program
    if isinstance(program.head, SparkHead):
        yield f"{probe} is made inside Spark's plan of a DataFrame"
    if _stands_alone(vertices[producer].steps, vertices[change.join].steps):
        yield "chaining is switched off there"
    if any(set(vertices[number].sides) & set(vertices[change.join].sides) for number in _upstream(graph, producer)):
        yield f"{probe} and the join have side inputs of one name"


def _upstream(graph: JobGraph, vertex: int) -> set[int]:
    """The vertex and all that it depends on: it may have absorbed any of them before it is absorbed itself."""
    found, ask = set[int](), [vertex]
    while ask:
        number = ask.pop()
        if number not in found:
            found.add(number)
            ask += [graph.datasets[edge.dataset].producer for edge in graph.vertices[number].inputs]
    return found


def _stands_alone(before: Sequence[PlannedStep], steps: Sequence[PlannedStep]) -> bool:
    never = any(step.node.config.chaining is Chaining.NEVER for step in (*before, *steps))
    return never or steps[0].node.config.chaining is Chaining.HEAD
