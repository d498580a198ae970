"""What the property tests of aggregates share: random columns, rows by group, an aggregation divided among tasks."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from firesteel import ExecutionEnvironment
from firesteel.api.steps.aggregates.functions import Aggregation
from firesteel.api.steps.keyed import aggregate_of
from firesteel.compile.stream_graph import KeyedStep, StreamNode
from firesteel.results.hashing import hash_columns
from firesteel.task.batches import filter_rows, take_rows
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


def nodes_of(schema: pa.Schema, keys: Sequence[str], aggs: Sequence[Aggregation]) -> list[StreamNode]:
    """The steps of an aggregation: of what the engine computes, and of what our own code does."""
    pipeline = ExecutionEnvironment().from_arrow(schema.empty_table())._pipeline
    kinds = [tuple(agg for agg in aggs if (agg.ours is None) == engines) for engines in (True, False)]
    return [aggregate_of(pipeline, tuple(keys), kind, "").node for kind in kinds if kind]


def in_tasks(
    scratch: Path,
    table: pa.Table,
    keys: Sequence[str],
    aggs: Sequence[Aggregation],
    budgets: tuple[int, int],
    batch: int,
    tasks: int,
) -> Iterator[tuple[pa.Table, list[str]]]:
    """In each way in which it may run the groups, and their outputs. Rows are dealt out to tasks, in batches, aggregated there in the first
    budget, and together in the second; or there is no exchange."""
    for node in nodes_of(table.schema, keys, aggs):
        work, (edge,) = node.work, node.inputs
        assert isinstance(work, KeyedStep) and edge.combiner is not None and work.made is not None
        written: list[pa.RecordBatch] = []
        for k in range(tasks):
            dealt = take_rows(table, pa.array(range(k, table.num_rows, tasks), pa.int64()))
            written += combined(
                edge.combiner, dealt.to_batches(max_chunksize=batch), context(scratch, budgets[0]), k % 2
            )
        ctx, outputs = context(scratch, budgets[1]), list(work.made)
        partial = unit(collect(written, edge.schema), ctx, batch)
        yield collect(work.operator.apply_unit([partial], ctx), node.schema), outputs
        yield collect(work.direct.apply_unit([unit(table, ctx, batch)], ctx), node.schema), outputs
        two = getattr(work.operator, "in_two", None)
        if two is not None:
            count, add = two
            counted = list(count.apply_unit([partial], ctx))
            yield collect(add.apply(iter(counted), ctx), node.schema), outputs
            halves = [partial_of(collect(written, edge.schema), count.divided_by, half) for half in (0, 1)]
            counted = [b for half in halves for b in count.apply_unit([unit(half, ctx)], ctx)]
            yield collect(add.apply_unit([unit(collect(counted, count.schema), ctx)], ctx), node.schema), outputs


def combined(combiner: Any, batches: Sequence[pa.RecordBatch], ctx: Any, push: int = 0) -> list[pa.RecordBatch]:
    """What a combiner makes of a task's rows, given one after another (``push``) or read."""
    if not push and hasattr(combiner, "apply"):
        return list(combiner.apply(iter(batches), ctx))
    state = combiner.new(ctx)
    return [*(made for one in batches for made in state.add(one)), *state.finish()]


def partial_of(partial: pa.Table, values: Sequence[str], half: int) -> pa.Table:
    """The rows of one of two parts of the values."""
    hashes = hash_columns([partial.column(name) for name in values])
    return filter_rows(partial, pa.array((hashes >> np.uint64(32)) % np.uint64(2) == half))


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
