"""CSV and JSON: whatever was written is read again, wherever the bytes are cut, and DuckDB reads the same."""

import tempfile
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import examples

from connectors_kit import read_all, run_sink
from firesteel.connectors.files.reading import lines
from firesteel.connectors.formats.csv_files import CsvSink, CsvSource
from firesteel.connectors.formats.csv_format import CsvFormat
from firesteel.connectors.formats.json_files import JsonSink, JsonSource

quick = settings(max_examples=examples(100), deadline=None)

SCHEMA = pa.schema({"n": pa.int64(), "s": pa.string(), "f": pa.float64()})
chars = st.sampled_from(["a", "Z", '"', '""', ",", ";", "\\", " ", "é", "日", "'", "#", "null", "0"])
texts = st.none() | st.lists(chars, max_size=5).map("".join)
records = st.lists(
    st.tuples(
        st.none() | st.integers(-(1 << 63), (1 << 63) - 1), texts, st.none() | st.floats(allow_nan=False, width=64)
    ),
    min_size=1,
    max_size=12,
)


def table_of(rows, schema=SCHEMA):
    columns = [pa.array([row[i] for row in rows], field.type) for i, field in enumerate(schema)]
    return pa.Table.from_arrays(columns, schema=schema)


def small_blocks(size):
    patch = pytest.MonkeyPatch()
    patch.setattr(lines, "BLOCK", size)
    return patch


def publish(sink, table):
    half = table.num_rows // 2
    sink.commit(run_sink(sink, [table.slice(0, half).to_batches(), table.slice(half).to_batches()], table.schema))


@quick
@given(records, st.integers(1, 200), st.integers(4, 60), st.sampled_from([",", ";", "\t"]), st.booleans())
def test_csv_is_read_as_it_was_written(rows, volume, block, sep, header):
    table = table_of(rows)
    with tempfile.TemporaryDirectory() as root:
        publish(CsvSink(f"{root}/out", sep=sep, header=header), table)
        patch = small_blocks(block)
        try:
            got = read_all(CsvSource(f"{root}/out", schema=SCHEMA, csv=CsvFormat(sep=sep, header=header)), volume)
        finally:
            patch.undo()
        assert got.to_pylist() == table.to_pylist()
        kinds = "{'n': 'BIGINT', 's': 'VARCHAR', 'f': 'DOUBLE'}"
        reader = (
            f"read_csv('{root}/out/*.csv', delim='{sep}', header={header}, columns={kinds}, quote='\"', escape='\"',"
        )
        found = duckdb.sql(f"select * from {reader} allow_quoted_nulls=false, auto_detect=false)").fetchall()
        assert sorted(map(str, found)) == sorted(map(str, rows))


@quick
@given(st.lists(st.tuples(st.integers(0, 9), texts), min_size=1, max_size=8), st.integers(1, 60), st.integers(4, 40))
def test_values_with_line_ends_are_read_as_they_were_written_or_refused(rows, volume, block):
    from firesteel.errors import FiresteelError

    schema = pa.schema({"n": pa.int64(), "s": pa.string()})
    broken = [(n, s if s is None else s.replace("Z", "\n").replace("0", "\r\n")) for n, s in rows]
    table = table_of(broken, schema)
    with tempfile.TemporaryDirectory() as root:
        publish(CsvSink(f"{root}/out"), table)
        csv = CsvFormat(newlines_in_values=True)
        assert read_all(CsvSource(f"{root}/out", schema=schema, csv=csv), volume).to_pylist() == table.to_pylist()
        patch = small_blocks(block)
        try:
            got = read_all(CsvSource(f"{root}/out", schema=schema), volume)
        except FiresteelError:
            assert any("\n" in (s or "") for _, s in broken)
        else:
            assert not any("\n" in (s or "") for _, s in broken)
            assert got.to_pylist() == table.to_pylist()
        finally:
            patch.undo()


nested = pa.schema(
    {
        "n": pa.int64(),
        "s": pa.string(),
        "m": pa.map_(pa.string(), pa.list_(pa.float64())),
        "o": pa.struct({"t": pa.timestamp("us", "UTC"), "l": pa.list_(pa.string())}),
    }
)
moments = st.none() | st.datetimes().map(lambda t: pa.scalar(t, pa.timestamp("us", "UTC")).as_py())
values = st.none() | st.floats(allow_nan=False)
json_records = st.lists(
    st.tuples(
        st.none() | st.integers(-(1 << 63), (1 << 63) - 1),
        st.none() | st.text(st.characters(blacklist_categories=("Cs",)), max_size=5),
        st.none() | st.dictionaries(st.text("ab\n\"", max_size=3), st.none() | st.lists(values, max_size=2), max_size=2).map(
            lambda d: list(d.items())
        ),
        st.none() | st.fixed_dictionaries({"t": moments, "l": st.none() | st.lists(texts, max_size=2)}),
    ),
    min_size=1,
    max_size=8,
)  # fmt: skip


@quick
@given(json_records, st.integers(1, 300), st.integers(4, 60), st.booleans())
def test_json_is_read_as_it_was_written(rows, volume, block, nulls):
    table = table_of(rows, nested)
    with tempfile.TemporaryDirectory() as root:
        publish(JsonSink(f"{root}/out", ignore_null_fields=not nulls), table)
        patch = small_blocks(block)
        try:
            got = read_all(JsonSource(f"{root}/out", schema=nested), volume)
            plain = read_all(JsonSource(f"{root}/out", schema=nested).push_down(["n", "s"], None), volume)
        finally:
            patch.undo()
        assert got.to_pylist() == table.to_pylist()
        assert plain.to_pylist() == table.select(["n", "s"]).to_pylist()
        assert len(list(Path(f"{root}/out").glob("part-*"))) <= 2
