"""How the check of accelerated queries compares rows, and which queries it draws."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest

from firesteel.api.acceleration.verifying import Comparison, SkippedError, inexact_columns, is_drawn
from firesteel.sql.plans.nodes import Node


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


def column(number: int, kind: str = "double") -> Node:
    return Node("AttributeReference", {"exprId": number}, kind)


def alias(child: Node, number: int) -> Node:
    return Node("Alias", {"child": child, "exprId": number}, child.type)


def aggregated(cls: str, child: Node, kind: str = "double", *, distinct: bool = False) -> Node:
    function = Node(cls, {"child": child}, kind)
    return Node("AggregateExpression", {"aggregateFunction": function, "isDistinct": distinct}, kind)


def operator(cls: str, **fields) -> Node:
    return Node(cls, fields, handle=0)


LEAF = operator("LocalRelation", output=[column(1), column(2, "string"), column(3, "long")])


def sums(child: Node = LEAF, of: Node | None = None) -> Node:
    """``c10``: a sum of doubles."""
    total = alias(aggregated("Sum", column(1) if of is None else of), 10)
    return operator("Aggregate", groupingExpressions=[column(2, "string")], aggregateExpressions=[total], child=child)


def projected(*made: Node, child: Node | None = None) -> Node:
    return operator("Project", projectList=[alias(one, 20 + i) for i, one in enumerate(made)], child=child or sums())


def call(cls: str, *children: Node, kind: str = "double") -> Node:
    return Node(cls, {"children": list(children)}, kind)


TEN, ONE = column(10), column(1)
ABOVE = call("GreaterThan", TEN, Node("Literal", {"value": "0.0"}, "double"), kind="boolean")
ORDER = Node("SortOrder", {"child": TEN})


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (projected(call("Round", TEN)), "it rounds"),
        (projected(call("Add", ONE, call("BRound", TEN))), "it rounds"),
        (projected(call("Floor", TEN, kind="long")), "it rounds"),
        (projected(call("Cast", TEN, kind="long")), "it casts"),
        (projected(call("Cast", TEN, kind="string")), "it casts"),
        (projected(call("Cast", TEN, kind="decimal(9,2)")), "it casts"),
        (projected(call("FormatNumber", TEN, kind="string")), "it uses FormatNumber on"),
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
    plan = operator("Sort", order=[Node("SortOrder", {"child": column(20)})], child=plan)
    assert inexact_columns(plan, lambda _: []) == {"c10", "c20"}
    # a column of a union is inexact where it is in one of the branches
    branches = operator("LocalRelation", output=[column(40)]), sums()
    outputs = {id(branches[0]): [column(40)], id(branches[1]): [TEN]}
    plan = operator("Union", children=list(branches))
    assert inexact_columns(plan, lambda node: outputs.get(id(node), [column(40)])) == {"c10", "c40"}
    assert inexact_columns(sums(LEAF, aggregated("Sum", ONE, distinct=True)), lambda _: []) == {"c10"}
    # averages of few digits and sums of whole numbers are exact
    digits = call("UnscaledValue", column(1, "decimal(7,2)"), kind="long")
    whole = [aggregated("Average", Node("UnscaledValue", {"child": column(1, "decimal(7,2)")}, "long"))]
    whole += [aggregated("Average", column(1, "integer")), aggregated("Sum", digits, "long")]
    plan = projected(*(call("Round", one) for one in whole), child=LEAF)
    assert inexact_columns(plan, lambda _: []) == set()


class Plan:
    """Columns ``c1`` and ``c2``, of which the rows are sorted by all."""

    root = operator("Sort", order=[Node("SortOrder", {"child": column(i)}) for i in (1, 2)], child=LEAF)

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
