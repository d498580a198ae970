"""How a join may be done: what forbids that one of its sides is given whole to every task, and the program where it is.

Every obstacle is found before the job runs, in words, so that the decision at run time is about bytes alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from firesteel.compile.compiled import CompiledJob
from firesteel.compile.plan import PlannedStep
from firesteel.compile.stream_graph import Chaining
from firesteel.compile.vertices import Vertex, settings
from firesteel.model.absorbing import Absorbing, absorb
from firesteel.model.job_graph import JobGraph, JoinInfo, ShipStrategy
from firesteel.model.order import Order
from firesteel.task.operators.broadcast_join import BroadcastJoin, build_sides
from firesteel.task.operators.join import HashJoin
from firesteel.task.program import KeyedHead, ResultOutput, SparkHead, VertexProgram

_SIDES = ("left", "right")
HINTS = (*_SIDES, "never")
"""Values of ``broadcast`` of a join, by their numbers."""


def join_info(vertex: Vertex, number: int, graph: JobGraph, vertices: Sequence[Vertex]) -> JoinInfo | None:
    """The join with which vertex ``number`` begins; None where it does not begin with just one.

    ``graph``: complete but for the joins of its vertices. ``vertices``: in the order of their numbers.
    """
    head = vertex.head()
    if not isinstance(head, KeyedHead) or not isinstance(head.operator, HashJoin) or len(head.gates) != len(_SIDES):
        return None
    how, hint = head.operator.how, vertex.first.node.config.broadcast
    found = [next(_obstacles(how, side, number, graph, vertices), "") for side in range(len(_SIDES))]
    return JoinInfo(how, (found[0], found[1]), None if hint is None else HINTS.index(hint))


def absorb_in(job: CompiledJob, change: Absorbing) -> None:
    """Makes the change in all of a compiled job: graph, program, splits, places."""
    graph = job.job_graph
    program, producer = absorbed_program(graph, change), change.producer(graph)
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
    assert isinstance(join.head, KeyedHead) and isinstance(join.head.operator, HashJoin)
    gates, side = change.gates(graph), f"data set {graph.vertices[change.join].inputs[change.build].dataset}"
    operator = BroadcastJoin(join.head.operator, change.build, side)
    kept = [k for k, place in enumerate(gates) if place >= 0]
    orders = (*_orders(producer), *(_orders(join)[k] for k in kept))
    return replace(
        producer,
        operators=(*producer.operators, operator, *join.operators),
        outputs=join.outputs,
        gate_schemas=(*producer.gate_schemas, *(join.gate_schemas[k] for k in kept)),
        gate_orders=orders,
        side_inputs=(*producer.side_inputs, *_moved(join.side_inputs, gates)),
        builds=(*producer.builds, (side, gates[change.build]), *_moved(join.builds, gates)),
    )


def _orders(program: VertexProgram) -> Sequence[Order | None]:
    return program.gate_orders or (None,) * len(program.gate_schemas)


def _moved(named: Sequence[tuple[str, int]], gates: Sequence[int]) -> tuple[tuple[str, int], ...]:
    return tuple((name, gates[gate]) for name, gate in named)


def _obstacles(how: str, build: int, number: int, graph: JobGraph, vertices: Sequence[Vertex]) -> Iterator[str]:
    """Why input ``build`` of the join cannot be given whole to the tasks of the other input's producer."""
    join = graph.vertices[number]
    dataset = graph.datasets[join.inputs[1 - build].dataset]
    producer, probe = graph.vertices[dataset.producer], f"the {_SIDES[1 - build]} side"
    program: VertexProgram = producer.program
    if build not in build_sides(how):
        yield f"rows of the {_SIDES[build]} side without a match come out of a {how} join, once each"
    if join.inputs[0].dataset == join.inputs[1].dataset:
        yield "both sides are one stream"
    if dataset.persistent or len(producer.outputs) > 1 or producer.has_sink or len(graph.consumers(dataset.id)) > 1:
        yield f"{probe} is read by others too"
    if dataset.ship is not ShipStrategy.HASH:
        yield f"{probe} is not hash partitioned"
    if isinstance(program.head, SparkHead):
        yield f"{probe} is made inside Spark's plan of a DataFrame"
    if any(isinstance(output, ResultOutput) and output.combiner is not None for output in program.outputs):
        yield f"{probe} is partly aggregated before its exchange"
    beside = {d for vertex in (producer, join) for d in [*(e.dataset for e in vertex.inputs), *vertex.outputs]}
    if any(graph.datasets[d].ship is ShipStrategy.FORWARD for d in beside):
        yield "a step beside it is bound to its parallelism by forward"
    yield from _different_settings(vertices[producer.id], vertices[number], probe)


def _different_settings(producer: Vertex, join: Vertex, probe: str) -> Iterator[str]:
    if producer.first.group != join.first.group:
        yield f"{probe} is in another slot sharing group"
    if settings(producer) != settings(join):
        yield f"{probe} has another parallelism set than the join"
    if _stands_alone(producer.steps, join.steps):
        yield "chaining is switched off there"
    if set(producer.sides) & set(join.sides):
        yield f"{probe} and the join have side inputs of one name"


def _stands_alone(before: Sequence[PlannedStep], steps: Sequence[PlannedStep]) -> bool:
    never = any(step.node.config.chaining is Chaining.NEVER for step in (*before, *steps))
    return never or steps[0].node.config.chaining is Chaining.HEAD
