"""The order of inner joins, and of the semi joins between them: query 21 of TPC-H.

Without statistics of the tables, Spark joins in the order in which the user wrote. The order here is greedy: each step joins the two parts with the
fewest rows, counted of the result and of the smaller part together. A semi join comes after the inner joins where they leave few rows to look up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations
from math import prod

from firesteel.plan.expr import Expr, attributes
from firesteel.plan.relation import Aggregate, Join, Project, Relation, only
from firesteel.plan.rules.estimates import Estimates, kept
from firesteel.plan.rules.facts import Facts
from firesteel.plan.rules.trees import equality, relations, renamed_column, with_inputs
from firesteel.plan.types import FLOATS

_GAIN = 0.7
"""A new order is taken if its joins read less than this part of the rows that the written order's joins read of other joins."""
_LATER = 4
"""A semi join comes after the inner joins if they leave at most one row of so many."""

Tree = int | tuple["Tree", "Tree"]
"""A leaf by its number, or two trees that are joined."""


def order_joins(root: Relation, facts: Facts) -> Relation:
    return _Ordering(root, Estimates(facts)).of(root, None)


class _Ordering:
    def __init__(self, root: Relation, estimates: Estimates) -> None:
        self._estimates = estimates
        self._done: dict[Relation, Relation] = {}
        readers = Counter(below for one in relations(root) for below in (*one.children, *one.subqueries))
        self._read_twice = {one for one, n in readers.items() if n > 1}
        self._kept: set[Relation] = set()
        """Joins that stay in their order, with others that are parts of them."""

    def of(self, relation: Relation, wanted: set[str] | None) -> Relation:
        """``wanted``: the columns that are read of it; None: all."""
        if relation not in self._done:
            made = None if relation in self._kept else self._ordered(relation, wanted)
            self._done[relation] = made or self._below(relation)
        return self._done[relation]

    def _below(self, relation: Relation) -> Relation:
        reads = _read(relation.expressions) if isinstance(relation, Project | Aggregate) else None
        alone = set(relation.children) - self._read_twice
        return with_inputs(relation, lambda one: self.of(one, reads if one in alone else None))

    def _ordered(self, relation: Relation, wanted: set[str] | None) -> Relation | None:
        """None: it stays as it is."""
        block = _Block(relation, self._read_twice)
        self._kept |= block.inside
        rows = [size for size in map(self._estimates.rows, block.leaves) if size is not None]
        if len(block.leaves) < 2 or len(rows) < len(block.leaves) or not block.is_simple:
            return None
        sizes = _Sizes(block, rows, self._estimates)
        written, best = sizes.of(block.tree), sizes.greedy()
        if written is None or best is None:
            return None
        later = [one for one in block.semis if len(one.leaves) != 1 or best.rows * _LATER <= rows[min(one.leaves)]]
        if best.cost >= _GAIN * written.cost:
            best = written
        if best is written and all(len(one.leaves) != 1 for one in later):
            return None
        leaves = [self.of(leaf, None) for leaf in block.leaves]
        for semi in block.semis:
            right = self.of(semi.join.right, None)
            if semi not in later:
                (i,) = semi.leaves
                leaves[i] = replace(semi.join, left=leaves[i], right=right)
        names = [name for name in relation.columns if wanted is None or name in wanted] or list(relation.columns)[:1]
        made = _joined(best, {*names, *_read(one for semi in later for one in semi.join.expressions)}, leaves)
        for semi in later:
            made = replace(semi.join, left=made, right=self.of(semi.join.right, None))
        return only(made, names)


@dataclass(frozen=True, eq=False)
class _Semi:
    """A semi or anti join of rows of a block. ``leaves``: those whose columns it reads."""

    join: Join
    leaves: frozenset[int]


@dataclass(frozen=True, eq=False)
class _Equal:
    """An equality of two leaves. ``leaves``: of its ``pair``; ``is_alone``: nothing follows from it for other leaves."""

    condition: Expr
    pair: tuple[Expr, Expr]
    leaves: tuple[int, int]
    is_alone: bool = False


class _Block:
    """Inner joins of ``leaves``, with semi joins between them. ``tree``: as they were written; ``rest``: conditions, with the leaves of each.

    Relations that may raise an error of Spark's are leaves: in another order they would see other rows. ``inside``: all relations but the leaves.
    """

    def __init__(self, relation: Relation, read_twice: set[Relation]) -> None:
        self.leaves: list[Relation] = []
        self.inside: set[Relation] = set()
        self._joins: list[Join] = []
        self._semis: list[Join] = []
        self.tree = self._take(relation, read_twice - {relation})
        pairs = [(one, pair) for join in self._joins for one, pair in zip(join.equal, join.pairs, strict=True)]
        sides = [(one, pair, [self._of(attributes(side)) for side in pair]) for one, pair in pairs]
        rest = [(one, self._of(attributes(one))) for join in self._joins for one in join.rest]
        self.is_simple = all(len(side) == 1 for _, _, both in sides for side in both) and all(
            len(at) > 1 for _, at in rest
        )
        """Each key is of one leaf, and each other condition of several."""
        self.equal = [
            _Equal(one, pair, (min(a), min(b)), not _is_plain(one, pair))
            for one, pair, (a, b) in sides
            if self.is_simple
        ]
        self.rest = rest
        self.semis = [_Semi(join, self._of(_read(join.expressions))) for join in self._semis]

    def _of(self, names: set[str]) -> frozenset[int]:
        return frozenset(i for i, leaf in enumerate(self.leaves) if not names.isdisjoint(leaf.columns))

    def _take(self, relation: Relation, read_twice: set[Relation]) -> Tree:
        if relation not in read_twice and not relation.may_raise:
            self.inside.add(relation)
            if isinstance(relation, Project) and all(
                renamed_column(item) == name for name, item in relation.items.items()
            ):
                return self._take(relation.child, read_twice)
            if isinstance(relation, Join) and relation.pairs and relation.how == "inner":
                self._joins.append(relation)
                return self._take(relation.left, read_twice), self._take(relation.right, read_twice)
            if isinstance(relation, Join) and relation.pairs and relation.how in ("semi", "anti"):
                tree = self._take(relation.left, read_twice)
                self._semis.append(relation)
                return tree
        self.inside.discard(relation)
        self.leaves.append(relation)
        return len(self.leaves) - 1


def _is_plain(equality: Expr, pair: tuple[Expr, Expr]) -> bool:
    """Two columns of one type, of which equal values are the same."""
    a, b = pair
    columns = all(side.cls == "AttributeReference" for side in pair)
    return equality.cls == "EqualTo" and columns and a.type == b.type and a.type not in FLOATS


@dataclass(frozen=True, eq=False)
class _Part:
    """Leaves that are joined. ``sides``: what is joined last, the larger one first, by ``equal`` and ``rest``."""

    leaves: frozenset[int]
    rows: float
    sides: tuple[_Part, ...] = ()
    equal: tuple[_Equal, ...] = ()
    rest: tuple[Expr, ...] = ()

    @property
    def cost(self) -> float:
        """Rows that its joins read of other joins."""
        return sum(side.rows + side.cost for side in self.sides if side.sides)


class _Sizes:
    """What joins of the leaves of a block make. ``rows``: of its leaves."""

    def __init__(self, block: _Block, rows: Sequence[float], estimates: Estimates) -> None:
        self._block = block
        self._leaves = [_Part(frozenset([i]), size) for i, size in enumerate(rows)]
        self._groups = [*_groups(block.equal)]
        self._own = {
            (one, i): estimates.values(block.leaves[leaf], one.pair[i])
            for group in self._groups
            for one in group
            for i, leaf in enumerate(one.leaves)
        }
        """By side of an equality, the most values that its key can have, and the rows that have them."""
        self._least = [min(self._own[one, i][0] for one in group for i in (0, 1)) for group in self._groups]

    def of(self, tree: Tree) -> _Part | None:
        if isinstance(tree, int):
            return self._leaves[tree]
        one, other = map(self.of, tree)
        return one and other and self._pair(one, other)

    def greedy(self) -> _Part | None:
        """None: there are no keys between some of the leaves."""
        parts, made = self._leaves, cache(self._pair)
        while len(parts) > 1:
            pairs = [pair for two in combinations(parts, 2) if (pair := made(*two)) is not None]
            if not pairs:
                return None
            best = min(pairs, key=lambda one: one.rows + one.sides[1].rows)
            parts = [one for one in parts if one not in best.sides] + [best]
        return parts[0]

    def _pair(self, one: _Part, other: _Part) -> _Part | None:
        """None: they have no keys."""
        big, small = (one, other) if one.rows >= other.rows else (other, one)
        between = [
            [one for one in group if _is_between(one.leaves, big.leaves, small.leaves)] for group in self._groups
        ]
        equal = tuple(
            one if one.leaves[0] in big.leaves else _turned(one)
            for found in between
            for one in (found if any(each.is_alone for each in found) else found[:1])
        )
        if not equal:
            return None
        leaves = big.leaves | small.leaves
        rest = tuple(
            each for each, at in self._block.rest if at <= leaves and not (at <= big.leaves or at <= small.leaves)
        )
        rows = big.rows * small.rows / self._values(between) * kept(rest)
        return _Part(leaves, max(rows, 1.0), (big, small), equal, rest)

    def _values(self, between: Sequence[Sequence[_Equal]]) -> float:
        """Of all keys between two parts together: as many as the values of each allow, but no more than one leaf's that has them. ``between``: the
        equalities, by group."""
        found: dict[frozenset[int], list[float]] = {}
        most: dict[frozenset[int], float] = {}
        for group, least in zip(between, self._least, strict=True):
            for one in group[:1]:
                two = frozenset(one.leaves)
                found.setdefault(two, []).append(least)
                rows = min(self._own[one, i][1] for i in (0, 1))
                most[two] = max(rows, most.get(two, 0.0))
        return prod(max(min(prod(values), most[two]), 1.0) for two, values in found.items())


def _groups(equal: Iterable[_Equal]) -> Iterator[list[_Equal]]:
    """Equalities of the same values: those that were written, and those that follow from them, so that any two leaves of a group are compared
    directly."""
    groups: list[tuple[set[str], list[_Equal]]] = []
    for one in equal:
        names, members = _read(one.pair), [one]
        for group in [group for group in groups if not one.is_alone and not names.isdisjoint(group[0])]:
            groups.remove(group)
            names, members = names | group[0], group[1] + members
        if one.is_alone:
            yield members
        else:
            groups.append((names, members))
    for names, members in groups:
        of_leaf = {leaf: side for one in members for leaf, side in zip(one.leaves, one.pair, strict=True)}
        if len(of_leaf) < len(names):  # two columns of one leaf are equal only if all that was written is compared
            yield from ([replace(one, is_alone=True)] for one in members)
            continue
        known = {frozenset(one.leaves) for one in members}
        more = [two for two in combinations(sorted(of_leaf), 2) if frozenset(two) not in known]
        yield members + [_follows((of_leaf[a], of_leaf[b]), (a, b)) for a, b in more]


def _follows(pair: tuple[Expr, Expr], leaves: tuple[int, int]) -> _Equal:
    return _Equal(equality(*pair), pair, leaves)


def _is_between(leaves: tuple[int, int], big: frozenset[int], small: frozenset[int]) -> bool:
    a, b = leaves
    return (a in big and b in small) or (b in big and a in small)


def _turned(one: _Equal) -> _Equal:
    return replace(one, pair=one.pair[::-1], leaves=one.leaves[::-1])


def _joined(part: _Part, names: set[str], leaves: Sequence[Relation]) -> Relation:
    """``names``: the columns that are read of it, and others."""
    if not part.sides:
        (i,) = part.leaves
        return only(leaves[i], [name for name in leaves[i].columns if name in names])
    reads = names | _read((*(one.condition for one in part.equal), *part.rest))
    big, small = (_joined(side, reads, leaves) for side in part.sides)
    equal, pairs = tuple(one.condition for one in part.equal), tuple(one.pair for one in part.equal)
    join = Join(big, small, "inner", equal, pairs, part.rest)
    return only(join, [name for name in join.columns if name in names])


def _read(expressions: Iterable[Expr]) -> set[str]:
    return set[str]().union(*map(attributes, expressions))
