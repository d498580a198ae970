import datetime
from collections import namedtuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from connectors_kit import read_all
from firesteel.connectors.base import infer_parallelism, push_down
from firesteel.connectors.memory import TableSource, as_table, table_from_collection, table_from_pandas
from firesteel.errors import UsageError


def test_rows_come_back_in_order_whatever_the_splits():
    table = pa.table({"x": range(3_000), "s": pa.array([str(i % 5) for i in range(3_000)]).dictionary_encode()})
    source = TableSource(table)
    for volume in (1, 1000, 1 << 30):
        assert read_all(source, volume).equals(table)
    assert sum(s.bytes for s in source.list_splits(1 << 30)) >= table.nbytes


def test_few_rows_are_a_split_each():
    splits = TableSource(pa.table({"url": ["a", "b", "c"]})).list_splits(64 << 20)
    assert [s.description for s in splits] == [f"from_arrow, rows {i}-{i + 1}" for i in range(3)]


def test_large_tables_are_cut_by_bytes_and_compressed():
    source = TableSource(pa.table({"x": np.zeros(4 << 20, np.int64)}))
    splits = source.list_splits(1 << 20)
    assert len(splits) == 64
    assert len(source.list_splits(1 << 18)) == 128
    assert sum(len(s.payload) for s in splits) < 1 << 20


def test_no_rows_are_no_splits():
    source = TableSource(pa.table({"x": pa.array([], pa.int64())}))
    assert source.list_splits(1) == []
    assert read_all(source).num_rows == 0


def test_everything_that_is_arrow_is_taken():
    batch = pa.record_batch({"x": [1, 2]})
    for data in (
        batch,
        [batch],
        pa.table(batch),
        pa.RecordBatchReader.from_batches(batch.schema, [batch]),
        iter([batch]),
    ):
        assert as_table(data).to_pydict() == {"x": [1, 2]}
    with pytest.raises(UsageError, match="A int cannot be read as an Arrow table"):
        as_table(3)
    with pytest.raises(UsageError, match="two columns 'a'"):
        as_table(pa.table([[1], [2]], names=["a", "a"]))


def test_dictionaries_that_differ_between_chunks():
    chunks = pa.chunked_array([pa.array(["a", "b"]).dictionary_encode(), pa.array(["c", "a"]).dictionary_encode()])
    assert read_all(TableSource(pa.table({"d": chunks}))).column("d").to_pylist() == ["a", "b", "c", "a"]


def test_collections():
    point = namedtuple("point", "x y")
    assert table_from_collection([{"a": 1}, {"b": "x", "a": None}]).to_pydict() == {"a": [1, None], "b": [None, "x"]}
    assert table_from_collection([(1, "a"), (2, "b")], ["n", "s"]).to_pydict() == {"n": [1, 2], "s": ["a", "b"]}
    assert table_from_collection([(1, "a")]).column_names == ["_1", "_2"]
    assert table_from_collection([point(1, 2)]).to_pydict() == {"x": [1], "y": [2]}
    assert table_from_collection(range(3)).to_pydict() == {"value": [0, 1, 2]}
    assert table_from_collection(["a", None], ["word"]).to_pydict() == {"word": ["a", None]}
    assert table_from_collection([None, (1, 2)][1:], ["a", "b"]).num_rows == 1
    assert table_from_collection([[1, 2], [3]], pa.schema([("l", pa.list_(pa.int8()))])).to_pydict() == {
        "l": [[1, 2], [3]]
    }
    assert table_from_collection([datetime.date(2020, 1, 1)]).schema.field("value").type == pa.date32()


def test_a_schema_gives_the_types():
    schema = pa.schema([("n", pa.int8()), ("d", pa.decimal128(10, 2))])
    assert table_from_collection([{"n": 3}], schema).schema.equals(schema)
    assert table_from_collection([], schema).schema.equals(schema)
    assert table_from_collection([(3, None)], schema).to_pylist() == [{"n": 3, "d": None}]


@pytest.mark.parametrize(
    ("rows", "schema", "message"),
    [
        ([1, 2, "three", 4], None, r"Row 2 of the collection does not fit: column 'value' is 'three'"),
        (
            [{"n": 1}] * 700 + [{"n": "x"}] + [{"n": 1}] * 700,
            pa.schema([("n", pa.int64())]),
            r"Row 700 .*column 'n' is 'x'.*as int64",
        ),
        ([{"n": 1}, {"n": 300}], pa.schema([("n", pa.int8())]), r"Row 1 .*column 'n' is 300"),
        (
            [{"n": 1}, {"m": 1}],
            pa.schema([("n", pa.int8())]),
            r"Row 1 of the collection is \{'m': 1\}, not a dict with no other keys than n",
        ),
        ([{"n": 1}, 5], None, r"Row 1 of the collection is 5, not a dict, as the first row is"),
        ([{1: 1}], None, r"The key 1 is not a string"),
        ([(1, 2), (1, 2, 3)], None, r"Row 1 of the collection is \(1, 2, 3\), not a tuple of 2 values \(_1, _2\)"),
        ([1, 2], ["a", "b"], r"Row 0 of the collection is 1, not a tuple of 2 values"),
        ([], None, r"An empty collection has no types"),
        ([object()], None, r"Row 0 of the collection does not fit"),
    ],
)
def test_rows_that_do_not_fit_are_named(rows, schema, message):
    with pytest.raises(UsageError, match=message):
        table_from_collection(rows, schema)


def test_pandas():
    frame = pd.DataFrame({"a": [1, 2], "b": ["x", None]}, index=[7, 8])
    assert table_from_pandas(frame).to_pydict() == {"a": [1, 2], "b": ["x", None]}
    assert table_from_pandas(frame).schema.metadata is None
    with pytest.raises(UsageError, match="column name 0 of the DataFrame is not a string"):
        table_from_pandas(pd.DataFrame([[1]]))
    with pytest.raises(UsageError, match=r"cannot be turned into an Arrow table.*column mixed"):
        table_from_pandas(pd.DataFrame({"mixed": [1, "a"]}))
    with pytest.raises(UsageError, match="wants a pandas DataFrame, not a list"):
        table_from_pandas([1])


class Counter:
    name = "counter"

    def __init__(self, answer):
        self.answer = answer

    def infer_parallelism(self, upper_bound, data_volume):
        return self.answer


def test_optional_methods_of_sources():
    assert infer_parallelism(Counter(3), 8, 1) == 3
    assert infer_parallelism(Counter(30), 8, 1) == 8
    assert infer_parallelism(Counter(None), 8, 1) is None
    with pytest.raises(UsageError, match="'counter' answered 0"):
        infer_parallelism(Counter(0), 8, 1)
    assert push_down(Counter(1), ["a"], None) is None
