"""Every step over columns that are declared not null answers as over the same rows without that declaration."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.effort import examples

from firesteel import DataStream, ExecutionEnvironment
from firesteel.api.steps.actions import collected
from firesteel.arrow import col
from firesteel.compile.compiler import compile_job
from firesteel.connectors.formats.parquet import ParquetSink
from graph_kit import run_local

INNER = pa.struct([pa.field("x", pa.int64(), False)])
STRICT = pa.schema(
    [pa.field("k", pa.int64(), False), pa.field("s", pa.string(), False), pa.field("n", INNER, False)],
    {b"made": b"here"},
)
LOOSE = pa.schema([field.with_nullable(True) for field in STRICT])


def table(n: int, distinct: int, schema: pa.Schema) -> pa.Table:
    k = np.arange(n) % max(distinct, 1)
    columns = [pa.array(k), pa.array([f"s{i % 5}" for i in k]), pa.array([{"x": int(i)} for i in k], INNER)]
    return pa.Table.from_arrays(columns, schema=schema)


def same(batches):
    yield from batches


STEPS = {
    "filter": lambda s, o: s.filter(col("k") != 3),
    "select": lambda s, o: s.select(k=col("k") + 0, s="s", n="n"),
    "map_in_arrow": lambda s, o: s.map_in_arrow(same, s.schema),
    "map_in_pandas": lambda s, o: s.map_in_pandas(same, s.schema),
    "limit": lambda s, o: s.limit(10_000_000),
    "top_k": lambda s, o: s.top_k(10_000_000, "k"),
    "distinct": lambda s, o: s.distinct(),
    "union": lambda s, o: s.union(o),
    "rebalance": lambda s, o: s.rebalance(),
    "aggregate": lambda s, o: with_schema(s.key_by("k").aggregate({"s": "min"}), s),
    "count_distinct": lambda s, o: with_schema(s.key_by("k").aggregate(d=("s", "count_distinct"), s=("s", "max")), s),
    "apply_in_arrow": lambda s, o: s.key_by("k").apply_in_arrow(lambda t: t, s.schema),
    "apply_in_pandas": lambda s, o: s.key_by("s").apply_in_pandas(lambda t: t, s.schema),
    "cogroup": lambda s, o: s.key_by("k").cogroup(o.key_by("k")).apply_in_arrow(lambda a, b: a, s.schema),
    **{
        f"{how} join": lambda s, o, how=how: s.key_by("k").join(o.key_by("k"), how).select("k", "s", "n")
        for how in ("inner", "left", "right", "full")
    },
    "semi join": lambda s, o: s.key_by("k").join(o.key_by("k"), "semi"),
    "anti join": lambda s, o: s.key_by("k").join(o.key_by("k"), "anti"),
}


def with_schema(aggregated: DataStream, like: DataStream) -> DataStream:
    def shaped(batches):
        for batch in batches:
            rows = [{"k": r["k"], "s": r["s"], "n": {"x": r["k"]}} for r in batch.to_pylist()]
            yield pa.RecordBatch.from_pylist(rows, LOOSE)

    return aggregated.map_in_arrow(shaped, LOOSE)


def run(names: list[str], schema: pa.Schema, n: int, distinct: int, memory: int) -> Counter:
    env = ExecutionEnvironment()
    stream = env.from_arrow(table(n, distinct, schema))
    other = env.from_arrow(table(n // 3, distinct + 2, schema))
    for name in names:
        stream = STEPS[name](stream, other if stream.schema.types == other.schema.types else stream)
    job = compile_job([collected(stream._pipeline)], env.options, "nulls")
    with tempfile.TemporaryDirectory() as directory:
        found = run_local(job, Path(directory), lambda vertex: 1 + vertex % 3, memory)[0]
    found.validate(full=True)
    assert found.schema.equals(stream.schema)
    return Counter(map(repr, found.to_pylist()))


@pytest.mark.parametrize("memory", [pytest.param(32 << 20, marks=pytest.mark.full), 20_000])
@pytest.mark.parametrize(
    ("first", "then"),
    [
        pytest.param(first, then, marks=() if (i + j) % 3 == 0 else pytest.mark.full)
        for i, first in enumerate(["semi join", "anti join", "distinct", "aggregate", "union"])
        for j, then in enumerate(["aggregate", "distinct", "top_k", "apply_in_arrow", "full join", "map_in_arrow"])
    ],
)
def test_keyed_steps_over_what_keyed_steps_give(first, then, memory):
    rows = 1000 if "join" not in then else 300
    keys = rows // 8 if then == "apply_in_arrow" else rows - 40  # it is called for each key
    assert run([first, then], STRICT, rows, keys, memory) == run([first, then], LOOSE, rows, keys, memory)


@settings(max_examples=examples(30), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=3),
    st.sampled_from([0, 1, 7, 120]),
    st.sampled_from([1, 3, 119]),
    st.sampled_from([32 << 20, 20_000]),
)
def test_chains_of_steps_do_not_mind_not_null(names, n, distinct, memory):
    joins = sum("join" in name for name in names)
    if joins > 1 and distinct == 1:  # rows to the third power
        distinct = 119
    assert run(names, STRICT, n, distinct, memory) == run(names, LOOSE, n, distinct, memory)


def test_a_parquet_sink_takes_batches_of_looser_schemas(tmp_path):
    sink = ParquetSink(str(tmp_path / "out"))
    sink.check(STRICT)
    sink.begin("job")
    writer = sink.write(0, 0)
    writer.write(pa.RecordBatch.from_arrays(table(3, 3, LOOSE).to_batches()[0].columns, schema=LOOSE))
    sink.commit([writer.finish()])
    assert pq.read_table(tmp_path / "out").num_rows == 3
