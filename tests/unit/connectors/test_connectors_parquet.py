import base64
import datetime
import decimal
import os
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from connectors_kit import context, read_all, run_sink
from firesteel.connectors.base import Source, infer_parallelism, push_down
from firesteel.connectors.files.paths import InputFile, InputFiles
from firesteel.connectors.files.reading.source import Listed
from firesteel.connectors.formats import parquet
from firesteel.connectors.formats.parquet import Footer, KeptFooters, ParquetSink, ParquetSource, Times
from firesteel.engine import file_marks
from firesteel.errors import FiresteelError, UsageError


@pytest.fixture
def table():
    n = 10_000
    return pa.table(
        {
            "id": pa.array(range(n)),
            "name": [f"name {i % 97}" for i in range(n)],
            "x": pa.array([None if i % 11 == 0 else i / 7 for i in range(n)]),
            "tags": [[i, None] if i % 3 else None for i in range(n)],
        }
    )


@pytest.fixture
def path(tmp_path, table):
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=1000)
    return tmp_path / "a.parquet"


def test_reads_what_was_written_whatever_the_splits(path, table):
    source = ParquetSource(path)
    assert isinstance(source, Source)
    assert infer_parallelism(source, 8, 1 << 20) is None
    assert source.schema.equals(table.schema)
    for volume in (1, 50_000, 1 << 30):
        assert read_all(source, volume).equals(table)
    assert len(source.list_splits(1)) == 10
    (split,) = source.list_splits(1 << 30)
    assert split.description == f"{path}, row groups 0-9"
    assert 0.5 < split.bytes / table.nbytes < 2


def test_a_dictionary_encoded_column_counts_plain_bytes(tmp_path):
    table = pa.table({"n": pa.array(np.zeros(1_000_000, np.int64))})
    pq.write_table(table, tmp_path / "a.parquet")
    assert (tmp_path / "a.parquet").stat().st_size < 10_000
    (split,) = ParquetSource(tmp_path).list_splits(1 << 30)
    assert split.bytes >= 8_000_000


def test_columns_and_filters_are_pushed_down(path, table):
    source = ParquetSource(path)
    pushed = push_down(source, ["x", "id"], (pc.field("id") >= 8500) & (pc.field("name") != "name 3"))
    assert pushed.schema.names == ["x", "id"]
    wanted = table.filter((pc.field("id") >= 8500) & (pc.field("name") != "name 3")).select(["x", "id"])
    assert read_all(pushed).equals(wanted)
    assert len(pushed.list_splits(1)) == 2
    again = pushed.push_down(["x"], pc.field("id") < 9000)
    assert read_all(again).equals(
        table.filter((pc.field("id") < 9000) & (pc.field("id") >= 8500) & (pc.field("name") != "name 3")).select(["x"])
    )
    assert read_all(source).equals(table)
    assert (
        ParquetSource(path, columns=["id"], filter=pc.field("id") < 5).list_splits(1)[0].bytes
        < source.list_splits(1)[0].bytes / 2
    )


def test_a_filter_that_nothing_passes(path, table):
    source = ParquetSource(path, filter=pc.field("id") < 0)
    assert source.list_splits(1) == []
    assert read_all(ParquetSource(path, filter=pc.field("x") < -1)).equals(table.slice(0, 0))


def test_no_columns_still_counts_rows(path):
    source = ParquetSource(path, columns=[])
    assert sum(b.num_rows for s in source.list_splits(1) for b in source.read(s.payload, context())) == 10_000
    filtered = ParquetSource(path, columns=[], filter=pc.field("id") < 1500)
    assert sum(b.num_rows for s in filtered.list_splits(1) for b in filtered.read(s.payload, context())) == 1500


@pytest.mark.parametrize(
    "condition",
    [~(pc.field("f") > 5), pc.field("f") != 7.0, ~(pc.field("f") == 7.0), pc.is_nan(pc.field("f")), pc.field("f") < 5],
)
def test_nan_does_not_get_pruned_away(tmp_path, condition):
    table = pa.table({"f": [float("nan"), 7.0] * 50, "id": range(100)})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=10)
    got = read_all(ParquetSource(tmp_path / "a.parquet", columns=["id"], filter=condition))
    assert got.equals(table.filter(condition).select(["id"]))


def test_bad_columns_and_filters(path):
    source = ParquetSource(path)
    with pytest.raises(UsageError, match=r"has no column 'nope'\. It has: id, name"):
        source.push_down(["nope"], None)
    with pytest.raises(UsageError, match=r"does not fit .*Its columns: id, name"):
        source.push_down(None, pc.field("nope") > 3)
    with pytest.raises(UsageError, match="does not fit"):
        source.push_down(None, pc.field("id") > "abc")
    with pytest.raises(UsageError, match="not an expression"):
        source.push_down(None, "id > 3")


def test_every_type_comes_back_exactly(tmp_path):
    table = pa.table(
        {
            "i8": pa.array([1, None], pa.int8()),
            "u32": pa.array([1, None], pa.uint32()),
            "f16": pa.array([np.float16(1.5), None], pa.float16()),
            "dec": pa.array([decimal.Decimal("1.23"), None], pa.decimal128(20, 2)),
            "dec256": pa.array([decimal.Decimal("1.23"), None], pa.decimal256(50, 2)),
            "ts": pa.array([datetime.datetime(2020, 1, 1), None], pa.timestamp("ns")),
            "tz": pa.array([datetime.datetime(2020, 1, 1), None], pa.timestamp("us", "Europe/Zurich")),
            "date": pa.array([datetime.date(2020, 1, 1), None]),
            "time": pa.array([datetime.time(1, 2), None], pa.time64("us")),
            "dur": pa.array([3, None], pa.duration("ms")),
            "bin": pa.array([b"\xff", None], pa.binary()),
            "fsb": pa.array([b"abc", None], pa.binary(3)),
            "ls": pa.array(["a", None], pa.large_string()),
            "dict": pa.array(["a", None]).dictionary_encode(),
            "struct": pa.array([{"a": 1, "b": {"c": "x"}}, None]),
            "map": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
            "fsl": pa.array([[1, 2], None], pa.list_(pa.int32(), 2)),
            "nothing": pa.nulls(2),
        }
    )
    sink = ParquetSink(tmp_path / "out")
    sink.commit(run_sink(sink, [table.to_batches()], table.schema))
    back = read_all(ParquetSource(tmp_path / "out"))
    assert back.schema.equals(table.schema)
    assert back.equals(table)


def test_int96_timestamps(tmp_path):
    moments = [datetime.datetime(1969, 1, 1), None, datetime.datetime(9999, 12, 31, 23, 59, 59, 999999)]
    table = pa.table({"t": pa.array(moments, pa.timestamp("us"))})
    pq.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    assert read_all(ParquetSource(tmp_path)).equals(table)


def test_column_names_with_dots(tmp_path):
    table = pa.table({"a.b": [1, 2], "a": [{"b": 3}, {"b": 4}], "c": [5, 6]})
    pq.write_table(table, tmp_path / "a.parquet")
    assert read_all(ParquetSource(tmp_path)).equals(table)
    assert read_all(ParquetSource(tmp_path, columns=["a"])).equals(table.select(["a"]))


def test_files_may_differ_in_order_nullability_and_metadata(tmp_path):
    a = pa.table({"x": [1], "y": [["a"]]}).replace_schema_metadata({"k": "v"})
    inner = pa.list_(pa.field("element", pa.string(), nullable=False))
    b = pa.table(
        [pa.array([["b"]], inner), pa.array([2])],
        schema=pa.schema([pa.field("y", inner), pa.field("x", pa.int64(), nullable=False)]),
    )
    pq.write_table(a, tmp_path / "a.parquet")
    pq.write_table(b, tmp_path / "b.parquet")
    assert read_all(ParquetSource(tmp_path)).to_pydict() == {"x": [1, 2], "y": [["a"], ["b"]]}


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"x": [1.0], "y": ["a"]}, r"column 'x' is int64 in .*a\.parquet and is double in .*b\.parquet"),
        ({"x": [1]}, r"column 'y' is string in .*a\.parquet and does not exist in .*b\.parquet"),
        ({"x": [1], "y": ["a"], "z": [1]}, r"column 'z' does not exist in .*a\.parquet and is int64 in .*b\.parquet"),
    ],
)
def test_mixed_schemas_name_both_files_and_the_column(tmp_path, other, message):
    pq.write_table(pa.table({"x": [1], "y": ["a"]}), tmp_path / "a.parquet")
    pq.write_table(pa.table(other), tmp_path / "b.parquet")
    with pytest.raises(UsageError, match=message):
        ParquetSource(tmp_path)


def test_what_is_no_parquet_is_named(path, tmp_path):
    whole = path.read_bytes()
    (tmp_path / "b.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UsageError, match=r"b\.parquet is truncated, damaged or not a Parquet file"):
        ParquetSource(tmp_path)
    (tmp_path / "b.parquet").write_bytes(b"")
    with pytest.raises(UsageError, match=r"b\.parquet is empty"):
        ParquetSource(tmp_path)
    (tmp_path / "b.parquet").write_text("a,b\n1,2\n")
    with pytest.raises(UsageError, match=r"b\.parquet is truncated, damaged or not a Parquet file"):
        ParquetSource(tmp_path)


def test_files_whose_schemas_look_alike_are_told_apart(tmp_path):
    times = pa.table({"t": pa.array([datetime.datetime(2000, 1, 1)], pa.timestamp("us"))})
    for number in range(30):
        pq.write_table(times, tmp_path / f"{number:02d}.parquet", use_deprecated_int96_timestamps=number % 3 == 1)
    source = ParquetSource(tmp_path)
    assert source.schema.equals(times.schema)
    plain = [source.files([split.payload]) is not None for split in source.list_splits(1)]
    assert plain == [number % 3 != 1 for number in range(30)]


@pytest.mark.parametrize("other", ["a", "file_row_number"])
def test_no_other_reader_gets_a_file_with_a_column_that_it_takes_for_another_one(tmp_path, other):
    pq.write_table(pa.table({other: [1, 2], "A": [3, 4]}), tmp_path / "a.parquet")
    source = ParquetSource(tmp_path).push_down(["A"], None)
    assert source.files([split.payload for split in source.list_splits(1)]) is None
    assert read_all(source).to_pydict() == {"A": [3, 4]}


def test_of_many_files_the_first_damaged_one_is_named(tmp_path, table):
    for number in range(150):
        pq.write_table(table.slice(number, 1), tmp_path / f"{number:03d}.parquet")
    assert read_all(ParquetSource(tmp_path)).equals(table.slice(0, 150))
    for number in (90, 91, 140):
        (tmp_path / f"{number:03d}.parquet").write_bytes(b"no")
    with pytest.raises(UsageError, match=r"090\.parquet is truncated, damaged or not a Parquet file"):
        ParquetSource(tmp_path)


def test_a_damaged_page_is_named(tmp_path, table):
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, row_group_size=1000, write_page_checksum=True)
    where = pq.ParquetFile(path).metadata.row_group(4).column(1).data_page_offset + 60
    data = bytearray(path.read_bytes())
    data[where] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(FiresteelError, match=r"a\.parquet, row group 4 cannot be read.*damaged"):
        read_all(ParquetSource(path))


def test_a_file_that_goes_or_changes_is_named(path, table):
    source = ParquetSource(path)
    (split,) = source.list_splits(1 << 30)
    pq.write_table(table.slice(5), path)
    with pytest.raises(FiresteelError, match=r"a\.parquet changed while the job was running"):
        list(source.read(split.payload, context()))
    path.unlink()
    with pytest.raises(FiresteelError, match=r"a\.parquet was there when the job was planned and is gone now"):
        list(source.read(split.payload, context()))


def test_footers_of_listed_files_are_kept_until_the_file_changes(tmp_path, monkeypatch):
    """Size and time of modification stay the same, and so does the inode. Only the column has another name."""
    monkeypatch.setattr(file_marks, "_TICK_NS", 0)
    monkeypatch.setattr(parquet, "_driver_footers", KeptFooters(1 << 20))
    path, read = tmp_path / "a.parquet", []
    original = parquet._FooterReader.read
    monkeypatch.setattr(
        parquet._FooterReader, "read", lambda self, found, file: read.append(file) or original(self, found, file)
    )

    def names():
        found = InputFiles(pafs.LocalFileSystem(), "", (InputFile(str(path), kept.st_size, str(path)),))
        return ParquetSource.of_listed(
            Listed(found, None, [()]), "", lambda footers: footers[0].schema, {}
        ).schema.names

    pq.write_table(pa.table({"n": [1, 2]}), path)
    kept = path.stat()
    assert [names(), names(), len(read)] == [["n"], ["n"], 1]
    pq.write_table(pa.table({"m": [1, 2]}), path)
    os.utime(path, ns=(kept.st_atime_ns, kept.st_mtime_ns))
    while path.stat().st_ctime_ns == kept.st_ctime_ns:  # the clock's next tick
        os.utime(path, ns=(kept.st_atime_ns, kept.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_ino) == (kept.st_size, kept.st_ino)
    assert [names(), names(), len(read)] == [["m"], ["m"], 2]


def test_kept_footers_have_a_limit():
    none, mark = frozenset(), (1, 1, 1, 1, 1)
    files = [InputFile(name, 1, name) for name in "abc"]
    times = Times(False, none, none, none, none)
    footers = [Footer(file, pa.schema([("n", pa.int64())]), np.ones(1), np.ones((1, 1)), times, {}) for file in files]
    kept = KeptFooters(2 * (parquet._FIELD_BYTES + 8 + 3 * 8))
    for footer in footers[:2]:
        kept.keep(footer, mark)
    assert kept.get(files[0], mark) is footers[0]
    kept.keep(footers[2], mark)
    assert [kept.get(file, mark) for file in files] == [footers[0], None, footers[2]]
    assert kept.get(files[0], (1, 1, 1, 1, 2)) is None and kept.get(files[0], mark) is None


def test_directories_are_partition_columns_below_the_path_alone(tmp_path):
    (tmp_path / "year=2020").mkdir()
    pq.write_table(pa.table({"x": [1]}), tmp_path / "year=2020" / "a.parquet")
    assert read_all(ParquetSource(tmp_path)).to_pylist() == [{"x": 1, "year": 2020}]
    assert read_all(ParquetSource(tmp_path, partitions=False)).to_pylist() == [{"x": 1}]
    assert read_all(ParquetSource(tmp_path / "year=2020")).to_pylist() == [{"x": 1}]


def test_what_travels_is_small(tmp_path):
    pq.write_table(pa.table({f"c{i}": [1] for i in range(50)}), tmp_path / "0.parquet")
    for i in range(1, 200):
        (tmp_path / f"{i}.parquet").write_bytes((tmp_path / "0.parquet").read_bytes())
    assert len(pickle.dumps(ParquetSource(tmp_path))) < 5_000


def test_empty_row_groups_and_empty_files(tmp_path):
    pq.write_table(pa.table({"x": pa.array([], pa.int64())}), tmp_path / "a.parquet")
    source = ParquetSource(tmp_path)
    assert source.list_splits(1) == []
    assert read_all(source).num_rows == 0


def test_another_filesystem(tmp_path, table):
    mock = pafs._MockFileSystem()
    mock.create_dir("in")
    with mock.open_output_stream("in/a.parquet") as stream:
        pq.write_table(table, stream, row_group_size=3000)
    source = ParquetSource("in/*.parquet", filesystem=mock, columns=["id"], filter=pc.field("id") > 100)
    got = [b for s in source.list_splits(1) for b in source.read(s.payload, context())]
    assert pa.Table.from_batches(got).equals(table.filter(pc.field("id") > 100).select(["id"]))


def test_wide_rows_come_in_small_batches(tmp_path):
    pq.write_table(
        pa.table({"s": ["x" * 100_000 + str(i) for i in range(300)]}), tmp_path / "a.parquet", use_dictionary=False
    )
    source = ParquetSource(tmp_path)
    (split,) = source.list_splits(1 << 30)
    assert max(b.num_rows for b in source.read(split.payload, context())) <= 64


# --- sink ---


def test_many_small_batches_become_one_row_group(tmp_path, table):
    sink = ParquetSink(tmp_path / "out", compression="zstd")
    sink.commit(run_sink(sink, [table.to_batches(max_chunksize=10)], table.schema))
    metadata = pq.read_metadata(tmp_path / "out" / "part-00000.parquet")
    assert metadata.num_row_groups == 1
    assert metadata.row_group(0).column(0).compression == "ZSTD"


def test_row_groups_are_bounded(tmp_path):
    batch = pa.record_batch({"x": np.random.default_rng(0).integers(0, 1 << 60, 1 << 20)})
    sink = ParquetSink(tmp_path / "out")
    sink.commit(run_sink(sink, [[batch] * 10], batch.schema))
    metadata = pq.read_metadata(tmp_path / "out" / "part-00000.parquet")
    assert max(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups)) < 48 << 20


def test_no_rows_at_all_still_write_the_schema(tmp_path, table):
    sink = ParquetSink(tmp_path / "out")
    sink.commit(
        run_sink(
            sink,
            [[], [table.slice(0, 0).combine_chunks().to_batches()[0]] if table.slice(0, 0).to_batches() else []],
            table.schema,
        )
    )
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["_SUCCESS", "part-00000.parquet"]
    assert read_all(ParquetSource(tmp_path / "out")).schema.equals(table.schema)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (pa.schema([]), "Parquet needs at least one"),
        (pa.schema([("a", pa.int8()), ("a", pa.int8())]), "two columns 'a'"),
        (pa.schema([("ok", pa.int8()), ("u", pa.dense_union([pa.field("a", pa.int8())]))]), "cannot hold column 'u'"),
        (pa.schema([("i", pa.month_day_nano_interval())]), "cannot hold column 'i'"),
        (pa.schema([("s", pa.struct([]))]), "cannot hold column 's'"),
    ],
)
def test_schemas_that_parquet_cannot_hold(tmp_path, schema, message):
    with pytest.raises(UsageError, match=message):
        ParquetSink(tmp_path / "out").check(schema)
    assert not list(tmp_path.iterdir())


def test_unknown_compression(tmp_path):
    with pytest.raises(UsageError, match="compression='zip'"):
        ParquetSink(tmp_path / "out", compression="zip")


def test_views_are_read_as_plain_values(tmp_path):
    plain = pa.table({"s": [f"name {i:04}" for i in range(100)], "b": [b"x"] * 100, "n": range(100)})
    views = plain.cast(pa.schema([("s", pa.string_view()), ("b", pa.binary_view()), ("n", pa.int64())]))
    pq.write_table(views, tmp_path / "a.parquet", row_group_size=10)
    assert pq.read_schema(tmp_path / "a.parquet").field("s").type == pa.string_view()
    source = ParquetSource(tmp_path)
    assert source.schema.equals(plain.schema)
    assert read_all(source).equals(plain)
    some = source.push_down(["n", "s"], pc.field("s") >= "name 0075")
    assert read_all(some).equals(plain.slice(75).select(["n", "s"]))
    assert len(source.push_down(["s"], pc.field("n") >= 75).list_splits(1)) == 3


def test_many_small_files_become_few_batches(tmp_path):
    for i in range(300):
        pq.write_table(pa.table({"x": [i], "f": [float(i)]}), tmp_path / f"{i:03}.parquet")
    source = ParquetSource(tmp_path)
    (split,) = source.list_splits(64 << 20)
    (batch,) = source.read(split.payload, context())
    assert batch.column("x").to_pylist() == list(range(300))
    counted = source.push_down([], None)
    assert sum(b.num_rows for b in counted.read(split.payload, context())) == 300


def test_small_files_with_dictionaries_of_their_own(tmp_path):
    for i in range(3):
        pq.write_table(pa.table({"d": pa.array([f"v{i}"]).dictionary_encode()}), tmp_path / f"{i}.parquet")
    assert read_all(ParquetSource(tmp_path)).column("d").to_pylist() == ["v0", "v1", "v2"]


def test_place_says_what_a_batch_is_made_of(tmp_path, path):
    pq.write_table(pq.read_table(path).slice(0, 10), tmp_path / "b.parquet")
    source, ctx = ParquetSource(tmp_path, columns=["id"]), context()
    (split,) = source.list_splits(64 << 20)
    assert [ctx.place for _ in source.read(split.payload, ctx)] == [
        f"{path}, row group 0 to {path}, row group 8",
        f"{path}, row group 9 to {tmp_path}/b.parquet, row group 0",
    ]


NULLABLE = {
    "int": (pa.int32(), lambda i: i),
    "text": (pa.string(), lambda i: f"{i:05d}"),
    "date": (pa.date32(), lambda i: datetime.date(2020, 1, 1) + datetime.timedelta(days=i)),
    "time": (pa.timestamp("us", "UTC"), lambda i: datetime.datetime(2020, 1, 1, i // 60, i % 60, tzinfo=datetime.UTC)),
    "decimal": (pa.decimal128(9, 2), decimal.Decimal),
}


@pytest.mark.parametrize("kind", NULLABLE)
def test_row_groups_with_nulls_are_left_out_where_no_other_value_can_match(tmp_path, kind):
    type_, value = NULLABLE[kind]
    values = [None if i % 7 == 3 else value(i) for i in range(1000)]
    pq.write_table(pa.table({"a": pa.array(values, type_)}), tmp_path / "a.parquet", row_group_size=100)
    source = ParquetSource(str(tmp_path / "a.parquet"))

    def groups(condition) -> int:
        return len(source.push_down(None, condition).list_splits(1))

    a, wanted = pc.field("a"), pa.scalar(value(250), type_)
    assert groups(a == wanted) == 1 and groups(a.isin(pa.array([value(250), value(551)], type_))) == 2
    assert groups(a > wanted) == 8 and groups(~(a <= wanted)) == 8
    assert groups(a.is_null()) == 10 and groups((a == wanted) | a.is_null()) == 10


def test_a_sound_file_that_arrow_cannot_read_is_not_called_damaged(tmp_path):
    """As other writers make them: a note on Arrow's types that Arrow's own reader does not take."""
    table = pa.table({"n": [1, 2, 3], "v": pa.array([[1, 2], None, []], pa.list_(pa.int32()))})
    lists = table.schema.set(1, pa.field("v", pa.list_(pa.int32(), 2))).serialize().to_pybytes()
    wide = pa.schema({"n": pa.int64()}).serialize().to_pybytes().replace(bytes([64, 0, 0, 0]), bytes([128, 0, 0, 0]))
    for name, columns, note in (("lists", ["n", "v"], lists), ("wide", ["n"], wide)):
        some = table.select(columns)
        with pq.ParquetWriter(tmp_path / f"{name}.parquet", some.schema, store_schema=False) as writer:
            writer.write_table(some)
            writer.add_key_value_metadata({"ARROW:schema": base64.b64encode(note)})
        with pytest.raises(
            UsageError, match=rf"{name}\.parquet.* holds what read_parquet cannot read .*may be sound.*Spark"
        ):
            read_all(ParquetSource(tmp_path / f"{name}.parquet"))


# --- the calendar before Spark 3 -------------------------------------------------------------------------------------

OLD_DAYS = {
    -719164: -719162,
    -500321: -500321 - 2,
    -171596: -171596 - 9,
    -171595: -171595 - 10,
    -141428: -141438,
    -141427: -141427,
}
"""Days as they are stored, and the same dates in today's calendar: 0001-01-01, 0600-02-29 and 1500-02-29 (the first of March there), 1500-03-01,
1582-10-04 and 1582-10-15."""
SPARK_2 = {"org.apache.spark.version": "2.4.8"}
UTC_3 = {"org.apache.spark.version": "3.5.0", "org.apache.spark.timeZone": "UTC"}
LEGACY_3 = {**UTC_3, "org.apache.spark.legacyDateTime": ""}


def old_file(path, notes, **options):
    days = pa.array([*OLD_DAYS, None], pa.int32()).cast(pa.date32())
    times = pa.array([day * 86_400_000_000 + 1 for day in OLD_DAYS] + [None], pa.timestamp("us", "UTC"))
    nested = pa.StructArray.from_arrays([days, pa.array([[one] for one in days])], ["day", "days"])
    table = pa.table({"d": days, "t": times, "n": times.cast(pa.timestamp("us")), "s": nested})
    pq.write_table(table.replace_schema_metadata(notes), path, **options)
    return ParquetSource(path)


@pytest.mark.parametrize(
    ("notes", "days", "times"),
    [
        (SPARK_2, True, None),
        (LEGACY_3, True, True),
        ({**LEGACY_3, "org.apache.spark.timeZone": "Europe/Vienna"}, True, None),
        ({**UTC_3, "org.apache.spark.legacyINT96": ""}, False, False),
        (UTC_3, False, False),
        ({"writer.model.name": "example"}, False, False),
    ],
)
def test_days_and_times_of_the_calendar_before_spark_3(tmp_path, notes, days, times):
    """``times``: None where their zone is unknown or has times of its own before 1900."""
    source = old_file(tmp_path / "a.parquet", notes)
    read = read_all(source.push_down(["d", "s", "n"], None))
    wanted = [*(OLD_DAYS.values() if days else OLD_DAYS), None]
    as_number = pa.array(wanted, pa.int32()).cast(pa.date32())
    assert read["d"].combine_chunks().equals(as_number)
    inside = read["s"].combine_chunks()
    assert inside.field("day").equals(as_number) and inside.field("days").flatten().equals(as_number)
    assert read["n"].cast(pa.int64()).to_pylist()[:-1] == [day * 86_400_000_000 + 1 for day in OLD_DAYS]
    if times is None:
        with pytest.raises(
            FiresteelError, match=r"a\.parquet: column 't' holds times before 1900 of .* time zone"
        ) as caught:
            read_all(source)
        assert "Read the file with Spark" in caught.value.hint
    else:
        moments = OLD_DAYS.values() if times else OLD_DAYS
        assert read_all(source)["t"].cast(pa.int64()).to_pylist()[:-1] == [d * 86_400_000_000 + 1 for d in moments]


def test_row_groups_of_the_old_calendar_are_left_out_only_where_their_statistics_hold(tmp_path):
    source = old_file(tmp_path / "a.parquet", LEGACY_3, row_group_size=1)
    day = pc.field("d") == pa.scalar(-171605, pa.date32())  # 1500-03-01, stored as -171595
    assert read_all(source.push_down(["d"], day)).num_rows == 2
    splits = source.list_splits(1)
    assert all(source.files([split.payload]) is None for split in splits), (
        "no other reader may take the days as they are"
    )
    pq.write_table(
        pa.table({"d": pa.array([0, 1], pa.int32()).cast(pa.date32())}).replace_schema_metadata(LEGACY_3),
        tmp_path / "new.parquet",
        row_group_size=1,
    )
    new = ParquetSource(tmp_path / "new.parquet")
    assert len(new.push_down(None, pc.field("d") > pa.scalar(0, pa.date32())).list_splits(1)) == 1
    assert new.files([split.payload for split in new.list_splits(1)]) is not None


def test_timestamps_in_96_bits_of_the_old_calendar(tmp_path):
    when = pa.array([day * 86_400_000_000 for day in OLD_DAYS], pa.timestamp("us"))
    table = pa.table({"t": when, "m": pa.array([{"a": {"t": one}} for one in when])})
    for notes, old in (
        ({**UTC_3, "org.apache.spark.legacyINT96": ""}, True),
        ({**UTC_3, "org.apache.spark.version": "3.0.3"}, True),
        (LEGACY_3, False),
    ):
        pq.write_table(
            table.replace_schema_metadata(notes), tmp_path / "a.parquet", use_deprecated_int96_timestamps=True
        )
        read = read_all(ParquetSource(tmp_path / "a.parquet"))
        wanted = [day * 86_400_000_000 for day in (OLD_DAYS.values() if old else OLD_DAYS)]
        assert read["t"].cast(pa.int64()).to_pylist() == wanted
        inside = pc.struct_field(read["m"], ["a", "t"])
        assert inside.cast(pa.int64()).to_pylist() == wanted
