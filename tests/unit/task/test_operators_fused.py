"""Several parts in one task: the same answers as one after another through storage, one end for all, the right one blamed."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from firesteel.errors import PartitionException
from firesteel.results.storage.store import ResultStore, object_name
from firesteel.task.functions.batch_functions import MapInArrow
from firesteel.task.operators.relational import Filter, Limit
from firesteel.task.program import GateHead, PipelinedGate, ResultOutput, SinkOutput, SourceHead, VertexProgram
from firesteel.task.runner import Part, TaskRun, UserFunctionError, run_task
from operators_support import context, rows
from task_kit import SCHEMA, Rows, Sink, Split, gate, read

SUBTASK, ATTEMPT, TOKEN = 3, 2, 77


@pytest.fixture
def store(tmp_path):
    store = ResultStore(str(tmp_path / "store"))
    store.create()
    return store


@pytest.fixture
def part(tmp_path):
    (tmp_path / "scratch").mkdir()

    def make(vertex, program, gates=(), splits=(), **subpartitions):
        ctx = context(
            tmp_path / "scratch",
            subtask=SUBTASK,
            attempt=ATTEMPT,
            token=TOKEN,
            vertex=vertex,
            vertex_name=f"vertex {vertex}",
        )
        return Part(program, ctx, gates, splits, {int(k[1:]): v for k, v in subpartitions.items()})

    return make


def source(*outputs, operators=(), rows=None):
    return VertexProgram(SourceHead(rows or Rows()), operators, outputs)


def reader(*outputs, operators=(), gates=1):
    return VertexProgram(GateHead(tuple(range(gates))), operators, outputs, (SCHEMA,) * gates)


def add(n):
    def fn(batches):
        for batch in batches:
            yield pa.record_batch([batch["k"], pc.add(batch["v"], n)], schema=SCHEMA)

    return MapInArrow(f"add {n}", fn, SCHEMA)


def raising(name, at):
    def fn(batches):
        for batch in batches:
            if pc.max(batch["v"]).as_py() >= at:
                raise ValueError(f"{name} at {at}")
            yield batch

    return MapInArrow(name, fn, SCHEMA)


def values(store, dataset):
    return read(store, dataset, SCHEMA, 1)["v"].to_pylist()


def unfused(parts, store):
    """The parts one after another, through stored results. What each says."""
    outcomes = []
    for part in parts:
        gates = [gate(g.dataset, 1, subtask=SUBTASK) if isinstance(g, PipelinedGate) else g for g in part.gates]
        made = {o.dataset: 1 for o in part.program.outputs if isinstance(o, ResultOutput)}
        ctx = replace(part.ctx, side_inputs={})
        outcomes.append(run_task(part.program, ctx, gates, part.splits, store, made | part.subpartitions, "lz4"))
    return outcomes


def test_a_chain_of_three_stores_nothing_between_and_says_the_same(store, part, tmp_path):
    sink = Sink()
    parts = [
        part(0, source(ResultOutput(0, SCHEMA), operators=(add(1),)), splits=[(0, 25_000), (25_000, 100)]),
        part(1, reader(ResultOutput(1, SCHEMA), operators=(add(10),)), [PipelinedGate(0)]),
        part(2, reader(ResultOutput(2, SCHEMA, ("k",)), SinkOutput(sink)), [PipelinedGate(1)], d2=4),
    ]
    fused = TaskRun(parts, store, "lz4").run()
    assert store.list() == [object_name(2, SUBTASK, ATTEMPT, TOKEN)]
    ours = read(store, 2, SCHEMA, 4)
    other = ResultStore(str(tmp_path / "other"))
    other.create()
    apart = unfused(parts, other)
    assert rows(ours) == rows(read(other, 2, SCHEMA, 4))
    assert sorted(ours["v"].to_pylist()) == list(range(11, 25_111))
    for one, two in zip(fused, apart, strict=True):
        assert (one.rows_in, one.rows_out) == (two.rows_in, two.rows_out) and one.bytes_in >= two.bytes_in > 0
    assert [[p.dataset for p in outcome.partitions] for outcome in fused] == [[], [], [2]]
    assert fused[2].partitions[0].bytes.tolist() == apart[2].partitions[0].bytes.tolist()
    assert [pickle.loads(c) for c in fused[2].commits] == [{"done": True}]


def test_the_reader_pulls_batch_by_batch(store, part):
    order = []

    def noting(name):
        def fn(batches):
            for batch in batches:
                order.append(name)
                yield batch

        return MapInArrow(name, fn, SCHEMA)

    parts = [
        part(0, source(ResultOutput(0, SCHEMA), operators=(noting("first"),)), splits=[(0, 30_000)]),
        part(1, reader(ResultOutput(1, SCHEMA), operators=(noting("second"),)), [PipelinedGate(0)], d1=1),
    ]
    TaskRun(parts, store, "lz4").run()
    assert order.index("second") < len(order) - 1 - order[::-1].index("first"), "it did not wait for all of it"


def test_several_streams_and_a_stored_result_into_one_union(store, part):
    run_task(source(ResultOutput(9, SCHEMA)), part(9, None).ctx, [], [(500, 50)], store, {9: 1}, "lz4")
    parts = [
        part(0, source(ResultOutput(0, SCHEMA)), splits=[(0, 100)]),
        part(1, source(ResultOutput(1, SCHEMA), operators=(add(1000),)), splits=[(0, 10)]),
        part(
            2,
            reader(ResultOutput(2, SCHEMA), gates=3),
            [PipelinedGate(1), gate(9, 1, subtask=SUBTASK), PipelinedGate(0)],
            d2=1,
        ),
    ]
    outcomes = TaskRun(parts, store, "lz4").run()
    assert values(store, 2) == [*range(1000, 1010), *range(500, 550), *range(100)]
    assert [outcome.rows_in for outcome in outcomes] == [100, 10, 160]


def test_other_outputs_of_a_producer_are_written_as_its_batches_pass(store, part):
    sink = Sink()
    parts = [
        part(
            0,
            source(ResultOutput(0, SCHEMA), ResultOutput(5, SCHEMA, ("k",)), SinkOutput(sink)),
            splits=[(0, 1000)],
            d5=2,
        ),
        part(
            1,
            reader(ResultOutput(1, SCHEMA), operators=(Filter("some", pc.field("v") < 10),)),
            [PipelinedGate(0)],
            d1=1,
        ),
    ]
    first, second = TaskRun(parts, store, "lz4").run()
    assert [p.dataset for p in first.partitions] == [5] and first.partitions[0].rows == 1000
    assert sorted(read(store, 5, SCHEMA, 2)["v"].to_pylist()) == list(range(1000))
    assert sum(entry[1] for entry in sink.log if entry[0] == "write") == 1000 and sink.log[-1] == ("finish",)
    assert len(first.commits) == 1 and second.commits == ()
    assert values(store, 1) == list(range(10))


def limited(part, *more):
    return [
        part(0, source(ResultOutput(0, SCHEMA), *more), splits=[(0, 100_000)]),
        part(1, reader(ResultOutput(1, SCHEMA), operators=(Limit("few", 5),)), [PipelinedGate(0)], d1=1),
    ]


def test_a_reader_that_wants_no_more_ends_a_producer_without_other_outputs(store, part):
    first, second = TaskRun(limited(part), store, "lz4").run()
    assert values(store, 1) == [0, 1, 2, 3, 4]
    assert first.rows_in < 100_000 and second.rows_out == 5


def test_a_reader_that_wants_no_more_takes_nothing_from_the_producers_other_outputs(store, part):
    sink = Sink()
    first, second = TaskRun(limited(part, SinkOutput(sink)), store, "lz4").run()
    assert values(store, 1) == [0, 1, 2, 3, 4]
    assert sum(entry[1] for entry in sink.log if entry[0] == "write") == 100_000
    assert first.rows_out == 100_000 and second.rows_in < 100_000


def test_the_middle_one_is_run_to_its_end_for_its_sink(store, part):
    sink = Sink()
    parts = [
        part(0, source(ResultOutput(0, SCHEMA)), splits=[(0, 50_000)]),
        part(1, reader(ResultOutput(1, SCHEMA), SinkOutput(sink)), [PipelinedGate(0)]),
        part(2, reader(ResultOutput(2, SCHEMA), operators=(Limit("few", 5),)), [PipelinedGate(1)], d2=1),
    ]
    assert [o.rows_out for o in TaskRun(parts, store, "lz4").run()] == [50_000, 50_000, 5]
    assert sum(entry[1] for entry in sink.log if entry[0] == "write") == 50_000


def test_rows_arrive_in_the_declared_types_as_if_they_had_been_stored(store, part):
    declared = pa.schema({"k": pa.int64(), "s": pa.dictionary(pa.int8(), pa.string())})

    class Loose:
        def read(self, split, ctx):
            words = [f"w{n}" for n in range(200)]  # more than int8 can count
            yield pa.record_batch({"k": pa.array(range(200), pa.int32()), "s": pa.array(words).dictionary_encode()})

    seen = []

    def look(batches):
        for batch in batches:
            seen.append(batch.schema)
            yield batch

    parts = [
        part(0, source(ResultOutput(0, declared), rows=Loose()), splits=[()]),
        part(
            1,
            VertexProgram(
                GateHead((0,)), (MapInArrow("look", look, declared),), (ResultOutput(1, declared),), (declared,)
            ),
            [PipelinedGate(0)],
            d1=1,
        ),
    ]
    TaskRun(parts, store, "lz4").run()
    assert all(schema.equals(declared) for schema in seen)
    assert read(store, 1, declared, 1)["k"].to_pylist() == list(range(200))


# --- errors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("culprit", [0, 1, 2])
def test_the_part_whose_function_raised_is_named_and_nothing_is_left(store, part, culprit):
    sinks = [Sink(), Sink(), Sink()]

    def operators(k):
        return (raising(f"step {k}", 300),) if k == culprit else (add(0),)

    parts = [
        part(
            0,
            source(ResultOutput(0, SCHEMA), SinkOutput(sinks[0]), operators=operators(0)),
            splits=[Split((0, 90_000), "a.txt")],
        ),
        part(
            1,
            reader(ResultOutput(1, SCHEMA), ResultOutput(7, SCHEMA), SinkOutput(sinks[1]), operators=operators(1)),
            [PipelinedGate(0)],
            d7=2,
        ),
        part(
            2, reader(ResultOutput(2, SCHEMA), SinkOutput(sinks[2]), operators=operators(2)), [PipelinedGate(1)], d2=1
        ),
    ]
    run = TaskRun(parts, store, "lz4")
    with pytest.raises(UserFunctionError, match=f"step 'step {culprit}' raised ValueError: step {culprit} at 300"):
        run.run()
    assert run.culprit == culprit
    assert store.list() == [] and [sink.log[-1] for sink in sinks] == [("abort",)] * 3


@pytest.mark.parametrize("where", ["write", "finish"])
@pytest.mark.parametrize("culprit", [0, 1])
def test_an_output_that_fails_aborts_those_of_all_parts(store, part, where, culprit):
    sinks = [Sink(), Sink()]
    sinks[culprit].fail = where
    parts = [
        part(
            0, source(ResultOutput(0, SCHEMA), ResultOutput(4, SCHEMA), SinkOutput(sinks[0])), splits=[(0, 100)], d4=1
        ),
        part(1, reader(ResultOutput(1, SCHEMA), SinkOutput(sinks[1])), [PipelinedGate(0)], d1=1),
    ]
    run = TaskRun(parts, store, "lz4")
    with pytest.raises(OSError, match="disk full"):
        run.run()
    assert run.culprit == culprit
    assert store.list() == [] and [sink.log[-1] for sink in sinks] == [("abort",)] * 2


def test_a_reader_cannot_swallow_the_producers_error(store, part):
    class Swallowing:
        name, unitwise = "swallowing", False

        def apply(self, batches, ctx):
            try:
                yield from batches
            except UserFunctionError:
                return

    parts = [
        part(0, source(ResultOutput(0, SCHEMA), operators=(raising("early", 300),)), splits=[(0, 90_000)]),
        part(1, reader(ResultOutput(1, SCHEMA), operators=(Swallowing(),)), [PipelinedGate(0)], d1=1),
    ]
    run = TaskRun(parts, store, "lz4")
    with pytest.raises(UserFunctionError, match="early at 300"):
        run.run()
    assert run.culprit == 0 and store.list() == []


def test_a_lost_partition_that_a_producer_reads_is_the_producers(store, part):
    parts = [
        part(0, reader(ResultOutput(0, SCHEMA)), [gate(9, 1, subtask=SUBTASK)]),
        part(1, reader(ResultOutput(1, SCHEMA), operators=(add(1),)), [PipelinedGate(0)], d1=1),
    ]
    run = TaskRun(parts, store, "lz4")
    with pytest.raises(PartitionException) as caught:
        run.run()
    assert (caught.value.dataset, caught.value.partition, run.culprit) == (9, SUBTASK, 0)


def test_user_code_on_both_sides_is_released(store, part):
    closed = []

    def noting(name):
        def fn(batches):
            try:
                yield from batches
            finally:
                closed.append(name)

        return MapInArrow(name, fn, SCHEMA)

    parts = [
        part(0, source(ResultOutput(0, SCHEMA), operators=(noting("first"),)), splits=[(0, 90_000)]),
        part(1, reader(SinkOutput(Sink(fail="write")), operators=(noting("second"),)), [PipelinedGate(0)]),
    ]
    with pytest.raises(OSError, match="disk full"):
        TaskRun(parts, store, "lz4").run()
    assert sorted(closed) == ["first", "second"]


def test_what_cannot_be_streamed_is_not_read_by_halves(store, part):
    twice = [
        part(0, source(ResultOutput(0, SCHEMA)), splits=[(0, 10)]),
        part(1, reader(ResultOutput(1, SCHEMA), gates=2), [PipelinedGate(0), PipelinedGate(0)], d1=1),
    ]
    with pytest.raises(ValueError, match="cannot be pipelined together in one task"):
        TaskRun(twice, store, "lz4")
    assert store.list() == []
