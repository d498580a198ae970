"""Two sets of aggregates of the same groups: put together by their keys, nulls and NaN among them."""

from __future__ import annotations

import math
import random

import pyarrow as pa
import pytest

from firesteel.errors import FiresteelError
from firesteel.task.operators.aggregation.side_by_side import SideBySide
from firesteel.task.operators.units import run_unit
from operators_support import collect, context, rows, unit

KEYS = [(k, x) for k in (None, "a", "b") for x in (None, 0.0, math.nan, 1.5)]


def sides():
    left = pa.table(
        {
            "k": pa.array([k for k, _ in KEYS]).dictionary_encode(),
            "x": [x for _, x in KEYS],
            "n": pa.array(range(len(KEYS)), pa.int32()),
        }
    )
    right = pa.table(
        {
            "k": pa.array([k for k, _ in KEYS], pa.large_string()),
            "x": pa.array([-0.0 if x == 0 else x for _, x in KEYS], pa.float32()),
            "m": [[n] if n % 2 else None for n in range(len(KEYS))],
        }
    )
    return left, right


def joined(left, right, keys, ctx):
    schema = pa.schema([*left.schema, *(field for field in right.schema if field.name not in keys)])
    inputs = [unit(left, ctx, 3), unit(right, ctx, 2)]
    return collect(run_unit(SideBySide("aggregate", keys, schema), inputs, ctx), schema)


@pytest.mark.parametrize("budget", [1 << 9, 64 << 20])
def test_rows_of_the_same_keys_are_put_together(tmp_path, budget):
    left, right = sides()
    draw = random.Random(3)
    mixed = right.take(pa.array(draw.sample(range(len(KEYS)), len(KEYS))))
    found = joined(left, mixed, ("k", "x"), context(tmp_path, budget))
    assert rows(found) == rows(left.append_column("m", right["m"]))
    assert found.schema == left.append_column("m", right["m"]).schema


def test_one_row_each_and_none(tmp_path):
    one, other = pa.table({"n": [1]}), pa.table({"m": ["x"]})
    assert joined(one, other, (), context(tmp_path)).to_pylist() == [{"n": 1, "m": "x"}]
    left, right = (side.slice(0, 0) for side in sides())
    assert joined(left, right, ("k", "x"), context(tmp_path)).num_rows == 0


@pytest.mark.parametrize("change", ["one less", "another"])
def test_other_groups_the_second_time_are_an_error(tmp_path, change):
    left, right = sides()
    right = right.slice(1) if change == "one less" else pa.concat_tables([right.slice(1), right.slice(1, 1)])
    with pytest.raises(FiresteelError, match="found other groups the second time"):
        joined(left, right, ("k", "x"), context(tmp_path))
