"""Aggregates that a plan has several times, but for the ids of their columns and for what is computed of the groups: query 15 of TPC-H.

Spark's optimiser gives each reader of a common table expression a copy of its own, with the columns that this reader wants. Copies that are
equal as wholes are shared where the plan is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import chain
from typing import Any

from firesteel.plan.expr import Expr, attributes, column, replaced
from firesteel.plan.raising import any_raises
from firesteel.plan.relation import (
    Aggregate,
    Expand,
    Filter,
    Join,
    Limit,
    Project,
    Relation,
    Scan,
    Shared,
    Sort,
    Union,
    Window,
)
from firesteel.plan.rules.facts import Facts
from firesteel.plan.rules.trees import relations, renamed_column, with_inputs


def share_subtrees(root: Relation, facts: Facts) -> Relation:
    if sum(isinstance(one, Aggregate | Window) for one in relations(root)) < 2:
        return root
    forms = _Forms(facts)
    while (found := _shared(root, forms, facts)) is not None:
        root = _replaced(root, found)
    return _needed(root)


def _shared(root: Relation, forms: _Forms, facts: Facts) -> dict[Relation, Relation] | None:
    """What takes the place of some equal relations."""
    groups: dict[int, list[Aggregate | Window]] = {}
    for one in relations(root):
        if isinstance(one, Aggregate | Window):
            groups.setdefault(forms.of(one).rows, []).append(one)
    for equal in groups.values():
        if len(equal) < 2:
            continue
        under = {below for one in equal for below in _same_rows(one)}
        heads = [one for one in equal if one not in under]
        for chosen in (heads, [one for one in equal if isinstance(one, Aggregate)]):
            found = _by_one(chosen, forms, facts) if len(chosen) > 1 else None
            if found is not None:
                return found
    return None


def _same_rows(relation: Relation) -> list[Relation]:
    """The relations below that have the rows of this one."""
    found: list[Relation] = []
    while isinstance(relation, Project | Window | Shared):
        relation = relation.child
        found.append(relation)
    return found


def _by_one(equal: Sequence[Aggregate | Window], forms: _Forms, facts: Facts) -> dict[Relation, Relation] | None:
    """What takes their places, each made of the same relation; None: none of them has, or can have, the columns and the rows of all."""
    values = [[(forms.value(each.condition, each.reads), each) for each in forms.of(one).conditions] for one in equal]
    common = set.intersection(*({value for value, _ in its} for its in values))
    own = [[each for value, each in its if value not in common] for its in values]
    for i, one in enumerate(equal):
        whole = _with_all(one, equal, [*chain.from_iterable(own)], forms, facts)
        if whole is not None and any(own):
            whole = _with_rows(whole, own[i], own, forms)
        if whole is not None:
            shared, there = Shared(whole), {value: name for name, value in reversed(forms.of(whole).columns.items())}
            return {
                other: Project(
                    Filter(shared, tuple(_moved(each, there) for each in its)) if its else shared,
                    {name: column(there[forms.of(other).columns[name]], kind) for name, kind in other.columns.items()},
                )
                for other, its in zip(equal, own, strict=True)
            }
    return None


def _with_rows(
    one: Aggregate | Window, its: Sequence[_Condition], own: Sequence[Sequence[_Condition]], forms: _Forms
) -> Aggregate | Window | None:
    """``one`` with the rows of all. ``own``: by relation, the conditions that not all have; ``its``: those of this one. None: it cannot have
    them."""
    if not its:
        return one
    place = its[0].place
    there = {its[0].outside(value, forms): name for name, value in forms.of(place.child).columns.items()}
    reads = {value for each in chain.from_iterable(own) for value in each.reads.values()}
    if any(each.place is not place for each in its) or not reads <= set(there):
        return None
    kept = [each for each in place.conditions if all(each is not mine.condition for mine in its)]
    if all(own):  # else one of them has all rows
        kept.append(_any_of([_all_of([_moved(each, there) for each in others]) for others in own]))
    wider = replace(place, conditions=tuple(kept)) if kept else place.child
    return replace(one, child=_replaced(one.child, {place: wider}))


def _any_of(conditions: Sequence[Expr]) -> Expr:
    return reduce(lambda a, b: Expr("Or", {"left": a, "right": b}, "boolean"), conditions)


def _all_of(conditions: Sequence[Expr]) -> Expr:
    return reduce(lambda a, b: Expr("And", {"left": a, "right": b}, "boolean"), conditions)


def _moved(one: _Condition, there: Mapping[int, str]) -> Expr:
    """The condition on relations that have its columns under the names ``there``."""
    return _read_from(one.condition, one.reads, there)


def _read_from(node: Expr, values: Mapping[str, int], there: Mapping[int, str]) -> Expr:
    """The expression, of columns with the same values elsewhere."""
    return replaced(
        node, lambda part: column(there[values[part.id]], part.type) if part.cls == "AttributeReference" else None
    )


def _with_all(
    one: Aggregate | Window,
    equal: Sequence[Aggregate | Window],
    own: Sequence[_Condition],
    forms: _Forms,
    facts: Facts,
) -> Aggregate | Window | None:
    """``one`` with the columns of all, and of these conditions; None: it cannot have them."""
    known = set(forms.of(one).columns.values())
    missing = [
        (value, other, name) for other in equal for name, value in forms.of(other).columns.items() if value not in known
    ]
    keys = {value for each in own for value in each.reads.values()} - known
    if not missing and not keys:
        return one
    if not isinstance(one, Aggregate):
        return None
    there = {value: name for name, value in forms.of(one.child).columns.items()}
    added: dict[int, Expr] = {}
    for value, other, name in missing:
        if not isinstance(other, Aggregate):
            return None
        values, item = forms.of(other.child).columns, other.items[name]
        if not all(values.get(id) in there for id in attributes(item)):
            return None
        added[value] = _read_from(item, values, there)
    for key in one.groups:
        value = forms.value(key, forms.of(one.child).columns)
        if value in keys:
            added[value] = key
    return replace(one, items={**one.items, **{facts.names.new("cs"): item for item in added.values()}})


def _replaced(root: Relation, by: dict[Relation, Relation]) -> Relation:
    done = dict(by)

    def of(relation: Relation) -> Relation:
        if relation not in done:
            done[relation] = with_inputs(relation, of)
        return done[relation]

    return of(root)


def _needed(root: Relation) -> Relation:
    """Without what is shared and read once, or made of columns of what is shared itself."""
    readers = Counter(child for one in relations(root) for child in one.children)
    done: dict[Relation, Relation] = {}

    def of(relation: Relation) -> Relation:
        if relation not in done:
            changed = with_inputs(relation, of)
            single = isinstance(changed, Shared) and (readers[relation] == 1 or _is_renamed(changed.child))
            done[relation] = changed.children[0] if single else changed
        return done[relation]

    return of(root)


def _is_renamed(relation: Relation) -> bool:
    while isinstance(relation, Project) and all(map(renamed_column, relation.items.values())):
        relation = relation.child
    return isinstance(relation, Shared)


# --- when two relations have the same rows ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Condition:
    """A condition that could as well be above a relation. ``reads``: the numbers of its columns there. ``place``: where it is; ``sides``: of
    the joins between, from below, that on which it is."""

    condition: Expr
    reads: dict[str, int]
    place: Filter
    sides: tuple[str, ...] = ()

    def beyond(self, side: str, forms: _Forms) -> _Condition:
        """The same above a join."""
        reads = {name: forms.number(side, value) for name, value in self.reads.items()}
        return replace(self, reads=reads, sides=(*self.sides, side))

    def outside(self, value: int, forms: _Forms) -> int:
        """The number above of a column that has the number ``value`` where the condition is."""
        return reduce(lambda number, side: forms.number(side, number), self.sides, value)


@dataclass(frozen=True, slots=True)
class _Form:
    """``rows``: the same number for relations with the same rows in the same number, whatever columns they have of them, but for
    ``conditions``. ``columns``: the same number for columns of such relations that have the same values."""

    rows: int
    columns: dict[str, int]
    conditions: tuple[_Condition, ...] = ()


_FREE = {
    "inner": ("left", "right"),
    "right": ("right",),
    "full": (),
    **dict.fromkeys(("left", "semi", "anti", "exists"), ("left",)),
}
"""By kind of join, the sides whose conditions could as well be above it."""


@dataclass(slots=True)
class _Forms:
    facts: Facts
    _known: dict[Relation, _Form] = field(default_factory=dict)
    _numbers: dict[Hashable, int] = field(default_factory=dict)

    def of(self, relation: Relation) -> _Form:
        if relation not in self._known:
            self._known[relation] = self._form(relation)
        return self._known[relation]

    def number(self, *what: Hashable) -> int:
        return self._numbers.setdefault(what, len(self._numbers))

    def _form(self, relation: Relation) -> _Form:  # noqa: PLR0911 - one for each class
        if isinstance(relation, Scan):
            rows = self.facts.rows_of(relation)
            number = self.number("scan", relation if rows is None else rows)
            names = {name: relation.names[name] for name in relation.columns}
            return _Form(
                number,
                {one: self.number("read", number, name, str(relation.columns[one])) for one, name in names.items()},
            )
        if isinstance(relation, Shared):  # its conditions are those of other readers, too
            below = self.of(relation.child)
            return _Form(self._rows(below), below.columns)
        if isinstance(relation, Union):
            forms = list(map(self.of, relation.branches))
            number = self.number("union", *map(self._rows, forms))
            return _Form(
                number,
                {n: self.number("one of", number, *(form.columns[n] for form in forms)) for n in relation.columns},
            )
        if isinstance(relation, Join):
            return self._join(relation)
        if not isinstance(relation, Filter | Project | Aggregate | Window | Sort | Limit | Expand):
            number = self.number("other", relation)
            return _Form(number, {name: self.number("its", number, name) for name in relation.columns})
        below = self.of(relation.child)
        columns = below.columns
        if isinstance(relation, Project):
            return _Form(below.rows, self._values(relation.items, columns), below.conditions)
        if isinstance(relation, Filter):
            return self._filter(relation)
        if isinstance(relation, Window):
            keys = frozenset(self.value(one, columns) for one in relation.keys)
            rows, conditions = self._parted(below, keys)
            items = {n: self.number("window", keys, item) for n, item in self._values(relation.items, columns).items()}
            return _Form(rows, {**columns, **items}, conditions)
        if isinstance(relation, Aggregate):
            groups = frozenset(self.value(one, columns) for one in relation.groups)
            rows, conditions = self._parted(below, groups)
            number = self.number("groups", rows, groups)
            items = self._values(relation.items, columns)
            its = {n: item if item in groups else self.number("group", number, item) for n, item in items.items()}
            return _Form(number, its, conditions)
        if isinstance(relation, Expand):
            ways = tuple(tuple(self.value(one, columns) for one in way) for way in relation.ways)
            number = self.number("expand", self._rows(below), ways)
            return _Form(number, {name: self.number("way", number, i) for i, name in enumerate(relation.columns)})
        order = tuple(self.value(one, columns) for one in relation.order)
        ends = (relation.most, relation.skipped) if isinstance(relation, Limit) else ()
        return _Form(self.number(type(relation), self._rows(below), order, ends), columns)

    def _rows(self, form: _Form) -> int:
        """The number of rows that have all conditions."""
        values = frozenset(self.value(one.condition, one.reads) for one in form.conditions)
        return self.number("filter", form.rows, values) if values else form.rows

    def _parted(self, form: _Form, keys: frozenset[int]) -> tuple[int, tuple[_Condition, ...]]:
        """The rows, and the conditions that are true or false of all rows with the same keys."""
        of_keys = tuple(one for one in form.conditions if one.reads and keys.issuperset(one.reads.values()))
        others = tuple(one for one in form.conditions if one not in of_keys)
        return self._rows(replace(form, conditions=others)), of_keys

    def _filter(self, relation: Filter) -> _Form:
        below = self.of(relation.child)
        if relation.may_raise or relation.subqueries:
            values = tuple(self.value(one, below.columns) for one in relation.conditions)
            return _Form(self.number("filter", self._rows(below), values), below.columns)
        new = (
            _Condition(one, {id: below.columns[id] for id in attributes(one)}, relation) for one in relation.conditions
        )
        return _Form(below.rows, below.columns, (*below.conditions, *new))

    def _join(self, relation: Join) -> _Form:
        left, right = self.of(relation.left), self.of(relation.right)
        both = {
            **{name: self.number("left", value) for name, value in left.columns.items()},
            **{name: self.number("right", value) for name, value in right.columns.items()},
        }
        pairs = frozenset(
            (one.cls, self.value(a, both), self.value(b, both))
            for one, (a, b) in zip(relation.equal, relation.pairs, strict=True)
        )
        how, free = relation.how, _FREE[relation.how]
        sides = [form.rows if name in free else self._rows(form) for name, form in (("left", left), ("right", right))]
        number = self.number("join", how, *sides, pairs, self._all(relation.rest, both))
        if how in ("semi", "anti"):
            return _Form(number, left.columns, left.conditions)
        conditions = [
            one.beyond(name, self)
            for name, form in (("left", left), ("right", right))
            if name in free
            for one in form.conditions
        ]
        found = {relation.found: self.number("found", number)} if how == "exists" else {}
        columns = {name: both[name] if name in both else found[name] for name in relation.columns}
        return _Form(number, columns, tuple(conditions))

    def _all(self, conditions: Sequence[Expr], columns: dict[str, int]) -> Hashable:
        values = [self.value(one, columns) for one in conditions]
        return tuple(values) if any_raises(conditions) else frozenset(values)

    def _values(self, items: Any, columns: dict[str, int]) -> dict[str, int]:
        return {name: self.value(item, columns) for name, item in items.items()}

    def value(self, node: Expr, columns: dict[str, int]) -> int:
        """The same number for expressions that compute the same."""
        while node.cls == "Alias":
            node = node["child"]
        if node.cls == "AttributeReference" and node.id in columns:
            return columns[node.id]
        return self.number(node.cls, str(node.type), *self._fields(node.fields.items(), columns))

    def _fields(self, fields: Iterable[tuple[str, Any]], columns: dict[str, int]) -> Iterable[Hashable]:
        for name, value in fields:
            if name not in ("qualifier", "metadata", "resultId", "nullable", "name"):
                yield name, self._field(value, columns)

    def _field(self, value: Any, columns: dict[str, int]) -> Hashable:
        if isinstance(value, Expr):
            return "value", self.value(value, columns)
        if isinstance(value, list):
            return tuple(self._field(one, columns) for one in value)
        return repr(value) if isinstance(value, dict) else value
