"""Data sets outside of a job by name, and the columns that come from their columns."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from firesteel import ExecutionEnvironment, agg
from firesteel.arrow import col
from firesteel.connectors.files.paths import MOST, Location, dataset_of, dataset_of_url, datasets_of
from firesteel.connectors.memory import TableSource
from firesteel.errors import UsageError
from firesteel.scheduler.topology.planned import planned

ROWS = pa.table({"k": [1, 2], "a": [1.0, 2.0], "b": [3, 4], "text": ["x", "y"]})


class Named(TableSource):
    """A table in memory under the name of a database's."""

    def __init__(self, table, *names):
        super().__init__(table)
        self._names = names

    def datasets(self):
        return list(self._names)


@pytest.fixture
def env():
    return ExecutionEnvironment(options={"firesteel.lineage.openlineage.enabled": True})


@pytest.fixture
def source(env):
    return env.from_source(Named(ROWS, ("db://h:1", "t")))


def origins(env, stream, tmp_path):
    """By column of what is written: source column and how; and those that decide on rows."""
    stream.write_parquet(tmp_path / "out")
    (output,) = env.compile().external.outputs
    told = {name: {(o.column, o.how) for o in found} for name, found in output.origins.items()}
    return told, {(o.column, o.how) for o in output.decided_by}


def test_files_are_named_by_what_was_given(env, tmp_path):
    (tmp_path / "in").mkdir()
    pq.write_table(ROWS, tmp_path / "in" / "a.parquet")
    env.read_parquet(tmp_path / "in").select("k").write_csv(tmp_path / "out")
    compiled = env.compile()
    told = planned(compiled.job_graph, "j", env.options, compiled.external)
    (read,), (written,) = told.inputs, told.outputs
    columns = [["k", "int64"], ["a", "double"], ["b", "int64"], ["text", "string"]]
    assert read == {"vertex": 0, "namespace": "file", "name": str(tmp_path / "in"), "columns": columns}
    assert written["columns"] == [["k", "int64"]] and written["origins"] == {"k": [[0, "k", "IDENTITY"]]}
    assert (written["namespace"], written["name"]) == ("file", str(tmp_path / "out"))


def test_without_lineage_only_names_are_told(tmp_path):
    env = ExecutionEnvironment()
    env.from_source(Named(ROWS, ("db://h:1", "t"))).write_parquet(tmp_path / "out", mode="ignore")
    external = env.compile().external
    assert [(d.name, d.columns) for d in external.inputs] == [("t", ())]
    assert [(d.columns, d.origins, d.decided_by, d.counted) for d in external.outputs] == [((), {}, (), False)]


def test_expressions_filters_and_aggregates_are_followed(env, source, tmp_path):
    made = source.filter(col("b") > 1).with_column("c", col("a") * 2 + col("b")).select("k", "c", renamed=col("text"))
    told, decided = origins(env, made.key_by("k").aggregate({"c": "sum", "renamed": "max"}), tmp_path)
    assert told["k"] == {("k", "IDENTITY")}
    assert set().union(*(found for name, found in told.items() if name != "k")) == {
        ("a", "AGGREGATION"),
        ("b", "AGGREGATION"),
        ("text", "AGGREGATION"),
    }
    assert decided == {("b", "FILTER"), ("k", "GROUP_BY")}


def test_what_a_function_makes_is_not_told(env, source, tmp_path):
    made = source.map_in_arrow(lambda batches: batches, ROWS.schema).with_column("one", col("k"))
    assert origins(env, made, tmp_path) == ({}, set())


def test_joins_unions_windows_sorts_and_distinct(env, source, tmp_path):
    other = env.from_source(Named(pa.table({"k": [1], "a": [9.0]}), ("db://h:1", "u")))
    joined = source.select("k", "a").key_by("k").join(other.key_by("k"), how="left")
    told, decided = origins(env, joined.union(joined).distinct().sort("a"), tmp_path)
    assert told == {"k": {("k", "IDENTITY")}, "a": {("a", "IDENTITY")}, "a_right": {("a", "IDENTITY")}}
    assert decided == {("k", "JOIN"), ("k", "GROUP_BY"), ("a", "GROUP_BY"), ("a", "SORT")}


def test_conditional_and_computed_aggregates(env, source, tmp_path):
    made = source.key_by("k").aggregate(total=agg.sum(col("a") * col("b")).where(col("text") == "x"), n=agg.count())
    told, _ = origins(env, made, tmp_path)
    assert told["total"] == {(name, "AGGREGATION") for name in ("a", "b", "text")}
    assert "n" not in told  # it comes of rows, of no column


def test_several_data_sets_of_one_source(env, tmp_path):
    stream = env.from_source(Named(ROWS, ("db://h:1", "t1"), ("db://h:1", "t2"), ("db://h:1", "t1")))
    stream.write_parquet(tmp_path / "out")
    assert [dataset.name for dataset in env.compile().external.inputs] == ["t1", "t2"]


@pytest.mark.parametrize("given", ["t", [("only one",)], [("", "name")], 3])
def test_datasets_of_another_kind_are_refused(env, given, tmp_path):
    source = Named(ROWS)
    source.datasets = lambda: given
    env.from_source(source).write_parquet(tmp_path / "out")
    with pytest.raises(UsageError, match="datasets"):
        env.compile()


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("s3a://bucket/a%20b/c/", ("s3://bucket", "a b/c")),
        ("hdfs://host:8020/x", ("hdfs://host:8020", "x")),
        ("abfss://box@account.dfs.core.windows.net/x", ("abfss://box@account.dfs.core.windows.net", "x")),
        ("gs://me:secret@bucket/x?key=secret", ("gs://bucket", "x")),
        ("/data/in", ("file", "/data/in")),
    ],
)
def test_urls_of_sparks_are_named_without_credentials(url, name):
    assert dataset_of_url(url) == name


def test_places_of_filesystems_are_named(tmp_path):
    local = pafs.LocalFileSystem()
    assert dataset_of(Location(local, "/data")) == ("file", "/data")
    assert dataset_of(Location(pafs.SubTreeFileSystem("/base", local), "in")) == ("file", "/base/in")
    s3 = pafs.S3FileSystem(anonymous=True, region="x")
    assert dataset_of(Location(s3, "bucket/a/b", "s3://")) == ("s3://bucket", "a/b")
    many = [Location(local, f"/data/day={n}/x") for n in range(MOST + 1)]
    assert datasets_of(many) == [("file", "/data")]
    assert datasets_of(many[:2]) == [("file", "/data/day=0/x"), ("file", "/data/day=1/x")]


def test_a_null_of_arrow_functions_is_followed_too(env, source, tmp_path):
    told, _ = origins(env, source.select(up=pc.utf8_upper(col("text")), one=pc.scalar(1)), tmp_path)
    assert told == {"up": {("text", "TRANSFORMATION")}}
