"""Random pipelines: the compiled job has a valid shape, and gives the rows that plain Python gives, however it is cut."""

from __future__ import annotations

import tempfile
from collections import Counter, defaultdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.effort import examples

from firesteel import DataStream, ExecutionEnvironment
from firesteel.api.steps.actions import collected
from firesteel.arrow import col
from firesteel.compile.compiler import compile_job
from firesteel.compile.stream_graph import CollectStep, StreamNode
from firesteel.local.runs import run_locally
from firesteel.model.job_graph import ResultPartitionType
from graph_kit import LocalRun, check_shape, run_local

SCHEMA = pa.schema([("k", pa.int64()), ("g", pa.string()), ("v", pa.int64())])
FILES = tempfile.TemporaryDirectory()
Rows = list[tuple]

values = st.tuples(
    st.one_of(st.none(), st.integers(0, 3)), st.sampled_from(["a", "b", None]), st.one_of(st.none(), st.integers(-5, 5))
)


def plus_one(batches):
    for batch in batches:
        rows = batch.to_pylist()
        yield pa.RecordBatch.from_pylist([{**r, "v": None if r["v"] is None else r["v"] + 1} for r in rows], SCHEMA)


def with_size_of(batches, small):
    for batch in batches:
        rows = batch.to_pylist()
        yield pa.RecordBatch.from_pylist(
            [{**r, "v": None if r["v"] is None else r["v"] + small.num_rows} for r in rows], SCHEMA
        )


def sizes(table):
    first = table.slice(0, 1).to_pylist()[0]
    return pa.Table.from_pylist([{**first, "v": table.num_rows}], SCHEMA)


def merged(left, right):
    first = (left if left.num_rows else right).slice(0, 1).to_pylist()[0]
    return pa.Table.from_pylist([{"k": first["k"], "g": None, "v": left.num_rows * 10 + right.num_rows}], SCHEMA)


def total(rows: Rows) -> Rows:
    groups: dict = defaultdict(list)
    for k, g, v in rows:
        groups[k, g].append(v)
    return [
        (k, g, sum(x for x in vs if x is not None) if any(x is not None for x in vs) else None)
        for (k, g), vs in groups.items()
    ]


def grouped(rows: Rows) -> dict:
    groups: dict = defaultdict(list)
    for row in rows:
        groups[row[0]].append(row)
    return groups


def joined(left: Rows, right: Rows) -> Rows:
    def plus(a, b):
        return None if a is None or b is None else a + b

    return [(k, g, plus(v, w)) for k, g, v in left for k2, _, w in right if k is not None and k == k2]


def unary(draw, stream: DataStream, rows: Rows) -> tuple[DataStream, Rows]:
    step = draw(
        st.sampled_from(
            ["filter", "plus", "map", "distinct", "total", "total_gk", "total_fused", "sizes", "top", "drop", "deep"]
        )
    )
    if step == "filter":
        return stream.filter(col("v") > 0), [r for r in rows if r[2] is not None and r[2] > 0]
    if step == "plus":
        return stream.with_column("v", col("v") + 1), [(k, g, None if v is None else v + 1) for k, g, v in rows]
    if step == "map":
        return stream.map_in_arrow(plus_one, SCHEMA), [(k, g, None if v is None else v + 1) for k, g, v in rows]
    if step == "distinct":
        return stream.distinct(), list(set(rows))
    if step == "total":
        return stream.key_by("k", "g").aggregate({"v": "sum"}), total(rows)
    if step == "total_gk":
        return stream.key_by("g", "k").aggregate({"v": "sum"}).select("k", "g", "v"), total(rows)
    if step == "total_fused":
        once = stream.key_by("k", "g").aggregate({"w": ("v", "sum")}).select("g", "k", v=col("w"))
        return once.key_by("k", "g").aggregate({"v": "max"}), total(rows)
    if step == "sizes":
        stream = stream.key_by("k", "g").apply_in_arrow(sizes, SCHEMA)
        counts = Counter((k, g) for k, g, _ in rows)
        return stream, [(k, g, n) for (k, g), n in counts.items()]
    if step == "top":
        key = [("v", True), ("k", True), ("g", True)]
        ordered = sorted(
            rows,
            key=lambda r: (
                [(r[i] is None, r[i] if r[i] is not None else 0) for i in (2, 0)] + [(r[1] is None, r[1] or "")]
            ),
        )
        return stream.top_k(3, *key), ordered[:3]
    if step == "deep":
        stream = stream.filter(col("k") >= 0).with_column("x", col("v") * 2).filter(col("x") > -4).filter(col("k") < 3)
        return stream.select("k", "g", "v"), [r for r in rows if None not in (r[0], r[2]) and r[0] < 3 and r[2] > -2]
    return stream.with_column("x", col("k") * 2).drop("x"), rows


def binary(draw, a: tuple[DataStream, Rows], b: tuple[DataStream, Rows]) -> tuple[DataStream, Rows]:
    (left, lefts), (right, rights) = a, b
    step = draw(st.sampled_from(["union", "inner", "semi", "anti", "broadcast", "cogroup", "fused join"]))
    if step == "union":
        return left.union(right), lefts + rights
    if step == "inner":
        stream = left.key_by("k").join(right.key_by("k")).select("k", "g", v=col("v") + col("v_right"))
        return stream, joined(lefts, rights)
    if step == "fused join":
        both = [s.key_by("k").aggregate({"v": "sum"}) for s in (left, right)]
        stream = both[0].key_by("k").join(both[1].key_by("k")).select("k", v=col("v") + col("v_right"))
        sums = [[(k, None, v) for k, _, v in total([(k, None, v) for k, _, v in rows])] for rows in (lefts, rights)]
        return stream.map_in_arrow(nulls_for_g, SCHEMA), joined(*sums)
    if step in ("semi", "anti"):
        found = {k for k, _, _ in rights if k is not None}
        kept = [r for r in lefts if (r[0] in found) == (step == "semi")]
        return left.key_by("k").join(right.key_by("k"), step), kept
    if step == "broadcast":
        n = len(rights)
        stream = left.with_broadcast(small=right).map_in_arrow(with_size_of, SCHEMA)
        return stream, [(k, g, None if v is None else v + n) for k, g, v in lefts]
    one, other = grouped(lefts), grouped(rights)
    rows = [(k, None, len(one.get(k, ())) * 10 + len(other.get(k, ()))) for k in {**one, **other}]
    return left.key_by("k").cogroup(right.key_by("k")).apply_in_arrow(merged, SCHEMA), rows


def nulls_for_g(batches):
    for batch in batches:
        yield pa.RecordBatch.from_pylist([{"k": r["k"], "g": None, "v": r["v"]} for r in batch.to_pylist()], SCHEMA)


def dressed(draw, stream: DataStream) -> DataStream:
    """The same rows, run in another way."""
    ways = ["rebalance", "rescale", "forward", "global_", "chain", "alone", "parallelism", "group a", "group b"]
    how = draw(st.sampled_from(["", "", "", *ways]))
    if how in ("rebalance", "rescale", "forward", "global_"):
        return getattr(stream, how)()
    if (
        stream._pipeline.ship is not None
        or stream._pipeline.node.kind in ("union",)
        or stream._pipeline.node.kind.startswith("top_k")
    ):
        return stream
    if how == "chain":
        return stream.start_new_chain()
    if how == "alone":
        return stream.disable_chaining()
    if how.startswith("group"):
        return stream.slot_sharing_group(how)
    return stream.set_max_parallelism(2) if how == "parallelism" else stream


def source(env: ExecutionEnvironment, rows: Rows, parquet: bool) -> DataStream:
    if not parquet:
        return env.from_collection(rows, SCHEMA)
    columns = [pa.array([row[i] for row in rows], field.type) for i, field in enumerate(SCHEMA)]
    directory = tempfile.mkdtemp(dir=FILES.name)
    pq.write_table(pa.Table.from_arrays(columns, schema=SCHEMA), f"{directory}/rows.parquet", row_group_size=3)
    return env.read_parquet(directory)


@st.composite
def pipelines(draw):
    env = ExecutionEnvironment()
    pool: list[tuple[DataStream, Rows]] = []
    for _ in range(draw(st.integers(1, 2))):
        rows = draw(st.lists(values, max_size=12))
        pool.append((source(env, rows, draw(st.booleans())), rows))
    for _ in range(draw(st.integers(1, 6))):
        a = draw(st.sampled_from(pool))
        made = unary(draw, *a) if draw(st.booleans()) else binary(draw, a, draw(st.sampled_from(pool)))
        pool.append((dressed(draw, made[0]), made[1]))
    chosen = draw(st.lists(st.sampled_from(range(len(pool))), min_size=1, max_size=3, unique=True))
    return env, [pool[i] for i in {*chosen, len(pool) - 1}]


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(pipelines(), st.integers(0, 5))
def test_a_compiled_pipeline_has_a_valid_shape_and_gives_the_right_rows(pipeline, seed):
    env, ends = pipeline
    nodes = [
        StreamNode("collect", CollectStep(i), stream.schema, (stream._pipeline.edge(),))
        for i, (stream, _) in enumerate(ends)
    ]
    job = compile_job(nodes, env.options, "random")
    check_shape(job)
    with tempfile.TemporaryDirectory() as directory:
        tables = run_local(job, Path(directory), lambda vertex: 1 + (vertex * 7 + seed) % 3)
    here = run_locally(nodes, env.options, None)  # the shipped one: a subtask for each vertex, in this process
    for i, (_, rows) in enumerate(ends):
        assert counted(tables[i]) == counted(here[i]) == Counter(rows), i


def counted(table: pa.Table) -> Counter:
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True)) if table.num_rows else Counter()


@st.composite
def pointwise_pipelines(draw):
    """Of steps that need no exchange, each dressed so that it does, or does not, share a vertex with its neighbours."""
    env = ExecutionEnvironment()
    pool: list[tuple[DataStream, Rows]] = []
    for _ in range(draw(st.integers(1, 2))):
        rows = draw(st.lists(values, max_size=12))
        pool.append((source(env, rows, draw(st.booleans())), rows))
    for _ in range(draw(st.integers(1, 7))):
        stream, rows = draw(st.sampled_from(pool[-3:]))
        step = draw(st.sampled_from(["filter", "map", "map", "union"]))
        if step == "filter":
            stream, rows = stream.filter(col("v") > 0), [r for r in rows if r[2] is not None and r[2] > 0]
        elif step == "map":
            stream = stream.map_in_arrow(plus_one, SCHEMA)
            rows = [(k, g, None if v is None else v + 1) for k, g, v in rows]
        else:
            other, others = draw(st.sampled_from(pool))
            stream, rows = stream.union(other), rows + others
        how = draw(st.sampled_from(["forward", "chain", "alone", "alone", "group", ""]))
        if how == "forward":
            stream = stream.forward()
        elif how and step != "union":
            by_how = {"chain": stream.start_new_chain, "alone": stream.disable_chaining}
            stream = by_how.get(how, lambda stream=stream: stream.slot_sharing_group("a"))()
        pool.append((stream, rows))
    return env, [pool[i] for i in {*draw(st.lists(st.sampled_from(range(len(pool))), max_size=2)), len(pool) - 1}]


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(pointwise_pipelines(), st.integers(1, 3))
def test_a_pipelined_job_gives_the_rows_that_a_blocking_one_gives(pipeline, parallelism):
    env, ends = pipeline
    nodes = [
        StreamNode("collect", CollectStep(i), stream.schema, (stream._pipeline.edge(),))
        for i, (stream, _) in enumerate(ends)
    ]
    pipelined = {"execution.batch-shuffle-mode": "ALL_EXCHANGES_PIPELINED", "jobmanager.scheduler": "Default"}
    job = compile_job(nodes, env.options.with_values(pipelined), "random")
    check_shape(job)
    consumed = [d for d in job.job_graph.datasets if job.job_graph.consumers(d.id)]
    assert all((d.type is ResultPartitionType.BLOCKING) == (d.id in job.stored) for d in consumed)
    with tempfile.TemporaryDirectory() as directory:
        run = LocalRun(job, Path(directory), lambda vertex: parallelism, 32 << 20)
        tables = run.run()
        written = {int(name[1:].partition("-")[0]) for name in run.store.list()}
    assert written == {d.id for d in job.job_graph.datasets if d.type is ResultPartitionType.BLOCKING}
    for i, (_, rows) in enumerate(ends):
        found = [
            row for batch in tables[i].to_batches() for row in zip(*(c.to_pylist() for c in batch.columns), strict=True)
        ]
        assert Counter(found) == Counter(rows), i


def test_a_null_among_a_dictionarys_values_is_null_to_every_step(tmp_path):
    hidden = pa.array(["a", None, "a", None]).dictionary_encode(null_encoding="encode")
    stream = ExecutionEnvironment().from_arrow(pa.table({"d": hidden}))

    def again(batches):
        for _ in batches:
            yield pa.record_batch({"d": hidden})

    for number, s in enumerate((stream, stream.map_in_arrow(again, stream.schema))):
        for name, kept in (("found", s.filter(col("d").is_valid())), ("lost", s.filter(col("d").is_null()))):
            job = compile_job([collected(kept._pipeline)], s._pipeline.env.options, name)
            rows = run_local(job, tmp_path / f"{name}{number}")[0].column("d").to_pylist()
            assert set(rows) == {"a" if name == "found" else None}
