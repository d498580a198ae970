"""Directories as columns: as pyarrow.dataset and DuckDB read them, pruned before a file is opened, written as they are read."""

import datetime
import decimal
import tempfile
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import examples

from connectors_kit import read_all, run_sink
from firesteel import ExecutionEnvironment
from firesteel.arrow import col
from firesteel.compile.compiler import compile_job
from firesteel.compile.stream_graph import CollectStep, StreamNode
from firesteel.connectors.files.partitions import escape, infer_type
from firesteel.connectors.files.writing.part_files import FileWriter, Layout
from firesteel.connectors.formats.arrow_files import ArrowSink, ArrowSource
from firesteel.connectors.formats.csv_files import CsvSink, CsvSource
from firesteel.connectors.formats.json_files import JsonSink, JsonSource
from firesteel.connectors.formats.parquet import ParquetSink, ParquetSource
from firesteel.connectors.formats.text import TextSink, TextSource
from firesteel.errors import FiresteelError, UsageError

FORMATS = {
    "parquet": (ParquetSink, ParquetSource),
    "arrow": (ArrowSink, ArrowSource),
    "csv": (CsvSink, CsvSource),
    "json": (JsonSink, JsonSource),
}


def publish(sink, table, shares=1, job_id="job"):
    size = -(-table.num_rows // shares) or 1
    parts = [table.slice(i * size, size).to_batches() for i in range(shares)]
    sink.commit(run_sink(sink, parts, table.schema, job_id))


def tree(root):
    return sorted(str(p.relative_to(root)) for p in Path(root).rglob("*") if p.is_file())


def by(rows):
    return sorted(map(str, rows))


TABLE = pa.table(
    {
        "x": range(12),
        "year": pa.array([2023, 2024, None] * 4, pa.int32()),
        "who": ["a/b=c", "50% é", "", None] * 3,
    }
)


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_written_by_partition_is_read_again(tmp_path, name):
    sink_of, source_of = FORMATS[name]
    publish(sink_of(tmp_path / "out", partition_by=["year", "who"]), TABLE, 2)
    folders = {str(Path(f).parent) for f in tree(tmp_path / "out") if "=" in f}
    assert "year=2023/who=a%2Fb%3Dc" in folders
    assert "year=2024/who=50%25 é" in folders
    assert "year=__HIVE_DEFAULT_PARTITION__/who=__HIVE_DEFAULT_PARTITION__" in folders
    source = source_of(tmp_path / "out")
    assert source.schema.field("year").type == pa.int32()
    expected = [{**r, "who": r["who"] or None} for r in TABLE.to_pylist()]  # as with Spark, "" becomes null
    assert by(read_all(source).to_pylist()) == by(expected)


@pytest.mark.parametrize("name", ["csv", "json", "parquet"])
def test_moments_of_another_zone_are_written_in_utc(tmp_path, name):
    sink_of, source_of = FORMATS[name]
    moment = pa.array([datetime.datetime(2024, 7, 1, 10, tzinfo=datetime.UTC)], pa.timestamp("us", "Europe/Vienna"))
    publish(sink_of(tmp_path / "out", partition_by="p"), pa.table({"z": moment, "p": moment}))
    assert "p=2024-07-01 10%3A00%3A00" in {p.name for p in (tmp_path / "out").iterdir()}
    schema = pa.schema({"z": pa.timestamp("us", "UTC"), "p": pa.timestamp("us", "UTC")})
    (row,) = read_all(source_of(tmp_path / "out", **({} if name == "parquet" else {"schema": schema}))).to_pylist()
    assert row["z"] == row["p"] == moment[0].as_py()


def test_text_by_partition(tmp_path):
    table = pa.table({"line": ["one", "two", "three"], "k": [1, 2, 1]})
    publish(TextSink(tmp_path / "out", partition_by="k", compression="gzip"), table)
    assert tree(tmp_path / "out") == ["_SUCCESS", "k=1/part-00000-00000.txt.gz", "k=2/part-00000-00000.txt.gz"]
    source = TextSource(tmp_path / "out", path_column="file").push_down(["k", "value"], pc.field("k") == 1)
    assert read_all(source).to_pylist() == [{"k": 1, "value": "one"}, {"k": 1, "value": "three"}]


def test_filters_prune_before_a_file_is_opened(tmp_path):
    publish(ParquetSink(tmp_path / "out", partition_by=["year"]), TABLE)
    source = ParquetSource(tmp_path / "out")
    for path in (tmp_path / "out").glob("year=2024/*"):
        path.write_bytes(b"damaged")
    kept = source.push_down(["x", "year"], (pc.field("year") == 2023) & (pc.field("x") > 3))
    assert kept.pruned == "1 of 3 partitions"
    assert read_all(kept).to_pylist() == [{"x": 6, "year": 2023}, {"x": 9, "year": 2023}]
    again = kept.push_down(None, pc.field("year") > 2050)
    assert (again.pruned, again.list_splits(1 << 20)) == ("0 of 3 partitions", [])
    with pytest.raises(UsageError, match=r"year=2024.*damaged"):
        source.push_down(None, pc.field("year") > 2023).list_splits(1 << 20)


def test_row_groups_are_pruned_by_filters_on_partitions_and_files_together(tmp_path):
    for year in (2023, 2024):
        (tmp_path / f"year={year}").mkdir()
        pq.write_table(pa.table({"x": range(100)}), tmp_path / f"year={year}" / "a.parquet", row_group_size=10)
    wanted = ((pc.field("year") == 2023) & (pc.field("x") < 15)) | ((pc.field("year") == 2024) & (pc.field("x") > 95))
    source = ParquetSource(tmp_path).push_down(None, wanted)
    groups = [(g.path[-14:-10], g.row_groups) for s in source.list_splits(1) for g in s.payload]
    assert groups == [("2023", (0,)), ("2023", (1,)), ("2024", (9,))]
    assert read_all(source, 1)["x"].to_pylist() == [*range(15), 96, 97, 98, 99]


def test_a_files_own_column_of_a_partitions_name_does_not_prune(tmp_path):
    (tmp_path / "k=7").mkdir()
    pq.write_table(pa.table({"k": [1, 2], "x": [3, 4]}), tmp_path / "k=7" / "a.parquet")
    source = ParquetSource(tmp_path).push_down(None, (pc.field("k") == 7) & (pc.field("x") > 3))
    assert read_all(source).to_pylist() == [{"k": 7, "x": 4}]


def test_explain_shows_what_filters_left(tmp_path):
    publish(ParquetSink(tmp_path / "out", partition_by=["year"]), TABLE)
    env = ExecutionEnvironment()
    stream = env.read_parquet(tmp_path / "out").filter(col("year").is_null()).filter(col("x") > 1)
    job = compile_job(
        [StreamNode("collect", CollectStep(0), stream.schema, (stream._pipeline.edge(),))], env.options, "job"
    )
    assert job.job_graph.vertices[0].name.startswith("read_parquet out [1 of 3 partitions]")


def test_types_are_inferred_as_spark_does():
    assert infer_type(["1", "02", None]) == pa.int32()
    assert infer_type(["1", "3000000000"]) == pa.int64()
    assert infer_type(["1", "30000000000000000000"]) == pa.decimal128(20, 0)
    assert infer_type(["1", "2.5"]) == pa.float64()
    assert infer_type(["2024-01-01"]) == pa.date32()
    assert infer_type(["2024-01-01", "2024-01-01 10:00:00.5"]) == pa.timestamp("us", "UTC")
    for texts in (["2024-02-31"], ["1", "a"], ["true"], [None], ["1", "2024-01-01"], ["0x1"], ["+1"], ["1", "+2"]):
        assert infer_type(texts) == pa.string()


def test_a_leading_plus_is_read_as_it_was_written(tmp_path):
    table = pa.table({"x": [1, 2], "k": ["+1", "+22"]})
    publish(CsvSink(tmp_path / "out", partition_by="k"), table)
    assert by(read_all(CsvSource(tmp_path / "out")).to_pylist()) == by(table.to_pylist())


def test_types_can_be_given(tmp_path):
    publish(ParquetSink(tmp_path / "out", partition_by=["year", "who"]), TABLE)
    source = ParquetSource(tmp_path / "out", partitions=pa.schema({"year": pa.string()}))
    assert source.schema.field("year").type == pa.string()
    assert read_all(source.push_down(["year"], pc.field("year") == "2023")).num_rows == 4
    with pytest.raises(UsageError, match=r"no partition column 'month'\. Its partition columns: year, who"):
        ParquetSource(tmp_path / "out", partitions=pa.schema({"month": pa.int8()}))
    with pytest.raises(UsageError, match=r"partition column 'who' that is not of type int8.*partitions='who string'"):
        ParquetSource(tmp_path / "out", partitions=pa.schema({"who": pa.int8()}))
    publish(CsvSink(tmp_path / "csv", partition_by="year"), TABLE)
    schema = pa.schema({"x": pa.int8(), "who": pa.string(), "year": pa.int64()})
    assert CsvSource(tmp_path / "csv", schema=schema).schema.field("year").type == pa.int64()


def test_values_of_all_types(tmp_path):
    table = pa.table(
        {
            "x": [1],
            "b": [True],
            "d": [datetime.date(2024, 1, 2)],
            "t": pa.array([datetime.datetime(2024, 1, 2, 3, 4, 5, 60)], pa.timestamp("us", "UTC")),
            "n": pa.array([decimal.Decimal("1.50")], pa.decimal128(5, 2)),
            "f": [2.5],
            "w": pa.array(["x"]).dictionary_encode(),
        }
    )
    publish(ParquetSink(tmp_path / "out", partition_by=["b", "d", "t", "n", "f", "w"]), table)
    (path,) = [f for f in tree(tmp_path / "out") if "=" in f]
    assert path.startswith("b=true/d=2024-01-02/t=2024-01-02 03%3A04%3A05.00006/n=1.50/f=2.5/w=x/")
    types = pa.schema([f for f in table.schema if f.name in "bdtnf"])
    (row,) = read_all(ParquetSource(tmp_path / "out", partitions=types)).to_pylist()
    assert row == table.to_pylist()[0]


def test_trees_that_are_not_partitioned_alike(tmp_path):
    publish(ParquetSink(tmp_path / "a" / "year=1", partition_by="who"), TABLE.select(["x", "who"]))
    pq.write_table(pa.table({"x": [1]}), tmp_path / "a" / "stray.parquet")
    with pytest.raises(UsageError, match=r"not partitioned alike: .*lies in .*none.*partitions=False"):
        ParquetSource(tmp_path / "a")
    assert read_all(ParquetSource(tmp_path / "a", partitions=False)).num_rows == 13


def test_a_partition_column_takes_the_place_of_a_files_own(tmp_path):
    (tmp_path / "k=7").mkdir()
    pq.write_table(pa.table({"k": [1, 2], "x": [3, 4]}), tmp_path / "k=7" / "a.parquet")
    assert read_all(ParquetSource(tmp_path)).to_pylist() == [{"k": 7, "x": 3}, {"k": 7, "x": 4}]


def test_files_without_columns_of_their_own(tmp_path):
    for name, text in {"a.json": '{"k":1}\n{"k":2}\n', "a.csv": "k\n1\n2\n"}.items():
        source_of = FORMATS[name[2:]][1]
        folder = tmp_path / name[2:] / "k=7"
        folder.mkdir(parents=True)
        (folder / name).write_text(text)
        with pytest.raises(UsageError, match=r"no columns beside the partition columns.*partitions=False"):
            source_of(folder.parent)
        assert read_all(source_of(folder.parent, partitions=False))["k"].to_pylist() == [1, 2]
    (tmp_path / "p" / "k=7").mkdir(parents=True)
    pq.write_table(pa.table({"k": [1, 2]}), tmp_path / "p" / "k=7" / "a.parquet")
    assert read_all(ParquetSource(tmp_path / "p")).to_pylist() == [{"k": 7}, {"k": 7}]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["z"], "there is no column 'z' to partition by. There are: x, year, who"),
        (["year", "year"], "names the column 'year' twice"),
        (["x", "year", "who"], "nothing is left to write"),
    ],
)
def test_partition_columns_that_cannot_be(tmp_path, columns, message):
    with pytest.raises(UsageError, match=message):
        ParquetSink(tmp_path / "out", partition_by=columns).check(TABLE.schema)
    nested = pa.schema({"x": pa.int8(), "l": pa.list_(pa.int8())})
    with pytest.raises(UsageError, match="cannot be part of a directory's name"):
        ParquetSink(tmp_path / "out", partition_by="l").check(nested)


def test_no_rows_by_partition_leave_only_the_mark(tmp_path):
    publish(ParquetSink(tmp_path / "out", partition_by="year"), TABLE.slice(0, 0))
    assert tree(tmp_path / "out") == ["_SUCCESS"]


# --- how many files are open, and how large they get ---


def test_few_files_are_open_however_many_partitions(tmp_path, monkeypatch):
    table = pa.table({"x": range(600), "k": [i % 30 for i in range(600)]})
    most = 0

    class Counting(ParquetSink):
        def _new_writer(self, stream, schema):
            nonlocal most
            most = max(most, sum(1 for _ in Path("/proc/self/fd").iterdir()))
            return super()._new_writer(stream, schema)

    before = sum(1 for _ in Path("/proc/self/fd").iterdir())
    sink = Counting(tmp_path / "out", partition_by="k", max_open_files=5)
    sink.check(table.schema)
    sink.begin("job")
    writer = sink.write(0, 0)
    monkeypatch.setattr(Layout, "held_bytes", property(lambda self: 1600))
    for batch in table.to_batches(max_chunksize=200):
        writer.write(batch)
    sink.commit([writer.finish()])
    assert most <= before + 5 + 2
    assert read_all(ParquetSource(tmp_path / "out")).sort_by("x")["k"].to_pylist() == table["k"].to_pylist()
    assert len(list((tmp_path / "out" / "k=7").iterdir())) > 1  # closed for others, begun again


def test_an_attempt_that_fails_leaves_none_of_its_files(tmp_path):
    sink = ParquetSink(tmp_path / "out", partition_by="year", max_open_files=1)
    sink.check(TABLE.schema)
    sink.begin("job")
    writer = sink.write(0, 0)
    assert isinstance(writer, FileWriter)
    writer.write(TABLE.to_batches()[0])
    writer._flush()
    attempts = tmp_path / ".out.firesteel-job" / "attempts"
    assert len(list(attempts.iterdir())) == 3
    writer.abort()
    assert list(attempts.iterdir()) == []
    late = sink.write(0, 1)
    late.write(TABLE.to_batches()[0])
    message = late.finish()
    assert len(message.files) == 3
    sink.abort([message])
    assert list(attempts.iterdir()) == []


@pytest.mark.parametrize("name", FORMATS)
def test_files_are_cut_at_their_largest_size(tmp_path, name):
    sink_of, source_of = FORMATS[name]
    table = pa.table({"x": range(60_000), "s": [f"{i * 7919 % 100_003:08}" for i in range(60_000)]})
    publish(sink_of(tmp_path / "out", max_file_size=128 << 10), table, 2)
    parts = sorted((tmp_path / "out").glob("part-*"))
    assert len(parts) > 4
    assert max(p.stat().st_size for p in parts) < 150 << 10
    assert sorted(p.stat().st_size for p in parts)[2] > 64 << 10  # all but the last of each subtask
    got = read_all(source_of(tmp_path / "out"))
    assert got["x"].to_pylist() == list(range(60_000))  # in order of the parts' names


@pytest.mark.parametrize("told", [*(pytest.param(told, marks=pytest.mark.full) for told in (1.0, 0.8)), 1.2, 0])
@pytest.mark.parametrize("name", FORMATS)
def test_a_partition_is_divided_evenly_by_what_is_to_come(tmp_path, name, told):
    """``told``: the part of the truth that the writer was told; 0: nothing."""
    table = pa.table({"k": ["one"] * 60_000, "s": [f"{i * 7919 % 100_003:08}" for i in range(60_000)]})
    sink = FORMATS[name][0](tmp_path / "out", partition_by="k", file_size=100 << 10)
    sink.check(table.schema)
    sink.begin("job")
    writer = sink.write(0, 0)
    assert writer.expects
    if told:
        writer.expect(int(table.nbytes * told))
    for batch in table.to_batches(max_chunksize=1000):
        writer.write(batch)
    sink.commit([writer.finish()])
    sizes = [path.stat().st_size for path in sorted((tmp_path / "out").rglob("part-*"))]
    assert len(sizes) > 2
    assert max(sizes) < 210 << 10
    if told:
        least, most = (70, 130) if told == 1 else (50, 180)
        assert sorted(sizes)[int(told != 1)] > least << 10, sizes  # all but the last one, if it was told wrong
        assert max(sizes) < most << 10, sizes


def test_a_sample_tells_what_rows_add_to_a_file(tmp_path):
    """Not the columns that are directories, nor what each file has once."""
    table = pa.table({"k": ["a long name of a directory"] * 5000, "x": range(5000)})
    for sink_of in (ArrowSink, CsvSink):
        sink = sink_of(tmp_path / "out", partition_by="k", compression=None)
        sink.check(table.schema)
        whole, half = (sink.encoded_bytes(part.to_batches()) for part in (table, table.slice(0, 2500)))
        assert whole == pytest.approx(2 * half, rel=0.1)
        assert whole < 1.1 * 5000 * 8


# --- against others ---

names = st.sampled_from(["a", "B c", "ü", "1", "-5", "2024-01-01", "x=y", "50%", "q?*", "a:b", "[z]", None])
rows = st.lists(st.tuples(names, st.sampled_from([None, 0, 1, -7, 1 << 40]), st.integers(0, 9)), min_size=1, max_size=8)


@settings(max_examples=examples(15), deadline=None)
@given(rows)
def test_pyarrow_and_duckdb_read_what_is_written(given_rows):
    table = pa.table(
        {
            "s": pa.array([r[0] for r in given_rows], pa.string()),
            "n": pa.array([r[1] for r in given_rows], pa.int64()),
            "x": pa.array([r[2] for r in given_rows], pa.int64()),
        }
    )
    with tempfile.TemporaryDirectory() as root:
        publish(ParquetSink(f"{root}/out", partition_by=["s", "n"]), table)
        ours = read_all(ParquetSource(f"{root}/out", partitions=pa.schema({"s": pa.string(), "n": pa.int64()})))
        assert by(ours.select(["s", "n", "x"]).to_pylist()) == by(table.to_pylist())
        hive = pads.HivePartitioning(pa.schema({"s": pa.string(), "n": pa.int64()}), segment_encoding="uri")
        theirs = pads.dataset(f"{root}/out", format="parquet", partitioning=hive).to_table()
        assert by(theirs.select(["s", "n", "x"]).to_pylist()) == by(table.to_pylist())
        duck = duckdb.sql(
            f"select s, n, x from read_parquet('{root}/out/*/*/*.parquet', hive_partitioning=true,"
            " hive_types={'s': VARCHAR, 'n': BIGINT})"
        ).fetchall()
        assert by(duck) == by([tuple(r.values()) for r in table.to_pylist()])


filters = st.sampled_from(
    [
        pc.field("n") > 0,
        pc.field("n").is_null(),
        ~(pc.field("n") == 1),
        pc.field("s") == "a",
        (pc.field("s") != "a") | (pc.field("x") > 5),
        (pc.field("n") >= 0) & (pc.field("x") < 5),
        ~((pc.field("n") < 0) | (pc.field("s") > "b")),
        pc.is_in(pc.field("s"), value_set=pa.array(["a", "ü", None])),
        pc.equal(pc.utf8_length(pc.field("s")), 1) & (pc.field("x") != 3),
    ]
)


@settings(max_examples=examples(25), deadline=None)
@given(rows, st.lists(filters, min_size=1, max_size=2))
def test_pruning_keeps_exactly_the_rows_of_the_filter(given_rows, chosen):
    table = pa.table(
        {
            "x": pa.array([r[2] for r in given_rows], pa.int64()),
            "s": pa.array([r[0] for r in given_rows], pa.string()),
            "n": pa.array([r[1] for r in given_rows], pa.int64()),
        }
    )
    with tempfile.TemporaryDirectory() as root:
        publish(ArrowSink(f"{root}/out", partition_by=["s", "n"]), table)
        source = ArrowSource(f"{root}/out", partitions=pa.schema({"s": pa.string(), "n": pa.int64()}))
        for expression in chosen:
            source, table = source.push_down(None, expression), table.filter(expression)
        assert by(read_all(source).to_pylist()) == by(table.to_pylist())


def test_spark_escapes_and_so_do_we():
    assert escape("a/b:c=d#e%f\\g\"h'i*j?k{l[m]n^o\x01\x7f é}~") == (
        "a%2Fb%3Ac%3Dd%23e%25f%5Cg%22h%27i%2Aj%3Fk%7Bl%5Bm%5Dn%5Eo%01%7F é}~"
    )


def test_a_value_that_no_directory_can_be_called_is_said_as_it_is_written(tmp_path):
    table = pa.table({"x": [1, 2], "k": ["fits", "é" * 127]})
    with pytest.raises(FiresteelError, match=r"column 'k' is too long for a directory's name: 'k=ééé.* has 256 bytes"):
        publish(ParquetSink(tmp_path / "out", partition_by="k"), table)


def test_a_value_with_a_nul_comes_back(tmp_path):
    table = pa.table({"x": [1, 2], "k": ["a\0b", "\0"]})
    publish(ParquetSink(tmp_path / "out", partition_by="k"), table)
    assert tree(tmp_path / "out")[1:] == ["k=%00/part-00000-00000.parquet", "k=a%00b/part-00000-00000.parquet"]
    assert by(read_all(ParquetSource(tmp_path / "out")).to_pylist()) == by(table.to_pylist())


def test_partitions_on_another_filesystem():
    filesystem = pafs._MockFileSystem()
    filesystem.create_dir("root")
    sink = ParquetSink("root/out", partition_by="year", filesystem=filesystem)
    sink.check(TABLE.schema)
    sink.begin("job")
    writer = sink.write(0, 0)
    writer.write(TABLE.to_batches()[0])
    sink.commit([writer.finish()])
    source = ParquetSource("root/out", filesystem=filesystem).push_down(["x"], pc.field("year") == 2024)
    got = [b for s in source.list_splits(1 << 20) for b in source.read(s.payload, type("C", (), {"place": ""})())]
    assert pa.Table.from_batches(got)["x"].to_pylist() == [1, 4, 7, 10]


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Vienna"])
def test_partitions_of_nanoseconds(tmp_path, zone):
    kind = pa.timestamp("ns", zone)
    table = pa.table({"t": pa.array([1, -1, 1_000, None], kind), "x": [1, 2, 3, 4]})
    publish(ParquetSink(tmp_path / "out", partition_by="t"), table)
    read = read_all(ParquetSource(tmp_path / "out", partitions=pa.schema([("t", kind)]))).sort_by("x")
    assert read["t"].combine_chunks().equals(table["t"].combine_chunks())
