"""Keyed operators that feed each other within a unit, and unions in front of them, whatever the memory."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.aggregates_kit import combined, nodes_of

from firesteel.api.steps.aggregates.functions import Aggregation
from firesteel.task.operators.composed import ComposedOperator, FromGate, FromOperator
from firesteel.task.operators.join import HashJoin, join_schema
from firesteel.task.operators.relational import Filter
from firesteel.task.operators.units import run_unit
from operators_support import collect, context, rows, unit

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])


def table(n: int, keys: int) -> pa.Table:
    return pa.table({"k": [i % keys for i in range(n)], "v": list(range(n))}, schema=SCHEMA)


(TOTAL,) = nodes_of(SCHEMA, ("k",), [Aggregation("sum", ("v",), "v")])


def total():
    return TOTAL.work.direct


@pytest.mark.parametrize("memory", [64 << 20, 64 << 10])
class TestComposed:
    def test_a_union_is_one_input(self, tmp_path, memory):
        ctx = context(tmp_path, memory)
        root = FromOperator(total(), ((FromGate(0), FromGate(1)),), (SCHEMA,))
        operator = ComposedOperator("sum", (("k",), ("k",)), root)
        one, other = table(5_000, 700), table(300, 3)
        found = collect(run_unit(operator, [unit(one, ctx), unit(other, ctx)], ctx))
        expected = collect(total().apply_unit([unit(pa.concat_tables([one, other]), ctx)], ctx))
        assert rows(found) == rows(expected)

    def test_a_join_of_an_aggregate_and_a_gate(self, tmp_path, memory):
        import pyarrow.compute as pc

        ctx = context(tmp_path, memory)
        schema = join_schema(SCHEMA, SCHEMA, ["k"], ["k"], "left")
        join = HashJoin("join", "left", ("k",), ("k",), SCHEMA, SCHEMA, schema)
        inner = FromOperator(total(), ((FromGate(0),),), (SCHEMA,), (Filter("even", pc.field("k") > 10),))
        root = FromOperator(join, ((inner,), (FromGate(1),)), (SCHEMA, SCHEMA))
        operator = ComposedOperator("sum -> join", (("k",), ("k",)), root)
        left, right = table(6_000, 900), table(1_200, 600)
        found = collect(run_unit(operator, [unit(left, ctx), unit(right, ctx)], ctx), schema)
        sums = collect(total().apply_unit([unit(left, ctx)], ctx)).filter(pc.field("k") > 10)
        expected = collect(join.apply_unit([unit(sums, ctx), unit(right, ctx)], ctx), schema)
        assert found.num_rows == 889 + 589
        assert rows(found) == rows(expected)

    def test_nothing_comes_of_nothing(self, tmp_path, memory):
        ctx = context(tmp_path, memory)
        inner = FromOperator(total(), ((FromGate(0), FromGate(1)),), (SCHEMA,))
        operator = ComposedOperator("sum -> sum", (("k",), ("k",)), FromOperator(total(), ((inner,),), (SCHEMA,)))
        empty = SCHEMA.empty_table()
        assert list(run_unit(operator, [unit(empty, ctx), unit(empty, ctx)], ctx)) == []

    def test_inner_spools_are_closed(self, tmp_path, memory):
        ctx = context(tmp_path, memory)
        inner = FromOperator(total(), ((FromGate(0),),), (SCHEMA,))
        operator = ComposedOperator("sum -> sum", (("k",),), FromOperator(total(), ((inner,),), (SCHEMA,)))
        batches = run_unit(operator, [unit(table(9_000, 9_000), ctx)], ctx)
        next(iter(batches))
        batches.close()
        assert not list(tmp_path.glob("spool-*"))


@pytest.mark.parametrize("push", [0, 1])
def test_a_combiner_sees_its_columns_only(tmp_path, push):
    wide = table(100, 4).append_column("x", pa.nulls(100)).to_batches()
    found = combined(TOTAL.inputs[0].combiner, wide, context(tmp_path), push)
    assert sum(batch.num_rows for batch in found) == 4
