"""JSON lines: values of every kind there and back, by Arrow's parser and by the slower one alike."""

import datetime
import decimal
import gzip
import json

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import examples

from connectors_kit import read_all, run_sink
from firesteel.api.ddl import parse_ddl
from firesteel.connectors.formats import plain_lines
from firesteel.connectors.formats.json_files import JsonSink, JsonSource, _fast, json_rows, wire_schema
from firesteel.connectors.formats.json_values import parse_lines
from firesteel.errors import FiresteelError, UsageError


def write(path, text):
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def rows(path, volume=64 << 20, **options):
    return read_all(JsonSource(path, **options), volume).to_pylist()


NUMBERED = "".join(f'{{"n":{i},"s":{{"t":["v{i}"]}}}}\n' for i in range(300))


@pytest.mark.parametrize("volume", [50, 1 << 20])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_rows_do_not_depend_on_where_splits_fall(tmp_path, volume, end):
    write(tmp_path / "a.json", NUMBERED.replace("\n", end))
    assert rows(tmp_path, volume) == [{"n": i, "s": {"t": [f"v{i}"]}} for i in range(300)]


def test_types_are_inferred_from_the_first_files(tmp_path):
    write(tmp_path / "0.json", '\n{"a":1,"b":"2024-01-01","c":{"x":1},"d":[1],"e":null}\n')
    write(tmp_path / "1.json.gz", gzip.compress(b'{"a":1.5,"c":{"y":"z"},"d":[null],"g":true}\n'))
    source = JsonSource(tmp_path)
    assert source.schema == pa.schema(
        {
            "a": pa.float64(),
            "b": pa.string(),
            "c": pa.struct({"x": pa.int64(), "y": pa.string()}),
            "d": pa.list_(pa.int64()),
            "e": pa.string(),
            "g": pa.bool_(),
        }
    )
    assert read_all(source).to_pylist() == [
        {"a": 1.0, "b": "2024-01-01", "c": {"x": 1, "y": None}, "d": [1], "e": None, "g": None},
        {"a": 1.5, "b": None, "c": {"x": None, "y": "z"}, "d": [None], "e": None, "g": True},
    ]


def test_a_field_of_several_types_is_a_string_of_their_json(tmp_path):
    write(tmp_path / "a.json", '{"a":1}\n{"a":"x"}\n{"a":{"b":[1.50,null,1E-7]}}\n{"a":true}\n{"a":1e2}\n')
    assert [r["a"] for r in rows(tmp_path)] == ["1", "x", '{"b":[1.50,null,1E-7]}', "true", "1e2"]


def test_fields_that_are_not_asked_for_are_left_out(tmp_path):
    write(tmp_path / "a.json", '{"a":1,"z":[{"q":1}]}\n{"b":"x"}\n{}\n')
    schema = pa.schema({"b": pa.string(), "a": pa.int8()})
    assert rows(tmp_path, schema=schema) == [{"b": None, "a": 1}, {"b": "x", "a": None}, {"b": None, "a": None}]
    source = JsonSource(tmp_path, schema=schema).push_down(["b"], pc.field("a") == 1)
    assert read_all(source).to_pylist() == [{"b": None}]


def test_objects_over_several_lines_and_arrays(tmp_path):
    write(tmp_path / "a.json", '{\n "a": 1\n}\n{"a":\n2}')
    write(tmp_path / "b.json", json.dumps([{"a": 3}, {"a": 4}], indent=2))
    assert [r["a"] for r in rows(tmp_path, newlines_in_values=True)] == [1, 2, 3, 4]


# --- what does not fit ---


@pytest.mark.parametrize("volume", [1 << 10, 64 << 20])
def test_a_value_of_another_type_is_named_with_its_line(tmp_path, volume):
    lines = [f'{{"n":{i},"o":{{"x":{i}}}}}' for i in range(10_000)]
    lines[9_000] = '{"n":1,"o":{"x":"oops"}}'
    write(tmp_path / "a.json", "\n".join(lines))
    with pytest.raises(FiresteelError) as caught:
        rows(tmp_path, volume, schema=pa.schema({"n": pa.int64(), "o": pa.struct({"x": pa.int64()})}))
    assert f"{tmp_path}/a.json, line 9001: column 'o'.x is int64, and 'oops' does not fit." in str(caught.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"a":', r"line 2: this is not JSON: '\{\"a\":'"),
        ("[1]", r"line 2: this is not a JSON object: '\[1\]'"),
        ('{"a":1.5}', r"line 2: column 'a' is int8, and '1.5' does not fit"),
        ('{"a":300}', r"line 2: column 'a' is int8, and '300' does not fit"),
        ('{"a":true}', r"line 2: column 'a' is int8, and 'true' does not fit"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, line, message):
    write(tmp_path / "a.json", '{"a":1}\n' + line + "\n")
    with pytest.raises(FiresteelError, match=message):
        rows(tmp_path, schema=pa.schema({"a": pa.int8()}))


# --- fields that were not in the sample ---


def test_a_field_that_comes_after_the_sample_is_named_with_its_line(tmp_path):
    write(tmp_path / "a.json", '{"a":1}\n' * 140_000 + '{"a":1,"b":"lost"}\n')
    for volume in (1 << 16, 64 << 20):  # in a piece of its own, and behind others
        with pytest.raises(FiresteelError) as caught:
            rows(tmp_path, volume)
        assert f"{tmp_path}/a.json, line 140001: the field 'b' is not in the schema" in str(caught.value)
        assert "schema='a bigint, b string'" in str(caught.value)
    given = pa.schema({"a": pa.int64()})  # then it is meant so
    assert rows(tmp_path, schema=given)[-1] == {"a": 1}
    write(tmp_path / "a.json", '{"a":1}\n' * 140_000 + '{"a":1,"b":null}\n')  # nothing is lost
    assert rows(tmp_path)[-1] == {"a": 1}


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize(
    ("line", "field", "schema"),
    [
        (
            '{"n":1,"x y":[true]}',
            "x y",
            "n bigint, o struct<x: bigint>, l array<struct<x: bigint>>, `x y` array<boolean>",
        ),
        ('{"o":{"x":1,"y":0.5}}', "o.y", "n bigint, o struct<x: bigint, y: double>, l array<struct<x: bigint>>"),
        ('{"l":[{},{"y":"z"}]}', "l[1].y", "n bigint, o struct<x: bigint>, l array<struct<x: bigint, y: string>>"),
    ],
)
def test_a_field_of_a_later_file_is_named(tmp_path, whole, line, field, schema):
    for i in range(8):  # so many files are sampled
        write(tmp_path / f"{i}.json", '{"n":1,"o":{"x":1},"l":[{"x":1}]}\n')
    write(tmp_path / "8.json", '{"n":1,"later":null,"o":{"later":null}}\n' + line + "\n")
    with pytest.raises(FiresteelError) as caught:
        rows(tmp_path, newlines_in_values=whole)
    where = "object 2" if whole else "line 2"
    assert f"{tmp_path}/8.json, {where}: the field '{field}' is not in the schema" in str(caught.value)
    assert f"schema='{schema}'" in str(caught.value)
    assert parse_ddl(schema).names[0] == "n"  # what the hint says can be given


def test_fields_that_nobody_reads_stop_nothing(tmp_path):
    for i in range(8):
        (tmp_path / "k=1").mkdir(exist_ok=True)
        write(tmp_path / f"k=1/{i}.json", '{"a":1,"b":2,"k":3}\n')
    write(tmp_path / "k=1/8.json", '{"a":1,"b":2,"k":4}\n')  # a partition column stands for this field
    assert rows(tmp_path)[-1] == {"a": 1, "b": 2, "k": 1}
    write(tmp_path / "k=1/8.json", '{"a":1,"b":2,"c":4}\n')
    assert read_all(JsonSource(tmp_path).push_down(["a"], None)).num_rows == 9
    with pytest.raises(FiresteelError, match=r"8\.json, line 1: the field 'c'"):
        rows(tmp_path)


def test_known_fields_are_parsed_fast_with_an_inferred_schema(tmp_path):
    block = b'{"n":1,"o":{"x":[{"y":1.5}]},"s":"x","e":{}}\n{"z":null}\n'
    schema = JsonSource(write(tmp_path / "a.json", block)).schema
    for part in (block, b'{"n":2}\n'):
        assert _fast(part, schema, wire_schema(schema), frozenset(schema.names)) is not None


@pytest.mark.parametrize("whole", [False, True])
def test_bytes_that_are_no_text(tmp_path, whole):
    write(tmp_path / "a.json", b'{"a":"x"}\n{"a":"caf\xe9"}\n')
    with pytest.raises(FiresteelError, match=r"a\.json, byte 19: this is not UTF-8"):
        rows(tmp_path, schema=pa.schema({"a": pa.string()}), newlines_in_values=whole)
    for data, said in (
        ('{"a":"x"}\n'.encode("utf-16"), "text in UTF-16"),
        (gzip.compress(b'{"a":"x"}\n'), "compressed with gzip"),
    ):
        write(tmp_path / "a.json", data)
        for schema in (None, pa.schema({"a": pa.string()})):
            with pytest.raises(UsageError, match=rf"a\.json is {said}"):
                rows(tmp_path, schema=schema, newlines_in_values=whole)


def test_what_cannot_be_inferred(tmp_path):
    write(tmp_path / "a.json", "not json\n")
    with pytest.raises(UsageError, match=r"a\.json, line 1: this is not JSON"):
        JsonSource(tmp_path)
    write(tmp_path / "a.json", "\n")
    with pytest.raises(UsageError, match="no fields to infer"):
        JsonSource(tmp_path)
    with pytest.raises(UsageError, match="dictionary"):
        JsonSource(tmp_path, schema=pa.schema({"a": pa.dictionary(pa.int8(), pa.string())}))


# --- there and back ---

UTC = pa.timestamp("us", "UTC")
TABLE = pa.table(
    {
        "i": pa.array([1, None, -3], pa.int16()),
        "f": [1.0, float("nan"), float("-inf")],
        "s": ["", None, 'a "b"\\\n\t\x01é'],
        "d": pa.array([datetime.date(2024, 2, 29), None, datetime.date(1, 1, 1)]),
        "t": pa.array([datetime.datetime(2024, 1, 1, 1, 2, 3, 5), None, None], pa.timestamp("us")),
        "z": pa.array([datetime.datetime(2024, 1, 1, 1, 2, 3), None, None], UTC),
        "dec": pa.array([decimal.Decimal("1.50"), None, decimal.Decimal("-0.01")], pa.decimal128(30, 2)),
        "b": [True, None, False],
        "bin": [b"\x00\xff", None, b""],
        "l": pa.array([[1, None], None, []], pa.list_(pa.int64())),
        "st": pa.array([{"x": 1, "y": [{"z": "q"}]}, None, {"x": None, "y": None}]),
        "m": pa.array([[("k", 1)], None, [("a", None), ("b", 2)]], pa.map_(pa.string(), pa.int64())),
        "fl": pa.array([[1, 2], None, [3, None]], pa.list_(pa.int8(), 2)),
        "w": pa.array(["x", None, "x"]).dictionary_encode(),
    }
)
READ_AS = TABLE.schema.set(13, pa.field("w", pa.string()))


@pytest.mark.parametrize("options", [{}, {"ignore_null_fields": False}, {"compression": "zstd"}])
def test_what_is_written_is_read_again(tmp_path, options):
    sink = JsonSink(tmp_path / "out", **options)
    sliced = [TABLE.slice(0, 1).to_batches()[0], *TABLE.slice(1, 2).to_batches()]
    sink.commit(run_sink(sink, [sliced], TABLE.schema))
    assert str(read_all(JsonSource(tmp_path / "out", schema=READ_AS)).to_pylist()) == str(TABLE.to_pylist())


def test_python_and_duckdb_read_what_is_written(tmp_path):
    sink = JsonSink(tmp_path / "out")
    sink.commit(run_sink(sink, [TABLE.to_batches()], TABLE.schema))
    parsed = [json.loads(line) for line in (tmp_path / "out" / "part-00000.json").read_text().splitlines()]
    assert parsed[1] == {"f": "NaN"}
    assert parsed[2]["s"] == 'a "b"\\\n\t\x01é'
    assert parsed[0]["z"] == "2024-01-01T01:02:03.000000Z"
    found = duckdb.sql(f"select i, s, l, st.x from read_json('{tmp_path}/out/*.json')").fetchall()
    assert found == [(1, "", [1, None], 1), (None, None, None, None), (-3, 'a "b"\\\n\t\x01é', [], None)]


def test_what_json_cannot_hold(tmp_path):
    with pytest.raises(UsageError, match="column 'a' of type duration"):
        JsonSink(tmp_path / "out").check(pa.schema({"a": pa.list_(pa.duration("s"))}))


texts = st.text(st.characters(blacklist_categories=("Cs",)), max_size=6)
values = st.fixed_dictionaries(
    {
        "n": st.none() | st.integers(-(1 << 63), (1 << 63) - 1),
        "f": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "s": st.none() | texts,
        "l": st.none() | st.lists(st.none() | st.fixed_dictionaries({"a": st.none() | texts}), max_size=3),
    }
)
SCHEMA = pa.schema({"n": pa.int64(), "f": pa.float64(), "s": pa.string(), "l": pa.list_(pa.struct({"a": pa.string()}))})


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(values, min_size=1, max_size=5), st.booleans())
def test_both_parsers_read_what_the_writer_writes(given_rows, nulls):
    batch = pa.RecordBatch.from_pylist(given_rows, SCHEMA)
    lines = json_rows(batch, nulls=nulls).to_pylist()
    for line, row in zip(lines, given_rows, strict=True):
        loaded = json.loads(line)
        assert {name: loaded.get(name) for name in ("n", "f", "s")} == {name: row[name] for name in ("n", "f", "s")}
    data = "\n".join(lines).encode()
    assert parse_lines(data, SCHEMA).to_pylist() == given_rows
    fast = _fast(data, SCHEMA, wire_schema(SCHEMA))
    assert fast is not None
    assert fast.to_pylist() == given_rows


@pytest.mark.parametrize("text", ["null\n", '\n null\n{"a":1}\n'])
def test_a_first_line_of_null_is_an_error_and_not_the_end_of_the_process(tmp_path, text):
    write(tmp_path / "a.json", text)
    for schema in (None, pa.schema([("a", pa.int64())])):
        with pytest.raises(FiresteelError, match=r"line [12]: this is not a JSON object: ' ?null'"):
            rows(tmp_path, schema=schema)


@pytest.mark.parametrize("text", ['{"a":1} {"a":2}\n', '{\n"a":1\n}\n'])
def test_objects_that_are_no_lines_are_refused_in_small_files_as_in_large_ones(tmp_path, text):
    write(tmp_path / "a.json", text)
    for volume in (1, 1 << 20):
        with pytest.raises(FiresteelError, match="this is not JSON"):
            rows(tmp_path, volume, schema=pa.schema([("a", pa.int64())]))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[{"a":1},{"a":2}', "the file ends in the middle of its array"),
        ('[{"a":1}]\n[{"a":2}]', "behind the end of the array comes"),
        ('[{"a":1}] {"a":2}', "behind the end of the array comes"),
        ('{"a":1}]', "this is not JSON"),
    ],
)
def test_no_object_of_a_damaged_array_is_left_out(tmp_path, text, said):
    write(tmp_path / "a.json", text)
    with pytest.raises(FiresteelError, match=said):
        rows(tmp_path, newlines_in_values=True)


def test_half_a_character_is_no_text(tmp_path):
    write(tmp_path / "a.json", '{"a":"x"}\n{"a":"\\ud800"}\n')
    with pytest.raises(FiresteelError, match=r"line 2: column 'a' is string, and '\\ud800' does not fit"):
        rows(tmp_path)
    write(tmp_path / "a.json", '{"a":{"s":"\\ud800","d":"2024-01-01","b":"AA=="}}\n')
    kind = pa.struct([("s", pa.string()), ("d", pa.date32()), ("b", pa.binary())])
    with pytest.raises(FiresteelError, match=r"line 1: column 'a' is struct<.*ud800.*2024-01-01.* does not fit"):
        rows(tmp_path, schema=pa.schema([("a", kind)]))


@pytest.mark.parametrize("other", ['"b":"AA=="', '"b":""'])
def test_nanoseconds_stay_whichever_parser_reads_them(tmp_path, other):
    text = "".join(
        f'{{"t":"{day}T01:02:03.123456789","z":"{day}T03:02:03.123456789+02:00","c":"01:02:03.000000009",{other}}}\n'
        for day in ("2020-01-01", "1960-02-29")
    )
    write(tmp_path / "a.json", text)
    times = [("t", pa.timestamp("ns")), ("z", pa.timestamp("ns", "UTC")), ("c", pa.time64("ns"))]
    schema = pa.schema([*times, ("b", pa.binary())])
    read = read_all(JsonSource(tmp_path, schema=schema))
    t = pa.array(["2020-01-01 01:02:03.123456789", "1960-02-29 01:02:03.123456789"]).cast(times[0][1])
    assert read["t"].combine_chunks().equals(t)
    assert read["z"].combine_chunks().cast(pa.int64()).equals(t.cast(pa.int64()))
    assert read["c"].cast(pa.int64()).to_pylist() == [3_723_000_000_009] * 2


def test_bytes_of_a_fixed_width(tmp_path):
    table = pa.table({"x": pa.array([b"\xff\x00", None], pa.binary(2))})
    sink = JsonSink(tmp_path / "out")
    sink.commit(run_sink(sink, [table.to_batches()], table.schema))
    assert read_all(JsonSource(tmp_path / "out", schema=table.schema)).equals(table)
    write(tmp_path / "a.json", '{"x":"AA=="}\n')
    with pytest.raises(FiresteelError, match=r"line 1: column 'x' is fixed_size_binary\[2\]"):
        rows(tmp_path / "a.json", schema=table.schema)


@pytest.mark.parametrize(
    "text", ['{"t":"%s","n":1}\n', '[\n{"t":"%s",\n"n":1},\n{"n":2}]', '\n{\n"t":"%s",\n"n":1}\n{"n":2}\n']
)
def test_a_long_first_object_does_not_spoil_the_types(tmp_path, text):
    (tmp_path / "a.json").write_text(text % ("x" * (1 << 20)))
    source = JsonSource(tmp_path, newlines_in_values=text.count("\n") > 1)
    assert source.schema == pa.schema({"t": pa.string(), "n": pa.int64()})
    assert read_all(source)["n"].to_pylist() == [1, 2][: text.count('n"')]


QUOTED = json.dumps({f"key{i}": f"value{i}" for i in range(4000)})


@pytest.mark.parametrize(
    ("line", "is_long"),
    [
        (json.dumps({"a": QUOTED, "b": 1}), False),  # 90 kB of escaped quotes and colons
        (json.dumps({"a": ["p", QUOTED]}), False),
        ('{"a":["p", "' + '\\"' * 500_000 + '"]}', False),  # no stack for each character
        ('{"a":"' + "x" * 50_001 + '","b":1}', False),
        ('{"' + "n" * 50_001 + '":1}', True),
        ('{"a":1, "' + "\\n" * 50_001 + '" : 1}', True),
    ],
)
def test_only_long_names_are_refused(line, is_long):
    """Names of more than 50,000 characters are those that Jackson refuses."""
    assert (plain_lines._LONG_NAME.search(line.encode()) is not None) == is_long
