"""A join that absorbs the producer of its probe side: what forbids it, and what becomes of both vertices."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from firesteel.model.absorbing import Absorbing, absorb, obstacle
from firesteel.model.job_graph import (
    IntermediateDataSet,
    JobEdge,
    JobGraph,
    JobVertex,
    JoinInfo,
    ShipStrategy,
    SourceInfo,
)

FACT, DIM, SIDE, JOIN, BEHIND = range(5)
CHANGE = Absorbing(JOIN, 1)
EITHER = JoinInfo("inner", ("", ""))


def graph() -> JobGraph:
    """A fact with a side input, joined with a dimension; the join has the same side input, and a reader."""
    made = JobGraph(
        "join", [JobVertex(n, name, name) for n, name in enumerate(["fact", "dim", "side", "join", "behind"])], []
    )
    ships = (ShipStrategy.HASH, ShipStrategy.HASH, ShipStrategy.BROADCAST, ShipStrategy.REBALANCE)
    made.datasets = [IntermediateDataSet(n, n, ship) for n, ship in enumerate(ships)]
    for vertex in made.vertices[:BEHIND]:
        vertex.outputs, vertex.step = [vertex.id], f"code of {vertex.name}"
    made.vertices[FACT].source = SourceInfo(np.array([7, 8]))
    made.vertices[FACT].inputs = [JobEdge(SIDE, 0)]
    made.vertices[JOIN].inputs = [JobEdge(0, 0, True, True), JobEdge(1, 1, True, True, "why"), JobEdge(SIDE, 2)]
    made.vertices[JOIN].join = EITHER
    made.vertices[BEHIND].inputs = [JobEdge(JOIN, 0)]
    return made


def test_nothing_forbids_it():
    assert obstacle(graph(), CHANGE) == "" and CHANGE.producer(graph()) == FACT


def dataset(made: JobGraph, number: int, **changes) -> None:
    made.datasets[number] = replace(made.datasets[number], **changes)


def another_result(made: JobGraph) -> None:
    made.datasets.append(IntermediateDataSet(4, FACT, ShipStrategy.REBALANCE))
    made.vertices[FACT].outputs.append(4)


def both_sides_one(made: JobGraph) -> None:
    made.vertices[JOIN].inputs[1] = JobEdge(0, 1, True)


def sink_beside(made: JobGraph) -> None:
    made.vertices[FACT].has_sink = True


def another_reader(made: JobGraph) -> None:
    made.vertices[BEHIND].inputs.append(JobEdge(0, 1))


def other_group(made: JobGraph) -> None:
    made.vertices[FACT].slot_sharing_group = "gpu"


def other_parallelism(made: JobGraph) -> None:
    made.vertices[FACT].parallelism = 3


def other_maximum(made: JobGraph) -> None:
    made.vertices[JOIN].max_parallelism = 3


def forward_into_the_producer(made: JobGraph) -> None:
    del made.vertices[JOIN].inputs[2]
    dataset(made, SIDE, ship=ShipStrategy.FORWARD)


def forward(number: int):
    return lambda made: dataset(made, number, ship=ShipStrategy.FORWARD)


OTHERS, BOUND = "the left side is read by others too", "a step beside it is bound to its parallelism by forward"


@pytest.mark.parametrize(
    ("hindered", "told"),
    [
        (both_sides_one, "both sides are one stream"),
        (another_result, OTHERS),
        (another_reader, OTHERS),
        (sink_beside, OTHERS),
        (lambda made: dataset(made, 0, persistent=True), OTHERS),
        (lambda made: dataset(made, 0, ship=ShipStrategy.REBALANCE), "the left side is not hash partitioned"),
        (forward(SIDE), BOUND),
        (forward_into_the_producer, BOUND),
        (forward(1), BOUND),
        (forward(JOIN), BOUND),
        (other_group, "the left side is in another slot sharing group"),
        (other_parallelism, "the left side has another parallelism set than the join"),
        (other_maximum, "the left side has another parallelism set than the join"),
    ],
)
def test_what_forbids_it(hindered, told):
    made = graph()
    hindered(made)
    assert obstacle(made, CHANGE) == told


@pytest.mark.parametrize("build", [0, 1])
def test_gates_follow_those_of_the_producer(build):
    made = graph()
    gates = Absorbing(JOIN, build).gates(made)
    assert gates == ((0, -1, 1) if build == 0 else (-1, 1, 2)), "the dimension has no inputs, the fact has one"


def test_the_join_takes_over_all_that_the_producer_reads():
    made = graph()
    before = [*made.vertices]
    absorb(made, CHANGE)
    join, fact = made.vertices[JOIN], made.vertices[FACT]
    assert join.inputs == [JobEdge(SIDE, 0), JobEdge(1, 1, whole=True), JobEdge(SIDE, 2)]
    assert (join.name, join.step, join.outputs, join.join) == (
        "fact -> join",
        "code of fact+code of join",
        [JOIN],
        None,
    )
    assert join.source is before[FACT].source and join.uid == "join"
    assert (fact.inputs, fact.outputs, fact.source, fact.absorbed_by) == ([], [], None, JOIN)
    assert before[FACT].source is not None and before[JOIN].join is EITHER, (
        "whoever holds the old ones sees them as they were"
    )


def test_a_side_that_is_read_whole_stays_so_and_a_join_that_is_absorbed_is_still_to_be_decided():
    made = graph()
    made.vertices.append(JobVertex(5, "second", "second", join=EITHER))
    made.vertices[BEHIND].outputs = [4]
    made.datasets += [IntermediateDataSet(4, BEHIND, ShipStrategy.HASH)]
    dataset(made, JOIN, ship=ShipStrategy.HASH)
    made.vertices[5].inputs = [JobEdge(JOIN, 0, True), JobEdge(4, 1, True)]
    made.vertices[BEHIND].inputs = []
    absorb(made, CHANGE)
    absorb(made, Absorbing(5, 1))
    wholes = [(edge.dataset, edge.index) for edge in made.vertices[5].inputs if edge.whole]
    assert wholes == [(1, 1), (4, 3)] and made.vertices[5].join is None
    undecided = graph()
    undecided.vertices.append(JobVertex(5, "second", "second", join=EITHER))
    dataset(undecided, JOIN, ship=ShipStrategy.HASH)
    undecided.vertices[5].inputs = [JobEdge(JOIN, 0, True), JobEdge(1, 1, True)]
    absorb(undecided, Absorbing(5, 1))
    assert undecided.vertices[JOIN].join is None, "it is decided once"
    assert undecided.vertices[5].join is EITHER and [e.co_partitioned for e in undecided.vertices[5].inputs][:2] == [
        True,
        True,
    ]


@pytest.mark.parametrize("weak", [FACT, JOIN])
def test_a_rule_for_one_of_them_holds_for_both(weak):
    made = graph()
    made.vertices[weak].deterministic = made.vertices[weak].speculative = False
    made.vertices[weak].supports_concurrent_attempts = False
    made.vertices[weak].other_rows, made.vertices[weak].not_mirrored = "it draws", "it asks for none"
    made.vertices[DIM].deterministic = False
    absorb(made, CHANGE)
    join = made.vertices[JOIN]
    assert not (join.deterministic or join.speculative or join.supports_concurrent_attempts)
    assert (join.other_rows, join.not_mirrored) == ("it draws", "it asks for none")


def test_a_step_whose_code_is_not_known_has_no_identity_together_either():
    made = graph()
    made.vertices[FACT].step = ""
    absorb(made, CHANGE)
    assert made.vertices[JOIN].step == ""
