"""Projections, filters, limits and top-k over batches; schemas found and mistakes told before anything runs."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from firesteel import ExecutionEnvironment
from firesteel import functions as F
from firesteel.engine.files import FileRows
from firesteel.errors import UsageError
from firesteel.task.operators.fragments import Chain
from firesteel.task.operators.relational import (
    Filter,
    Limit,
    Project,
    as_expression,
    check_filter,
    project_schema,
)
from firesteel.task.runner import UserFunctionError
from operators_support import collect, context

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False, metadata={"unit": "none"}),
        pa.field("price", pa.float64()),
        pa.field("name", pa.string_view()),
        pa.field("at", pa.struct({"x": pa.int32()})),
        pa.field("kind", pa.dictionary(pa.int8(), pa.string())),
    ]
)
BATCH = pa.record_batch(
    [
        pa.array([1, 2, 3], pa.int64()),
        pa.array([1.0, None, 3.0]),
        pa.array(["a", None, "a name longer than twelve bytes"], pa.string_view()),
        pa.array([{"x": 1}, None, {"x": 3}], SCHEMA.field("at").type),
        pa.array(["p", "q", None]).dictionary_encode().cast(SCHEMA.field("kind").type),
    ],
    schema=SCHEMA,
)


@pytest.fixture
def ctx(tmp_path):
    return context(tmp_path)


def project(columns, ctx, *batches):
    schema, _ = project_schema(SCHEMA, columns)
    return collect(Project("step", tuple(columns), schema).apply(iter(batches), ctx), schema)


def test_projection_computes_and_passes_columns_of_any_type(ctx):
    columns = [
        ("twice", pc.field("price") * pc.scalar(2.0)),
        ("at", pc.field("at")),
        ("name", pc.field("name")),
        ("kind", pc.field("kind")),
        ("x", pc.field("at", "x")),
        ("one", pc.scalar(1)),
    ]
    result = project(columns, ctx, BATCH, BATCH.slice(1, 1))
    assert result["twice"].to_pylist() == [2.0, None, 6.0, None]
    assert result["at"].to_pylist() == [{"x": 1}, None, {"x": 3}, None]
    assert result["name"].to_pylist() == [*BATCH["name"].to_pylist(), None]
    assert result["kind"].to_pylist() == ["p", "q", None, "q"]
    assert result["x"].to_pylist() == [1, None, 3, None] and result["one"].to_pylist() == [1] * 4
    assert result.schema.types[:5] == [
        pa.float64(),
        *(SCHEMA.field(n).type for n in ("at", "name", "kind")),
        pa.int32(),
    ]


def test_plain_columns_are_passed_by_reference_with_their_field(ctx):
    result = project([("number", pc.field("id")), ("kind", pc.field("kind"))], ctx, BATCH)
    assert result["number"].chunk(0).buffers()[1].address == BATCH["id"].buffers()[1].address
    assert not result.schema.field("number").nullable and result.schema.field("number").metadata == {b"unit": b"none"}


@pytest.mark.parametrize(
    ("columns", "parts"),
    [
        (
            [("y", pc.field("pric") * 2)],
            ("no column 'pric' for column 'y'", "Did you mean 'price'?", "Available: id, price"),
        ),
        ([("y", pc.field("name") + 1)], ("for column 'y' cannot be computed", "name string_view")),
        ([("y", pc.field("id")), ("y", pc.field("id"))], ("'y' is given twice",)),
        ([], ("Select at least one column",)),
    ],
)
def test_mistakes_in_a_projection(columns, parts):
    with pytest.raises(UsageError) as caught:
        project_schema(SCHEMA, columns)
    assert all(part in str(caught.value) for part in parts), str(caught.value)


def test_mistakes_in_a_filter():
    check_filter(SCHEMA, pc.field("price") > 1)
    with pytest.raises(UsageError, match=r"must be true or false.*is int64"):
        check_filter(SCHEMA, pc.field("id") + 1)
    with pytest.raises(UsageError, match="no column 'ids' for a filter"):
        check_filter(SCHEMA, pc.field("ids") > 1)
    zoned = pa.schema([("t", pa.timestamp("us", "UTC")), ("d", pa.decimal128(5, 2))])
    check_filter(zoned, pc.field("t") > datetime(2024, 1, 1, tzinfo=UTC))
    with pytest.raises(UsageError, match=r"Give the time a zone"):
        check_filter(zoned, pc.field("t") > datetime(2024, 1, 1))
    with pytest.raises(UsageError, match=r"write arrow.lit\(Decimal\('1'\)\)"):
        check_filter(zoned, pc.field("d") > 1)


def test_what_is_not_an_expression():
    assert as_expression("id").equals(pc.field("id"))
    with pytest.raises(UsageError, match=r"firesteel\.col"):
        as_expression(3)


def test_filter_keeps_what_is_true_and_merges_small_batches(ctx):
    batches = list(Filter("step", pc.field("price") > 0).apply(iter([BATCH] * 5), ctx))
    assert len(batches) == 1
    assert batches[0]["id"].to_pylist() == [1, 3] * 5
    assert batches[0].schema == SCHEMA and batches[0]["name"].to_pylist()[1] == "a name longer than twelve bytes"
    assert not list(Filter("step", pc.field("price") > 100).apply(iter([BATCH]), ctx))


def test_dictionaries_that_cannot_be_merged_stay_apart(ctx):
    """127 values fit an int8 index; two batches of other values each do not fit together."""
    type_ = pa.dictionary(pa.int8(), pa.string())
    batches = [
        pa.record_batch({"d": pa.array([f"{i}-{k}" for k in range(100)]).dictionary_encode().cast(type_)})
        for i in range(3)
    ]
    result = list(Filter("step", pc.is_valid(pc.field("d"))).apply(iter(batches), ctx))
    assert [v for b in result for v in b["d"].to_pylist()] == [v for b in batches for v in b["d"].to_pylist()]


def test_an_error_while_computing_names_the_step(ctx):
    ctx.place = "part.parquet"
    with pytest.raises(
        UserFunctionError,
        match=r"Step 'step' cannot compute the column 'y': divide by zero, of the row id = 2, price = None while .*part\.parquet",
    ) as caught:
        zero = pc.coalesce(pc.field("price"), pc.scalar(0.0)).cast(pa.int64())
        project([("x", pc.field("id") + 1), ("y", pc.divide(pc.field("id"), zero))], ctx, BATCH)
    assert "F.when" in str(caught.value.hint)


def test_an_error_of_a_filter_names_the_row(ctx):
    condition = pc.divide(pc.field("id"), pc.field("id") - pc.scalar(3)) > 0
    with pytest.raises(
        UserFunctionError, match=r"Step 'step' cannot evaluate '.*': divide by zero, of the row id = 3\."
    ):
        list(Filter("step", condition).apply(iter([BATCH]), ctx))


@pytest.mark.parametrize(("column", "value"), [("text", "'12 apples'"), ("password", r"\*\*\*")])
def test_a_cast_that_fails_tells_the_value_unless_it_is_a_secret(ctx, column, value):
    rows = pa.record_batch({"id": [1, 2, 3, 4], column: ["7", None, "12 apples", "x"]})
    arrows = Project("select", (("n", pc.field(column).cast(pa.int64())),), pa.schema([("n", pa.int64())]))
    ours = ExecutionEnvironment().from_arrow(rows).select("id", n=F.col(column).cast("bigint"))
    for step, said in (
        (arrows, f"'n': {value} is no int64"),
        (ours._pipeline.node.work.operator, r"'n' as CAST\(.*\): CAST_INVALID_INPUT, .*"),
    ):
        with pytest.raises(UserFunctionError, match=f"cannot compute the column {said}, of the row {column} = {value}"):
            collect(step.apply(iter([rows]), ctx))


def test_the_row_of_a_value_in_a_file_is_told(ctx, tmp_path):
    rows = pa.table({"id": range(9), "n": [1, 2, 3, 4, 5, 0, 7, 8, 9]})
    pq.write_table(rows, tmp_path / "n.parquet", row_group_size=2)
    chosen = ExecutionEnvironment().from_arrow(rows).select("id", v=F.col("id") % F.col("n"))
    step = Chain((chosen._pipeline.node.work.operator,))
    files = [FileRows(str(tmp_path / "n.parquet"), (), 9, 144)]
    with pytest.raises(UserFunctionError, match="DIVIDE_BY_ZERO, a division by zero, of the row id = 5, n = 0"):
        collect(step.apply_files(files, ctx))


def test_an_expression_with_fewer_values_than_rows_is_an_error(ctx):
    lost = pc.binary_join_element_wise(pc.field("a"), pc.scalar("-"), null_handling="skip")
    project = Project("select", (("t", lost),), pa.schema([("t", pa.string())]))
    with pytest.raises(UserFunctionError, match="computes 1 values of 't' for 2 rows"):
        collect(project.apply(iter([pa.record_batch({"a": ["x", None]})]), ctx))


def test_limit_reads_no_further_than_it_must(ctx):
    read = []

    def source():
        for i in range(3):
            read.append(i)
            yield BATCH

    assert collect(Limit("step", 4).apply(source(), ctx))["id"].to_pylist() == [1, 2, 3, 1]
    assert read == [0, 1]
    assert not list(Limit("step", 0).apply(source(), ctx))


def top(table, n, keys, ctx, rows=None):
    step = ExecutionEnvironment().from_arrow(table).top_k(n, *keys)._pipeline.node.work.operator
    return collect(step.apply(iter(table.to_batches(max_chunksize=rows)), ctx), table.schema)


def test_top_k_orders_by_several_keys(ctx):
    n = 5000
    table = pa.table(
        {"a": [i % 7 for i in range(n)], "b": [(i * 7919) % n for i in range(n)], "l": [[i] for i in range(n)]}
    )
    result = top(table, 50, (("a", False), ("b", True)), ctx, 100)
    want = sorted(table.to_pylist(), key=lambda r: (-r["a"], r["b"]))[:50]
    assert result.to_pylist() == want


def test_top_k_puts_nulls_last_and_ties_do_not_depend_on_the_order_of_arrival(ctx):
    table = pa.table({"a": [None, 2.0, 2.0, 1.0, 2.0], "i": list(range(5))})
    first = top(table, 5, (("a", False),), ctx)["i"].to_pylist()
    assert (set(first[:3]), first[3:]) == ({1, 2, 4}, [3, 0])
    for n in range(6):
        assert top(table.take([4, 3, 2, 1, 0]), n, (("a", False),), ctx)["i"].to_pylist() == first[:n]
    assert not top(table.slice(0, 0), 4, (("a", False),), ctx).num_rows
    words = pa.table({"w": pa.array(["b", "a", None, "c"]).dictionary_encode()})
    assert top(words, 2, (("w", True),), ctx)["w"].to_pylist() == ["a", "b"]


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(("ascending", "want"), [(False, [3, 1, 4, 5, 2, 0]), (True, [2, 5, 4, 3, 1, 0])])
def test_top_k_takes_nan_for_the_largest_value(ctx, kind, ascending, want):
    values = np.array([0, math.nan, -1, math.nan, math.inf, 2], kind)
    table = pa.table({"a": pa.array(values, mask=np.arange(6) == 0), "i": list(range(6))})
    for n in range(1, 7):  # NaN equals NaN, so that the next column decides
        assert top(table, n, (("a", ascending), ("i", False)), ctx, 1)["i"].to_pylist() == want[:n]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["b", "c", None, "a"], pa.string_view()),
        pa.array([b"b", b"c", None, b"a"], pa.binary_view()),
        pa.array(np.array([2, 3, 0, 1], np.float16), mask=np.array([False, False, True, False])),
        pa.array([2, 3, None, 1], pa.decimal32(5, 2)),
        pa.array([2, 3, None, 1], pa.duration("s")),
        pc.run_end_encode(pa.array([2, 3, None, 1])),
        pa.array(["b", "c", None, "a"]).dictionary_encode(),
    ],
    ids=lambda column: str(column.type),
)
def test_top_k_orders_every_type_that_has_an_order(ctx, column):
    table = pa.table({"v": column, "i": [0, 1, 2, 3]})
    assert top(table, 3, (("v", False),), ctx).column("i").to_pylist() == [1, 0, 3]
