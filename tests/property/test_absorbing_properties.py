"""Joins that absorb the producer of their probe side, in any number and order, give the rows that hash joins give."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.effort import examples

from firesteel import ExecutionEnvironment, col
from firesteel.compile.compiler import compile_job
from firesteel.compile.joins import absorb_in
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
    return env, fact


def table(rows) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(FACT.names, row, strict=True)) for row in rows], FACT)


def run(job, seed: int, memory: int) -> Counter:
    with tempfile.TemporaryDirectory() as directory:
        found = run_local(job, Path(directory), lambda vertex: 1 + (vertex * 7 + seed) % 3, memory)[0]
    return Counter(map(str, found.to_pylist()))


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(stars(), st.integers(0, 5), st.sampled_from([1 << 12, 32 << 20]), st.data())
def test_absorbing_changes_no_row(star, seed, memory, data):
    env, fact = star
    end = StreamNode("collect", CollectStep(0), fact.schema, (fact._pipeline.edge(),))
    job = compile_job([end], env.options, "star")
    expected = run(job, seed, memory)
    changed, before = job.copy(), [*job.job_graph.vertices]
    graph = changed.job_graph
    for _ in range(data.draw(st.integers(0, 4))):
        able = [Absorbing(v.id, side) for v in graph.vertices if v.join for side in (0, 1) if v.join.can_build(side)]
        if able:
            absorb_in(changed, data.draw(st.sampled_from(able)))
            check_shape(changed)
    assert run(changed, seed, memory) == expected
    assert job.job_graph.vertices == before, "the job that was compiled is as it was"
