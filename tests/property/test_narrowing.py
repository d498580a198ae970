"""A narrowed source gives every row that matches, whatever the types, and few others; held against an exact semi-join."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import examples

from firesteel.compile.adaptive.narrowing import MOST_VALUES, Keys, narrowed
from firesteel.connectors.formats.parquet import ParquetSource
from firesteel.model.job_graph import RuntimeFilter
from firesteel.task.operators.fragments import Chain, SqlFragment
from firesteel.task.operators.join import BroadcastJoin
from firesteel.task.operators.relational import Limit
from firesteel.task.program import SourceHead, VertexProgram
from operators_support import context

KINDS = {
    "int32": (pa.int32(), lambda k: k - 50),
    "int64": (pa.int64(), lambda k: k * 1_000_003 - 50),
    "uint8": (pa.uint8(), lambda k: k % 256),
    "uint64": (pa.uint64(), lambda k: k),
    "text": (pa.string(), lambda k: f"key {k % 97:04d}"),
    "large text": (pa.large_string(), lambda k: f"key {k % 97:04d}"),
    "date": (pa.date32(), lambda k: dt.date(2020, 1, 1) + dt.timedelta(days=k)),
    "time": (pa.timestamp("us"), lambda k: dt.datetime(2020, 1, 1) + dt.timedelta(minutes=k)),
    "zoned": (pa.timestamp("ns", "UTC"), lambda k: dt.datetime(2020, 1, 1, tzinfo=dt.UTC) + dt.timedelta(minutes=k)),
    "decimal": (pa.decimal128(12, 2), lambda k: Decimal(k) / 4),
    "double": (pa.float64(), lambda k: [float("nan"), -0.0, 0.0, k / 2][k % 4]),
}
PAIRS = [("int32", "int64"), ("int64", "int32"), ("uint8", "int64"), ("int64", "uint64"), ("uint64", "int64")]
PAIRS += [("text", "large text"), *((kind, kind) for kind in KINDS)]
FILTER = RuntimeFilter(2, 1, 1, ("k",), ("a",))


def column(kind: str, numbers: list[int | None]) -> pa.Array:
    type_, value = KINDS[kind]
    return pa.array([None if number is None else value(number) for number in numbers], type_)


def comparable(value: object) -> object:
    """Keys as joins compare them: NaN equals NaN, -0.0 equals 0.0."""
    return "NaN" if value != value else value + 0.0 if isinstance(value, float) else value


def rows_of(source: ParquetSource, found, *query: SqlFragment) -> list[dict[str, object]]:
    """What is read, and what a query behind it makes of that."""
    ctx = context(Path())
    splits = source.list_splits(1 << 20) if found.splits is None else found.splits
    operators = found.program(VertexProgram(SourceHead(source), query, ())).operators
    first = operators[0] if operators else None
    files = found.source.files([split.payload for split in splits])
    if isinstance(first, SqlFragment) and files is not None:
        return [row for batch in Chain((first,)).apply_files(files, ctx) for row in batch.to_pylist()]
    batches = (batch for split in splits for batch in found.source.read(split.payload, ctx))
    for operator in operators:
        batches = operator.apply(batches, ctx)
    return [row for batch in batches for row in batch.to_pylist()]


def drawn(data, folder, of_fact: str, of_keys: str) -> tuple[pa.Table, ParquetSource, pa.Table]:
    """Facts, in order or not, their file of small row groups, and keys."""
    numbers = st.lists(st.one_of(st.none(), st.integers(0, 300)), max_size=60)
    facts, keys = data.draw(numbers), data.draw(numbers)
    if data.draw(st.booleans()):
        facts.sort(key=lambda k: -1 if k is None else k)
    fact = pa.table({"a": column(of_fact, facts), "row": np.arange(len(facts))})
    pq.write_table(fact, folder / "fact.parquet", row_group_size=7)
    return fact, ParquetSource(str(folder / "fact.parquet")), pa.table({"k": column(of_keys, keys)})


def matching(rows, keys: pa.Table) -> list[int]:
    """Numbers of the rows that have one of the keys."""
    known = {comparable(key) for key in keys.column(0).to_pylist() if key is not None}
    return [row["row"] for row in rows if row["a"] is not None and comparable(row["a"]) in known]


@pytest.mark.parametrize("of_fact, of_keys", PAIRS, ids=lambda kind: kind.replace(" ", "-"))
@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_every_row_that_matches_is_read(tmp_path_factory, of_fact, of_keys, data):
    fact, source, keys = drawn(data, tmp_path_factory.mktemp("narrowing"), of_fact, of_keys)
    held = data.draw(st.booleans())
    found = narrowed(source, source.list_splits(1 << 20), [Keys(FILTER, keys, held)], 1 << 20)
    assert matching(rows_of(source, found), keys) == matching(fact.to_pylist(), keys)
    if found.splits is not None:
        assert len(found.splits) <= len(source.list_splits(1 << 20))


@pytest.mark.parametrize("of_fact, of_keys", PAIRS, ids=lambda kind: kind.replace(" ", "-"))
@settings(max_examples=examples(30), deadline=None)
@given(data=st.data())
def test_a_query_that_reads_the_files_itself_gives_every_row_that_matches(tmp_path_factory, of_fact, of_keys, data):
    fact, source, keys = drawn(data, tmp_path_factory.mktemp("narrowing"), of_fact, of_keys)
    query = SqlFragment("rows", "SELECT * FROM input", source.schema, source.schema)
    found = narrowed(source, source.list_splits(1), [Keys(FILTER, keys, False)], 1, takes_keys=True)
    got = rows_of(source, found, query)
    assert sorted(matching(got, keys)) == matching(fact.to_pylist(), keys)
    if of_fact not in ("double", "zoned") and of_fact == of_keys:
        assert len(got) == len(matching(got, keys)), "rows without a match are left out"


@pytest.mark.parametrize(
    "kind, with_statistics",
    [(pa.int64(), True), (pa.int64(), False), (pa.int8(), True), (pa.int32(), True), (pa.date32(), True)],
    ids=str,
)
def test_row_groups_are_left_out_at_the_ends_of_types(tmp_path, kind, with_statistics):
    """Of each value a row group: the least, 0, nothing but nulls, the greatest."""
    whole = pa.int32() if kind == pa.date32() else kind
    about = np.iinfo(whole.to_pandas_dtype())
    least, most = (-719162, 2932896) if kind == pa.date32() else (about.min, about.max)  # the years 1 and 9999
    rows = pa.array([least, least, 0, 0, None, None, most, most], whole).cast(kind)
    table = pa.table({"a": rows, "row": np.arange(8)})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=2, write_statistics=with_statistics)
    source = ParquetSource(str(tmp_path / "a.parquet"))
    query = SqlFragment("rows", "SELECT * FROM input", source.schema, source.schema)
    for key, groups in ((most, [6, 7]), (least, [0, 1])):
        keys = pa.table({"k": pa.array([key], whole).cast(kind)})
        found = narrowed(source, source.list_splits(1), [Keys(FILTER, keys, False)], 1, takes_keys=True)
        files = found.source.files([one.payload for one in found.source.list_splits(1)])
        kept = {row for one in files for start, end in one.ranges or [(0, 8)] for row in range(start, end)}
        assert kept == ({*groups, 4, 5} if with_statistics else set(range(8))), "nulls have no bounds"
        assert sorted(row["row"] for row in rows_of(source, found, query)) == groups


def test_a_query_is_told_of_two_sides(tmp_path):
    source = table_of(tmp_path / "a.parquet")
    query = SqlFragment("rows", "SELECT c0 FROM (SELECT * FROM input) t", source.schema, pa.schema({"a": pa.int64()}))
    both = RuntimeFilter(2, 1, 1, ("k", "l"), ("a", "b"))
    sides = [Keys(both, pa.table({"k": range(200), "l": [3] * 200}), False)]
    sides += [Keys(FILTER, pa.table({"k": range(100, 400)}), True)]
    found = narrowed(source, source.list_splits(1), sides, 1, takes_keys=True)
    assert sorted(row["a"] for row in rows_of(source, found, query)) == [a for a in range(100, 200) if a % 7 == 3]
    assert len(found.splits) == 1, "the row group from 100 to 199"


@pytest.mark.parametrize("takes_keys", [True, False])
def test_operators_that_came_while_the_keys_were_read_stay(tmp_path, takes_keys):
    """The vertex absorbed a join meanwhile."""
    source = table_of(tmp_path / "a.parquet")
    query = SqlFragment("rows", "SELECT c0 FROM input", source.schema, pa.schema({"a": pa.int64()}))
    keys = Keys(FILTER, pa.table({"k": [105, 3999]}), False)
    found = narrowed(source, source.list_splits(1), [keys], 1, takes_keys=takes_keys)
    grown = found.program(VertexProgram(SourceHead(source), (query, Limit("limit", 5)), ()))
    assert grown.operators[-1] == Limit("limit", 5) and len(grown.operators) == (2 if takes_keys else 3)
    assert grown.operators[-2] == (query.with_keys(found.told) if takes_keys else query)
    assert isinstance(grown.operators[0], SqlFragment if takes_keys else BroadcastJoin)


def test_of_very_many_keys_the_ends_tell(tmp_path):
    source = table_of(tmp_path / "a.parquet", rows=10_000)
    keys = pa.table({"k": range(100_001, 350_001)})
    found = narrowed(source, source.list_splits(1), [Keys(FILTER, keys, False)], 1)
    assert len(found.splits) == 26 and {row["a"] for row in rows_of(source, found)} >= set(range(100_001, 350_001))


def table_of(path, groups: int = 50, rows: int = 100) -> ParquetSource:
    """``a`` ascends: row group g has ``a`` from 100 g on."""
    pq.write_table(
        pa.table({"a": np.arange(groups * rows), "b": np.arange(groups * rows) % 7}), path, row_group_size=rows
    )
    return ParquetSource(str(path))


def test_few_keys_leave_the_row_groups_that_have_them_and_only_their_rows(tmp_path):
    source = table_of(tmp_path / "a.parquet")
    found = narrowed(source, source.list_splits(1), [Keys(FILTER, pa.table({"k": [105, 3999, 4000]}), True)], 1)
    assert [row["a"] for row in rows_of(source, found)] == [105, 3999, 4000] and len(found.splits) == 3
    assert found.found == "the rest has no key of the 3 values of 'a'"


def test_many_keys_leave_the_ranges_between_their_widest_gaps(tmp_path):
    source = table_of(tmp_path / "a.parquet")
    keys = [*range(1000, 1100), *range(3000, 3200)]
    found = narrowed(source, source.list_splits(1), [Keys(FILTER, pa.table({"k": keys}), True)], 1)
    assert len(found.splits) == 3 and [row["a"] for row in rows_of(source, found)] == keys


def test_more_keys_than_the_source_is_told_one_by_one(tmp_path):
    source = table_of(tmp_path / "a.parquet", groups=100)
    keys = [*range(0, 2 * MOST_VALUES, 2)]
    found = narrowed(source, source.list_splits(1), [Keys(FILTER, pa.table({"k": keys}), False)], 1)
    assert len(found.splits) == -(-2 * MOST_VALUES // 100)
    got = [row["a"] for row in rows_of(source, found)]
    assert got == keys


def test_no_key_leaves_nothing(tmp_path):
    source = table_of(tmp_path / "a.parquet")
    for keys in ([], [None]):
        found = narrowed(
            source, source.list_splits(1), [Keys(FILTER, pa.table({"k": pa.array(keys, pa.int64())}), True)], 1
        )
        assert found.splits == [] and "has a key" in found.found


def test_where_every_row_group_may_have_keys_the_source_stays_and_rows_are_dropped_before_an_exchange(tmp_path):
    source = table_of(tmp_path / "a.parquet")
    by_b = RuntimeFilter(2, 1, 1, ("k",), ("b",))
    for held in (True, False):
        found = narrowed(source, source.list_splits(1), [Keys(by_b, pa.table({"k": [3]}), held)], 1)
        assert found.splits is None and found.source is source
        assert len(rows_of(source, found)) == (5000 if held else sum(a % 7 == 3 for a in range(5000)))


def test_partitions_without_keys_are_not_listed(tmp_path):
    for year, month in product((2023, 2024), range(1, 13)):
        folder = tmp_path / f"year={year}" / f"month={month}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"v": [year * month]}), folder / "part.parquet")
    source = ParquetSource(str(tmp_path))
    both = RuntimeFilter(2, 1, 1, ("y", "m"), ("year", "month"))
    keys = pa.table({"y": [2023, 2024], "m": [5, 6]})
    found = narrowed(source, source.list_splits(1), [Keys(both, keys, False)], 1)
    assert len(found.splits) == 4, "each column by itself"
    assert sorted((row["year"], row["month"]) for row in rows_of(source, found)) == [(2023, 5), (2024, 6)]
