"""Joins in another order: which one, by numbers of rows, and that the rows stay those of the written order, as DuckDB computes both."""

from __future__ import annotations

import random

import pytest
from tests.effort import examples
from tests.unit.plan.test_rules import call, engine, equal, join, literal, of, rows, scan

from firesteel.compile.relations.steps import Steps
from firesteel.plan.expr import column
from firesteel.plan.relation import Filter, Join, Names, Project, Scan, Shared
from firesteel.plan.rules.check import check
from firesteel.plan.rules.estimates import Estimates
from firesteel.plan.rules.facts import Facts
from firesteel.plan.rules.join_order import order_joins
from firesteel.plan.rules.partners import reduce_partners
from firesteel.plan.rules.trees import relations

__all__ = ["engine", "scan"]  # fixtures


def facts(counts, values=None):
    """``counts``: rows of each scan that a test says it has; ``values``: of columns."""
    return Facts(count=counts.get, values=lambda scan, name: (values or {}).get(name), names=Names())


def shape(relation):
    """The leaves of joins by the numbers of their scans, as nested pairs."""
    if isinstance(relation, Scan):
        return int(next(iter(relation.columns))[1:]) // 100
    below = [*map(shape, relation.children)]
    return tuple(below) if isinstance(relation, Join) else below[0]


def same(relation, kind="long"):
    return {name: column(name, kind) for name in relation.columns}


def star(scan):
    """Lines, suppliers, and nations of which a condition leaves few, in the order in which people write them."""
    lines, suppliers, nations = (
        scan({"s": [1, 2, 3, 4], "n": [5, 6, 7, 8]}),
        scan({"s": [1, 2, 3], "n": [1, 1, 2]}),
        scan({"n": [1, 2]}),
    )
    few = Filter(nations, (equal(of(nations, 0), literal(1, "long")),))
    first = join(lines, suppliers, of(lines, 0), of(suppliers, 0))
    whole = join(first, few, of(suppliers, 1), of(few, 0))
    return whole, facts({lines: 60_000, suppliers: 1000, nations: 25})


def test_dimensions_are_joined_before_the_facts(scan, engine):
    whole, known = star(scan)
    found = order_joins(whole, known)
    check(found)
    assert shape(whole) == ((1, 2), 3) and shape(found) == (1, (2, 3))
    assert found.columns == whole.columns and rows(engine, found) == rows(engine, whole) == [
        (1, 5, 1, 1, 1),
        (2, 6, 2, 1, 1),
    ]


def test_only_columns_that_are_read_above_travel(scan):
    whole, known = star(scan)
    found = order_joins(Project(whole, {"c1": of(whole, 1)}), known)
    made = [one for one in relations(found) if isinstance(one, Join)]
    assert [list(one.columns) for one in made] == [["c100", "c101", "c200"], ["c200", "c201", "c300"]]


@pytest.mark.parametrize("change", ["unknown", "outer", "raises", "same"])
def test_joins_stay_where_nothing_is_known_or_gained_or_an_error_might_be_lost(scan, change):
    whole, known = star(scan)
    lines, suppliers, _ = (one for one in relations(whole) if isinstance(one, Scan))
    if change == "unknown":
        known = facts({lines: 60_000, suppliers: 1000})
    elif change == "outer":
        whole = Join(whole.left, whole.right, "left", whole.equal, whole.pairs, ())
    elif change == "raises":
        above = call("CheckOverflow", "long", of(lines, 1))
        whole = Join(whole.left, whole.right, "inner", whole.equal, whole.pairs, (equal(above, literal(5, "long")),))
    else:
        few = join(suppliers, whole.right, of(suppliers, 1), of(whole.right, 0))
        whole = join(lines, few, of(lines, 0), of(suppliers, 0))
    assert order_joins(whole, known) is whole


def customers(scan):
    """Customers, orders, lines, suppliers, nations: query 5 of TPC-H. The supplier is of the customer's nation."""
    c, o, s, n = (
        scan({"c": [1, 2], "n": [1, 2]}),
        scan({"o": [1, 2], "c": [1, 2], "s": [1, 3]}),
        scan({"s": [1, 3], "n": [1, 1]}),
        scan({"n": [1, 2]}),
    )
    few = Filter(n, (equal(of(n, 0), literal(1, "long")),))
    first = join(c, o, of(c, 0), of(o, 1))
    pairs = ((of(o, 2), of(s, 0)), (of(c, 1), of(s, 1)))
    second = Join(first, s, "inner", tuple(equal(*pair) for pair in pairs), pairs, ())
    return join(second, few, of(s, 1), of(few, 0)), {c: 1000, o: 150_000, s: 15_000, n: 25}


def test_what_is_equal_to_the_same_is_joined_directly(scan, engine):
    whole, counts = customers(scan)
    found = order_joins(whole, facts(counts))
    check(found)
    assert shape(found) != shape(whole)
    joined = {
        tuple(sorted((pair[0].id, pair[1].id)))
        for one in relations(found)
        if isinstance(one, Join)
        for pair in one.pairs
    }
    assert ("c101", "c400") in joined  # customers and nations
    assert rows(engine, found) == rows(engine, whole) == [(1, 1, 1, 1, 1, 1, 1, 1)]


def test_the_values_that_statistics_tell_keep_customers_and_suppliers_of_a_nation_apart(scan):
    """Without the nations, each of 1,000 customers has 600 of 15,000 suppliers."""
    whole, counts = customers(scan)
    known = facts(counts, {"c101": 25, "c301": 25})
    found = order_joins(whole.left, known)
    pairs = [{a.id[1], b.id[1]} for one in relations(found) if isinstance(one, Join) for a, b in one.pairs[:1]]
    assert {"1", "3"} not in pairs


@pytest.mark.parametrize("how", ["semi", "anti"])
def test_a_semi_join_looks_up_few_rows_and_reads_only_their_partners(scan, engine, how):
    """Query 21 of TPC-H."""
    lines, suppliers, nations, others = (
        scan({"o": [1, 2, 3], "s": [1, 2, 3]}),
        scan({"s": [1, 2, 3], "n": [1, 1, 2]}),
        scan({"n": [1, 2]}),
        scan({"o": [1, 1, 3], "s": [1, 9, 9]}),
    )
    few = Filter(nations, (equal(of(nations, 0), literal(1, "long")),))
    differs = call("Not", "boolean", equal(of(lines, 1), of(others, 1)))
    pair = (of(lines, 0), of(others, 0))
    looked = Join(lines, others, how, (equal(*pair),), (pair,), (differs,))
    whole = join(join(looked, suppliers, of(lines, 1), of(suppliers, 0)), few, of(suppliers, 1), of(few, 0))
    known = facts({lines: 6_000_000, suppliers: 1000, nations: 25, others: 60_000_000})
    found = reduce_partners(order_joins(whole, known), known)
    check(found)
    assert shape(found) == ((1, (2, 3)), (4, (1, (2, 3))))
    assert len([one for one in relations(found) if isinstance(one, Shared)]) == 1
    expected = {"semi": [(1, 1, 1, 1, 1)], "anti": [(2, 2, 2, 1, 1)]}[how]
    assert rows(engine, found) == rows(engine, whole) == expected


def test_a_semi_join_of_many_rows_stays(scan):
    lines, others = scan({"o": [1]}), scan({"o": [1]})
    whole = join(lines, others, of(lines, 0), of(others, 0), "semi")
    assert reduce_partners(whole, facts({lines: 10_000_000, others: 60_000_000})) is whole
    assert reduce_partners(whole, facts({lines: 10, others: 1000})) is whole
    name = next(iter(others.columns))  # customers with an order: there is hardly an order without its customer
    assert reduce_partners(whole, facts({lines: 1_500_000, others: 15_000_000}, {name: 1_500_000})) is whole
    assert reduce_partners(whole, facts({lines: 1_500_000, others: 15_000_000}, {name: 6_000_000})) is not whole


def random_plan(scan, rng):
    """Up to five small tables of few values and nulls, joined by random keys: inner, and semi and anti on the way."""
    sizes = [rng.randint(0, 5) for _ in range(rng.randint(3, 5))]
    tables = [scan({name: [*rng.choices([None, 0, 1, 2], k=size), 1] for name in "ab"}) for size in sizes]
    whole, inside = tables[0], [tables[0]]
    for table in tables[1:]:
        keys = rng.sample([(one, other) for one in inside for other in (0, 1)], rng.randint(1, 2))
        pairs = tuple((of(one, place), of(table, rng.randint(0, 1))) for one, place in keys)
        cls = rng.choice(["EqualTo", "EqualTo", "EqualTo", "EqualNullSafe"])
        rest = ()
        if rng.random() < 0.3:
            rest = (call("LessThanOrEqual", "boolean", of(rng.choice(inside), 0), of(table, rng.randint(0, 1))),)
        how = rng.choice(["inner", "inner", "inner", "semi", "anti"])
        whole = Join(whole, table, how, tuple(equal(*pair, cls) for pair in pairs), pairs, rest)
        inside += [table] if how == "inner" else []
        if rng.random() < 0.2:
            whole = Project(whole, same(whole))
    return whole, facts({table: rng.choice([1, 30, 1000, 1 << 21, 1 << 25]) for table in tables})


def test_any_order_has_the_rows_of_the_written_one(scan, engine):
    changed, tried = 0, max(20, examples(750))
    for seed in range(tried):
        whole, known = random_plan(scan, random.Random(seed))
        found = reduce_partners(order_joins(whole, known), known)
        check(found)
        assert list(found.columns) == list(whole.columns)
        assert rows(engine, found) == rows(engine, whole), seed
        changed += found is not whole
    assert changed > tried / 3


@pytest.mark.parametrize(
    ("rows_left", "how"), [(60_000_000, "semi join"), (100, "sql(semi join)"), (None, "semi join")]
)
def test_a_semi_join_of_few_rows_alone_is_made_where_the_other_side_has_its_keys(scan, rows_left, how):
    """Of many left rows none needs an exchange where the other side, itself a join by the same key, is broadcast."""
    lines, parts, brands = (scan({"k": [1]}) for _ in range(3))
    few = join(parts, brands, of(parts, 0), of(brands, 0))
    known = facts({lines: rows_left, parts: 1000, brands: 1000})
    relation, unknowing = join(lines, few, of(lines, 0), of(few, 0), "semi"), Steps()
    unknowing.rows(relation)
    steps = unknowing.guessing(Estimates(known).rows)
    assert steps.rows(relation).node.name == how
