"""How the check of accelerated queries compares rows, and which queries it draws."""

from __future__ import annotations

import math
from decimal import Decimal
from types import SimpleNamespace

import pyarrow as pa
import pytest

from firesteel.api.acceleration import verifying
from firesteel.api.acceleration.verifying import (
    Check,
    Comparison,
    SkippedError,
    _check_certain,
    inexact_columns,
    is_drawn,
    is_of_values,
    means_of_decimals,
)
from firesteel.options import Options
from firesteel.plan.expr import Expr
from firesteel.sql.plans.catalyst import Operator


def differs(ours: dict, theirs: dict, **how) -> str:
    return Comparison(**how).difference(pa.table(ours), pa.table(theirs))


def test_rows_are_compared_as_a_multiset():
    rows = {"a": [3, 1, None, 1], "t": ["x", "y", "z", "y"]}
    other = {"a": [1, None, 3, 1], "t": ["y", "z", "x", "y"]}
    assert differs(rows, other) == ""
    once = {"a": [1, None, 3, 3], "t": ["y", "z", "x", "x"]}
    assert differs(rows, once) == "The first rows that differ: Firesteel: a = 1, t = y; Spark: a = 3, t = x."
    fewer = {"a": [1, None, 3], "t": ["y", "z", "x"]}
    assert differs(rows, fewer) == (
        "Firesteel gives 4 rows, Spark 3. The first rows that differ: Firesteel: a = 1, t = y; Spark: no such row."
    )


def test_columns_of_one_name_and_nested_ones_are_compared():
    ours = pa.table([pa.array([[1, None], []]), pa.array([b"x", None])], ["v", "v"])
    theirs = pa.table([pa.array([[], [1, None]]), pa.array([None, b"x"])], ["v", "v"])
    assert Comparison().difference(ours, theirs) == ""
    assert "v = [1, NULL]" in Comparison().difference(ours, theirs.slice(0, 1))


@pytest.mark.parametrize("close", [False, True])
def test_zeros_and_nan_are_themselves(close):
    assert differs({"x": [0.0, math.nan, math.inf]}, {"x": [math.inf, -0.0, math.nan]}, close=close) == ""
    assert differs({"x": [math.nan]}, {"x": [None]}, close=close)
    assert differs({"x": [math.inf]}, {"x": [-math.inf]}, close=close)


def test_only_sums_of_floating_point_numbers_may_differ_in_their_last_digits():
    ours, theirs = {"k": [1, 2], "x": [0.1 + 0.2, 1e300]}, {"k": [2, 1], "x": [1e300 * (1 + 1e-12), 0.3]}
    assert "x = 0.30000000000000004" in differs(ours, theirs)
    assert differs(ours, theirs, close=True) == ""
    assert differs({"x": [1.0]}, {"x": [1.0 + 1e-8]}, close=True)
    # two sums whose last digits would sort them the other way round, beside sums that differ
    apart = {"x": [0.3, 0.1 + 0.2], "y": [1.0, 2.0]}, {"x": [0.1 + 0.2, 0.3], "y": [1.0, 2.0]}
    assert differs(*apart, close=True) == ""


def test_sums_near_zero_may_differ_by_a_share_of_the_greatest_value_in_their_column():
    balances = {"k": [1, 2], "x": [1000.0, 0.0]}, {"k": [1, 2], "x": [1000.0, 1.455e-11]}
    assert "Firesteel: k = 2, x = 0.0; Spark: k = 2, x = 1.455e-11" in differs(*balances)
    assert differs(*balances, close=True) == ""
    assert differs(*balances, close=True, keys=[1]) == ""
    assert "x = 0.01" in differs({"x": [1000.0, 0.0]}, {"x": [1000.0, 0.01]}, close=True)
    assert "x = -5.0" in differs({"x": [1e9, 5.0]}, {"x": [1e9, -5.0]}, close=True)


def test_sums_that_are_all_near_zero_are_not_judged():
    with pytest.raises(SkippedError, match=r"near zero differ.*Firesteel: x = 0\.0; Spark: x = 1\.455e-11"):
        differs({"x": [0.0]}, {"x": [1.455e-11]}, close=True)
    assert differs({"x": [0.0]}, {"x": [1e-5]}, close=True)
    assert differs({"x": [1.0]}, {"x": [1.0 + 1e-8]}, close=True)
    assert "Spark 2" in differs({"x": [0.0]}, {"x": [1.455e-11, 0.0]}, close=True)
    assert differs({"k": ["a"], "x": [0.0]}, {"k": ["b"], "x": [1.455e-11]}, close=True)


@pytest.fixture
def few(monkeypatch):
    """A tenth of the rows without partners that are looked at otherwise, so that few rows are many."""
    monkeypatch.setattr(verifying, "_MOST_ALONE", 100)


def test_many_rows_whose_sums_would_sort_them_another_way_are_the_same(few):
    """The first sums are one number up to their last digits, so that they order each side at random."""
    n = 300
    noise = [1e-14 * (i * 7_919 % 101) for i in range(n)]
    ours = {"k": ["a"] * n, "x": [0.3 + e for e in noise], "y": [float(i) for i in range(n)]}
    theirs = ours | {"x": [0.3 + e for e in reversed(noise)]}
    assert differs(ours, theirs, close=True) == ""
    assert differs(ours, theirs | {"k": ["a"] * (n - 1) + ["b"]}, close=True)
    assert "Spark: k = a, x = 0.3, y = 17.5" in differs(ours, theirs | {"y": [*ours["y"][:-1], 17.5]}, close=True)
    assert differs(ours, theirs | {"x": [4.0] * n}, close=True)


def test_many_rows_that_cannot_be_paired_are_not_judged(few):
    """Steps of a tenth of the share: all numbers are in one group, and the second column orders the sides differently."""
    n = 300
    x, y = [1.0 + 1e-10 * i for i in range(n)], [float(i * 7_919 % n) for i in range(n)]
    ours = {"x": x, "y": [0.0] * n}
    assert differs(ours, {"x": x[::-1], "y": [0.0] * n}, close=True) == ""
    dense = {"x": [*x, *x], "y": [1.0 + 1e-10 * one for one in [*y, *x]]}
    turned = {"x": [*x, *x], "y": [1.0 + 1e-10 * one for one in [*y[1:], y[0], *x]]}
    with pytest.raises(SkippedError, match="more than 100 rows differ in the last digits"):
        differs(dense, turned, close=True)
    fewer = {name: values[:-1] for name, values in turned.items()}
    assert "Firesteel gives 600 rows, Spark 599." in differs(dense, fewer, close=True)


def test_maps_are_sets_of_entries():
    kind = pa.map_(pa.string(), pa.list_(pa.map_(pa.int32(), pa.float64())))
    ours = [[("a", [[(1, 0.5), (2, None)]]), ("b", None)], None, []]
    theirs = [[], [("b", None), ("a", [[(2, None), (1, 0.5)]])], None]
    wrong = [[], [("b", None), ("a", [[(2, 0.5), (1, None)]])], None]
    for wrapped in (kind, pa.struct([("a b", kind), ("i", pa.int32())]), pa.list_(kind)):

        def column_of(values: list, wrapped: pa.DataType = wrapped) -> dict:
            made = {pa.types.is_struct: lambda v: {"a b": v, "i": 1}, pa.types.is_list: lambda v: [v, None]}
            wrap = next((how for is_one, how in made.items() if is_one(wrapped)), lambda v: v)
            return {"m": pa.array([None, *map(wrap, values)], wrapped)}

        assert differs(column_of(ours), column_of(theirs)) == ""
        assert differs(column_of(ours), column_of(wrong)).startswith("The first rows that differ")


def test_types_are_compared():
    one = {"a": pa.array([1], pa.int32())}
    assert differs(one, {"a": pa.array([1], pa.int64())}) == (
        "The column a is of type int32 in Firesteel's answer, int64 in Spark's."
    )
    assert differs(
        {"a": pa.array([Decimal(1)], pa.decimal128(9, 2))}, {"a": pa.array([Decimal(1)], pa.decimal128(9, 1))}
    )
    assert differs({"a": pa.array([[1]], pa.list_(pa.int8()))}, {"a": pa.array([[1]], pa.list_(pa.int16()))})
    assert differs({"a": pa.array([0], pa.timestamp("us"))}, {"a": pa.array([0], pa.timestamp("us", "UTC"))})
    # Arrow alone tells these apart
    zones = [pa.array([0], pa.timestamp("us", zone)) for zone in ("UTC", "Europe/Berlin")]
    assert differs({"a": zones[0]}, {"a": zones[1]}) == ""
    lists = [
        pa.array([["x"]], pa.list_(pa.field("e", pa.string(), False))),
        pa.array([["x"]], pa.large_list(pa.large_string())),
    ]
    assert differs({"a": lists[0]}, {"a": lists[1]}) == ""


def test_averages_of_decimals_are_not_judged_by_their_last_digits():
    def means(*texts: str) -> dict:
        return {"a": pa.array([Decimal(text) for text in texts], pa.decimal128(13, 6))}

    ours, theirs = means("1234567.000001", "2.5"), means("1234567.000002", "2.5")
    assert differs(ours, theirs)
    assert differs(ours, ours, means={0}) == ""
    with pytest.raises(SkippedError, match="averages of decimals differ in their last digits"):
        differs(ours, theirs, means={0})
    assert "a = 2.500000" in differs(ours, means("1234567.000001", "2.600000"), means={0})
    assert differs(ours, means("1234567.000001"), means={0})


def column(number: int, kind: str = "double") -> Expr:
    return Expr("AttributeReference", {"exprId": number}, kind)


def alias(child: Expr, number: int) -> Expr:
    return Expr("Alias", {"child": child, "exprId": number}, child.type)


def aggregated(cls: str, child: Expr, kind: str = "double", *, distinct: bool = False) -> Expr:
    function = Expr(cls, {"child": child}, kind)
    return Expr("AggregateExpression", {"aggregateFunction": function, "isDistinct": distinct}, kind)


def operator(cls: str, **fields) -> Operator:
    return Operator(cls, fields, handle=0)


LEAF = operator("LocalRelation", output=[column(1), column(2, "string"), column(3, "long")])


def sums(child: Expr = LEAF, of: Expr | None = None) -> Expr:
    """``c10``: a sum of doubles."""
    total = alias(aggregated("Sum", column(1) if of is None else of), 10)
    return operator("Aggregate", groupingExpressions=[column(2, "string")], aggregateExpressions=[total], child=child)


def projected(*made: Expr, child: Expr | None = None) -> Expr:
    return operator("Project", projectList=[alias(one, 20 + i) for i, one in enumerate(made)], child=child or sums())


def call(cls: str, *children: Expr, kind: str = "double") -> Expr:
    return Expr(cls, {"children": list(children)}, kind)


TEN, ONE = column(10), column(1)
ABOVE = call("GreaterThan", TEN, Expr("Literal", {"value": "0.0"}, "double"), kind="boolean")
ORDER = Expr("SortOrder", {"child": TEN})


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (projected(call("Round", TEN)), "it rounds"),
        (projected(call("Add", ONE, call("BRound", TEN))), "it rounds"),
        (projected(call("Floor", TEN, kind="long")), "it rounds"),
        (projected(call("Cast", TEN, kind="long")), "it casts"),
        (projected(call("Cast", TEN, kind="string")), "it casts"),
        (projected(call("Cast", TEN, kind="decimal(9,2)")), "it casts"),
        (projected(call("FormatNumber", TEN, kind="string")), "it uses the function format_number on"),
        (projected(call("If", ABOVE, ONE, ONE)), "it compares"),
        (projected(call("Round", column(20)), child=projected(call("Multiply", TEN, ONE))), "it rounds"),
        (projected(call("Round", aggregated("Average", column(3, "long")))), "it rounds"),
        (operator("Filter", condition=ABOVE, child=sums()), "it compares"),
        (operator("Join", left=sums(), right=LEAF, condition=call("EqualTo", TEN, ONE, kind="boolean")), "it compares"),
        (operator("Aggregate", groupingExpressions=[TEN], aggregateExpressions=[TEN], child=sums()), "it groups by"),
        (projected(aggregated("Sum", TEN, distinct=True)), "it groups by"),
        (projected(aggregated("Count", TEN, "long", distinct=True)), "it groups by"),
        (operator("Window", windowExpressions=[alias(call("Rank", TEN), 30)], child=sums()), "it orders a window by"),
        (operator("Window", windowExpressions=[], partitionSpec=[TEN], child=sums()), "it groups by"),
        (operator("Window", windowExpressions=[], orderSpec=[ORDER], child=sums()), "it orders a window by"),
        (operator("Generate", child=sums()), "it uses Generate on"),
        (
            operator("Filter", condition=call("LessThan", ONE, call("ScalarSubquery", sums())), child=LEAF),
            "it compares",
        ),
    ],
)
def test_a_sum_of_floating_point_numbers_that_is_rounded_or_compared_is_not_checked(plan, said):
    with pytest.raises(SkippedError) as skipped:
        inexact_columns(plan, lambda _: [])
    assert str(skipped.value).startswith(f"{said} sums or averages of floating-point numbers")


def test_columns_made_of_inexact_ones_are_inexact():
    plan = operator("Filter", condition=call("IsNotNull", TEN, kind="boolean"), child=sums())
    plan = projected(call("Add", TEN, ONE), call("Round", ONE), call("IsNull", TEN, kind="boolean"), child=plan)
    plan = operator("Sort", order=[Expr("SortOrder", {"child": column(20)})], child=plan)
    assert inexact_columns(plan, lambda _: []) == {"c10", "c20"}
    # a column of a union is inexact where it is in one of the branches
    branches = operator("LocalRelation", output=[column(40)]), sums()
    outputs = {id(branches[0]): [column(40)], id(branches[1]): [TEN]}
    plan = operator("Union", children=list(branches))
    assert inexact_columns(plan, lambda node: outputs.get(id(node), [column(40)])) == {"c10", "c40"}
    assert inexact_columns(sums(LEAF, aggregated("Sum", ONE, distinct=True)), lambda _: []) == {"c10"}
    # averages of few digits and sums of whole numbers are exact
    digits = call("UnscaledValue", column(1, "decimal(7,2)"), kind="long")
    whole = [aggregated("Average", Expr("UnscaledValue", {"child": column(1, "decimal(7,2)")}, "long"))]
    whole += [aggregated("Average", column(1, "integer")), aggregated("Sum", digits, "long")]
    plan = projected(*(call("Round", one) for one in whole), child=LEAF)
    assert inexact_columns(plan, lambda _: []) == set()


def test_columns_made_of_averages_of_decimals_are_known():
    def mean(kind: str) -> Expr:
        average = aggregated("Average", Expr("UnscaledValue", {"child": column(1, kind)}, "long"))
        return Expr("Cast", {"child": call("Divide", average, ONE)}, "decimal(13,6)")

    plan = operator(
        "Aggregate", groupingExpressions=[], aggregateExpressions=[alias(mean("decimal(9,2)"), 10)], child=LEAF
    )
    assert means_of_decimals(projected(TEN, ONE, child=plan), lambda _: []) == {"c10", "c20"}
    outputs = {id(plan): [TEN], id(LEAF): [column(40)]}
    union = operator("Union", children=[LEAF, plan])
    assert means_of_decimals(union, lambda node: outputs.get(id(node), [column(41)])) == {"c10", "c41"}
    # with more than nine digits, a small table has such sums
    plan = operator(
        "Aggregate", groupingExpressions=[], aggregateExpressions=[alias(mean("decimal(10,2)"), 10)], child=LEAF
    )
    with pytest.raises(SkippedError, match="it casts"):
        inexact_columns(plan, lambda _: [])


@pytest.mark.parametrize("cls", ["MapInPandas", "MapInArrow", "FlatMapGroupsInPandas", "FlatMapCoGroupsInArrow"])
def test_python_functions_of_many_rows_are_not_checked(cls):
    with pytest.raises(SkippedError, match="a Python function in it gets many rows at once"):
        _check_certain(certain(operator(cls, child=LEAF)))
    mean = operator("Aggregate", aggregateExpressions=[alias(aggregated("PythonUDAF", ONE), 10)], child=LEAF)
    with pytest.raises(SkippedError, match="many rows at once"):
        _check_certain(certain(mean))
    _check_certain(certain(projected(call("PythonUDF", ONE), child=LEAF)))


def certain(root):
    """A plan that is deterministic."""
    return SimpleNamespace(root=root, deterministic=True)


def raised(name: str, text: str) -> Exception:
    return type(name, (Exception,), {})(text)


@pytest.mark.parametrize(
    ("error", "of_values"),
    [
        (raised("ArithmeticException", "[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012"), True),
        (raised("ArithmeticException", "[DIVIDE_BY_ZERO] Division by zero."), True),
        (raised("DateTimeException", "[CAST_INVALID_INPUT] The value 'x'. SQLSTATE: 22018"), True),
        (raised("SparkRuntimeException", "[SCALAR_SUBQUERY_TOO_MANY_ROWS] More than one row. SQLSTATE: 21000"), True),
        (raised("SparkRuntimeException", "[USER_RAISED_EXCEPTION] no SQLSTATE: P0001"), True),
        (raised("PythonException", "An exception was thrown from the Python worker: ValueError"), True),
        (
            raised(
                "Py4JJavaError",
                "An error occurred while calling o1.getResult.\n: org.apache.spark.SparkException: Exception thrown in awaitResult:\n"
                "Caused by: org.apache.spark.SparkArithmeticException: [ARITHMETIC_OVERFLOW] long overflow.",
            ),
            True,
        ),
        (raised("SparkRuntimeException", "[INTERNAL_ERROR] a defect. SQLSTATE: XX000"), False),
        (raised("Py4JJavaError", "SparkException: [SPARK_JOB_CANCELLED] Job 7 cancelled SQLSTATE: XXKDA"), False),
        (
            raised(
                "Py4JJavaError",
                "org.apache.spark.SparkException: Job aborted due to stage failure: Total size of serialized results of 2 tasks (3.0 MiB) is "
                "bigger than spark.driver.maxResultSize (1024.0 KiB)",
            ),
            False,
        ),
        (raised("Py4JJavaError", "SparkException: Job aborted: ExecutorLostFailure (executor 1 exited)"), False),
        (raised("AnalysisException", "[PATH_NOT_FOUND] Path does not exist. SQLSTATE: 42K03"), False),
        (ConnectionRefusedError("no JVM"), False),
    ],
)
def test_only_errors_of_a_querys_values_are_differences(error, of_values):
    assert is_of_values(error) is of_values


def test_a_defect_of_the_check_itself_leaves_the_answer():
    check = Check(SimpleNamespace(), Options(), "report.py:1")  # no plan at all
    check.run(lambda: pa.table({"a": [1]}))
    assert check.outcome == "skipped"
    assert check.reason.startswith("a defect of Firesteel stopped it (AttributeError in ")


class Plan:
    """Columns ``c1`` and ``c2``, of which the rows are sorted by all."""

    root = operator("Sort", order=[Expr("SortOrder", {"child": column(i)}) for i in (1, 2)], child=LEAF)

    def output_of(self, _):
        return [column(1), column(2)]


def test_keys_after_an_inexact_one_are_not_compared():
    assert list(Comparison.of(Plan(), 2, {"c1"}).keys) == [0]
    assert list(Comparison.of(Plan(), 2, {"c2"}).keys) == [0, 1]
    assert list(Comparison.of(Plan(), 2, set()).keys) == [0, 1]


def test_sorted_rows_come_in_the_order_of_their_keys():
    ours, theirs = {"k": [1, 1, 2], "v": ["a", "b", "c"]}, {"k": [1, 1, 2], "v": ["b", "a", "c"]}
    assert differs(ours, theirs, keys=[0]) == ""
    turned = {"k": [2, 1, 1], "v": ["c", "a", "b"]}
    assert differs(turned, theirs) == ""
    assert "Firesteel: k = 2, v = c; Spark: k = 1, v = b" in differs(turned, theirs, keys=[0])


def test_rows_that_tie_with_the_last_one_of_a_limit_may_be_others():
    ours, theirs = {"k": [1, 2, 2], "v": ["a", "b", "c"]}, {"k": [1, 2, 2], "v": ["a", "c", "d"]}
    assert differs(ours, theirs, keys=[0])
    assert differs(ours, theirs, keys=[0], cut=True) == ""
    assert differs(ours, {"k": [1, 2, 2], "v": ["z", "c", "d"]}, keys=[0], cut=True)


def test_a_share_of_the_queries_is_drawn_and_the_same_ones_by_the_same_mark():
    drawn = [number for number in range(1, 10_001) if is_drawn("report.py:1", number, 0.01)]
    assert 60 < len(drawn) < 140
    assert drawn == [number for number in range(1, 10_001) if is_drawn("report.py:1", number, 0.01)]
    assert drawn != [number for number in range(1, 10_001) if is_drawn("report.py:2", number, 0.01)]
    assert all(is_drawn("m", number, 1.0) for number in range(100))
    assert not any(is_drawn("m", number, 0.0) for number in range(100))
