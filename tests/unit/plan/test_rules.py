"""Each rule on plans written by hand: what becomes of them, and that their rows stay. The rows are counted by hand."""

from __future__ import annotations

import math

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from firesteel.connectors.formats.parquet import ParquetSource
from firesteel.engine.connection import connect
from firesteel.plan.dump import explain_rules
from firesteel.plan.expr import Expr, column
from firesteel.plan.relation import Aggregate, Filter, Join, Names, Project, Scan, Shared, Union
from firesteel.plan.rules import optimise
from firesteel.plan.rules.check import PlanError, check
from firesteel.plan.rules.facts import Facts
from firesteel.plan.rules.trees import relations
from firesteel.run.statement import statement_of

LINES = {"part": [*[1, 2, 3, None] * 10], "pieces": [*range(40)]}
PARTS = {"part": [1, 2, None], "brand": ["a", "b", "a"]}


@pytest.fixture(scope="module")
def engine():
    return connect()


@pytest.fixture
def scan(tmp_path):
    """Makes a scan of rows. The columns of each are numbered on, from a hundred for each scan."""
    made = []

    def scan(rows, kinds=None):
        made.append(rows)
        path = tmp_path / f"{len(made)}.parquet"
        pq.write_table(pa.table(rows), path)
        return again(ParquetSource(path), len(made))

    def again(source, number):
        kinds = {pa.int64(): "long", pa.string(): "string", pa.float64(): "double"}
        names = {f"c{100 * number + i}": name for i, name in enumerate(source.schema.names)}
        return Scan({c: kinds[source.schema.field(n).type] for c, n in names.items()}, source, names)

    scan.again = again
    return scan


def of(relation, i):
    """Its column in this place."""
    name, kind = list(relation.columns.items())[i]
    return column(name, kind)


def call(cls, kind, *values, **fields):
    names = ("left", "right") if len(values) == 2 else ("child",)
    return Expr(cls, {**dict(zip(names, values, strict=False)), **fields}, kind)


def equal(a, b, cls="EqualTo"):
    return call(cls, "boolean", a, b)


def literal(value, kind):
    return Expr("Literal", {"value": value}, kind)


def total(value, mode="LEGACY"):
    function = call("Sum", "long", value, evalContext=Expr("NumericEvalContext", {"evalMode": mode}))
    fields = {"aggregateFunction": function, "mode": Expr("Complete", {}), "isDistinct": False, "filter": None}
    return Expr("AggregateExpression", fields, "long")


def join(left, right, a, b, how="inner", cls="EqualTo"):
    return Join(left, right, how, (equal(a, b, cls),), ((a, b),), ())


def totals(lines, number, mode="LEGACY"):
    key, pieces = of(lines, 0), of(lines, 1)
    return Aggregate(lines, (key,), {f"c{number}": key, f"c{number + 1}": total(pieces, mode)})


def optimised(relation):
    found, record = optimise(relation, facts())
    for one in record:
        check(one.after)
    assert found.columns == relation.columns
    return found, [one.rule.name for one in record if one.changed]


def facts():
    def parts(scan):
        return scan.source.files([split.payload for split in scan.source.list_splits(1 << 40)])

    return Facts.of_files(parts, Names())


def rows(engine, relation):
    statement = statement_of(relation, list(relation.columns))
    with engine.cursor() as cursor:
        for name, text in statement.first.items():
            cursor.execute(f"CREATE TEMP TABLE {name} AS {text}")
        return sorted(cursor.execute(statement.text).fetchall(), key=repr)


def parts_of_brand(scan, brand="a"):
    parts = scan(PARTS)
    return Filter(parts, (equal(of(parts, 1), literal(brand, "string")),))


def test_an_aggregate_joined_on_its_keys_reads_only_rows_whose_keys_the_other_side_has(scan, engine):
    parts, grouped = parts_of_brand(scan), totals(scan(LINES), 900)
    whole = Project(join(parts, grouped, of(parts, 0), of(grouped, 0)), {"c1": of(grouped, 0), "c2": of(grouped, 1)})
    found, applied = optimised(whole)
    assert applied == ["reduce_aggregates"]
    (reduced,) = (one for one in relations(found) if isinstance(one, Aggregate))
    assert isinstance(reduced.child, Join) and reduced.child.how == "semi"
    assert rows(engine, whole) == [(1, sum(range(0, 40, 4)))]  # null is no partner of null


@pytest.mark.parametrize("change", ["raises", "null-safe", "kept", "whole", "large"])
def test_an_aggregate_reads_all_rows_where_an_error_or_a_row_might_be_lost_or_nothing_is_gained(scan, change):
    parts = scan(PARTS) if change == "whole" else parts_of_brand(scan)
    lines = scan({name: values[:8] for name, values in LINES.items()} if change == "large" else LINES)
    grouped = totals(lines, 900, "ANSI" if change == "raises" else "LEGACY")
    how, cls = "right" if change == "kept" else "inner", "EqualNullSafe" if change == "null-safe" else "EqualTo"
    whole = join(parts, grouped, of(parts, 0), of(grouped, 0), how, cls)
    assert optimised(whole) == (whole, [])


def test_an_aggregate_joined_on_a_sum_reads_all_rows(scan, engine):
    parts, lines = parts_of_brand(scan), scan(LINES)
    grouped = Aggregate(lines, (literal(True, "boolean"),), {"c900": total(of(lines, 1))})
    whole = join(parts, grouped, of(parts, 0), of(grouped, 0))
    assert optimised(whole) == (whole, [])
    assert rows(engine, whole) == []


def test_keys_that_are_no_numbers_and_zeros_of_both_signs_are_found(scan, engine):
    parts = scan({"part": [math.nan, -0.0], "brand": ["a", "a"]})
    chosen = Filter(parts, (equal(of(parts, 1), literal("a", "string")),))
    grouped = totals(scan({"part": [math.nan, 0.0, -0.0, 7.0] * 3, "pieces": [*range(12)]}), 900)
    whole = Project(join(chosen, grouped, of(parts, 0), of(grouped, 0)), {"c1": of(grouped, 1)})
    assert optimised(whole)[1] == ["reduce_aggregates"]
    assert rows(engine, whole) == [(0 + 4 + 8,), (1 + 5 + 9 + 2 + 6 + 10,)]


def test_the_key_comes_from_the_scan_below_the_other_sides_joins(scan, engine):
    parts, lines, grouped = parts_of_brand(scan, "b"), scan(LINES), totals(scan(LINES), 900)
    both = join(lines, parts, of(lines, 0), of(parts, 0))
    few = Project(both, {"c3": of(lines, 0), "c4": of(lines, 1)})
    whole = Project(join(few, grouped, of(few, 0), of(grouped, 0)), {"c1": of(few, 1), "c2": of(grouped, 1)})
    assert optimised(whole)[1] == ["reduce_aggregates"]
    assert rows(engine, whole) == sorted(((i, sum(range(1, 40, 4))) for i in range(1, 40, 4)), key=repr)


def copies(scan, other=None):
    """Two aggregates of the same rows, with different columns, joined. ``other``: a condition of the second one's rows."""
    first = scan(LINES)
    second = scan.again(first.source, 7)
    key = of(first, 0)
    one = Aggregate(first, (key,), {"c1": key, "c2": total(of(first, 1))})
    kept = Filter(second, (other(second),)) if other else second
    biggest = Expr(
        "AggregateExpression",
        {
            "aggregateFunction": call("Max", "long", of(second, 1)),
            "mode": Expr("Complete", {}),
            "isDistinct": False,
            "filter": None,
        },
        "long",
    )
    two = Aggregate(kept, (of(second, 0),), {"c3": biggest, "c4": of(second, 0)})
    return join(one, two, column("c1", "long"), column("c4", "long"))


def test_aggregates_of_the_same_rows_are_one_with_the_columns_of_both(scan, engine):
    whole = copies(scan)
    found, applied = optimised(whole)
    assert applied == ["share_subtrees"]
    assert len([one for one in relations(found) if isinstance(one, Aggregate)]) == 1
    assert len([one for one in relations(found) if isinstance(one, Shared)]) == 1
    assert rows(engine, whole) == [(k, sum(range(k - 1, 40, 4)), 35 + k, k) for k in (1, 2, 3)]


def test_aggregates_of_other_rows_are_not_shared(scan):
    whole = copies(scan, lambda lines: equal(of(lines, 1), literal(3, "long")))
    assert optimised(whole) == (whole, [])


@pytest.mark.parametrize("kept", [[1], [2, None]])
def test_aggregates_of_other_groups_are_one_of_all_these_groups(scan, engine, kept):
    """One reads all groups; or each some of them. Each reader still finds its own groups only."""
    first = scan(LINES)
    second = scan.again(first.source, 7)
    conditions = [
        (equal(of(one, 0), literal(k, "long"), "EqualNullSafe"),) for one, k in zip((first, second), kept, strict=False)
    ]
    sides = [Filter(one, its) for one, its in zip((first, second), conditions, strict=False)]
    one, two = totals(sides[0], 900), totals(sides[1] if len(kept) > 1 else second, 910)
    whole = Union((one, Project(two, {"c900": of(two, 0), "c901": of(two, 1)})))
    found, applied = optimised(whole)
    assert applied == ["share_subtrees"]
    assert len([each for each in relations(found) if isinstance(each, Aggregate)]) == 1
    sums = {1: 180, 2: 190, 3: 200, None: 210}
    groups = [*kept[:1], *(sums if len(kept) == 1 else kept[1:])]
    assert rows(engine, whole) == sorted(((k, sums[k]) for k in groups), key=repr)


def test_a_condition_that_is_there_twice_goes_nowhere(scan, engine):
    first = scan(LINES)
    second = scan.again(first.source, 7)
    twice = Filter(
        Filter(first, (equal(of(first, 0), literal(1, "long")),)), (equal(of(first, 0), literal(1, "long")),)
    )
    one, two = totals(twice, 900), totals(Filter(second, (equal(of(second, 0), literal(2, "long")),)), 910)
    whole = Union((one, Project(two, {"c900": of(two, 0), "c901": of(two, 1)})))
    assert optimised(whole)[1] == ["share_subtrees"]  # by the condition that is there once
    assert rows(engine, whole) == [(1, 180), (2, 190)]


def test_a_sum_of_no_rows_is_there_where_one_of_all_rows_is(scan, engine):
    """Without groups there is a row whatever the condition."""
    first = scan(LINES)
    second = scan.again(first.source, 7)
    none = Filter(second, (call("IsNull", "boolean", literal(1, "long")),))
    one, two = (Aggregate(each, (), {f"c{n}": total(of(each, 1))}) for each, n in ((first, 900), (none, 910)))
    whole = Union((one, Project(two, {"c900": of(two, 0)})))
    assert optimised(whole) == (whole, [])
    assert rows(engine, whole) == [(780,), (None,)]


def test_aggregates_that_differ_by_a_needless_check_are_shared(scan, engine):
    whole = copies(scan, lambda lines: call("IsNotNull", "boolean", of(lines, 0)))
    assert optimised(whole)[1] == ["share_subtrees", "drop_null_checks"]
    assert rows(engine, whole) == [(k, sum(range(k - 1, 40, 4)), 35 + k, k) for k in (1, 2, 3)]


def checked(lines, *others):
    return Filter(lines, (call("IsNotNull", "boolean", of(lines, 0)), *others))


def checks(relation):
    return [c for one in relations(relation) if isinstance(one, Filter) for c in one.conditions if c.cls == "IsNotNull"]


@pytest.mark.parametrize(
    ("how", "left", "right"),
    [("inner", 0, 0), ("semi", 0, 0), ("left", 1, 0), ("right", 0, 1), ("full", 1, 1), ("anti", 1, 0)],
)
def test_a_null_is_not_looked_for_where_a_join_rejects_it(scan, engine, how, left, right):
    lines, parts = scan(LINES), scan(PARTS)
    whole = join(checked(lines), checked(parts), of(lines, 0), of(parts, 0), how)
    found, _ = optimised(whole)
    assert len(checks(found.left)) == left
    assert len(checks(found.right)) == right
    counts = {"inner": 20, "semi": 20, "left": 30, "right": 20, "full": 30, "anti": 10}
    assert len(rows(engine, whole)) == counts[how]


def test_a_null_is_looked_for_where_a_condition_after_it_may_raise_or_only_another_column_is_compared(scan, engine):
    lines = scan(LINES)
    ansi = Expr("NumericEvalContext", {"evalMode": "ANSI"})
    quotient = call("Divide", "double", *(call("Cast", "double", of(lines, 1)),) * 2, evalContext=ansi)
    above = call("GreaterThan", "boolean", of(lines, 1), literal(35, "long"))
    for condition, left in (
        (call("GreaterThan", "boolean", quotient, literal(0.0, "double")), 1),
        (above, 1),
        (call("GreaterThan", "boolean", of(lines, 0), literal(1, "long")), 0),
        (call("Or", "boolean", above, call("GreaterThan", "boolean", of(lines, 0), literal(1, "long"))), 1),
        (call("Not", "boolean", equal(of(lines, 0), literal(1, "long"))), 0),
        (equal(of(lines, 0), literal(1, "long"), "EqualNullSafe"), 1),
    ):
        assert len(checks(optimised(checked(lines, condition))[0])) == left
    assert rows(engine, checked(lines, above)) == [(1, 36), (2, 37), (3, 38)]


def test_explain_shows_what_each_rule_changed(scan):
    parts, lines = parts_of_brand(scan), scan(LINES)
    grouped = totals(lines, 900)
    found = explain_rules(optimise(join(parts, grouped, of(parts, 0), of(grouped, 0)), facts())[1])
    assert found.splitlines() == [
        "share_subtrees: changed nothing",
        "drop_null_checks: changed nothing",
        "reduce_aggregates: An aggregate that is joined on its own keys reads only rows whose keys the other side has.",
        "  before:",
        "    aggregate by part: part as c900, Sum(pieces) as c901",
        f"      scan {lines.source.name}: part, pieces",
        "  after:",
        "    aggregate by part: part as c900, Sum(pieces) as c901",
        "      semi join on (part = cr_0)",
        f"        scan {lines.source.name}: part, pieces",
        "        project part as cr_0",
        "          filter (brand = 'a')",
        f"            scan {parts.child.source.name}: part, brand",
    ]


def test_a_plan_that_cannot_be_right_is_an_error(scan):
    lines, parts = scan(LINES), scan(PARTS)
    a, b = of(lines, 0), of(parts, 0)
    for wrong, said in (
        (Filter(lines, (equal(b, literal(1, "long")),)), "a filter reads column c200, which does not exist"),
        (Project(lines, {"c1": column("c100", "string")}), "a project reads column c100 as string, which is long"),
        (join(lines, lines, a, a), "a join has column c100 twice"),
        (join(lines, parts, b, a), "a join has a key with a column of the other side"),
        (Union((lines, parts)), "a union has branches of different columns"),
    ):
        with pytest.raises(PlanError, match=said):
            check(wrong)
