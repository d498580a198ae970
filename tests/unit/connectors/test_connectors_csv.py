"""CSV: the same rows however it is cut, types given and inferred, and sentences for what does not fit."""

import bz2
import datetime
import decimal
import gzip
import re

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from connectors_kit import context, read_all, run_sink
from firesteel.connectors.formats import csv_files
from firesteel.connectors.formats.csv_files import CsvSink, CsvSource
from firesteel.connectors.formats.csv_format import CsvFormat
from firesteel.errors import FiresteelError, UsageError


def write(path, text):
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def rows(path, volume=64 << 20, **options):
    return read_all(CsvSource(path, **options), volume).to_pylist()


LONG = "x" * (1 << 20)
NUMBERED = "n,s\n" + "".join(f'{i},"v{i}, x"\n' for i in range(300))


@pytest.mark.parametrize("volume", [pytest.param(7, marks=pytest.mark.full), 100, 1 << 20])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_rows_do_not_depend_on_where_splits_fall(tmp_path, volume, end):
    write(tmp_path / "a.csv", NUMBERED.replace("\n", end))
    assert rows(tmp_path / "a.csv", volume) == [{"n": i, "s": f"v{i}, x"} for i in range(300)]


def test_plain_files_are_cut_and_compressed_ones_are_not(tmp_path):
    data = ("n\n" + "12345678\n" * 400_000).encode()
    write(tmp_path / "plain.csv", data)
    write(tmp_path / "packed.csv.gz", gzip.compress(data, 1))
    write(tmp_path / "other.csv.bz2", bz2.compress(data, 1))
    assert len(CsvSource(tmp_path / "plain.csv").list_splits(1 << 20)) == 4
    (packed,) = CsvSource(tmp_path / "packed.csv.gz").list_splits(1 << 20)
    assert packed.bytes == len(data)  # the trailer says it
    (other,) = CsvSource(tmp_path / "other.csv.bz2").list_splits(1 << 20)
    assert len(data) / 2 < other.bytes < len(data) * 2  # seen from the beginning of the file
    assert read_all(CsvSource(tmp_path)).num_rows == 1_200_000


def test_a_header_in_every_file_and_empty_files(tmp_path):
    write(tmp_path / "0.csv", "")
    write(tmp_path / "1.csv", "a,b\n1,x\n")
    write(tmp_path / "2.csv", "\n\na,b\n\n2,y")
    write(tmp_path / "3.csv", b"\xef\xbb\xbfa,b\r\n")
    assert rows(tmp_path) == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]


def test_without_a_header(tmp_path):
    write(tmp_path / "a.csv", "1;x\n2;y\n")
    assert rows(tmp_path, csv=CsvFormat(header=False, sep=";")) == [{"_c0": 1, "_c1": "x"}, {"_c0": 2, "_c1": "y"}]
    named = rows(tmp_path, csv=CsvFormat(header=False, sep=";"), schema=pa.schema({"n": pa.int8(), "s": pa.string()}))
    assert named == [{"n": 1, "s": "x"}, {"n": 2, "s": "y"}]


def test_types_are_inferred_from_the_first_files(tmp_path):
    write(tmp_path / "0.csv", "i,f,d,t,z,b,s,e\n1,1,2024-01-02,2024-01-02,2024-01-02T03:04:05Z,true,x,\n")
    write(tmp_path / "1.csv", "i,f,d,t,z,b,s,e\n2,1.5,2024-01-03,2024-01-02 03:04:05.5,,false,1,\n")
    source = CsvSource(tmp_path)
    assert source.schema.types == [
        pa.int64(), pa.float64(), pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.bool_(), pa.string(),
        pa.string(),
    ]  # fmt: skip
    first, second = read_all(source).to_pylist()
    assert (first["f"], first["t"]) == (1.0, datetime.datetime(2024, 1, 2))
    assert first["z"] == datetime.datetime(2024, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
    assert (second["s"], second["e"], second["t"].microsecond) == ("1", None, 500_000)
    assert set(CsvSource(tmp_path, infer_schema=False).schema.types) == {pa.string()}


@pytest.mark.parametrize(
    "value",
    ["2024-01-01T10:00:00.1234567Z", "2024-01-01T10:00:00.1234567", "2024-01-01 10:00:00.123456789", "0x1f", "0X1F"],
)
def test_no_type_is_inferred_that_its_own_sample_does_not_fit(tmp_path, value):
    write(tmp_path / "a.csv", f"a,n\n,1\n{value},0\n")
    source = CsvSource(tmp_path)
    assert source.schema == pa.schema({"a": pa.string(), "n": pa.int64()})
    assert [r["a"] for r in read_all(source).to_pylist()] == [None, value]
    write(tmp_path / "a.csv", f"1\n{value}\n")
    assert CsvSource(tmp_path, csv=CsvFormat(header=False)).schema == pa.schema({"_c0": pa.string()})


def test_types_that_are_given(tmp_path):
    write(tmp_path / "a.csv", "d,t,z,dec,f\n31/12/2024,31/12/2024 10:11,2024-01-02 03:04:05,1.5,1.5\n")
    schema = pa.schema(
        {
            "d": pa.date32(),
            "t": pa.timestamp("us"),
            "z": pa.timestamp("us", "UTC"),
            "dec": pa.decimal128(8, 2),
            "f": pa.float32(),
        }
    )
    csv = CsvFormat(date_formats=("%d/%m/%Y",), timestamp_formats=("%d/%m/%Y %H:%M",))
    (row,) = rows(tmp_path, schema=schema, csv=csv)
    assert row == {
        "d": datetime.date(2024, 12, 31),
        "t": datetime.datetime(2024, 12, 31, 10, 11),
        "z": datetime.datetime(2024, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
        "dec": decimal.Decimal("1.50"),
        "f": 1.5,
    }


def test_zones_of_all_kinds_in_one_column(tmp_path):
    write(tmp_path / "a.csv", "z\n2024-01-01 02:00:00\n2024-01-01T02:00:00Z\n2024-01-01T02:00:00+02:00\n")
    hours = [r["z"].hour for r in rows(tmp_path, schema=pa.schema({"z": pa.timestamp("us", "UTC")}))]
    assert hours == [2, 2, 0]


def test_nulls_quotes_and_escapes(tmp_path):
    write(tmp_path / "a.csv", 'a,b\n,""\nNULL,"NULL"\n"x ""y""",z\n')
    assert rows(tmp_path / "a.csv", csv=CsvFormat(null_values=("", "NULL"))) == [
        {"a": None, "b": ""},
        {"a": None, "b": "NULL"},
        {"a": 'x "y"', "b": "z"},
    ]
    write(tmp_path / "b.csv", "a|b\n'it\\'s'|\"\n")
    (row,) = rows(tmp_path / "b.csv", csv=CsvFormat(sep="|", quote="'", escape="\\"))
    assert row == {"a": "it's", "b": '"'}


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_values_with_line_ends_need_the_option(tmp_path, name):
    text = "a,b\n" + "".join(f'{i},"one\ntwo, {i}"\n' for i in range(50))
    write(tmp_path / name, gzip.compress(text.encode()) if name.endswith("gz") else text)
    csv = CsvFormat(newlines_in_values=True)
    source = CsvSource(tmp_path / name, csv=csv)
    assert len(source.list_splits(1)) == 1
    assert read_all(source, 1).to_pylist() == [{"a": i, "b": f"one\ntwo, {i}"} for i in range(50)]
    with pytest.raises(FiresteelError, match=r"a\.csv.*newlines_in_values=True"):
        rows(tmp_path / name, schema=source.schema)


def test_pushed_columns_and_filters(tmp_path):
    write(tmp_path / "a.csv", NUMBERED)
    source = CsvSource(tmp_path).push_down(["s"], pc.field("n") > 297)
    assert read_all(source, 500).to_pylist() == [{"s": "v298, x"}, {"s": "v299, x"}]
    with pytest.raises(UsageError, match="has no column 'z'"):
        CsvSource(tmp_path).push_down(["z"], None)


# --- what does not fit ---


@pytest.mark.parametrize("volume", [1 << 10, 64 << 20])
def test_a_value_of_another_type_is_named_with_its_line(tmp_path, volume):
    lines = ["n,m"] + [f"{i},1" for i in range(20_000)]
    lines[15_001] = "15000,oops"
    lines.insert(100, "")  # an empty line is a line, and no row
    write(tmp_path / "a.csv", "\n".join(lines))
    with pytest.raises(FiresteelError) as caught:
        rows(tmp_path, volume, schema=pa.schema({"n": pa.int64(), "m": pa.int64()}))
    assert f"{tmp_path}/a.csv, line 15003: column 'm' is int64, and 'oops' does not fit." in str(caught.value)
    assert "schema='m string, ...'" in str(caught.value)


def test_values_that_are_converted_after_parsing_are_named_too(tmp_path):
    write(tmp_path / "a.csv", "z,k\n2024-01-01,1\nyesterday,2\n")
    schema = pa.schema({"z": pa.timestamp("us", "UTC"), "k": pa.int64()})
    with pytest.raises(FiresteelError, match=r"a\.csv, line 3: column 'z' is timestamp.*'yesterday' does not fit"):
        rows(tmp_path, schema=schema)


@pytest.mark.parametrize(
    ("value", "advised"),
    [
        ("2024-01-01T10:00:00.1234567Z", None),  # a moment, only finer
        ("2024-01-01 10:00:00.1", None),
        ("n/a", "null_values=['-', 'n/a']."),
        ("0000-00-00", "null_values=['-', '0000-00-00']."),
    ],
)
def test_what_may_stand_for_null_is_advised_whole(tmp_path, value, advised):
    write(tmp_path / "a.csv", f"d\n2024-01-01\n{value}\n")
    with pytest.raises(FiresteelError) as caught:
        rows(tmp_path, schema=pa.schema({"d": pa.date32()}), csv=CsvFormat(null_values=("-",)))
    assert f"and {value!r} does not fit" in str(caught.value)
    assert (advised or "(with all columns).") in str(caught.value)
    assert ("null_values" in str(caught.value)) == (advised is not None)


def test_a_row_with_too_many_values(tmp_path):
    write(tmp_path / "a.csv", "a,b\n1,2\n1,2,3\n")
    with pytest.raises(FiresteelError, match=r"a\.csv, line 3: Expected 2 columns, got 3: 1,2,3\. .*quote="):
        rows(tmp_path, schema=pa.schema({"a": pa.int64(), "b": pa.int64()}))
    with pytest.raises(UsageError, match=r"a\.csv cannot be read as CSV"):
        CsvSource(tmp_path)


def test_headers_that_differ(tmp_path):
    write(tmp_path / "0.csv", "a,b\n1,2\n")
    write(tmp_path / "1.csv", "b,a\n1,2\n")
    with pytest.raises(
        UsageError, match=r"do not have one schema: .*1\.csv has the columns b, a.* union_by_name\(\)\."
    ):
        CsvSource(tmp_path)
    (tmp_path / "2").mkdir()
    write(tmp_path / "2" / "1.csv", "a\n1\n")
    with pytest.raises(UsageError, match=r"union_by_name\(\); with allow_missing_columns=True"):
        CsvSource([tmp_path / "0.csv", tmp_path / "2"])
    with pytest.raises(FiresteelError, match=r"1\.csv has the columns b, a in its header, not a, b"):
        rows(tmp_path, schema=pa.schema({"a": pa.int64(), "b": pa.int64()}))


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("b,a", "they come in another order, column 1 is 'b' instead of 'a'"),
        ("a", "it lacks 'b'"),
        ("a,b,c", "it has 'c' more"),
        ("a,x", "it has 'x' more and it lacks 'b'"),
        ("a,b,b", "it names 'b' twice"),
    ],
)
@pytest.mark.parametrize("given", [None, pa.schema({"a": pa.int64(), "b": pa.int64()})])
def test_headers_are_compared_before_the_job_starts(tmp_path, header, said, given):
    for number in range(12):
        write(tmp_path / f"{number:02}.csv", "a,b\n1,2\n")
    write(tmp_path / "03.csv", b'\xef\xbb\xbf\r\n"a","b"')
    write(tmp_path / "04.csv", "\n")
    write(tmp_path / "10.csv", header + "\n" + header.replace("a", "1") + "\n")
    with pytest.raises(UsageError) as raised:
        CsvSource(tmp_path, schema=given).list_splits(1 << 20)
    told = str(raised.value)
    assert f"10.csv has the columns {', '.join(header.split(','))} in its header, not a, b as" in told
    assert f"{tmp_path / '00.csv'} has: {said}." in told


def test_headers_of_partitions_that_are_not_read_are_not_compared(tmp_path):
    for year, header in (("2023", "a,b"), ("2024", "b,a")):
        (tmp_path / f"year={year}").mkdir()
        write(tmp_path / f"year={year}" / "0.csv", f"{header}\n1,2\n")
    source = CsvSource(tmp_path, schema=pa.schema({"a": pa.int64(), "b": pa.int64()}))
    with pytest.raises(UsageError, match="another order"):
        source.list_splits(1 << 20)
    assert len(source.push_down(None, pc.field("year") == 2023).list_splits(1 << 20)) == 1


def test_headers_are_compared_whatever_they_look_like(tmp_path):
    write(tmp_path / "0.csv", f"{LONG},b\n")
    write(tmp_path / "1.csv.gz", gzip.compress(f"{LONG},c\n".encode()))
    with pytest.raises(UsageError, match=r"it has 'c' more and it lacks 'b'"):
        CsvSource(tmp_path, schema=pa.schema({LONG: pa.string(), "b": pa.string()})).list_splits(1 << 20)
    (tmp_path / "lines").mkdir()
    write(tmp_path / "lines" / "0.csv", '"a\nb",c\n1,2\n')  # a name that holds a line end
    spread = CsvFormat(newlines_in_values=True)
    assert rows(tmp_path / "lines", csv=spread) == [{"a\nb": 1, "c": 2}]


def test_a_task_tells_of_a_header_that_was_not_compared(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_files, "_COMPARED", 1)
    write(tmp_path / "0.csv", "a,b\n1,2\n")
    write(tmp_path / "1.csv", f"b,{LONG}\n3,4\n")
    with pytest.raises(FiresteelError, match=r"1\.csv has the columns b, x+ in its header, not a, b: "):
        rows(tmp_path, schema=pa.schema({"a": pa.int64(), "b": pa.int64()}))


@pytest.mark.parametrize("spread", [False, pytest.param(True, marks=pytest.mark.full)])
@pytest.mark.parametrize(
    ("text", "schema"),
    [
        (f"id,t,n\n1,{LONG},2.5\n2,y,3\n", {"id": pa.int64(), "t": pa.string(), "n": pa.float64()}),
        (f"id,t,n\n1,{LONG * 3},2.5\n", {"id": pa.int64(), "t": pa.string(), "n": pa.float64()}),
        (f"{LONG},n\n1,2.5\n", {LONG: pa.int64(), "n": pa.float64()}),
        (f"{LONG},n\n1,{LONG}\n", {LONG: pa.int64(), "n": pa.string()}),
        (f"{LONG * 5},n\n1,2.5\n", {LONG * 5: pa.int64(), "n": pa.float64()}),
    ],
    ids=["row", "row of blocks", "header", "both", "header of blocks"],
)
def test_a_long_first_line_does_not_spoil_the_types(tmp_path, text, schema, spread):
    write(tmp_path / "a.csv", text)
    source = CsvSource(tmp_path, csv=CsvFormat(newlines_in_values=spread))
    assert source.schema == pa.schema(schema)
    assert read_all(source).num_rows == text.count("\n") - 1


def test_types_of_rows_with_line_ends_are_inferred_wherever_the_sample_ends(tmp_path):
    """Its last line may be half a value."""
    write(tmp_path / "a.csv", "id,t,n\n" + f'1,"q\n{LONG[:5000]}",2.5\n' * 500)
    write(tmp_path / "b.csv", f'id,t,n\n1,"q\n{LONG * 5}",2\n3,"",4\n')
    source = CsvSource(tmp_path, csv=CsvFormat(newlines_in_values=True))
    assert source.schema == pa.schema({"id": pa.int64(), "t": pa.string(), "n": pa.float64()})
    table = read_all(source)
    assert (table.num_rows, pc.sum(table["n"]).as_py()) == (502, 500 * 2.5 + 6)
    write(tmp_path / "b.csv", 'id,t,n\n1,2\n3,"x",4\n')
    with pytest.raises(UsageError, match="Expected 3 columns, got 2: 1,2"):
        CsvSource(tmp_path, csv=CsvFormat(newlines_in_values=True))


def test_a_long_row_far_behind_is_read_and_nothing_twice(tmp_path):
    text = "n,t\n" + "".join(f'{n},"{LONG[:99]}\n"\n' for n in range(100_000)) + f'7,"{LONG * 5}"\n8,""\n'
    write(tmp_path / "a.csv.gz", gzip.compress(text.encode(), 1))
    numbers = read_all(CsvSource(tmp_path, csv=CsvFormat(newlines_in_values=True)))["n"].to_pylist()
    assert numbers == [*range(100_000), 7, 8]


def test_damaged_files_are_named(tmp_path):
    whole = gzip.compress(b"a\n" + b"123\n" * 5000)
    write(tmp_path / "a.csv.gz", whole[:-20])
    with pytest.raises(UsageError, match=r"a\.csv\.gz cannot be read: .*damaged"):
        CsvSource(tmp_path)
    with pytest.raises(FiresteelError, match=r"a\.csv\.gz cannot be read"):
        rows(tmp_path, schema=pa.schema({"a": pa.int64()}))
    write(tmp_path / "a.csv.gz", b"a\n1\n")
    assert rows(tmp_path, compression="none") == [{"a": 1}]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"csv": CsvFormat(sep="::")}, "sep='::' must be one character"),
        ({"csv": CsvFormat(sep='"')}, "sep and quote are both"),
        ({"csv": CsvFormat(date_formats=("dd/MM/yyyy",))}, "not a strptime pattern"),
        ({"compression": "rar"}, "compression='rar' is not one that read_csv has"),
        ({"schema": pa.schema({"a": pa.list_(pa.int8())})}, "cannot be read from CSV"),
    ],
)
def test_options_that_cannot_be(tmp_path, options, message):
    write(tmp_path / "a.csv", "a\n1\n")
    with pytest.raises(UsageError, match=message):
        CsvSource(tmp_path, **options)


def test_nothing_to_infer_from(tmp_path):
    write(tmp_path / "a.csv", "")
    with pytest.raises(UsageError, match=r"the files are empty.*schema="):
        CsvSource(tmp_path)
    assert rows(tmp_path, schema=pa.schema({"a": pa.int64()})) == []


# --- writing ---

TABLE = pa.table(
    {
        "i": pa.array([1, None, 3], pa.int32()),
        "s": ["", None, 'a "b", c\\'],
        "f": [1.5, float("nan"), float("-inf")],
        "d": pa.array([datetime.date(2024, 2, 29)] * 3),
        "z": pa.array([datetime.datetime(2024, 1, 1, 1, 2, 3, 5)] * 3, pa.timestamp("us", "UTC")),
        "dec": pa.array([decimal.Decimal("1.50")] * 3, pa.decimal128(9, 2)),
        "b": [True, None, False],
        "w": pa.array(["x", "y", "x"]).dictionary_encode(),
    }
)


@pytest.mark.parametrize("compression", [None, "gzip", "bz2", "zstd", "lz4"])
def test_what_is_written_is_read_again(tmp_path, compression):
    sink = CsvSink(tmp_path / "out", compression=compression)
    sink.commit(run_sink(sink, [TABLE.to_batches(), [], TABLE.to_batches()], TABLE.schema))
    plain = TABLE.set_column(7, "w", TABLE["w"].cast(pa.string()))
    got = read_all(CsvSource(tmp_path / "out", schema=plain.schema))
    assert str(got.to_pylist()) == str(plain.to_pylist() * 2)
    assert len(list((tmp_path / "out").glob("part-*"))) == 2


def test_duckdb_reads_what_is_written(tmp_path):
    sink = CsvSink(tmp_path / "out", null_value="NULL", sep=";")
    sink.commit(run_sink(sink, [TABLE.to_batches()], TABLE.schema))
    found = duckdb.sql(
        f"select i, s, f, d, b from read_csv('{tmp_path}/out/*.csv', delim=';', nullstr='NULL', allow_quoted_nulls=false)"
    ).fetchall()
    assert str(found) == str([tuple(row[c] for c in ("i", "s", "f", "d", "b")) for row in TABLE.to_pylist()])


def test_no_rows_make_a_file_with_a_header(tmp_path):
    sink = CsvSink(tmp_path / "out")
    sink.commit(run_sink(sink, [[]], pa.schema({"a": pa.int64(), "b": pa.string()})))
    assert (tmp_path / "out" / "part-00000.csv").read_text() == '"a","b"\n'


def test_a_null_alone_in_a_line_is_refused(tmp_path):
    schema = pa.schema({"a": pa.string()})
    sink = CsvSink(tmp_path / "out")
    with pytest.raises(FiresteelError, match="empty line: readers of CSV skip"):
        run_sink(sink, [[pa.record_batch([["x", None]], schema=schema)]], schema)
    sink.abort([])
    again = CsvSink(tmp_path / "out", null_value="NULL")
    again.commit(run_sink(again, [[pa.record_batch([["x", None]], schema=schema)]], schema))
    assert rows(tmp_path / "out", csv=CsvFormat(null_values=("NULL",))) == [{"a": "x"}, {"a": None}]


def test_what_csv_cannot_hold(tmp_path):
    with pytest.raises(UsageError, match="CSV cannot hold column 'a' of type list"):
        CsvSink(tmp_path / "out").check(pa.schema({"a": pa.list_(pa.int8())}))
    with pytest.raises(UsageError, match="CSV cannot hold column 'a' of type binary"):
        CsvSink(tmp_path / "out").check(pa.schema({"a": pa.binary()}))
    with pytest.raises(UsageError, match="would need quotes"):
        CsvSink(tmp_path / "out", null_value='"')


def test_place_names_the_piece(tmp_path):
    write(tmp_path / "a.csv", NUMBERED)
    source, ctx = CsvSource(tmp_path), context()
    splits = source.list_splits(1 << 10)
    assert len(splits) > 1
    (_,) = list(source.read(splits[1].payload, ctx))
    assert ctx.place == f"{tmp_path}/a.csv, bytes {splits[1].payload[0].start}-{splits[1].payload[0].end}"


@pytest.mark.parametrize("text", ['1,"x\ny"\n2,z\n', '1,x\n2,"a"\n3,"open\nclosed"\n', '1,"only\n'])
@pytest.mark.parametrize("volume", [1, 8, 64 << 20])
def test_a_line_end_in_quotes_is_never_read_as_something_else(tmp_path, text, volume):
    write(tmp_path / "a.csv", text)
    schema = pa.schema({"a": pa.string(), "b": pa.string()})
    source = CsvSource(tmp_path, schema=schema, csv=CsvFormat(header=False))
    with pytest.raises(FiresteelError, match=r"a\.csv"):
        read_all(source, volume)
    with pytest.raises(FiresteelError, match=r"a\.csv"):
        read_all(source.push_down(["a"], None), volume)


def test_quotes_that_are_none(tmp_path):
    write(tmp_path / "a.csv", '1,5" pipe\n2,x"\n')
    csv = CsvFormat(header=False)
    assert [r["_c1"] for r in rows(tmp_path, csv=csv)] == ['5" pipe', 'x"']


@pytest.mark.parametrize("newlines", [False, True])
def test_other_encodings(tmp_path, newlines):
    write(tmp_path / "a.csv", "café;s\n1;grün\n".encode("latin-1"))
    csv = CsvFormat(sep=";", encoding="latin-1", newlines_in_values=newlines)
    assert rows(tmp_path, csv=csv) == [{"café": 1, "s": "grün"}]
    schema = pa.schema({"a": pa.int64(), "s": pa.string()})
    write(tmp_path / "a.csv", b"1;gr\xfcn\n")
    with pytest.raises(FiresteelError, match=r"a\.csv, line 1: column 's' has bytes that are not UTF-8.*encoding="):
        rows(tmp_path, schema=schema, csv=CsvFormat(sep=";", header=False))
    with pytest.raises(UsageError, match="encoding='utf-16'"):
        CsvSource(tmp_path, csv=CsvFormat(encoding="utf-16"))


UTF_16 = {f"{byte_order}.csv": "\ufeffid,name\n1,Ann\n".encode(f"utf-16-{byte_order}") for byte_order in ("le", "be")}
FOREIGN = {
    **{name: (data, r"is text in UTF-16, which read_csv does not read\..*UTF-8") for name, data in UTF_16.items()},
    "a.csv.gz.tmp": (gzip.compress(b"id,name\n1,Ann\n"), r"is compressed with gzip, .*compression='gzip'"),
    "a.csv.zst.tmp": (pa.compress(b"id,name\n1,Ann\n", "zstd", asbytes=True), "is compressed with zstd"),
    "a.xlsx": (b"PK\x03\x04\x14\x00\x06\x00\n\x00\xff,\n", "is a zip archive.*workbook as CSV"),
    "a.csv": (
        "id,café\n1,Ann\n".encode("latin-1"),
        r"has a header with bytes that are not UTF-8\..*encoding='latin-1'",
    ),
}


@pytest.mark.parametrize("newlines", [False, True])
@pytest.mark.parametrize("name", FOREIGN)
def test_files_that_are_no_text_in_the_encoding_are_named(tmp_path, name, newlines):
    data, said = FOREIGN[name]
    (tmp_path / name).write_bytes(data)
    csv = CsvFormat(newlines_in_values=newlines)
    for schema in (None, pa.schema([("id", pa.int64()), ("name", pa.string())])):
        with pytest.raises(UsageError) as caught:
            read_all(CsvSource(tmp_path, schema=schema, csv=csv))
        assert re.search(f"{re.escape(name)} {said}", str(caught.value)), caught.value
