"""Every kind of equi-join and co-groups against a nested loop in plain Python, over key types, widths, nulls, NaN and budgets."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.effort import examples

from firesteel.task.functions.group_functions import ApplyInArrow, CoGroupApplyInArrow
from firesteel.task.operators.join import HOWS, BroadcastJoin, HashJoin, build_sides, join_schema
from firesteel.task.operators.units import run_unit
from join_support import KEY_PAIRS, KEY_UNITS
from operators_support import build as held
from operators_support import collect, context, expected_pairs, files_in, keys_of, rows, unit, value

QUICK = settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def sides(draw):
    kinds = [draw(st.sampled_from(sorted(KEY_PAIRS))) for _ in range(draw(st.integers(1, 2)))]
    tables = []
    for side in (0, 1):
        n = draw(st.integers(0, 25))
        columns = {}
        for i, kind in enumerate(kinds):
            values = draw(st.lists(st.sampled_from(KEY_PAIRS[kind][2]), min_size=n, max_size=n))
            factor = KEY_UNITS.get(kind, (1, 1))[side]
            values = values if factor == 1 else [v if v is None else v * factor for v in values]
            columns[f"{'lr'[side]}{i}"] = pa.array(values, KEY_PAIRS[kind][side])
        columns["row"] = pa.array(range(n), pa.int64())
        columns["nested"] = pa.array([[i] for i in range(n)], pa.list_(pa.int64()))
        tables.append(pa.table(columns))
    return (*tables, tuple(f"l{i}" for i in range(len(kinds))), tuple(f"r{i}" for i in range(len(kinds))))


@QUICK
@given(
    sides=sides(),
    how=st.sampled_from(HOWS),
    budget=st.sampled_from([1 << 10, 1 << 24]),
    batch=st.integers(1, 30),
    rehash=st.booleans(),
)
def test_join(tmp_path, sides, how, budget, batch, rehash):
    left, right, left_keys, right_keys = sides
    schema = join_schema(left.schema, right.schema, left_keys, right_keys, how)
    join = HashJoin("join", how, left_keys, right_keys, left.schema, right.schema, schema)
    ctx = context(tmp_path, budget)
    inputs = [unit(left, ctx, batch), unit(right, ctx, batch)]
    result = collect(run_unit(join, inputs, ctx) if rehash else join.apply_unit(inputs, ctx), schema)
    check(result, sides, how)
    assert files_in(tmp_path) == []


@QUICK
@given(
    sides=sides(),
    how_and_build=st.sampled_from([(how, build) for how in HOWS for build in build_sides(how)]),
    batch=st.integers(1, 30),
    budget=st.sampled_from([1 << 9, 1 << 24]),
)
def test_a_broadcast_join_gives_the_same_rows(tmp_path, sides, how_and_build, batch, budget):
    left, right, left_keys, right_keys = sides
    how, build = how_and_build
    schema = join_schema(left.schema, right.schema, left_keys, right_keys, how)
    join = HashJoin("join", how, left_keys, right_keys, left.schema, right.schema, schema)
    ctx = context(tmp_path, budget)
    ctx.builds["build"] = held((left, right)[build], ctx, batch)
    stream = iter((left, right)[1 - build].to_batches(max_chunksize=batch))
    check(collect(BroadcastJoin(join, build, "build").apply(stream, ctx), schema), sides, how)
    assert files_in(tmp_path) == []


def check(result, sides, how):
    """The result is the nested loop's, row for row."""
    left, right, left_keys, right_keys = sides
    one_sided = how in ("semi", "anti")
    got = Counter(
        zip(
            result["row"].to_pylist(),
            [None] * len(result) if one_sided else result["row_right"].to_pylist(),
            strict=True,
        )
    )
    assert got == expected_pairs(left, right, left_keys, right_keys, how)
    left_of, right_of = keys_of(left, left_keys), keys_of(right, right_keys)
    for row, key in zip(result.to_pylist(), keys_of(result, left_keys), strict=True):
        assert row["nested"] == (None if row["row"] is None else [row["row"]])
        assert key == (left_of[row["row"]] if row["row"] is not None else right_of[row["row_right"]])
        assert one_sided or row["nested_right"] == (None if row["row_right"] is None else [row["row_right"]])


@QUICK
@given(sides=sides(), budget=st.sampled_from([1 << 10, 1 << 24]), batch=st.integers(1, 30))
def test_cogroup_sees_every_key_of_either_side_once(tmp_path, sides, budget, batch):
    left, right, left_keys, right_keys = sides
    seen = []

    def fn(key, lefts, rights):
        assert lefts.schema == left.schema and rights.schema == right.schema
        seen.append((tuple(value(k.as_py()) for k in key), lefts["row"].to_pylist(), rights["row"].to_pylist()))
        return pa.table({"n": [lefts.num_rows + rights.num_rows]})

    operator = CoGroupApplyInArrow("co", fn, left_keys, right_keys, pa.schema({"n": pa.int64()}))
    ctx = context(tmp_path, budget)
    result = collect(run_unit(operator, [unit(left, ctx, batch), unit(right, ctx, batch)], ctx), operator.schema)
    lefts, rights = keys_of(left, left_keys), keys_of(right, right_keys)
    want = {
        k: ([i for i, x in enumerate(lefts) if x == k], [i for i, x in enumerate(rights) if x == k])
        for k in {*lefts, *rights}
    }
    assert len(seen) == len(want)
    assert {k: (a, b) for k, a, b in seen} == want
    assert sum(result["n"].to_pylist()) == left.num_rows + right.num_rows


@QUICK
@given(sides=sides(), budget=st.sampled_from([1 << 10, 1 << 24]), batch=st.integers(1, 30))
def test_apply_in_arrow_sees_every_group_once(tmp_path, sides, budget, batch):
    table, keys = sides[0], sides[2]
    operator = ApplyInArrow(
        "apply",
        lambda group: group.slice(0, 1).append_column("n", pa.array([group.num_rows])),
        keys,
        table.schema.append(pa.field("n", pa.int64())),
    )
    ctx = context(tmp_path, budget)
    result = collect(run_unit(operator, [unit(table, ctx, batch)], ctx), operator.schema)
    want = Counter(keys_of(table, keys))
    assert dict(zip(keys_of(result, keys), result["n"].to_pylist(), strict=True)) == want
    assert rows(result.select(table.schema.names)).keys() <= rows(table).keys()
