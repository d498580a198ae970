"""Lines that cannot be read, kept with their text."""

import csv
import gzip
import json
import random
import time

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from connectors_kit import context, read_all
from firesteel.connectors.files.reading.lines import RefusedError, rows_of_lines
from firesteel.connectors.formats.csv_files import CsvSource
from firesteel.connectors.formats.csv_format import CsvFormat
from firesteel.connectors.formats.json_files import JsonSource
from firesteel.errors import FiresteelError, UsageError

BAD = "_corrupt_record"
SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string()), ("day", pa.date32())])
LINES = [
    "1,one,2024-01-01",
    "2,two",  # too few
    "3,three,2024-01-03,3",  # too many
    "four,four,2024-01-04",  # no number
    '5,"fi""ve",',
    "6,six,2024-02-30",  # no day
    '7,"seven,2024-01-07',  # quotes left open
    "",
    "8,eight,2024-01-08",
]
GOOD_NUMBERS = [1, 5, 8]


@pytest.fixture
def path(tmp_path):
    (tmp_path / "a.csv").write_text("n,s,day\n" + "\n".join(LINES) + "\n")
    return tmp_path / "a.csv"


def expected_csv(line):
    """What Python's reader, a line at a time, makes of it."""
    nothing = dict.fromkeys(SCHEMA.names)
    try:
        (cells,) = csv.reader([line], strict=True)
        batch = pa.record_batch([pa.array([cell or None]) for cell in cells], names=SCHEMA.names)
        return {**batch.cast(SCHEMA).to_pylist()[0], BAD: None}
    except (csv.Error, pa.ArrowException, ValueError):
        return {**nothing, BAD: line}


@pytest.mark.parametrize("volume", [1, 30, 1 << 20])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_bad_lines_of_csv_keep_their_text(tmp_path, volume, end):
    (tmp_path / "a.csv").write_bytes(end.join(["n,s,day", *LINES]).encode())
    read = CsvSource(tmp_path / "a.csv", schema=SCHEMA, corrupt_column=BAD)
    assert read.schema.names == ["n", "s", "day", BAD]
    assert read_all(read, volume).to_pylist() == [expected_csv(line) for line in LINES if line]


def test_without_the_column_the_first_bad_line_ends_the_job_and_the_column_is_named(path):
    with pytest.raises(FiresteelError, match=r"line 3: Expected 3 columns, got 2.*corrupt_column='_corrupt_record'"):
        read_all(CsvSource(path, schema=SCHEMA))


def test_a_line_is_corrupt_whichever_columns_are_read(path):
    read = CsvSource(path, schema=SCHEMA, corrupt_column=BAD)
    assert read_all(read.push_down(["n"], None))["n"].to_pylist() == [1, None, None, None, 5, None, None, 8]
    good = read.push_down(["s"], pc.field(BAD).is_null())
    assert read_all(good)["s"].to_pylist() == ["one", 'fi"ve', "eight"]
    bad = read.push_down([BAD], pc.field(BAD).is_valid())
    assert read_all(bad)[BAD].to_pylist() == [line for line in LINES if line and expected_csv(line)[BAD]]
    none = read.push_down([], None)
    assert sum(b.num_rows for s in none.list_splits(1) for b in none.read(s.payload, context())) == 8


def test_types_are_inferred_from_the_lines_that_have_all_values(tmp_path):
    (tmp_path / "a.csv").write_text("n,s\n1,x\n2\n3,y,z\n4,w\n")
    read = CsvSource(tmp_path, corrupt_column="bad")
    assert read.schema.types == [pa.int64(), pa.string(), pa.string()]
    assert read_all(read).to_pylist() == [
        {"n": 1, "s": "x", "bad": None},
        {"n": None, "s": None, "bad": "2"},
        {"n": None, "s": None, "bad": "3,y,z"},
        {"n": 4, "s": "w", "bad": None},
    ]


def test_bytes_that_are_no_text_are_shown_as_such(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"n,s\n1,ok\n2,\xff\xfe\n")
    read = CsvSource(tmp_path, schema=SCHEMA.remove(2), corrupt_column="bad")
    assert read_all(read)["bad"].to_pylist() == [None, "2,\ufffd\ufffd"]


def test_partitions_and_compression(tmp_path):
    (tmp_path / "year=2024").mkdir()
    (tmp_path / "year=2024" / "a.csv.gz").write_bytes(gzip.compress(b"n\n1\nx\n"))
    read = CsvSource(tmp_path, schema=pa.schema([("n", pa.int64())]), corrupt_column="bad")
    assert read_all(read).to_pylist() == [{"n": 1, "bad": None, "year": 2024}, {"n": None, "bad": "x", "year": 2024}]


def test_a_schema_may_hold_the_column_as_sparks_do(path):
    read = CsvSource(path, schema=SCHEMA.append(pa.field(BAD, pa.string())), corrupt_column=BAD)
    assert read.schema.names == ["n", "s", "day", BAD]
    assert pc.drop_null(read_all(read)["n"]).to_pylist() == GOOD_NUMBERS
    with pytest.raises(
        UsageError, match=r"column '_corrupt_record' holds the text of corrupt lines, and int64 is not a string"
    ):
        CsvSource(path, schema=SCHEMA.append(pa.field(BAD, pa.int64())), corrupt_column=BAD)


@pytest.mark.parametrize("source", [CsvSource, JsonSource])
def test_what_cannot_be_is_said(tmp_path, source):
    (tmp_path / "year=1").mkdir()
    data = "n,s\n1,x\n" if source is CsvSource else '{"n": 1, "s": "x"}\n'
    (tmp_path / "year=1" / "a").write_text(data)
    for name in ("n", "year"):
        with pytest.raises(UsageError, match=f"the files have a column '{name}' of their own"):
            source(tmp_path, corrupt_column=name)
    for wrong in ("", 3, True):
        with pytest.raises(UsageError, match=r"corrupt_column=.* must be the name of a column"):
            source(tmp_path, corrupt_column=wrong)
    more = {"csv": CsvFormat(newlines_in_values=True)} if source is CsvSource else {"newlines_in_values": True}
    with pytest.raises(UsageError, match=r"corrupt_column= and newlines_in_values=True do not go together"):
        source(tmp_path, corrupt_column="bad", **more)


JSON_SCHEMA = pa.schema(
    [("n", pa.int64()), ("s", pa.struct([("a", pa.int64())])), ("m", pa.map_(pa.string(), pa.int64()))]
)
JSON_LINES = [
    '{"n": 1, "s": {"a": 1}}',
    '{"n": 2',
    '{"n": "two"}',
    "null",
    '[{"n": 3}]',
    "   ",
    '{"n": 4} {"n": 5}',
    '{"s": {"a": "x"}}',
    '{"n": 6, "other": [1, 2]}',
    "not json",
    "{}",
]


@pytest.mark.parametrize("with_map", [True, False])
@pytest.mark.parametrize("volume", [1, 1 << 20])
def test_bad_lines_of_json_keep_their_text(tmp_path, with_map, volume):
    (tmp_path / "a.json").write_text("\n".join(JSON_LINES))
    schema = JSON_SCHEMA if with_map else JSON_SCHEMA.remove(2)
    read = JsonSource(tmp_path, schema=schema, corrupt_column=BAD)
    nothing = dict.fromkeys(schema.names)
    wanted = []
    for line in filter(str.strip, JSON_LINES):
        try:
            given = json.loads(line)
            row = {name: given.get(name) for name in schema.names}
            pa.array([row["n"]], pa.int64())
            pa.array([row["s"]], JSON_SCHEMA.field("s").type)
            wanted.append({**row, BAD: None})
        except (ValueError, AttributeError, pa.ArrowException):
            wanted.append({**nothing, BAD: line})
    assert read_all(read, volume).to_pylist() == wanted
    assert sum(row[BAD] is None for row in wanted) == 3


def test_json_types_are_inferred_from_sound_lines_and_late_fields_are_kept(tmp_path):
    lines = ['{"n": 1}', "broken {", *['{"n": 2}'] * 200_000, '{"n": 3, "late": 1}']
    (tmp_path / "a.json").write_text("\n".join(lines))
    read = JsonSource(tmp_path, corrupt_column="bad")
    assert read.schema.equals(pa.schema([("n", pa.int64()), ("bad", pa.string())]))
    got = read_all(read)
    assert pc.drop_null(got["bad"]).to_pylist() == ["broken {", '{"n": 3, "late": 1}']
    assert (got.num_rows, pc.sum(got["n"]).as_py()) == (200_003, 400_001)


@pytest.mark.parametrize("knows", ["nothing", "the first", "all", "the wrong one"])
@pytest.mark.parametrize("bad", [0, 1, 7, 900, 1024])
def test_bad_lines_are_found_whatever_the_parser_knows_of_them(knows, bad):
    schema = pa.schema([("n", pa.int64()), ("bad", pa.string())])
    chosen = set(random.Random(bad).sample(range(1024), bad))
    calls = []

    def parse(block):
        calls.append(block)
        numbers = [int(line) for line in block.split()]
        wrong = [row for row, number in enumerate(numbers) if number in chosen]
        if wrong:
            told = {"nothing": [], "the first": wrong[:1], "all": wrong, "the wrong one": [wrong[0] + 1]}[knows]
            raise RefusedError(told, all=knows == "all", sure=knows != "the wrong one")
        return pa.record_batch([pa.array(numbers, pa.int64())], names=["n"])

    block = b"\n".join(b"%d\n" % i for i in range(1024))
    got = rows_of_lines(block, parse, schema).to_pylist()
    assert [row["n"] if row["bad"] is None else int(row["bad"]) for row in got] == list(range(1024))
    assert {int(row["bad"]) for row in got if row["bad"] is not None} == chosen
    if bad and knows == "all":
        assert len(calls) == 1 + (bad < 1024)
    if bad == 7:
        assert len(calls) < 1000


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in (1, 2))])
@pytest.mark.parametrize("quote", ['"', None])
def test_whatever_is_between_them_each_line_is_what_it_is_alone(tmp_path, seed, quote):
    """Also where bad lines follow each other, and quotes left open in one would close in the next."""
    rng = random.Random(seed)
    cells = ["1", "x", "", "2024-01-01", '"a,b"', '"open', 'mid"dle', '"do""uble"', " 7 ", "\u00e9", "0x1f"]
    lines = [",".join(rng.choices(cells, k=rng.choice([3, 3, 3, 3, 2, 4]))) for _ in range(100)]
    options = {"schema": SCHEMA, "csv": CsvFormat(header=False, quote=quote), "corrupt_column": BAD}
    alone = []
    for i, line in enumerate(lines):
        (tmp_path / f"{i}.csv").write_text(line + "\n")
        alone += read_all(CsvSource(tmp_path / f"{i}.csv", **options)).to_pylist()
    (tmp_path / "all.csv").write_text("\n".join(lines))
    for volume in (1000, 1 << 20):
        assert read_all(CsvSource(tmp_path / "all.csv", **options), volume).to_pylist() == alone
    assert len(alone) == 100


@pytest.mark.parametrize(
    ("data", "bad"),
    [
        (b"1,a\\\n2,b\n", ["1,a\\", None]),  # an escaped line end
        (b"1,a\\\n2,b\\", ["1,a\\", "2,b\\"]),
        (b'1,"a\\",\n2,b\n', ['1,"a\\",', None]),
        (b'1,"a\\"b"\n2,5" disk\n3,6" disk\n', [None, None, None]),
    ],
)
def test_an_escape_joins_no_lines(tmp_path, data, bad):
    (tmp_path / "a.csv").write_bytes(data)
    csv_format = CsvFormat(header=False, escape="\\")
    schema = SCHEMA.remove(2)
    got = read_all(CsvSource(tmp_path, schema=schema, csv=csv_format, corrupt_column=BAD))
    assert got[BAD].to_pylist() == bad
    if any(bad):
        with pytest.raises(FiresteelError):
            read_all(CsvSource(tmp_path, schema=schema, csv=csv_format))


def test_the_last_line_needs_no_end(tmp_path):
    (tmp_path / "a.csv").write_bytes(b'"x",')
    schema = pa.schema([("n", pa.string()), ("s", pa.string())])
    for options in ({}, {"corrupt_column": BAD}):
        (row,) = read_all(CsvSource(tmp_path, schema=schema, csv=CsvFormat(header=False), **options)).to_pylist()
        assert (row["n"], row["s"]) == ("x", None)
    (tmp_path / "a.csv").write_bytes(b"1,2")
    assert read_all(CsvSource(tmp_path, csv=CsvFormat(header=False))).to_pylist() == [{"_c0": 1, "_c1": 2}]


def test_ragged_lines_that_are_no_text_are_told_apart_quietly(tmp_path, capfd):
    (tmp_path / "a.csv").write_bytes(b"n,s\n1,a\n2,\xff,x\n3,c\n")
    read = CsvSource(tmp_path, corrupt_column=BAD)
    assert read_all(read).to_pylist() == [
        {"n": 1, "s": "a", BAD: None},
        {"n": None, "s": None, BAD: "2,\ufffd,x"},
        {"n": 3, "s": "c", BAD: None},
    ]
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("schema", "lines", "bad"),
    [
        ([("a", pa.int64())], ['{"a":1}{"a":2}', ""], [0]),
        ([("a", pa.int64())], ['{"a":1}{"a":2}', '{"a":', "3}"], [0, 1, 2]),
        ([("a", pa.int64())], ['{"a":1}', "null", '{"a":3}'], [1]),
        ([("a", pa.string())], ['{"a":"}{"}', '{"a":"\\ud800"}', '{"a":"b"}'], [1]),
        ([("t", pa.timestamp("us"))], ['{"t":"2024-01-01T10:00:00+02:00"}', '{"t":"2024-01-01T10:00:00"}'], [0]),
        ([("a", pa.int64())], ['{"a":1e99999999999999999999}', '{"a":1}'], [0]),
        ([("s", pa.string())], ['{"s":' + "[" * 600 + "]" * 600 + "}", '{"s":[1]}'], [0]),
    ],
    ids=range(7),
)
def test_a_line_of_json_is_what_it_is_alone(tmp_path, schema, lines, bad):
    (tmp_path / "a.json").write_text("\n".join(lines) + "\n")
    got = read_all(JsonSource(tmp_path, schema=pa.schema(schema), corrupt_column=BAD))
    lines = [line for line in lines if line]
    assert got[BAD].to_pylist() == [line if n in bad else None for n, line in enumerate(lines)]
    with pytest.raises(FiresteelError, match=r"a\.json, line"):
        read_all(JsonSource(tmp_path, schema=pa.schema(schema)))


def test_a_line_that_is_nested_without_end_takes_no_process_down(tmp_path):
    deep = '{"a":2,"z":' + "[" * 20_000 + "1" + "]" * 20_000 + "}"
    (tmp_path / "a.json").write_text('{"a":1}\n' * 200_000 + deep + "\n")
    got = read_all(JsonSource(tmp_path, corrupt_column=BAD))
    assert pc.drop_null(got[BAD]).to_pylist() == [deep]
    (tmp_path / "a.json").write_text('{"a":1}\n' + deep + "\n")
    with pytest.raises(UsageError, match=r"this is not JSON"):
        JsonSource(tmp_path)
    (tmp_path / "a.json").write_text('{"a":' * 100 + "1" + "}" * 100 + "\n")
    with pytest.raises(UsageError, match=r"nested too deeply"):
        JsonSource(tmp_path)


def test_lines_that_only_look_open_cost_little(tmp_path):
    """5" disk is a value; one line of them is really open."""
    lines = [f'{n},5" disk' for n in range(20_000)]
    lines[777] = '777,"open'
    (tmp_path / "a.csv").write_text("\n".join(lines))
    read = CsvSource(tmp_path, schema=SCHEMA.remove(2), csv=CsvFormat(header=False), corrupt_column=BAD)
    began = time.process_time()
    assert pc.drop_null(read_all(read)[BAD]).to_pylist() == ['777,"open']
    assert time.process_time() - began < 5, "asked about in groups: 0.3 s; one by one: 10 s"
