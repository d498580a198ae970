"""run_task from end to end over real results on disk: heads, outputs, side inputs, counting, and what is left after an error."""

from __future__ import annotations

import pickle
import threading
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.aggregates_kit import nodes_of

from firesteel.api.steps.aggregates.functions import Aggregation
from firesteel.errors import PartitionException
from firesteel.results.storage.store import ResultStore, object_name
from firesteel.spark.driver.serialise import dumps
from firesteel.task.batches import BatchSize
from firesteel.task.functions.batch_functions import MapInArrow
from firesteel.task.operators.fragments import SqlFragment
from firesteel.task.operators.join import HashJoin, join_schema
from firesteel.task.operators.relational import Filter
from firesteel.task.program import (
    GateHead,
    KeyedHead,
    ResultOutput,
    SinkOutput,
    SourceHead,
    SparkHead,
    VertexProgram,
)
from firesteel.task.runner import UserFunctionError, _with_threads, run_task
from operators_support import context, rows
from task_kit import SCHEMA, Rows, Sink, Split, gate, read


@pytest.fixture
def store(tmp_path):
    store = ResultStore(str(tmp_path / "store"))
    store.create()
    return store


@pytest.fixture
def ctx(tmp_path):
    (tmp_path / "scratch").mkdir()
    return context(tmp_path / "scratch", subtask=3, attempt=2, token=77)


def source(*outputs, operators=(), **kwargs):
    return VertexProgram(SourceHead(Rows()), operators, outputs, **kwargs)


def test_every_output_takes_every_batch(store, ctx):
    sink = Sink()
    program = source(ResultOutput(0, SCHEMA, ("k",)), ResultOutput(1, SCHEMA), SinkOutput(sink))
    outcome = run_task(program, ctx, [], [(0, 250), (250, 750)], store, {0: 8, 1: 1}, "lz4")
    assert (outcome.rows_in, outcome.rows_out) == (1000, 1000)
    assert outcome.bytes_in == 16_000
    assert [p.dataset for p in outcome.partitions] == [0, 1] and all(p.rows == 1000 for p in outcome.partitions)
    assert [len(p.bytes) for p in outcome.partitions] == [8, 1]
    assert [pickle.loads(c) for c in outcome.commits] == [{"done": True}]
    assert sum(entry[1] for entry in sink.log if entry[0] == "write") == 1000
    assert sink.log[0] == ("open", 3, 2) and sink.log[-1] == ("finish",)
    assert sorted(store.list()) == sorted(object_name(d, 3, 2, 77) for d in (0, 1))
    for dataset, subpartitions in ((0, 8), (1, 1)):
        assert read(store, dataset, SCHEMA, subpartitions).sort_by("v")["v"].to_pylist() == list(range(1000))
    homes = [set(read(store, 0, SCHEMA, 8, s, s + 1)["k"].to_pylist()) for s in range(8)]
    assert sum(map(len, homes)) == 10, "a key lies in one subpartition"


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.list_(pa.field("element", pa.float32()), 2), [1, 2]),  # as read from Parquet
        (pa.list_(pa.field("element", pa.float32(), nullable=False), 2), [1, 2]),
        (pa.map_(pa.string(), pa.int32(), keys_sorted=True), [("a", 1)]),
        (pa.struct([("x", pa.large_list(pa.list_(pa.field("element", pa.float32()), 2)))]), {"x": [[1, 2]]}),
    ],
    ids=lambda kind: str(kind) if isinstance(kind, pa.DataType) else "",
)
def test_the_driver_reads_what_a_program_that_travelled_wrote(store, ctx, kind, value):
    """pyarrow's own pickle leaves parts of these types out, and the schema of a result is checked."""
    data = pa.record_batch([pa.array([value, value], kind)], ["e"])
    step = MapInArrow("step", lambda batches: [data for _ in batches], data.schema)
    program = pickle.loads(dumps(source(ResultOutput(0, data.schema), operators=(step,))))
    assert str(program.outputs[0].schema) == str(data.schema)
    run_task(program, ctx, [], [(0, 1)], store, {0: 1}, "none")
    assert read(store, 0, data.schema, 1).to_pylist() == data.to_pylist()


def test_partial_aggregation_then_final_aggregation(store, ctx):
    (node,) = nodes_of(SCHEMA, ("k",), [Aggregation("sum", ("v",), "total"), Aggregation("count", (), "n")])
    (edge,) = node.inputs
    middle, out = edge.schema, node.schema
    program = source(
        ResultOutput(0, middle, ("k",), edge.combiner),
        operators=(Filter("even", pc.bit_wise_and(pc.field("v"), 1) == 0),),
    )
    first = run_task(program, ctx, [], [(0, 1000)], store, {0: 16}, "none")
    assert first.partitions[0].rows == 5
    final = VertexProgram(KeyedHead(node.work.operator, (0,)), (), (ResultOutput(1, out),), (middle,))
    second = run_task(pickle.loads(pickle.dumps(final)), ctx, [gate(0, 16, subtask=3)], [], store, {1: 1}, "zstd")
    assert second.rows_in == 5 and second.bytes_in == int(first.partitions[0].bytes.sum())
    assert sorted(read(store, 1, out, 1).to_pylist(), key=lambda r: r["k"]) == [
        {"k": k, "total": sum(range(k, 1000, 10)), "n": 100} for k in range(0, 10, 2)
    ]


def test_a_join_of_two_gates_and_a_union_of_the_same_two(store, ctx):
    run_task(
        source(ResultOutput(0, SCHEMA, ("k",)), ResultOutput(1, SCHEMA, ("v",))),
        ctx,
        [],
        [(0, 100)],
        store,
        {0: 4, 1: 4},
        "lz4",
    )
    gates = [gate(0, 4, subtask=3), gate(1, 4, subtask=3)]
    schema = join_schema(SCHEMA, SCHEMA, ("k",), ("v",), "inner")
    join = HashJoin("join", "inner", ("k",), ("v",), SCHEMA, SCHEMA, schema)
    run_task(
        VertexProgram(KeyedHead(join, (0, 1)), (), (ResultOutput(2, schema),), (SCHEMA, SCHEMA)),
        ctx,
        gates,
        [],
        store,
        {2: 1},
        "lz4",
    )
    assert rows(read(store, 2, schema, 1)) == Counter((v % 10, v, v % 10) for v in range(100))
    union = VertexProgram(GateHead((0, 1)), (), (ResultOutput(3, SCHEMA),), (SCHEMA, SCHEMA))
    assert run_task(union, ctx, gates, [], store, {3: 1}, "lz4").rows_in == 200
    assert Counter(read(store, 3, SCHEMA, 1)["v"].to_pylist()) == Counter([*range(100)] * 2)


def test_side_inputs_are_read_before_the_head_starts(store, ctx):
    run_task(source(ResultOutput(0, SCHEMA)), ctx, [], [(0, 5)], store, {0: 1}, "lz4")

    def fn(batches, small):
        return (b.append_column("n", pa.array([small.num_rows] * len(b))) for b in batches)

    out = SCHEMA.append(pa.field("n", pa.int64()))
    program = source(
        ResultOutput(1, out),
        operators=(MapInArrow("f", fn, out, ("small",)),),
        gate_schemas=(SCHEMA,),
        side_inputs=(("small", 0),),
    )
    assert run_task(program, ctx, [gate(0, 1, subtask=3)], [(0, 3)], store, {1: 1}, "lz4").rows_in == 8
    assert read(store, 1, out, 1)["n"].to_pylist() == [5, 5, 5]


def test_batches_of_spark(store, ctx):
    program = VertexProgram(SparkHead(), (), (ResultOutput(0, SCHEMA),))
    outcome = run_task(program, ctx, [], [], store, {0: 2}, "lz4", iter(Rows().read((0, 10), ctx)))
    assert (outcome.rows_in, outcome.rows_out) == (10, 10)


def test_round_robin_starts_at_another_subpartition_for_every_subtask(store, tmp_path):
    homes = []
    for subtask in range(4):
        ctx = context(tmp_path, subtask=subtask)
        outcome = run_task(source(ResultOutput(0, SCHEMA)), ctx, [], [(0, 1)], store, {0: 4}, "lz4")
        homes.append(int(np.argmax(outcome.partitions[0].bytes)))
    assert sorted(homes) == [0, 1, 2, 3]


# --- errors ---------------------------------------------------------------------------------------------------------


def failing_function(batches):
    for batch in batches:
        if batch["v"][0].as_py() >= 300:
            raise ValueError("bad row")
        yield batch


def test_a_user_error_names_the_split_and_leaves_nothing(store, ctx):
    sink = Sink()
    step = MapInArrow("words", failing_function, SCHEMA, size=BatchSize(rows=300))
    program = source(ResultOutput(0, SCHEMA), SinkOutput(sink), operators=(step,))
    splits = [Split((0, 300), "a.txt"), Split((300, 300), "b.txt, bytes 0-99")]
    with pytest.raises(
        UserFunctionError, match=r"step 'words' raised ValueError: bad row while working on b\.txt"
    ) as caught:
        run_task(program, ctx, [], splits, store, {0: 2}, "lz4")
    assert "failing_function" in caught.value.trace and "run_task" not in caught.value.trace
    assert caught.value.place == "b.txt, bytes 0-99"
    assert store.list() == [] and sink.log[-1] == ("abort",)


@pytest.mark.parametrize("engine", [False, True])
def test_nothing_is_read_ahead_beside_the_engine(store, ctx, engine):
    """Its queries set what all threads of the process see."""
    names: list[str] = []

    def noting(batches):
        for batch in batches:
            names.append(threading.current_thread().name)
            yield batch

    steps = [MapInArrow("first", noting, SCHEMA), MapInArrow("second", lambda batches: batches, SCHEMA, prefetch=2)]
    if engine:
        steps.insert(0, SqlFragment("query", "SELECT * FROM rows", SCHEMA, SCHEMA))
    ahead = 0 if engine else 2
    assert [
        getattr(one, "prefetch", 0) for one in _with_threads(source(ResultOutput(0, SCHEMA), operators=tuple(steps)))
    ][-1] == ahead
    del steps[:-2]
    run_task(source(ResultOutput(0, SCHEMA), operators=tuple(steps)), ctx, [], [(0, 10)], store, {0: 2}, "lz4")
    assert set(names) == {"firesteel reads ahead"}


@pytest.mark.parametrize("where", ["write", "finish"])
def test_an_error_of_one_output_aborts_all(store, ctx, where):
    sink = Sink(fail=where)
    with pytest.raises(OSError, match="disk full"):
        run_task(source(ResultOutput(0, SCHEMA), SinkOutput(sink)), ctx, [], [(0, 10)], store, {0: 2}, "lz4")
    assert store.list() == [] and sink.log[-1] == ("abort",)


def test_the_first_error_wins_over_errors_while_aborting(store, ctx):
    sink = Sink(fail="abort")
    with pytest.raises(UserFunctionError, match="bad row"):
        program = source(
            SinkOutput(sink),
            ResultOutput(0, SCHEMA),
            operators=(MapInArrow("words", failing_function, SCHEMA, size=BatchSize(rows=300)),),
        )
        run_task(program, ctx, [], [(300, 10)], store, {0: 2}, "lz4")
    assert store.list() == []


def test_an_interrupt_aborts_and_releases_the_chain(store, ctx):
    closed = []

    def fn(batches):
        try:
            yield from batches
        finally:
            closed.append(True)

    class Interrupting(Sink):
        def write(self, subtask, attempt):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_task(source(ResultOutput(0, SCHEMA), SinkOutput(Interrupting())), ctx, [], [(0, 10)], store, {0: 1}, "lz4")
    assert store.list() == []
    program = source(ResultOutput(0, SCHEMA), SinkOutput(Sink(fail="write")), operators=(MapInArrow("f", fn, SCHEMA),))
    with pytest.raises(OSError, match="disk full"):
        run_task(program, ctx, [], [(0, 50_000)], store, {0: 1}, "lz4")
    assert closed == [True]


def test_a_lost_partition_is_named_through_a_user_function(store, ctx):
    program = VertexProgram(
        GateHead((0,)), (MapInArrow("f", lambda b: b, SCHEMA),), (ResultOutput(1, SCHEMA),), (SCHEMA,)
    )
    with pytest.raises(PartitionException) as caught:
        run_task(program, ctx, [gate(0, 1, subtask=3)], [], store, {1: 1}, "lz4")
    assert (caught.value.dataset, caught.value.partition, caught.value.attempt, caught.value.token) == (0, 3, 2, 77)
    assert store.list() == []


def test_an_error_of_a_users_source_names_the_split(store, ctx):
    class Broken:
        def read(self, split, ctx):
            yield from Rows().read((0, 10), ctx)
            raise RuntimeError("cannot parse")

    program = VertexProgram(SourceHead(Broken()), (), (ResultOutput(0, SCHEMA),))
    with pytest.raises(UserFunctionError, match=r"Reading c\.bin failed with RuntimeError: cannot parse"):
        run_task(program, ctx, [], [Split((), "c.bin")], store, {0: 1}, "lz4")
    assert store.list() == []
