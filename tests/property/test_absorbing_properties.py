"""Joins that absorb the producer of their probe side, in any number and order, give the rows that hash joins give."""

from __future__ import annotations

import tempfile
from collections import Counter
from itertools import permutations
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from tests.effort import examples

from firesteel import ExecutionEnvironment
from firesteel.arrow import col
from firesteel.compile.adaptive.joins import absorb_in
from firesteel.compile.compiler import compile_job
from firesteel.compile.stream_graph import CollectStep, StreamNode
from firesteel.model.absorbing import Absorbing
from firesteel.task.operators.join import HOWS
from graph_kit import check_shape, run_local

FACT = pa.schema({"a": pa.int64(), "b": pa.string(), "n": pa.int32()})
rows_of = st.lists(
    st.tuples(st.sampled_from([None, 0, 1, 2, 3]), st.sampled_from([None, "", "x", "y"]), st.integers(0, 9)),
    max_size=15,
)


def counted(batches):
    """Rows of nobody: the step sees batches, and hands them on."""
    yield from batches


@st.composite
def stars(draw):
    """A fact with dimensions joined to it one after another, by either key, of any kind, from either side."""
    env = ExecutionEnvironment()
    fact = env.from_arrow(table(draw(rows_of)))
    for number in range(draw(st.integers(1, 4))):
        key = draw(st.sampled_from(["a", "b"]))
        dim = env.from_arrow(table(draw(rows_of))).select(key, **{f"d{number}": col("n")})
        if draw(st.booleans()):
            dim = dim.filter(col(f"d{number}") > 2)
        if draw(st.integers(0, 4)) == 0:  # it follows an exchange of its own
            dim = dim.key_by(key).aggregate({f"d{number}": "max"})
        how = draw(st.sampled_from(HOWS))
        if how not in ("semi", "anti") and draw(st.booleans()):
            fact = dim.key_by(key).join(fact.key_by(key), how)
        else:
            fact = fact.key_by(key).join(dim.key_by(key), how)
        if draw(st.booleans()):
            fact = fact.map_in_arrow(counted, fact.schema)
    if draw(st.booleans()):
        fact = fact.key_by("a").aggregate({"n": "sum"})
    return env, [fact]


@st.composite
def webs(draw):
    """Any streams of any steps joined with each other or with themselves: shared, kept, with side inputs, united, in their own
    chains, parallelisms and slots. All have the same columns."""
    env = ExecutionEnvironment()
    streams = [env.from_arrow(table(draw(rows_of))) for _ in range(draw(st.integers(1, 3)))]
    for _ in range(draw(st.integers(2, 7))):
        one, other = (streams[draw(st.integers(0, len(streams) - 1))] for _ in (0, 1))
        streams.append(draw(st.sampled_from([joined, joined, joined, united, changed, settled]))(draw, one, other))
    ends = draw(st.lists(st.integers(0, len(streams) - 1), min_size=1, max_size=3, unique=True))
    return env, [streams[-1], *(streams[end] for end in ends if end < len(streams) - 1)]


def joined(draw, one, other):
    """Its columns may come from either side: what it is joined by next is perhaps of the build side of this one."""
    key, how = draw(st.sampled_from(["a", "b"])), draw(st.sampled_from(HOWS))
    found = one.key_by(key).join(other.key_by(key), how)
    if how in ("semi", "anti"):
        return found
    rest = "b" if key == "a" else "a"
    columns = {name: draw(st.sampled_from([name, f"{name}_right"])) for name in (rest, "n")}
    return found.select(**{name: col(columns.get(name, name)) for name in FACT.names})


def united(draw, one, other):
    return one.union(other)


def changed(draw, one, other):
    kind = draw(st.integers(0, 5))
    if kind == 0:
        return one.filter(col("n") > 3)
    if kind == 1:
        return one.with_broadcast(**{draw(st.sampled_from(["seen", "told"])): other}).map_in_arrow(beside, FACT)
    if kind == 2:
        return one.key_by("a").aggregate({"b": "max", "n": "max"})
    if kind == 3:
        return one.map_in_arrow(counted, FACT)
    if kind == 4:
        return one.rebalance().map_in_arrow(counted, FACT)
    return one.forward().map_in_arrow(counted, FACT)


def settled(draw, one, _other):
    found = one.map_in_arrow(counted, FACT)
    kind = draw(st.integers(0, 4))
    if kind == 0:
        return found.set_parallelism(draw(st.integers(1, 3)))
    if kind == 1:
        return found.disable_chaining()
    if kind == 2:
        return found.start_new_chain()
    if kind == 3:
        return found.slot_sharing_group("other")
    return found.set_max_parallelism(2)


def beside(batches, **sides):
    """Adds to each row the number of rows of the side input."""
    (side,) = sides.values()
    for batch in batches:
        told = pc.cast(pc.add(batch.column("n"), side.num_rows), pa.int32())
        yield batch.set_column(2, FACT.field("n"), told)


def table(rows) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(FACT.names, row, strict=True)) for row in rows], FACT)


def compiled(env, streams):
    ends = [StreamNode("collect", CollectStep(k), s.schema, (s._pipeline.edge(),)) for k, s in enumerate(streams)]
    return compile_job(ends, env.options, "joins")


def run(job, seed: int, memory: int) -> list[Counter]:
    with tempfile.TemporaryDirectory() as directory:
        found = run_local(job, Path(directory), lambda vertex: 1 + (vertex * 7 + seed) % 3, memory)
    return [Counter(map(str, found[k].to_pylist())) for k in sorted(found)]


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.one_of(stars(), webs()), st.integers(0, 5), st.sampled_from([1 << 12, 32 << 20]), st.data())
def test_absorbing_changes_no_row(pipeline, seed, memory, data):
    job = compiled(*pipeline)
    expected = run(job, seed, memory)
    changed, before = job.copy(), [*job.job_graph.vertices]
    graph, count = changed.job_graph, 0
    while able := [
        Absorbing(v.id, side) for v in graph.vertices if v.join for side in (0, 1) if v.join.can_build(side)
    ]:
        if not data.draw(st.integers(0, 5)):
            break
        absorb_in(changed, data.draw(st.sampled_from(able)))
        check_shape(changed)
        count += 1
    event(f"{count} absorbed")
    assert run(changed, seed, memory) == expected
    assert job.job_graph.vertices == before, "the job that was compiled is as it was"


def whole_star(rows):
    """Three dimensions; the fact and each join have a side input of their own."""
    env = ExecutionEnvironment()
    fact = env.from_arrow(rows).with_broadcast(first=env.from_arrow(rows[:1])).map_in_arrow(beside, FACT)
    for number, name in enumerate(("second", "third", "fourth")):
        dim = env.from_arrow(rows[number : number + 4]).select("a" if number % 2 else "b", **{f"d{number}": col("n")})
        fact = fact.key_by(dim.columns[0]).join(dim.key_by(dim.columns[0]), "left").select(*FACT.names)
        fact = fact.with_broadcast(**{name: env.from_arrow(rows[:number])}).map_in_arrow(beside, FACT)
    return env, [fact]


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_a_star_is_absorbed_in_any_order(order):
    """Of the joins, as they follow one another."""
    rows = table([(k % 4, "xyz"[k % 3], k) for k in range(12)])
    job = compiled(*whole_star(rows))
    changed, joins = job.copy(), [vertex.id for vertex in job.job_graph.vertices if vertex.join]
    for first in order:
        join, graph = joins[first], changed.job_graph
        while graph.vertices[join].absorbed_by is not None:
            join = graph.vertices[join].absorbed_by
        absorb_in(changed, Absorbing(join, 1))
        check_shape(changed)
    (fused,) = [
        vertex for vertex in changed.job_graph.vertices if vertex.absorbed_by is None and vertex.name.count("join") == 3
    ]
    assert [len(edges) for edges in ([e for e in fused.inputs if e.whole], fused.inputs)] == [3, 7]
    source = Absorbing(joins[0], 1).producer(job.job_graph)
    assert changed.splits.keys() == job.splits.keys() - {source} | {fused.id}
    assert changed.splits[fused.id] == job.splits[source]
    assert all(place in changed.places[fused.id] for place in (job.places[join] for join in joins))
    assert run(changed, 1, 32 << 20) == run(job, 1, 32 << 20)


def test_a_side_beside_what_is_read_in_order_has_no_order():
    env = ExecutionEnvironment()
    fact, dim = (env.from_arrow(table([(1, "x", n) for n in range(5)])) for _ in (0, 1))
    job = compiled(env, [fact.sort("n").key_by("a").join(dim.key_by("a"), suffix="_2")])
    (join,) = [vertex.id for vertex in job.job_graph.vertices if vertex.join]
    absorb_in(job, Absorbing(join, 1))
    first, side = job.job_graph.vertices[join].program.orders
    assert first is not None and first.names == ("n",) and side is None
