"""``firesteel.functions`` in steps: names, what is refused, and expressions that stay small. Values: tests/spark/test_functions.py."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from firesteel import ExecutionEnvironment, agg, window
from firesteel import arrow as A
from firesteel import functions as F
from firesteel.compile.lineage import step_columns
from firesteel.errors import UsageError

TABLE = pa.table({
    "n": pa.array([1, None, -7], pa.int32()),
    "big": pa.array([1, 2, 3], pa.uint64()),
    "s": ["a", "b", None],
    "x": [1.5, None, 0.0],
    "m": pa.array([None] * 3, pa.decimal128(38, 10)),
    "t": pa.array([None] * 3, pa.timestamp("us", "UTC")),
    "r.n": [1, 2, 3],
    "r": [{"n": "x"}] * 3,
})  # fmt: skip


@pytest.fixture
def rows():
    return ExecutionEnvironment().from_arrow(TABLE)


@pytest.mark.parametrize("separator", ["-", "", ", "])
def test_texts_together_leave_nulls_out_and_no_row(separator):
    """Arrow's own function loses rows of nulls."""
    pairs = [("x", "y"), (None, None), ("z", None), (None, "b"), ("", "")]
    rows = ExecutionEnvironment().from_collection([{"a": a, "b": b} for a, b in pairs])
    told = rows.select("a", t=F.concat_ws(separator, "a", "b"), c=F.concat("a", "b")).run_locally()
    assert [row["t"] for row in told] == [separator.join(v for v in pair if v is not None) for pair in pairs]
    assert [row["c"] for row in told] == ["xy", None, None, None, ""]


def test_names_of_what_is_selected(rows):
    chosen = rows.select(F.col("n"), (F.col("n") + 1).alias("m"), k=F.lit(1))
    assert chosen.schema == pa.schema([("n", pa.int32()), ("m", pa.int32()), ("k", pa.int32())])
    assert rows.with_column("n", F.col("n") / 2).schema.field("n").type == pa.float64()
    assert rows.select(F.col("r.n")).schema.field("r.n").type == pa.int64(), "a column's name wins"
    assert rows.rename({"s": "5"}).select(F.lit(5).alias("5")).schema.field("5").type == pa.int32()
    assert rows.drop("r.n").select(v=F.col("r.n")).schema.field("v").type == pa.string()


def test_a_window_hands_on_the_columns_of_its_rows(rows):
    step = rows.select("n", F.sum("x").over(window.partitionBy()))
    assert step.columns[1] == "sum(x) OVER (ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)"
    nodes = [step._pipeline.node]
    while nodes[0].inputs:
        nodes.insert(0, nodes[0].inputs[0].source)
    direct = step_columns(nodes, {nodes[0]: 0})[nodes[-1]].direct
    assert set(direct) == set(step.columns)
    assert [{origin.column for origin in direct[name]} for name in step.columns] == [{"n"}, {"x"}]


def test_a_plain_column_is_passed_as_it_is(rows):
    """So that it keeps its type and its partitioning, and costs nothing."""
    step = rows.select(F.col("big"), z=F.col("s"))
    assert step.schema.field("big").type == pa.uint64()
    assert step._pipeline.node.work.passed == {"big": "big", "z": "s"}


def test_where_names_are_wanted(rows):
    assert rows.key_by(F.col("n")).keys == ("n",)
    assert rows.drop(F.col("n"), "s").columns == [name for name in rows.columns if name not in ("n", "s")]
    with pytest.raises(UsageError, match=r"The column \(n \+ 1\) cannot be used in drop.*with_column"):
        rows.drop(F.col("n") + 1)
    assert rows.key_by(F.col("n") + 1, "s").keys == ("(n + 1)", "s")
    assert rows.sort(F.abs("n").desc(), "s").columns == rows.columns


def test_a_filter_tells_sources_what_they_may_leave_out(rows):
    hints = rows.filter(F.col("n").between(1, 3) & (F.col("x") > 1))._pipeline.node.work.selection.hints
    one, three = (pc.scalar(pa.scalar(value, pa.int32())) for value in (1, 3))
    assert [
        hint.equals(other) for hint, other in zip(hints, (pc.field("n") >= one, pc.field("n") <= three), strict=True)
    ]


def test_a_step_with_functions_has_the_same_text_each_time(rows):
    doubled, again = (rows.select(v=F.transform(F.array("n"), lambda x: x * 2))._pipeline.node.work for _ in range(2))
    assert doubled.operator.sql == again.operator.sql


def test_arrow_expressions_are_operands(rows):
    assert rows.select(v=F.when(A.col("n") > 1, pc.utf8_upper(A.col("s")))).schema.field("v").type == pa.string()
    assert rows.filter(F.col("s").isin("a") & pc.is_valid(A.col("n"))).columns == rows.columns


BY_NAME = window.partitionBy("s").orderBy(F.desc("n"))
REFUSED = {
    "a truth": (lambda rows: rows.filter(F.col("n") > 1 and F.col("x") > 1), "true or false of a row.*Write &"),
    "no name": (lambda rows: rows.select(F.col("x") * 1e20), r"\(x \* 1e\+20\) has no name.*alias"),
    "no column": (lambda rows: rows.filter(F.col("nn") > 1), "no column 'nn'.*Did you mean 'n'"),
    "no field": (lambda rows: rows.select(v=F.col("r.m")), "no field 'm'"),
    "no filter": (lambda rows: rows.filter(F.col("n") + 1), "must be true or false"),
    "no condition": (lambda rows: rows.filter(F.col("n") & F.col("s").isNull()), "n must be true or false, and is int"),
    "a zone's text": (lambda rows: rows.filter(F.col("t") > "2026-01-01"), "needs an offset"),
    "no time": (lambda rows: rows.filter(F.col("t") > "soon"), "'soon' is no time"),
    "a pattern of Java": (lambda rows: rows.filter(F.col("s").rlike("(?<=a)b")), "not surely the same in the engine"),
    "a wrong escape": (lambda rows: rows.filter(F.col("s").like("a\\b")), "LIKE with this escape"),
    "an unknown type": (lambda rows: rows.select(v=F.col("n").cast("number")), r"cast\('number'\): there is no such type"),
    "a cast of times": (lambda rows: rows.select(v=F.col("t").cast("string")), "CAST.t AS STRING. is not computed here"),
    "year with a zone": (lambda rows: rows.select(v=F.year("t")), "year.t. is not computed here"),
    "an order as a value": (lambda rows: rows.filter(F.col("n").desc()), "n DESC NULLS LAST is an order"),
    "a window as a condition": (lambda rows: rows.filter(F.rank().over(BY_NAME) == 1), r"rank\(\) over a window is for select"),
    "a sum over a window as a condition": (lambda rows: rows.filter(F.sum("n").over(BY_NAME) > 1), r"sum\(\) over a window is for select"),
    "a key under another name": (lambda rows: rows.groupBy(F.abs("n").alias("s")), "a column 's' already"),
    "a key without a name": (lambda rows: rows.groupBy(F.col("x") * 1e20), "has no name.*alias"),
    "a constant key": (lambda rows: rows.groupBy(F.lit(1)), "key_by by the constant 1"),
    "an order by a constant": (lambda rows: rows.orderBy(F.lit(1).desc()), "sort by the constant 1"),
    "a direction as a key": (lambda rows: rows.groupBy(F.col("n").desc()), "cannot be used in key_by"),
    "a rank over a name": (lambda rows: F.rank().over("n"), "wants a window, not 'n'"),
    "a sum over a name": (lambda rows: rows.select(F.sum("n").over("n")), "wants a window, not 'n'"),
    "a rank without an order": (lambda rows: F.rank().over(window.partitionBy("n")), "rank wants an order"),
    "a frame that ends first": (lambda rows: window.rowsBetween(1, 0), "from one whole number to another that is not smaller"),
    "a range without an order": (lambda rows: rows.select(F.sum("n").over(window.rangeBetween(-1, 1))), "rangeBetween wants an order"),
    "a range of texts": (lambda rows: rows.select(F.sum("n").over(window.orderBy("s").rangeBetween(-1, 1))), "by an integer, not by string"),
    "a list without an order": (lambda rows: rows.select(F.collect_list("n").over(window.partitionBy("s"))), "collect_list over a window wants an order"),
    "a median over a window": (lambda rows: rows.select(F.median("n").over(BY_NAME)), "median is not taken over a window"),
    "a set of fractions over a window": (lambda rows: rows.select(F.collect_set("x").over(BY_NAME)), "collect_set of double is not taken over"),
    "a first one without an order": (lambda rows: F.first("n").over(window.partitionBy("s")), "first wants an order"),
    "a share in a frame": (lambda rows: F.cume_dist().over(BY_NAME.rowsBetween(-1, 0)), "cume_dist wants an order and no frame"),
    "a place before the first": (lambda rows: F.nth_value("n", 0), "nth_value's offset"),
    "a rank of groups": (lambda rows: rows.groupBy("s").agg(F.rank()), "rank is not an aggregate"),
    "a rank of groups under a name": (lambda rows: F.lag("n").alias("m"), "lag is not an aggregate"),
    "an aggregate of ours over a window": (lambda rows: agg.sum("n").over(BY_NAME), "not taken over a window.*F.sum"),
    "a sum over a window": (lambda rows: window.cumulative_sum("n").over(BY_NAME), "of another frame in PySpark"),
    "a sum of unsigned numbers": (lambda rows: rows.agg(F.sum("big")), r"sum\(big\) is not computed here.*agg.sum"),
    "a part that there is not": (lambda rows: rows.select(v=F.extract(F.lit("era"), "t")), "'ERA' is not taken"),
    "no constant": (lambda rows: rows.select(v=F.lit(object())), "is not a constant"),
    "when after otherwise": (lambda rows: F.when(F.col("n") > 1, 1).otherwise(2).when(F.col("n") > 2, 3), "before otherwise"),
    "when of no condition": (lambda rows: F.when("n", 1), "wants a condition, not 'n'"),
    "days of a fraction": (lambda rows: rows.select(v=F.date_add(F.to_date(F.lit("2024-01-01")), 1.5)), "takes integer or short or byte, and not double"),
    "places as a text": (lambda rows: rows.select(v=F.round("x", "1")), "takes integer, and not string"),
    "a list and a number": (lambda rows: rows.select(v=F.col("r") + 1), "is of numbers, and not of struct and int"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_done_is_said_as_the_step_is_made(rows, name):
    build, said = REFUSED[name]
    with pytest.raises(UsageError, match=f"(?s){said}"):
        build(rows)


def test_a_time_with_a_zone_and_text_with_an_offset(rows):
    ours = rows.filter(F.col("t") > "2026-01-01T02:00:00+02:00")._pipeline.node.work.selection
    same = rows.filter(F.col("t") > datetime(2026, 1, 1, tzinfo=UTC))._pipeline.node.work.selection
    assert ours.where == same.where
    assert ours.hints[0].equals(same.hints[0])


def test_unknown_names_are_told_with_what_there_is():
    with pytest.raises(
        AttributeError, match=r"functions has no 'concatws'\. Did you mean concat_ws\? A Column of pyspark"
    ):
        F.concatws  # noqa: B018
    with pytest.raises(AttributeError, match=r"agg has no 'medain'\. Did you mean median\? agg\.__all__ lists"):
        agg.medain  # noqa: B018
