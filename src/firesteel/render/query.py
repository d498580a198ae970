"""A tree of relations as one query, and the queries that run before it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from firesteel.plan.expr import Expr, Unsupported, attributes, same
from firesteel.plan.raising import may_raise
from firesteel.plan.relation import (
    Aggregate,
    Expand,
    Filter,
    Generate,
    Join,
    Leaf,
    Limit,
    Names,
    Project,
    Relation,
    Scan,
    Shared,
    Sort,
    Union,
    Window,
    with_columns,
)
from firesteel.plan.types import engine_type, fields_of
from firesteel.render.expressions.grouping import Grouping, group_columns, grouping_sets
from firesteel.render.expressions.texts import order_text
from firesteel.render.expressions.translator import Expressions
from firesteel.render.expressions.windows import function_text
from firesteel.render.relations import (
    all_of,
    copies_text,
    expand_text,
    generate_text,
    join_text,
    scan_items,
    window_keys,
)


@dataclass(slots=True)
class Query:
    """A tree of relations as one query, and the queries that run before it.

    ``read``: takes a leaf, and gives its rows as FROM takes them. Raises Unsupported for a leaf that is not read here.
    """

    read: Callable[[Leaf], str]
    names: Names = field(default_factory=Names)
    before: dict[str, str] = field(default_factory=dict)
    """Queries that are to run first, each as a table of this name, in order. What may raise an error of Spark's is one where rows are dropped
    above it: no rule of the engine's optimiser drops rows of another statement."""
    _tables: dict[Relation, str] = field(default_factory=dict)
    _raised: set[str] = field(default_factory=set)
    """Those of them that may raise."""
    _raising: dict[Relation, bool] = field(default_factory=dict)

    def statements(self, text: str) -> tuple[dict[str, str], str]:
        """The queries that are to run before ``text``, and this one.

        What may not raise, and only one of them reads, is a part of that one: the engine then stores no more of it than is read.
        """
        texts, parts, within = {**self.before, "": text}, dict[str, list[str]](), dict[str, str]()
        for name in reversed(self.before):
            readers = {within.get(one, one) for one, its in texts.items() if name in _TABLE.findall(its)}
            if name not in self._raised and len(readers) == 1:
                (within[name],) = readers
                parts.setdefault(within[name], []).insert(0, name)
        whole = {
            name: f"WITH {', '.join(f'{part} AS MATERIALIZED ({texts[part]})' for part in parts[name])} {its}"
            if name in parts
            else its
            for name, its in texts.items()
            if name not in within
        }
        return whole, whole.pop("")

    def text(self, relation: Relation) -> str:
        """Raises Unsupported."""
        rule = RULES.get(type(relation))
        if rule is None:  # of Python alone
            raise Unsupported("it calls a Python function")
        return rule(self, relation)

    def rows(self, relation: Relation) -> str:
        """The relation's rows, as FROM takes them."""
        if isinstance(relation, Leaf) and not isinstance(relation, Scan):
            return self.read(relation)
        return (
            self.table(relation) if isinstance(relation, Shared) else f"({self.text(relation)}) {self.names.new('t')}"
        )

    def settled(self, relation: Relation) -> str:
        """The same, for a query that drops some of the rows."""
        return self.table(relation) if self.raises(relation) else self.rows(relation)

    def table(self, relation: Relation) -> str:
        """The table of a query that is to run first."""
        if isinstance(relation, Shared):
            relation = relation.child
        if relation not in self._tables:
            text = self.text(relation)
            self._tables[relation] = name = self.names.new("first")
            self.before[name] = text
            if self.raises(relation):
                self._raised.add(name)
        return self._tables[relation]

    def raises(self, relation: Relation) -> bool:
        """Return whether computing the rows may raise an error of Spark's that the queries before it would not have raised."""
        if relation not in self._raising:
            own = relation.may_raise
            self._raising[relation] = own or (
                not isinstance(relation, _DROPS) and any(map(self.raises, relation.children))
            )
        return self._raising[relation]

    def expressions(self, given: Callable[[Expr], str | None] | None = None) -> Expressions:
        """A translator of expressions with scalar subqueries. ``given``: the text of what is computed already."""
        return Expressions(given, self._subquery)

    def _subquery(self, node: Expr, ordinal: int) -> str:
        plan, packed = node["plan"], node["packed"]
        text = f"(SELECT {list(plan.columns)[ordinal if packed else 0]} FROM {self.table(plan)})"
        return text if packed or fields_of(node.type) is None else f"struct_extract_at({text}, {ordinal + 1})"


_TABLE = re.compile(r"first_\d+")
_DROPS = (Filter, Limit, Join, Generate, Shared)
"""Have rows that may raise computed before them."""


def _scan(query: Query, relation: Scan) -> str:
    return f"SELECT {scan_items(relation)} FROM {query.read(relation)}"


def _all(query: Query, relation: Relation) -> str:
    return f"SELECT * FROM {query.rows(relation)}"


def _project(query: Query, relation: Project) -> str:
    x, before, items = query.expressions(), relation.child.columns, list[str]()
    for name, item in relation.items.items():
        text, kind = x.text(item), relation.columns[name]
        value = text if before.get(text) == kind else f"CAST({text} AS {engine_type(kind)})"
        items.append(name if value == name else f"{value} AS {name}")
    reads = any(
        map(attributes, relation.items.values())
    )  # else the engine would compute nothing of the rows but their number
    return f"SELECT {', '.join(items)} FROM {query.rows(relation.child) if reads else query.settled(relation.child)}"


def _filter(query: Query, relation: Filter) -> str:
    rows = query.settled(relation.child)
    return f"SELECT * FROM {rows} WHERE {all_of(relation.conditions, query.expressions())}"


def _expand(query: Query, relation: Expand) -> str:
    items, tail = expand_text(relation)
    return f"SELECT {items} FROM {query.rows(relation.child)} {tail}"


def _generate(query: Query, relation: Generate) -> str:
    rows = query.settled(relation.child)
    if relation.generator.cls == "ReplicateRows":
        items, copied = copies_text(relation)
        return f"SELECT {', '.join(relation.columns)} FROM (SELECT {items} FROM {rows} {copied}) {query.names.new('t')}"
    lists, walked, items = generate_text(relation, query.names)
    inner = f"(SELECT {walked} FROM {_with_columns(query, rows, lists)}) {query.names.new('t')}"
    return f"SELECT {items} FROM {inner}"


def _aggregate(query: Query, relation: Aggregate) -> str:
    x, sets = Expressions(), grouping_sets(relation)
    child, keys = (relation.child, relation.groups) if sets is None else (sets.rows, sets.keys)
    before = child.columns
    groups, kinds, texts = group_columns(keys, x, query.names)
    by = f" GROUP BY {', '.join(kinds)}" if kinds else ""
    if sets is not None:
        chosen = ", ".join(f"({', '.join(groups[same(key)] for key in one)})" for one in sets.sets)
        by = f" GROUP BY GROUPING SETS ({chosen}) HAVING count(*) > 0"  # of no rows there is no group
        groups.update({same(one): sets.number(constants, groups, x) for one, constants in sets.numbers})
    grouping = Grouping(query.names, x, groups, parted=False)
    behind = Expressions(grouping.given)
    items = [
        f"CAST({behind.text(one)} AS {engine_type(relation.columns[n])}) AS {n}" for n, one in relation.items.items()
    ]
    if not kinds and not grouping.found:  # one row of constants, whatever the input has; it is read all the same
        return f"SELECT {', '.join(items)} FROM (SELECT count(*) FROM {query.settled(child)}) {query.names.new('t')}"
    rows = _with_columns(query, query.rows(child), {n: text for n, text in texts.items() if n not in before})
    return f"SELECT {', '.join(items)} FROM {rows}{by}"


def _with_columns(query: Query, rows: str, new: dict[str, str]) -> str:
    """The rows with these columns after their own, as FROM takes them."""
    if not new:
        return rows
    return (
        f"(SELECT *, {', '.join(f'{text} AS {name}' for name, text in new.items())} FROM {rows}) {query.names.new('t')}"
    )


def _window(query: Query, relation: Window) -> str:
    before = relation.child.columns
    texts, _ = window_keys(relation.keys, query.names)
    x = Expressions(lambda part: function_text(part, tuple(texts)))
    items = [f"CAST({x.text(one)} AS {engine_type(relation.columns[n])}) AS {n}" for n, one in relation.items.items()]
    rows = _with_columns(query, query.rows(relation.child), {n: text for n, text in texts.items() if n not in before})
    return f"SELECT {', '.join([*before, *items])} FROM {rows}"


def _sort(query: Query, relation: Sort) -> str:
    return f"SELECT * FROM {query.rows(relation.child)} ORDER BY {order_text(relation.order, Expressions())}"


def _limit(query: Query, relation: Limit) -> str:
    order = [f"ORDER BY {order_text(relation.order, Expressions())}"] if relation.order else []
    most = [f"LIMIT {relation.most}"] if relation.most is not None else []
    skipped = [f"OFFSET {relation.skipped}"] if relation.skipped else []
    return " ".join([f"SELECT * FROM {query.settled(relation.child)}", *order, *most, *skipped])


def _union(query: Query, relation: Union) -> str:
    columns = ", ".join(relation.columns)
    return " UNION ALL ".join(f"SELECT {columns} FROM {query.rows(branch)}" for branch in relation.branches)


def _join(query: Query, relation: Join) -> str:
    names: dict[Any, str] = {}
    left = _side(query, relation.left, [a for a, _ in relation.pairs], names)
    right = _side(query, relation.right, [b for _, b in relation.pairs], names)
    x = query.expressions(lambda node: names.get(same(node)))
    return join_text(relation, relation.columns, left, right, x, query.names)


def _side(query: Query, relation: Relation, keys: list[Expr], names: dict[Any, str]) -> str:
    """The rows of a side. Keys that may raise are columns of a query before: of a side without a partner the engine computes none.

    ``names``: gets the columns of these keys.
    """
    raising = {query.names.new("ck"): key for key in keys if may_raise(key)}
    if not raising:
        return query.settled(relation)
    names.update({same(key): name for name, key in raising.items()})
    return query.table(with_columns(relation, raising))


RULES: dict[type[Relation], Callable[[Query, Any], str]] = {
    Scan: _scan,
    Shared: _all,
    Project: _project,
    Filter: _filter,
    Expand: _expand,
    Generate: _generate,
    Aggregate: _aggregate,
    Window: _window,
    Sort: _sort,
    Limit: _limit,
    Union: _union,
    Join: _join,
}
