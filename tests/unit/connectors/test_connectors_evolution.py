"""Files whose columns changed over time, read as one."""

import datetime
import decimal

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from connectors_kit import context, read_all, run_sink
from firesteel.connectors.files.reading.evolution import common_type, widened
from firesteel.connectors.formats.arrow_files import ArrowSource
from firesteel.connectors.formats.parquet import ParquetSink, ParquetSource
from firesteel.errors import FiresteelError, UsageError

OLD = pa.table({"id": pa.array([1, 2], pa.int32()), "x": pa.array([10, None], pa.int64()), "gone": ["a", "b"]})
NEW = pa.table({"x": [0.5, None], "id": pa.array([3, 4], pa.int64()), "new": pa.array([True, None])})


def write_parquet(table, path):
    pq.write_table(table, path, row_group_size=1)


def write_arrow(table, path):
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table, 1)


def write_arrow_stream(table, path):
    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, 1)


KINDS = pytest.mark.parametrize(
    ("write", "source"),
    [(write_parquet, ParquetSource), (write_arrow, ArrowSource), (write_arrow_stream, ArrowSource)],
)


@pytest.fixture
def write_both(tmp_path):
    def both(write, old=OLD, new=NEW):
        write(old, tmp_path / "a-old")
        write(new, tmp_path / "b-new")
        return tmp_path

    return both


def rows_of(source):
    return sum(b.num_rows for s in source.list_splits(1) for b in source.read(s.payload, context()))


@KINDS
@pytest.mark.parametrize("volume", [1, 1 << 30])
def test_what_a_file_lacks_is_null_and_types_are_widened(write_both, write, source, volume):
    read = source(write_both(write), merge_schema=True)
    types = [("id", pa.int64()), ("x", pa.float64()), ("gone", pa.string()), ("new", pa.bool_())]
    assert read.schema.equals(pa.schema(types))
    assert read_all(read, volume).to_pylist() == [
        {"id": 1, "x": 10.0, "gone": "a", "new": None},
        {"id": 2, "x": None, "gone": "b", "new": None},
        {"id": 3, "x": 0.5, "gone": None, "new": True},
        {"id": 4, "x": None, "gone": None, "new": None},
    ]


def test_duckdb_reads_the_same(write_both):
    folder = write_both(write_parquet)
    theirs = duckdb.sql(f"SELECT * FROM read_parquet('{folder}/*', union_by_name = true) ORDER BY id").to_arrow_table()
    assert read_all(ParquetSource(folder, merge_schema=True)).to_pylist() == theirs.to_pylist()


@KINDS
def test_columns_that_only_some_files_have_can_be_all_that_is_read(write_both, write, source):
    read = source(write_both(write), merge_schema=True)
    assert read_all(read.push_down(["new"], None))["new"].to_pylist() == [None, None, True, None]
    assert rows_of(read.push_down([], None)) == 4
    assert rows_of(read.push_down([], pc.field("gone").is_null())) == 2


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        (pc.field("id") >= 3, [3, 4]),  # int32 in the old file
        (pc.field("id") == 2, [2]),
        (pc.field("x") > 1, [1]),  # int64 in the old file
        (pc.field("x") < 1, [3]),
        (pc.field("new"), [3]),
        (pc.field("new").is_null(), [1, 2, 4]),
        (pc.field("gone") == "b", [2]),
        (pc.field("gone").is_null() & (pc.field("id") < 4), [3]),
        (pc.coalesce(pc.field("gone"), pc.scalar("z")) == "z", [3, 4]),
    ],
)
def test_row_groups_are_pruned_only_by_what_their_statistics_tell(write_both, condition, ids):
    read = ParquetSource(write_both(write_parquet), merge_schema=True, filter=condition)
    assert read_all(read)["id"].to_pylist() == ids


def test_row_groups_are_pruned_where_types_are_those_of_all_files(write_both):
    read = ParquetSource(write_both(write_parquet), merge_schema=True)
    assert len(read.list_splits(1)) == 4
    assert len(read.push_down(None, pc.field("gone") == "a").list_splits(1)) == 3  # the new file does not tell
    assert len(read.push_down(None, pc.field("id") > 3).list_splits(1)) == 3  # nor does the old one of an int64


def test_nested_columns_are_merged_by_their_fields(write_both):
    old = pa.table(
        {"s": [{"a": 1, "b": "x"}, None], "l": pa.array([[{"k": 1}], []], pa.list_(pa.struct([("k", pa.int8())])))}
    )
    new = pa.table({"s": [{"b": "y", "c": 2.5}], "l": [[{"m": "z", "k": 300}, None]]})
    read = ParquetSource(write_both(write_parquet, old, new), merge_schema=True)
    assert read_all(read).to_pylist() == [
        {"s": {"a": 1, "b": "x", "c": None}, "l": [{"k": 1, "m": None}]},
        {"s": None, "l": []},
        {"s": {"a": None, "b": "y", "c": 2.5}, "l": [{"k": 300, "m": "z"}, None]},
    ]


def test_partitions_may_differ_and_take_the_place_of_columns(tmp_path):
    for year, table in ((2023, OLD), (2024, NEW.append_column("year", [["?", "?"]]))):
        (tmp_path / f"year={year}").mkdir()
        pq.write_table(table, tmp_path / f"year={year}" / "a.parquet")
    read = ParquetSource(tmp_path, merge_schema=True)
    assert read.schema.names == ["id", "x", "gone", "new", "year"]
    assert read_all(read).select(["id", "year"]).to_pylist() == [
        {"id": i, "year": 2023 + (i > 2)} for i in (1, 2, 3, 4)
    ]
    pruned = read.push_down(["new"], pc.field("year") == 2024)
    assert read_all(pruned)["new"].to_pylist() == [True, None]


def test_with_one_schema_it_changes_nothing(tmp_path):
    for name in "ab":
        write_parquet(OLD, tmp_path / name)
    plain, merged = ParquetSource(tmp_path), ParquetSource(tmp_path, merge_schema=True)
    assert merged.schema.equals(plain.schema)
    assert read_all(merged).equals(read_all(plain))
    assert len(merged.push_down(None, pc.field("id") > 1).list_splits(1)) == 2


def test_types_that_nothing_holds_are_refused_with_both_files(write_both):
    folder = write_both(write_parquet, OLD, NEW.set_column(0, "x", [["p", "q"]]))
    with pytest.raises(
        UsageError,
        match=r"^The schemas of the files cannot be merged: column 'x' is int64 in .*a-old and string in .*b-new\.",
    ):
        ParquetSource(folder, merge_schema=True)


def test_without_it_the_difference_is_told_with_what_to_do(write_both):
    with pytest.raises(UsageError, match=r"do not have one schema: column 'id' is int32 .* int64 .*merge_schema=True"):
        ParquetSource(write_both(write_parquet))


@KINDS
def test_a_value_that_its_wider_type_cannot_hold_ends_the_job(write_both, write, source):
    folder = write_both(write, OLD.set_column(1, "x", [[2**53 + 1, 2]]), NEW)
    read = source(folder, merge_schema=True)
    with pytest.raises(
        FiresteelError, match=r"a-old.*: column 'x' is int64 there and double over all the files, which"
    ):
        read_all(read)


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (pa.int8(), pa.int64(), pa.int64()),
        (pa.int32(), pa.float32(), pa.float64()),
        (pa.null(), pa.date32(), pa.date32()),
        (pa.timestamp("ms"), pa.timestamp("us"), pa.timestamp("us")),
        (pa.decimal128(5, 2), pa.decimal128(9, 4), pa.decimal128(9, 4)),
        (pa.string(), pa.large_string(), pa.large_string()),
        (pa.list_(pa.int8()), pa.list_(pa.int16()), pa.list_(pa.int16())),
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), None),
        (pa.string(), pa.int64(), None),
        (pa.bool_(), pa.int8(), None),
        (pa.string(), pa.binary(), None),
        (pa.decimal128(5, 2), pa.int64(), pa.decimal128(22, 2)),
        (pa.decimal128(38, 2), pa.int64(), pa.decimal128(38, 2)),
        (pa.decimal128(38, 20), pa.int64(), pa.decimal256(40, 20)),
        (pa.decimal128(38, 0), pa.decimal128(38, 10), pa.decimal256(48, 10)),
        (pa.decimal128(15, 4), pa.float32(), pa.float64()),
        (pa.decimal128(20, 4), pa.float64(), None),
        (pa.decimal128(5, 2), pa.null(), pa.decimal128(5, 2)),
        (pa.dictionary(pa.int8(), pa.string()), pa.string(), pa.string()),
        (pa.timestamp("ms", "UTC"), pa.timestamp("us", "Europe/Zurich"), pa.timestamp("us", "UTC")),
        (pa.date32(), pa.timestamp("us"), pa.timestamp("us")),
        (pa.date32(), pa.timestamp("us", "UTC"), None),
        (pa.struct([("a", pa.int8())]), pa.list_(pa.int8()), None),
        (pa.map_(pa.string(), pa.int8()), pa.map_(pa.string(), pa.int16()), pa.map_(pa.string(), pa.int16())),
        (pa.struct([("a", pa.string())]), pa.struct([("a", pa.int8())]), None),
    ],
)
def test_common_types(one, other, both):
    assert common_type(one, other) == both
    assert common_type(other, one) == both


def test_values_survive_widening():
    when = datetime.datetime(2024, 2, 29, 12, 30)
    batch = pa.record_batch(
        {
            "t": pa.array([when, None], pa.timestamp("ms")),
            "d": pa.array([decimal.Decimal("1.25"), None], pa.decimal128(5, 2)),
        }
    )
    wide = widened(batch, pa.schema([("d", pa.decimal128(12, 4)), ("z", pa.int8()), ("t", pa.timestamp("us"))]), "f")
    assert wide.to_pylist() == [
        {"d": decimal.Decimal("1.2500"), "z": None, "t": when},
        {"d": None, "z": None, "t": None},
    ]


def append(folder, table, **options):
    sink = ParquetSink(folder, mode="append", **options)
    sink.commit(run_sink(sink, [table.to_batches()], table.schema))


def test_other_columns_can_be_appended_where_that_is_said(tmp_path):
    folder = tmp_path / "out"
    append(folder, OLD)
    with pytest.raises(UsageError, match=r"does not fit: column 'x' is int64 there and double .*merge_schema=True"):
        append(folder, NEW)
    append(folder, NEW, merge_schema=True)
    back = read_all(ParquetSource(folder, merge_schema=True))
    assert sorted(back["id"].to_pylist()) == [1, 2, 3, 4]
    assert set(back.column_names) == {"id", "x", "gone", "new"}
    with pytest.raises(UsageError, match=r"column 'id' is int(32|64) there and string in the stream"):
        append(folder, pa.table({"id": ["text"]}), merge_schema=True)
    assert len(list(folder.glob("part-*"))) == 2


@pytest.mark.parametrize("given", ["false", 1, None, [True]])
def test_merge_schema_is_true_or_false(write_both, tmp_path, given):
    folder = write_both(write_parquet)
    for make in (ParquetSource, ArrowSource):
        with pytest.raises(UsageError, match=r"merge_schema=.* must be True or False"):
            make(folder, merge_schema=given)
    with pytest.raises(UsageError, match=r"merge_schema=.* must be True or False"):
        ParquetSink(tmp_path / "out", merge_schema=given)


def test_categories_money_and_moments_are_read_with_what_they_became(write_both):
    when = datetime.datetime(2024, 1, 1, 12, tzinfo=datetime.UTC)
    old = pa.table(
        {
            "c": pa.array(["x", None]).dictionary_encode(),
            "m": pa.array([1, 2**62], pa.int64()),
            "t": pa.array([when, None], pa.timestamp("us", "Europe/Zurich")),
        }
    )
    new = pa.table({"c": ["y"], "m": [decimal.Decimal("1.25")], "t": pa.array([when], pa.timestamp("ms", "UTC"))})
    assert read_all(ParquetSource(write_both(write_parquet, old, new), merge_schema=True)).to_pylist() == [
        {"c": "x", "m": decimal.Decimal("1.00"), "t": when},
        {"c": None, "m": decimal.Decimal(2**62), "t": None},
        {"c": "y", "m": decimal.Decimal("1.25"), "t": when},
    ]
