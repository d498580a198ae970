"""The names that a PySpark user looks for: the steps that there are, and what is said of the others."""

from __future__ import annotations

import re
from inspect import signature

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from firesteel import DataStream, ExecutionEnvironment, KeyedStream, agg, col
from firesteel.api.unknown_names import ELSEWHERE, ELSEWHERE_KEYED
from firesteel.errors import UsageError


@pytest.fixture
def env():
    return ExecutionEnvironment()


@pytest.fixture
def rows(env):
    return env.from_collection([{"k": 1, "v": 2.0, "name": "a"}])


def test_functions_are_imported_as_those_of_pyspark_are():
    import firesteel.functions as module
    from firesteel import functions
    from firesteel.arrow import lit
    from firesteel.functions import upper

    assert module is functions and upper is functions.upper and lit(1).equals(pc.scalar(1))


def test_camel_case_names_are_the_same_steps():
    for camel, snake in {
        "flatMap": "flat_map", "where": "filter", "withColumn": "with_column", "withColumns": "with_columns",
        "withColumnRenamed": "with_column_renamed", "withColumnsRenamed": "rename", "groupBy": "key_by",
        "dropDuplicates": "drop_duplicates", "unionAll": "union", "toPandas": "to_pandas",
        "isEmpty": "is_empty", "printSchema": "print_schema", "unpersist": "uncache",
    }.items():  # fmt: skip
        assert getattr(DataStream, camel) is getattr(DataStream, snake), camel


@pytest.mark.parametrize("name", sorted(ELSEWHERE))
def test_other_names_say_what_to_write(rows, name):
    assert not hasattr(DataStream, name), f"{name} is a step by now"
    assert not hasattr(rows, name)
    with pytest.raises(UsageError, match=f"A stream has no {name}") as raised:
        getattr(rows, name)
    assert raised.value.hint == ELSEWHERE[name]


def test_names_of_steps_in_hints_exist():
    """What a hint tells to write can be written."""
    import re

    for table, owners in ((ELSEWHERE, (DataStream, KeyedStream)), (ELSEWHERE_KEYED, (DataStream, KeyedStream))):
        for name, hint in table.items():
            if hint.startswith("Use to_dataframe"):
                continue
            first = re.match(r"(?:Write|Seldom) (?:a\.)?(\w+)\(", hint)
            if first is not None:
                assert any(hasattr(owner, first[1]) for owner in owners) or first[1] in ("sort", "range_partition"), (
                    name
                )


def test_unknown_names(rows):
    with pytest.raises(AttributeError, match=r"no fliter. Did you mean filter"):
        _ = rows.fliter
    with pytest.raises(AttributeError, match=r"no name_. Did you mean name"):
        _ = rows.name_
    with pytest.raises(AttributeError, match=r'no v. A column is col\("v"\)'):
        _ = rows.v
    with pytest.raises(AttributeError, match="no attribute '_nothing'"):
        _ = rows._nothing
    with pytest.raises(UsageError, match=r"keyed stream has no transformWithState. A running"):
        _ = rows.key_by("k").transformWithState


def test_columns(rows):
    assert rows.with_columns(m=col("k") + 1, k=col("v")).schema == pa.schema({
        "k": pa.float64(), "v": pa.float64(), "name": pa.string(), "m": pa.int64()})  # fmt: skip
    assert rows.withColumns({"a b": col("k")}).columns == ["k", "v", "name", "a b"]
    assert rows.rename({"k": "v", "v": "k"}).columns == ["v", "k", "name"]
    assert rows.rename({"k": "v", "v": "k"}).schema.field("v").type == pa.int64()
    assert rows.withColumnRenamed("k", "key").columns == ["key", "v", "name"]
    assert rows.drop_nulls().schema == rows.dropna().schema == rows.schema
    assert rows.fillna(0).columns == rows.fill_nulls({"name": "x", "k": 1}).columns == rows.columns
    assert rows.groupBy("k").count().schema == pa.schema({"k": pa.int64(), "count": pa.int64()})
    by_key = rows.groupBy("k").agg({"v": "mean", "*": "count", "name": "max"}, most=agg.max("v"))
    assert by_key.columns == ["k", "avg(v)", "count(1)", "max(name)", "most"]
    assert rows.groupBy("k").sum().columns == ["k", "sum(v)"]
    assert rows.groupBy("name").max("k", "v").columns == ["name", "max(k)", "max(v)"]
    assert rows.key_by("k").aggregate({"v": "mean"}).columns == ["k", "v"]
    assert rows.transform(lambda stream, name: stream.drop(name), "v").columns == ["k", "name"]
    assert rows.describe().columns == ["summary", "k", "v", "name"]
    assert rows.summary("max").schema.types == [pa.string()] * 4


def test_union_by_name(env, rows):
    other = env.from_collection([{"name": "b", "v": 1.0, "k": 1}])
    assert rows.unionByName(other).columns == ["k", "v", "name"]
    more = env.from_collection([{"z": 1, "k": 1}])
    assert rows.union_by_name(more, allow_missing_columns=True).columns == ["k", "v", "name", "z"]
    with pytest.raises(UsageError, match="The first stream has no column 'z'"):
        rows.union_by_name(more)
    with pytest.raises(UsageError, match="The second stream has no column 'name'"):
        rows.union_by_name(other.drop("name"))


def test_print_schema(env, capsys):
    schema = pa.schema(
        {"a": pa.int64(), "s": pa.struct({"x": pa.list_(pa.string())}), "m": pa.map_(pa.string(), pa.int8())}
    )
    env.from_collection([], schema).print_schema()
    assert capsys.readouterr().out.splitlines() == [
        "root", " |-- a: int64 (nullable = true)", " |-- s: struct (nullable = true)",
        " |    |-- x: list (nullable = true)", " |    |    |-- element: string (nullable = true)",
        " |-- m: map (nullable = true)", " |    |-- key: string (nullable = false)", " |    |-- value: int8 (nullable = true)",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda s: s.sample(1.5), "at least 0 and at most 1, not 1.5"),
        (lambda s: s.sample(False, 0.5), "not False"),
        (lambda s: s.sample(0.5, "x"), "seed of a sample is a whole number"),
        (lambda s: s.describe("nope"), "no column 'nope'"),
        (lambda s: s.describe("k").describe("summary"), "names its first column 'summary'"),
        (lambda s: s.summary("25%"), "no '25%'.*agg.percentile"),
        (lambda s: s.select(x=col("k") > 0).describe(), "no column of numbers or strings"),
        (lambda s: s.repartition(0), "at least 1, not 0"),
        (lambda s: s.repartition(2, "x"), "no column 'x'"),
        (lambda s: s.coalesce("k"), "fill_nulls"),
        (lambda s: s.with_columns(), "no column to add"),
        (lambda s: s.with_columns(x="k"), r"with_columns wants an expression.*col\('k'\)"),
        (lambda s: s.with_columns([1]), "wants a mapping"),
        (lambda s: s.rename({"x": "y"}), "no column 'x'"),
        (lambda s: s.rename({"k": "v"}), "'v' is given twice"),
        (lambda s: s.rename("k"), "wants a mapping"),
        (lambda s: s.drop_nulls("x"), "no column 'x'"),
        (lambda s: s.drop_nulls(how="some"), "how='some'"),
        (lambda s: s.fill_nulls("x", "k"), "'x' is not a value for column 'k', which is int64"),
        (lambda s: s.fill_nulls(1.5), "1.5 is not a value for column 'k'"),
        (lambda s: s.fill_nulls(None), "None is a null"),
        (lambda s: s.fill_nulls(True), "no column takes True"),
        (lambda s: s.drop_duplicates("x"), "no column 'x'"),
        (lambda s: s.union_by_name(3), "wants a stream"),
        (lambda s: s.key_by("k").with_broadcast(x=s).count(), "is not used"),
    ],
)
def test_errors_name_the_step_and_the_line(rows, build, said):
    line = build.__code__.co_firstlineno
    with pytest.raises(UsageError, match=said) as raised:
        build(rows)
    assert f" at test_api_names.py:{line}: " in str(raised.value)


def test_repartition_is_chained_with_what_follows(rows, tmp_path):
    rows.repartition(3).filter(col("k") > 0).write_parquet(tmp_path / "a")
    job = rows._pipeline.env.compile().job_graph
    last = job.vertices[-1]
    assert (last.parallelism, last.name.split(" -> ")[:2]) == (3, ["repartition(3)", "filter"])
    assert [d.ship.value for d in job.datasets] == ["rebalance"]


def test_repartition_by_columns_needs_no_second_exchange(rows, tmp_path):
    rows.repartition(3, "k").key_by("k").apply_in_arrow(lambda t: t, rows.schema).write_parquet(tmp_path / "a")
    job = rows._pipeline.env.compile().job_graph
    assert [d.ship.value for d in job.datasets] == ["hash"]
    assert job.vertices[-1].parallelism == 3


def test_coalesce_and_a_parallelism_of_ones_own(rows, tmp_path):
    rows.coalesce(1).map(lambda r: r, rows.schema).set_parallelism(2).write_parquet(tmp_path / "a")
    job = rows._pipeline.env.compile().job_graph
    assert [(v.parallelism, v.name.split("(")[0]) for v in job.vertices[1:]] == [(1, "coalesce"), (2, "map")]
    assert job.datasets[0].ship.value == "rescale"


def test_an_environment_says_what_to_write_for_a_sessions_names():
    env = ExecutionEnvironment()
    for name, hint in (("read", "read_parquet"), ("table", "SELECT"), ("from_colection", "from_collection?")):
        with pytest.raises(UsageError, match=f"no {name}.*{re.escape(hint)}"):
            getattr(env, name)
    assert not hasattr(env, "nonsense")
    assert not hasattr(env, "_nothing")


def test_a_stream_is_not_subscriptable(rows):
    with pytest.raises(UsageError, match=r'col\("k"\)'):
        rows["k"]
    with pytest.raises(UsageError, match="collect"):
        list(rows)


def test_the_layout_of_files_is_asked_for_alike_and_nothing_else_is_taken(rows, tmp_path):
    of = {name: signature(getattr(DataStream, f"write_{name}")).parameters for name in ("csv", "parquet", "iceberg")}
    shared = ["mode", "partition_by", "file_size", "max_file_size"]
    buckets = ["bucket_by", "sort_by"]
    assert list(of["parquet"]) == ["self", "path", *buckets, "compression", "merge_schema", *shared, "filesystem"]
    assert list(of["iceberg"]) == ["self", "table", "catalog", "compression", *shared]
    assert (of["csv"]["mode"].default, of["csv"]["mode"].annotation) == ("error", "str")
    with pytest.raises(TypeError, match=r"write_csv\(\) got an unexpected keyword argument 'modus'"):
        rows.write_csv(tmp_path / "out", modus="append")
    with pytest.raises(TypeError, match=r"write_iceberg\(\) got an unexpected keyword argument 'filesystem'"):
        rows.write_iceberg("a.b", filesystem=None)
