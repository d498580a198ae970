"""Building pipelines: schemas, errors with the user's place, settings, what needs no Spark."""

from __future__ import annotations

import sys

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import types as T

import firesteel
from firesteel import DataStream, ExecutionEnvironment, col, lit
from firesteel import arrow as A
from firesteel.api.environment import set_defaults
from firesteel.api.steps.actions import as_text
from firesteel.errors import UsageError
from firesteel.options import MAX_PARALLELISM, PROGRESS


@pytest.fixture
def env():
    return ExecutionEnvironment()


@pytest.fixture
def rows(env):
    return env.from_collection([{"k": 1, "v": 2.0, "name": "a"}])


def f(batches):
    yield from batches


class TestSchemas:
    def test_of_sources(self, env, tmp_path):
        (tmp_path / "a.txt").write_text("x\n")
        assert env.read_text(tmp_path).schema == pa.schema([("value", pa.string())])
        assert env.read_text(tmp_path, path_column="file").columns == ["value", "file"]
        assert env.from_collection([1, 2]).schema == pa.schema([("value", pa.int64())])
        assert env.from_collection([(1, "a")], "n int, s string").schema.field("n").type == pa.int32()
        assert env.from_collection([(1, "a")], ["n", "s"]).columns == ["n", "s"]
        assert env.from_pandas(pd.DataFrame({"x": [1.5]})).schema.field("x").type == pa.float64()
        assert env.from_arrow(pa.table({"x": pa.array([1], pa.int8())})).schema.field("x").type == pa.int8()

    def test_of_functions(self, rows):
        for schema in ("x int", pa.schema([("x", pa.int32())]), T.StructType([T.StructField("x", T.IntegerType())])):
            for step in (rows.map_in_arrow, rows.mapInArrow, rows.map_in_pandas, rows.mapInPandas):
                assert step(f, schema).schema == pa.schema([("x", pa.int32())])
            keyed = rows.key_by("k")
            for step in (keyed.apply_in_arrow, keyed.applyInArrow, keyed.apply_in_pandas, keyed.applyInPandas):
                assert step(lambda t: t, schema).columns == ["x"]

    def test_of_columns(self, rows):
        assert rows.select("v", col("k"), x=col("k") + 1).columns == ["v", "k", "x"]
        assert rows.select(["k", "v"]).columns == ["k", "v"]
        assert rows.select("*", x=col("v")).columns == ["k", "v", "name", "x"]
        assert rows.with_column("k", lit("s")).schema.field("k").type == pa.string()
        assert rows.with_column("z", pc.utf8_upper(A.col("name"))).columns == ["k", "v", "name", "z"]
        assert rows.drop("v").columns == ["k", "name"]
        assert rows.filter(col("v") > 1).schema == rows.schema

    def test_of_nested_columns(self, env):
        rows = env.from_collection([{"s": {"a": 1}}])
        assert rows.select(a=col("s.a")).schema.field("a").type == pa.int64()

    def test_of_aggregates(self, rows):
        keyed = rows.key_by("k")
        assert keyed.aggregate({"v": "sum"}).columns == ["k", "v"]
        assert keyed.aggregate({"v": ["min", "max"]}, n=("*", "count"), m=("v", "mean")).columns == [
            "k",
            "v_min",
            "v_max",
            "n",
            "m",
        ]
        assert rows.aggregate({"v": "sum"}).columns == ["v"]

    def test_of_joins(self, env, rows):
        other = env.from_collection([{"k2": 1, "v": 1, "z": 2}])
        joined = rows.key_by("k").join(other.key_by("k2"), "left outer")
        assert joined.columns == ["k", "v", "name", "v_right", "z"]
        assert rows.key_by("k").join(other.key_by("k2"), suffix="_2").columns[3] == "v_2"
        assert rows.key_by("k").join(other.key_by("k2"), "left_semi").schema == rows.schema

    def test_of_the_rest(self, rows):
        assert rows.union(rows).schema == rows.distinct().schema == rows.limit(1).schema == rows.top_k(1, "v").schema
        assert rows.rebalance().broadcast().columns == rows.columns


class TestErrors:
    @pytest.mark.parametrize(
        ("build", "said"),
        [
            (lambda s: s.select("vv"), "no column 'vv'.*Did you mean 'v'.*k, v, name"),
            (lambda s: s.select(col("v") * 1e20), r"has no name.*alias"),
            (lambda s: s.select(A.col("v") + 1), r"has no name.*select\(name="),
            (lambda s: s.select(), "Nothing is selected"),
            (lambda s: s.select("k", k=col("v")), "'k' is given twice"),
            (lambda s: s.select(x=A.col("name") + 1), "cannot be computed"),
            (lambda s: s.filter(col("v") + 1), "must be true or false"),
            (lambda s: s.filter(3), "expression or a column name"),
            (lambda s: s.map(3, "x int"), "wants a function, not 3"),
            (lambda s: s.map(f, "x intt"), "no type 'intt'"),
            (lambda s: s.map(f, pa.schema({"x": pa.sparse_union([pa.field("a", pa.int64())])})), "made of Python values"),
            (lambda s: s.key_by("k").reduce("sum"), "wants a function"),
            (lambda s: s.with_broadcast(x=s).reduce(f), "is not used"),
            (lambda s: s.with_column("x", "v"), r"col\('v'\) for the column"),
            (lambda s: s.drop("k", "v", "name"), "No column would be left"),
            (lambda s: s.drop("x"), "no column 'x'"),
            (lambda s: s.map_in_arrow(3, "x int"), "wants a function, not 3"),
            (lambda s: s.map_in_arrow(f, "x intt"), "no type 'intt'"),
            (lambda s: s.key_by(), "at least one column"),
            (lambda s: s.key_by("k").join(s.key_by("k"), on="k"), r"In step 'join' at .*: join takes no on='k'"),
            (lambda s: s.key_by("key"), "no column 'key'"),
            (lambda s: s.key_by("k", "k"), "names a column twice"),
            (lambda s: s.key_by(A.col("k")), r'key_by\("k"\)'),
            (lambda s: s.key_by("k").aggregate({}), "nothing to aggregate"),
            (lambda s: s.key_by("k").aggregate({"v": "summ"}), "Did you mean 'sum'"),
            (lambda s: s.key_by("k").aggregate({"name": "sum"}), "sum does not work on column 'name'"),
            (lambda s: s.key_by("k").aggregate({"v": 3}), "cannot be understood"),
            (lambda s: s.key_by("k").aggregate({"k": "count"}), "occurs twice"),
            (lambda s: s.key_by("k").aggregate("v"), "wants a mapping"),
            (lambda s: s.key_by("k").apply_in_arrow(lambda: 1, "x int"), "takes 0 arguments"),
            (lambda s: s.key_by("k").join(s), r"a.key_by\(...\).join\(b.key_by"),
            (lambda s: s.key_by("k").join(3), "not int"),
            (lambda s: s.key_by("k").join(s.key_by("name")), "cannot be compared"),
            (lambda s: s.key_by("k").join(s.key_by("k", "v")), "as many keys"),
            (lambda s: s.key_by("k").join(s.key_by("k"), "outerr"), "no join of kind 'outerr'"),
            (lambda s: s.key_by("k").cogroup(s), r"a.key_by\(...\).cogroup"),
            (lambda s: s.union(s.select("k")), "stream 2 has k"),
            (lambda s: s.union(s.with_column("v", lit(1))), "'v' is double in stream 1 and int32 in stream 2"),
            (lambda s: s.union(3), "wants streams"),
            (lambda s: s.limit(-1), "at least 0, not -1"),
            (lambda s: s.limit(True), "not True"),
            (lambda s: s.top_k(3), "columns to order by"),
            (lambda s: s.with_broadcast(), "at least one name=stream"),
            (lambda s: s.with_broadcast(x=3), "wants a stream, not int"),
            (lambda s: s.with_broadcast(x=s).filter(col("v") > 1), r"with_broadcast\(x=...\) is not used"),
            (lambda s: s.with_broadcast(x=s).with_broadcast(x=s), "'x' already"),
            (lambda s: s.write_to(3), "is not a sink"),
            (lambda s: s.write_text("/tmp/never", mode="maybe"), "mode='maybe'"),
        ],
    )  # fmt: skip
    def test_name_the_step_and_the_users_line(self, rows, build, said):
        line = build.__code__.co_firstlineno
        with pytest.raises(UsageError, match=said) as raised:
            build(rows)
        assert f" at test_api_streams.py:{line}: " in str(raised.value)

    def test_a_pyspark_column_gets_a_sentence(self, rows):
        class Column:
            __module__ = "pyspark.sql.classic.column"

        for use in (
            lambda: rows.filter(Column()),
            lambda: rows.select(x=Column()),
            lambda: rows.with_column("x", Column()),
        ):
            with pytest.raises(UsageError, match=r"PySpark [Cc]olumn"):
                use()

    @pytest.mark.parametrize("how", ["rebalance", "rescale", "forward", "broadcast", "global_"])
    def test_settings_need_a_step(self, rows, how):
        with pytest.raises(UsageError, match="has no step to set it on"):
            getattr(rows, how)().set_parallelism(2)
        with pytest.raises(UsageError, match=r"behind union\(\)"):
            rows.union(rows).name("x")

    def test_settings_are_checked(self, rows):
        with pytest.raises(
            UsageError, match=r"In step 'set_parallelism' at test_api_streams.py:\d+: .*at least 1, not 0"
        ):
            rows.set_parallelism(0)
        with pytest.raises(UsageError, match="at least 1, not 'a'"):
            rows.set_max_parallelism("a")

    def test_streams_of_two_environments_do_not_mix(self, rows):
        with pytest.raises(UsageError, match="two environments"):
            rows.union(ExecutionEnvironment().from_collection([1]))

    def test_sources(self, env):
        with pytest.raises(UsageError, match=r"In step 'read_text' at test_api_streams.py:.*Nothing matches"):
            env.read_text("/nowhere/*.py")
        with pytest.raises(UsageError, match="is not a source: it has no method list_splits, read"):
            env.from_source(3)
        with pytest.raises(UsageError, match="wants a Spark DataFrame, not int"):
            env.from_dataframe(3)
        with pytest.raises(UsageError, match="Row 1"):
            env.from_collection([{"a": 1}, 3])


class TestSettings:
    def test_are_set_on_the_last_step_and_give_the_stream_back(self, rows):
        step = rows.select("k")
        assert step.name("keys").uid("u").set_parallelism(3).set_max_parallelism(9).disable_chaining() is step
        assert (step._pipeline.node.config.name, step._pipeline.node.config.parallelism) == ("keys", 3)
        assert rows._pipeline.node.config.parallelism is None

    def test_a_step_leaves_the_stream_before_it_as_it_was(self, rows):
        rows.rebalance()
        rows.with_broadcast(x=rows)
        assert rows._pipeline.ship is None
        assert rows._pipeline.sides == ()

    def test_repr_names_columns_and_step(self, rows):
        assert repr(rows.select("k")) == "DataStream[k: int64] of select"
        assert repr(rows.key_by("k")).startswith("KeyedStream[k] of DataStream[")


class TestEnvironment:
    def test_options(self):
        env = ExecutionEnvironment(options={"max-parallelism": 7})
        assert env.options[MAX_PARALLELISM] == 7
        with pytest.raises(UsageError, match="no option 'max-paralelism'"):
            ExecutionEnvironment(options={"max-paralelism": 7})
        with pytest.raises(UsageError, match="session and a master"):
            ExecutionEnvironment(object(), master="local")
        with pytest.raises(UsageError, match="master="):
            ExecutionEnvironment("local[2]")

    def test_options_of_another_environment_can_be_given(self):
        delay = "restart-strategy.fixed-delay.delay"
        first = ExecutionEnvironment(options={delay: "2 s"})
        assert ExecutionEnvironment(options=first.options).options[delay] == 2.0

    def test_long_lists_of_aggregates_have_short_names(self, rows):
        many = rows.key_by("k").aggregate({f"x{i}": ("v", "sum") for i in range(60)})
        assert many._pipeline.node.kind == "aggregate(x0, x1, x2 and 57 more)"

    def test_defaults_fill_what_the_program_leaves_open(self):
        set_defaults(master="local[3]", options={"max-parallelism": 5, "firesteel.progress": False})
        try:
            env = ExecutionEnvironment.get_or_create(options={"max-parallelism": 6})
            assert (env.options[MAX_PARALLELISM], env.options[PROGRESS], env._master) == (6, False, "local[3]")
            assert ExecutionEnvironment.get_or_create("local[3]", {"max-parallelism": 8}) is env
            assert (env.options[MAX_PARALLELISM], env.options[PROGRESS]) == (8, False)
            with pytest.raises(UsageError, match=r"that there is runs on local\[3\], not on local\[1\]"):
                ExecutionEnvironment.get_or_create("local[1]")
            env.close()
            assert ExecutionEnvironment.get_or_create("local[1]")._master == "local[1]"
        finally:
            ExecutionEnvironment.get_or_create().close()
            set_defaults()
        assert ExecutionEnvironment().options[MAX_PARALLELISM] == 128

    def test_the_name_of_a_job_is_a_string(self, env):
        with pytest.raises(UsageError, match="name of a job is a string, not 7"):
            env.execute(7)

    def test_sinks_are_forgotten_even_when_execute_fails(self, env, rows, tmp_path):
        rows.write_parquet(tmp_path)  # exists
        with pytest.raises(UsageError, match="exists already"):
            env.execute()
        with pytest.raises(UsageError, match="nothing to execute"):
            env.execute()

    def test_compile_and_explain_keep_them(self, env, rows, tmp_path):
        rows.key_by("k").aggregate({"v": "sum"}).write_parquet(tmp_path / "out").name("totals")
        assert env.explain() == env.explain()
        assert env.explain().splitlines()[2:] == [
            "[1] aggregate(v) -> totals: parallelism decided when it runs",
            "    reads [0], hash by k",
        ]

    def test_building_makes_no_session(self, rows):
        assert rows.key_by("k").aggregate({"v": "sum"}).explain()
        assert rows._pipeline.env._session is None

    def test_with_forgets_sinks(self, tmp_path):
        with ExecutionEnvironment() as env:
            env.from_collection([1]).write_parquet(tmp_path / "x")
        assert env._sinks == []


class TestShow:
    def test_numbers_to_the_right_values_cut(self):
        table = pa.table({"word": ["a" * 30, None], "n": [1, 20]})
        assert as_text(table, 8, more=True).splitlines() == [
            "+----------+----+",
            "| word     |  n |",
            "+----------+----+",
            "| aaaaa... |  1 |",
            "| null     | 20 |",
            "+----------+----+",
            "only the first 2 rows are shown",
        ]

    def test_no_rows_bytes_and_line_ends(self):
        assert as_text(pa.table({"a": pa.array([], pa.int64())})).count("\n") == 3
        assert "| 61 62 | x\\ny |" in as_text(pa.table({"b": [b"ab"], "s": ["x\ny"]}))


class TestFacade:
    def test_public_names(self):
        assert firesteel.__all__ == sorted(firesteel.__all__, key=lambda n: (n[0].islower(), n))
        assert set(firesteel.__all__) == {
            "Acceleration", "BroadcastStream", "ConsumedResult", "DataStream", "Decided", "ExecutionEnvironment", "History", "JobClient",
            "JobResult", "KeyedStream", "Row", "Sink", "SinkWriter", "SlotSharingGroup", "SlowTaskBaseline", "SlowTaskStrategy",
            "Source", "Split", "StepTimes", "TaskResources", "UndecidedStep", "VertexParallelismDecider", "accelerate", "agg", "arrow", "col",
            "decide",
            "errors", "functions", "lit", "shared", "task_resources", "window",
        }  # fmt: skip
        for name in firesteel.__all__:
            assert getattr(firesteel, name) is not None
        assert set(firesteel.__all__) <= set(dir(firesteel))
        with pytest.raises(AttributeError, match="no attribute 'nothing'"):
            _ = firesteel.nothing

    def test_pyspark_names_are_the_same_methods(self):
        assert DataStream.mapInArrow is DataStream.map_in_arrow
        assert firesteel.KeyedStream.applyInPandas is firesteel.KeyedStream.apply_in_pandas

    def test_places_skip_our_own_frames(self, rows):
        line = sys._getframe().f_lineno + 1
        step = rows.select("k")
        assert step._pipeline.node.place == f"test_api_streams.py:{line}"
        assert str(step._pipeline.node) == f"step 'select' at test_api_streams.py:{line}"
