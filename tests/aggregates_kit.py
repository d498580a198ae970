"""What the property tests of aggregates share: random columns, rows by group, an aggregation divided among tasks."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from firesteel.task.batches import take_rows
from firesteel.task.operators.aggregation.aggregate import Aggregation, FinalAggregate, PartialAggregate, partial_schema
from operators_support import collect, context, unit, value

Column = tuple[pa.DataType, st.SearchStrategy]

KEYS: dict[str, Column] = {
    "int": (pa.int32(), st.sampled_from([None, -1, 0, 7, 1000])),
    "uint": (pa.uint64(), st.sampled_from([None, 0, 2**64 - 1])),
    "float": (pa.float32(), st.sampled_from([None, -0.0, 0.0, 1.5, math.nan])),
    "string": (pa.string(), st.sampled_from([None, "", "a", "ab"])),
    "view": (pa.string_view(), st.sampled_from([None, "", "a", "a longer string beyond the inline part"])),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), st.sampled_from([None, "", "a", "ab"])),
    "decimal": (pa.decimal128(9, 2), st.sampled_from([None, Decimal("0.00"), Decimal("1.25")])),
    "stamp": (pa.timestamp("ms", "Europe/Berlin"), st.sampled_from([None, 0, 1_600_000_000_000])),
    "list": (pa.list_(pa.int64()), st.sampled_from([None, [], [1], [1, None]])),
    "struct": (
        pa.struct({"x": pa.int64(), "y": pa.string()}),
        st.sampled_from([None, {"x": None, "y": "q"}, {"x": 1, "y": "q"}]),
    ),
    "null": (pa.null(), st.none()),
    "bool": (pa.bool_(), st.sampled_from([None, True, False])),
}
VALUES: dict[str, Column] = {
    "i": (pa.int16(), st.one_of(st.none(), st.integers(-300, 300))),
    "f": (pa.float64(), st.sampled_from([None, -0.0, 0.0, 1.5, -2.25, 8.0, math.nan, math.inf])),
    "s": (pa.large_string(), st.sampled_from([None, "", "b", "abc"])),
    "d": (pa.decimal128(12, 3), st.sampled_from([None, Decimal("-1.500"), Decimal("99.125")])),
    "l": (pa.list_(pa.float64()), st.sampled_from([None, [], [0.0], [-0.0], [math.nan]])),
}


def drawn(draw: Callable[..., Any], columns: Mapping[str, Column]) -> pa.Table:
    """Up to 40 rows of these columns."""
    n = draw(st.integers(0, 40))
    return pa.table(
        {name: pa.array(draw(st.lists(s, min_size=n, max_size=n)), type_) for name, (type_, s) in columns.items()}
    )


@st.composite
def keyed_tables(draw: Callable[..., Any], key_names: int = 1) -> pa.Table:
    """Columns ``k0``, ``k1``, ... of any type for a key, and all of ``VALUES``."""
    kinds = [draw(st.sampled_from(sorted(KEYS))) for _ in range(key_names)]
    return drawn(draw, {f"k{i}": KEYS[kind] for i, kind in enumerate(kinds)} | VALUES)


def in_tasks(
    scratch: Path,
    table: pa.Table,
    keys: Sequence[str],
    aggs: Sequence[Aggregation],
    budgets: tuple[int, int],
    batch: int,
    tasks: int,
) -> pa.Table:
    """Rows dealt out to tasks, in batches, aggregated there in the first budget, and together in the second."""
    keys, aggs = tuple(keys), tuple(aggs)
    written: list[pa.RecordBatch] = []
    for k in range(tasks):
        state = PartialAggregate(keys, aggs, table.schema).new(context(scratch, budgets[0]))
        dealt = take_rows(table, pa.array(range(k, table.num_rows, tasks), pa.int64()))
        for rows in dealt.to_batches(max_chunksize=batch):
            written += state.add(rows)
        written += state.finish()
    partial = collect(written, partial_schema(table.schema, keys, aggs))
    ctx = context(scratch, budgets[1])
    operator = FinalAggregate("agg", keys, aggs, table.schema)
    return collect(operator.apply_unit([unit(partial, ctx, batch)], ctx), operator.folding.output_schema)


def groups_of(table: pa.Table, keys: Sequence[str]) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    """Rows by key; without keys one group, whether there are rows or not."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list) if keys else {(): []}
    for row in table.to_pylist():
        groups[tuple(value(row[k]) for k in keys)].append(row)
    return groups


def check(
    result: pa.Table,
    table: pa.Table,
    keys: Sequence[str],
    outputs: Iterable[str],
    expected: Callable[[str, list[dict[str, Any]]], Any],
    same: Callable[[str, Any, Any], bool],
) -> None:
    """Each group of ``table`` comes once, with what is ``expected(output, its rows)``."""
    got = {tuple(value(row[k]) for k in keys): row for row in result.to_pylist()}
    want = groups_of(table, keys)
    assert len(got) == result.num_rows, "a group came twice"
    assert got.keys() == want.keys()
    outputs = list(outputs)
    for key, rows in want.items():
        for output in outputs:
            found = expected(output, rows)
            assert same(output, got[key][output], found), (key, output, got[key][output], found)


def alike(got: Any, want: Any, within: float) -> bool:
    """Equal, NaN too; floats ``within`` a part of themselves, or of 1."""
    if isinstance(got, list) and isinstance(want, list):
        return len(got) == len(want) and all(alike(a, b, within) for a, b in zip(got, want, strict=True))
    if isinstance(got, float) and isinstance(want, float) and not (math.isnan(got) or math.isnan(want)):
        return got == want or math.isclose(got, want, rel_tol=within, abs_tol=within)
    return value(got) == value(want)
