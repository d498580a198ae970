"""What becomes one task, what travels between tasks, and how."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from firesteel import DataStream, ExecutionEnvironment
from firesteel.arrow import col
from firesteel.compile.compiled import CompiledJob
from firesteel.compile.compiler import compile_job
from firesteel.compile.stream_graph import CollectStep, StreamNode
from firesteel.connectors.base import Split
from firesteel.errors import UsageError
from firesteel.model.job_graph import PARALLELISM_DEFAULT, ShipStrategy
from firesteel.task.operators.composed import ComposedOperator
from firesteel.task.program import GateHead, KeyedHead, ResultOutput, SinkOutput, SourceHead
from graph_kit import check_shape


@pytest.fixture
def env():
    return ExecutionEnvironment()


@pytest.fixture
def rows(env):
    return env.from_collection([{"k": 1, "v": 2.0, "w": 3}])


def same(batches, **sides):
    yield from batches


def identity(stream: DataStream) -> DataStream:
    return stream.map_in_arrow(same, stream.schema)


def compiled(*streams: DataStream, **options) -> CompiledJob:
    env = streams[0]._pipeline.env
    ends = [StreamNode("collect", CollectStep(i), s.schema, (s._pipeline.edge(),)) for i, s in enumerate(streams)]
    job = compile_job(ends, env.options.with_values(options), "job")
    check_shape(job)
    return job


def names(job: CompiledJob) -> list[str]:
    return [vertex.name for vertex in job.job_graph.vertices]


def ships(job: CompiledJob) -> list[ShipStrategy]:
    """Of the data sets that a vertex reads."""
    return [d.ship for d in job.job_graph.datasets if job.job_graph.consumers(d.id)]


class TestChains:
    def test_the_example_is_two_vertices(self, env, tmp_path):
        (tmp_path / "a.py").write_text("x = 1\n")
        words = env.read_text(f"{tmp_path}/*.py").map_in_arrow(same, "word string, n bigint")
        words.key_by("word").aggregate({"n": "sum"}).write_parquet(tmp_path / "out")
        job = env.compile("word count")
        check_shape(job)
        reading, counting = job.job_graph.vertices
        assert reading.name.endswith("*.py -> map_in_arrow(same)")
        assert counting.name == f"aggregate(n) -> write_parquet({tmp_path / 'out'})"
        assert isinstance(reading.program.head, SourceHead)
        [result] = reading.program.outputs
        assert result.keys == ("word",)
        assert result.combiner is not None
        assert isinstance(counting.program.head, KeyedHead)
        assert isinstance(counting.program.outputs[0], SinkOutput)
        assert counting.has_sink
        assert len(job.splits[0]) == len(reading.source.split_bytes) == 1
        assert job.sinks == {1: [counting.program.outputs[0].sink]}
        assert ships(job) == [ShipStrategy.HASH]
        assert job.job_graph.vertices[1].inputs[0].co_partitioned

    def test_steps_of_one_reader_each_are_one_chain(self, rows):
        job = compiled(identity(rows.filter(col("v") > 1).with_column("x", col("v") + 1)).drop("x").select("k"))
        assert len(job.job_graph.vertices) == 1

    def test_a_step_with_two_readers_ends_its_chain_and_they_share_its_result(self, rows):
        mapped = identity(rows)
        job = compiled(identity(mapped), identity(mapped).select("k"))
        assert [len(v.program.operators) for v in job.job_graph.vertices] == [1, 1, 2]
        first = job.job_graph.vertices[0]
        assert len(first.outputs) == 1
        assert job.job_graph.consumers(first.outputs[0]) == [1, 2]

    def test_two_partitionings_of_one_step_are_two_results_of_one_pass(self, rows):
        job = compiled(
            rows.key_by("k").apply_in_arrow(lambda t: t, "k bigint"),
            rows.key_by("w").apply_in_arrow(lambda t: t, "w bigint"),
        )
        assert [d.keys for d in job.job_graph.datasets if d.producer == 0] == [("k",), ("w",)]

    def test_equal_keys_share_a_result_unless_one_is_combined(self, rows):
        applied = [rows.key_by("k").apply_in_arrow(lambda t: t, "k bigint") for _ in range(2)]
        job = compiled(*applied, rows.key_by("k").aggregate({"v": "sum"}))
        assert len([d for d in job.job_graph.datasets if d.producer == 0]) == 2

    def test_sinks_and_collects_are_outputs_of_the_last_chain(self, env, rows, tmp_path):
        rows.write_parquet(tmp_path / "a")
        rows.select("k").write_parquet(tmp_path / "b")
        identity(rows).write_parquet(tmp_path / "c")
        job = env.compile()
        first = job.job_graph.vertices[0]
        assert isinstance(first.program.outputs[-1], SinkOutput)
        assert sum(isinstance(o, ResultOutput) for o in first.program.outputs) == 1
        assert len(job.job_graph.vertices) == 3
        assert sum(len(sinks) for sinks in job.sinks.values()) == 3

    @pytest.mark.parametrize("split", ["disable_chaining", "start_new_chain"])
    def test_chaining_can_be_refused(self, rows, split):
        step = identity(rows.select("k"))
        getattr(step, split)()
        job = compiled(step.filter(col("k") > 0))
        assert len(job.job_graph.vertices) == (3 if split == "disable_chaining" else 2)

    def test_another_parallelism_breaks_a_chain_the_same_does_not(self):
        env = ExecutionEnvironment()
        one, other = (env.from_collection([{"k": 1}]) for _ in range(2))
        assert len(compiled(identity(one).set_parallelism(3)).job_graph.vertices) == 2
        job = compiled(identity(identity(other.set_parallelism(3)).set_parallelism(3)).set_parallelism(3))
        assert [v.parallelism for v in job.job_graph.vertices] == [3]

    def test_a_sink_is_its_own_vertex_only_where_it_has_a_parallelism_of_its_own(self, env, rows, tmp_path):
        identity(rows.set_parallelism(2)).set_parallelism(2).write_parquet(tmp_path / "a")
        assert len(env.compile().job_graph.vertices) == 1
        env.close()
        identity(rows).set_parallelism(2).write_parquet(tmp_path / "b").set_parallelism(3)
        assert [v.parallelism for v in env.compile().job_graph.vertices] == [2, 3]

    def test_an_unspecified_partitioner_between_vertices_is_rescale_never_forward(self, rows):
        assert ships(compiled(identity(rows.set_parallelism(2)))) == [ShipStrategy.RESCALE]
        assert ships(compiled(identity(rows).start_new_chain())) == [ShipStrategy.RESCALE]

    def test_forward_is_a_chain_where_it_can_be_and_an_edge_where_not(self, rows):
        assert len(compiled(identity(rows.forward())).job_graph.vertices) == 1
        assert ships(compiled(identity(rows.forward()).start_new_chain())) == [ShipStrategy.FORWARD]

    def test_forward_takes_over_the_parallelism_of_the_step_before(self, rows):
        job = compiled(identity(rows.set_parallelism(4).forward()))
        assert [v.parallelism for v in job.job_graph.vertices] == [4]

    @pytest.mark.parametrize("ship", ["rebalance", "rescale", "broadcast", "global_"])
    def test_what_was_asked_for_is_an_edge(self, rows, ship):
        job = compiled(identity(getattr(rows, ship)()))
        assert ships(job) == [ShipStrategy(ship.rstrip("_"))]

    def test_the_last_partitioning_counts(self, rows):
        assert ships(compiled(identity(rows.rebalance().rescale()))) == [ShipStrategy.RESCALE]

    def test_places_name_the_users_lines(self, rows):
        job = compiled(identity(rows.select("k")))
        assert all(place.startswith("test_graph_compiler.py:") for place in job.places[0].split(", "))


class TestKeyed:
    def test_a_second_step_on_the_same_keys_needs_no_exchange(self, rows):
        once = rows.key_by("k", "w").aggregate({"v": "sum"})
        job = compiled(once.filter(col("v") > 0).key_by("w", "k").apply_in_arrow(lambda t: t, "x bigint"))
        assert ships(job) == [ShipStrategy.HASH]
        operator = job.job_graph.vertices[1].program.head.operator
        assert isinstance(operator, ComposedOperator)
        assert operator.keys == (("k", "w"),)

    @pytest.mark.parametrize(
        "between",
        [
            identity,  # a function may change the keys
            lambda s: s.with_column("k", col("k") + 1),
            lambda s: s.select("v", k=col("v")),
            lambda s: s.limit(5),
            lambda s: s.rebalance(),
            lambda s: s.set_parallelism(3),
            lambda s: s.disable_chaining(),
        ],
    )
    def test_but_does_where_the_keys_may_have_moved_or_chaining_is_off(self, rows, between):
        once = rows.key_by("k").aggregate({"v": "sum"})
        step = between(once).key_by("k").aggregate({"v": "max"})
        expected = 1 if step is None else 2
        found = ships(compiled(step)).count(ShipStrategy.HASH)
        if between(once)._pipeline.ship is not None:
            expected = 1  # key_by takes the place of rebalance(): the aggregate still lies right
        assert found == expected

    def test_renamed_keys_are_still_the_keys(self, rows):
        once = rows.key_by("k").aggregate({"v": "sum"}).select("v", key="k")
        assert ships(compiled(once.key_by("key").aggregate({"v": "max"}))) == [ShipStrategy.HASH]

    def test_apply_in_arrow_does_not_keep_the_keys(self, rows):
        once = rows.key_by("k").apply_in_arrow(lambda t: t, "k bigint, v double")
        assert ships(compiled(once.key_by("k").aggregate({"v": "max"}))) == [ShipStrategy.HASH] * 2

    def test_a_join_of_two_aggregates_on_its_keys_is_one_vertex(self, env, rows):
        other = env.from_collection([{"k": 1, "x": 2}])
        left = rows.key_by("k").aggregate({"v": "sum"})
        right = other.key_by("k").aggregate({"x": "sum"})
        job = compiled(left.key_by("k").join(right.key_by("k")))
        assert len(job.job_graph.vertices) == 3
        assert [edge.co_partitioned for edge in job.job_graph.vertices[2].inputs] == [True, True]

    def test_a_join_needs_the_keys_in_one_order_on_both_sides(self, env, rows):
        other = env.from_collection([{"k": 1, "w": 2}])
        left = rows.key_by("w", "k").aggregate({"v": "sum"})
        job = compiled(left.key_by("k", "w").join(other.key_by("k", "w")))
        assert {d.keys for d in job.job_graph.datasets if d.keys} == {("w", "k"), ("k", "w")}
        assert len(job.job_graph.vertices) == 4

    def test_an_aggregate_that_others_read_too_is_exchanged_again(self, rows):
        once = rows.key_by("k").aggregate({"v": "sum"})
        assert ships(compiled(once, once.key_by("k").aggregate({"v": "max"}))) == [ShipStrategy.HASH] * 2

    def test_the_inputs_of_a_union_are_hashed_directly(self, rows):
        union = rows.union(identity(rows))
        job = compiled(union.key_by("k").aggregate({"v": "sum"}))
        assert ships(job).count(ShipStrategy.HASH) == 2
        last = job.job_graph.vertices[-1]
        assert len(last.inputs) == 2
        assert all(edge.co_partitioned for edge in last.inputs)

    def test_a_self_join_reads_one_result_twice(self, rows):
        job = compiled(rows.key_by("k").join(rows.key_by("k"), suffix="_2"))
        assert len(job.job_graph.datasets) == 2
        assert [edge.dataset for edge in job.job_graph.vertices[1].inputs] == [0, 0]


class TestGlobal:
    @pytest.mark.parametrize(
        "step", [lambda s: s.limit(3), lambda s: s.top_k(3, "v"), lambda s: s.aggregate({"v": "sum"})]
    )
    def test_is_done_twice_the_second_time_in_one_subtask(self, rows, step):
        job = compiled(step(rows))
        assert ships(job) == [ShipStrategy.GLOBAL]
        assert [v.parallelism for v in job.job_graph.vertices] == [PARALLELISM_DEFAULT, 1]

    def test_what_follows_stays_in_that_subtask(self, rows):
        job = compiled(identity(rows.top_k(3, "v").limit(2)))
        assert len(job.job_graph.vertices) == 2

    def test_another_parallelism_for_it_is_an_error(self, rows):
        with pytest.raises(UsageError, match=r"limit\(3\).*has parallelism 2.*one subtask"):
            compiled(rows.limit(3).set_parallelism(2))


class TestUnionsAndSides:
    def test_a_union_is_read_by_its_reader(self, rows):
        job = compiled(identity(rows.union(identity(rows), rows)))
        last = job.job_graph.vertices[-1]
        assert isinstance(last.program.head, GateHead)
        assert len(last.inputs) == 3

    def test_a_union_is_partitioned_as_asked_for_on_it(self, rows):
        job = compiled(identity(rows.union(identity(rows)).rebalance()))
        assert ships(job).count(ShipStrategy.REBALANCE) == 2

    def test_a_collected_union_is_one_result(self, rows):
        job = compiled(rows.union(identity(rows)))
        assert names(job)[-1] == "union -> collect"

    def test_unions_of_unions_stay_of_a_bounded_size(self, rows):
        doubled = rows
        for _ in range(40):
            doubled = doubled.union(doubled)
        job = compiled(doubled)
        assert max(len(v.inputs) for v in job.job_graph.vertices) <= 128
        grown = rows
        for _ in range(300):
            grown = grown.union(rows)
        assert len(compiled(grown).job_graph.vertices) < 10

    def test_columns_that_are_nullable_on_one_side_are_in_the_union(self, env):
        one = env.from_arrow(pa.table({"a": [1]}, schema=pa.schema([pa.field("a", pa.int64(), nullable=False)])))
        two = env.from_collection([{"a": 2}])
        union = one.union(two)
        assert union.schema.field("a").nullable
        job = compiled(identity(union))
        assert all(schema.field("a").nullable for schema in job.schemas.values())

    def test_side_inputs_are_broadcast_gates_behind_the_others(self, env, rows):
        small = env.from_collection([{"x": 1}])
        job = compiled(identity(rows).rebalance().with_broadcast(small=small).map_in_arrow(same, "k bigint"))
        last = job.job_graph.vertices[-1]
        assert last.program.side_inputs == (("small", 1),)
        assert [job.job_graph.datasets[e.dataset].ship for e in last.inputs] == [
            ShipStrategy.REBALANCE,
            ShipStrategy.BROADCAST,
        ]
        assert not last.inputs[1].co_partitioned

    def test_a_source_takes_side_inputs_into_its_task(self, env, rows):
        small = env.from_collection([{"x": 1}])
        job = compiled(rows.with_broadcast(small=small).map_in_arrow(same, "k bigint"))
        assert len(job.job_graph.vertices) == 2
        last = job.job_graph.vertices[1]
        assert last.source is not None
        assert ships(job) == [ShipStrategy.BROADCAST]
        assert last.program.side_inputs == (("small", 0),)

    def test_one_name_for_two_side_inputs_breaks_the_chain(self, env, rows):
        a, b = env.from_collection([{"x": 1}]), env.from_collection([{"x": 2}])
        first = rows.with_broadcast(small=a).map_in_arrow(same, rows.schema)
        again = compiled(first.with_broadcast(small=a).map_in_arrow(same, rows.schema))
        other = compiled(first.with_broadcast(small=b).map_in_arrow(same, rows.schema))
        assert len(again.job_graph.vertices) == 2
        assert len(other.job_graph.vertices) == 4

    def test_a_side_input_of_a_keyed_function(self, env, rows):
        small = env.from_collection([{"x": 1}])
        keyed = rows.with_broadcast(small=small).key_by("k").apply_in_arrow(lambda t, small: t, "k bigint")
        last = compiled(keyed).job_graph.vertices[-1]
        assert isinstance(last.program.head, KeyedHead)
        assert last.program.side_inputs == (("small", 1),)


class TestSettings:
    def test_the_smallest_maximum_of_a_chain_counts(self, rows):
        job = compiled(identity(rows.select("k").set_max_parallelism(8)).set_max_parallelism(4))
        assert [v.max_parallelism for v in job.job_graph.vertices] == [4]

    def test_a_maximum_below_the_parallelism_is_an_error(self, rows):
        with pytest.raises(UsageError, match="max parallelism 2, below the parallelism 4"):
            compiled(identity(rows).set_parallelism(4).set_max_parallelism(2))

    def test_forward_between_two_parallelisms_is_an_error(self, rows):
        with pytest.raises(UsageError, match=r"parallelism 2 and .* has 3.*forward"):
            compiled(identity(rows.set_parallelism(2).forward()).set_parallelism(3))

    def test_uids_are_the_users_or_the_same_in_every_run(self, rows):
        assert compiled(identity(rows).uid("mine")).job_graph.vertices[0].uid == "mine"
        env = ExecutionEnvironment()
        again = env.from_collection([{"k": 1, "v": 2.0, "w": 3}])
        assert (
            compiled(identity(rows.rebalance())).job_graph.vertices[1].uid
            == compiled(identity(again.rebalance())).job_graph.vertices[1].uid
        )

    def test_a_uid_given_twice_is_an_error(self, rows):
        with pytest.raises(UsageError, match="same uid 'x'"):
            compiled(identity(rows.uid("x")).uid("x"))

    def test_names(self, rows):
        assert names(compiled(identity(rows.name("numbers")).name("copy"))) == ["numbers -> copy -> collect"]

    def test_nothing_to_execute(self, env):
        with pytest.raises(UsageError, match="nothing to execute"):
            env.compile()

    @pytest.mark.parametrize(
        ("key", "value", "why"),
        [
            ("jobmanager.scheduler", "Adaptive", "scheduler of streams"),
            ("execution.batch-shuffle-mode", "ALL_EXCHANGES_PIPELINED", "AdaptiveBatch, the scheduler unless"),
        ],
    )
    def test_what_a_batch_job_cannot_have_is_refused_with_the_reason(self, rows, key, value, why):
        with pytest.raises(UsageError, match=why):
            compiled(rows, **{key: value})


class Numbers:
    """A source of one's own that wishes for a parallelism and must not be read twice at a time."""

    name = "numbers"
    schema = pa.schema([("n", pa.int64())])
    supports_concurrent_execution_attempts = False

    def list_splits(self, data_volume):
        return [Split(n, 8, f"number {n}") for n in range(5)]

    def read(self, split, ctx):
        yield pa.record_batch([pa.array([split])], schema=self.schema)

    def infer_parallelism(self, upper_bound, data_volume):
        return upper_bound


class TestSources:
    def test_splits_wish_and_attempts_of_a_source(self, env):
        job = compiled(env.from_source(Numbers()), **{"default-source-parallelism": 3})
        vertex = job.job_graph.vertices[0]
        assert vertex.source.split_bytes.tolist() == [8] * 5
        assert vertex.source.inferred_parallelism == 3
        assert not vertex.supports_concurrent_attempts

    def test_mistakes_of_a_source_are_the_users(self, env):
        broken = Numbers()
        broken.list_splits = lambda data_volume: 1 / 0
        with pytest.raises(UsageError, match=r"of step 'from_source\(numbers\)' at .* failed: ZeroDivisionError"):
            compiled(env.from_source(broken))
        broken.list_splits = lambda data_volume: [3]
        with pytest.raises(UsageError, match=r"gave 3, which is not a firesteel.Split"):
            compiled(env.from_source(broken))

    def test_an_output_that_exists_is_found_when_compiling(self, env, rows, tmp_path):
        rows.write_parquet(tmp_path)
        with pytest.raises(UsageError, match=r"exists already.*step 'write_parquet.*test_graph_compiler.py:"):
            env.compile()

    def test_a_truncated_file_is_named_with_the_step(self, env, tmp_path):
        pq.write_table(pa.table({"a": [1]}), tmp_path / "x.parquet")
        data = (tmp_path / "x.parquet").read_bytes()
        (tmp_path / "x.parquet").write_bytes(data[:-9])
        with pytest.raises(UsageError, match=r"In step 'read_parquet' at test_graph_compiler.py:.*x.parquet"):
            env.read_parquet(tmp_path)


def test_an_output_is_not_part_of_an_input(env, tmp_path):
    source = tmp_path / "in"
    source.mkdir()
    pq.write_table(pa.table({"x": [1]}), source / "a.parquet")
    rows = env.read_parquet(source)
    rows.write_parquet(source / "out")
    with pytest.raises(
        UsageError, match=r"lies in .*/in, which .*read_parquet in.* reads: it would read its own output"
    ):
        compile_job(env._sinks, env.options, "job")


def test_an_overwritten_output_does_not_hold_the_input(env, tmp_path):
    (tmp_path / "all" / "in").mkdir(parents=True)
    pq.write_table(pa.table({"x": [1]}), tmp_path / "all" / "in" / "a.parquet")
    env.read_parquet(tmp_path / "all" / "in").write_parquet(tmp_path / "all", mode="overwrite")
    with pytest.raises(UsageError, match=r"would replace all of .*/all, in which .*/in lies"):
        compile_job(env._sinks, env.options, "job")
