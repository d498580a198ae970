"""Joins: by Firesteel's adaptive join where keys are equal, by the engine where more is asked of a pair, nested without keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from firesteel.api.steps import keyed
from firesteel.api.steps.pipeline import Pipeline
from firesteel.plan.expr import Expr, Unsupported, attributes, conjuncts
from firesteel.plan.raising import any_raises, may_raise
from firesteel.plan.types import FLOATS, checked
from firesteel.render.expressions.texts import undivided
from firesteel.render.expressions.translator import Expressions
from firesteel.sql.operators.relational import filtered
from firesteel.sql.operators.rows import Columns, Rows, by_keys
from firesteel.sql.plans.catalyst import Operator

if TYPE_CHECKING:
    from firesteel.sql.planner import Planner

_HOWS = {
    "Inner": "inner",
    "Cross": "inner",
    "LeftOuter": "left",
    "RightOuter": "right",
    "FullOuter": "full",
    "LeftSemi": "semi",
    "LeftAnti": "anti",
    "ExistenceJoin": "exists",
}
_SQL = {
    "inner": "JOIN",
    "left": "LEFT JOIN",
    "right": "RIGHT JOIN",
    "full": "FULL JOIN",
    "semi": "SEMI JOIN",
    "anti": "ANTI JOIN",
}


@dataclass(frozen=True, slots=True)
class _Condition:
    """``pairs``: expressions of the left and of the right side that are equal (``safe``: nulls, too), as ``equal`` says. ``rest``: what
    else holds."""

    pairs: list[tuple[Expr, Expr]]
    equal: list[Expr]
    safe: bool
    rest: list[Expr]


def join(planner: Planner, node: Operator) -> Rows:
    how = _HOWS.get(node["joinType"].cls)
    if how is None:
        raise Unsupported(f"a join of type {node['joinType'].cls} is not taken over")
    left, right = planner.rows(node["left"]), planner.rows(node["right"])
    if set(left.columns) & set(right.columns):
        raise Unsupported("a join whose sides share a column is not taken over")
    condition = _condition(node["condition"], set(left.columns), set(right.columns))
    if not condition.pairs:
        return _nested(planner, node, how, left, right, condition)
    plain = not condition.safe and not any(a.type in FLOATS for a, _ in condition.pairs)
    if plain and how != "exists" and (how == "inner" or not condition.rest):
        return _adaptive(planner, how, left, right, condition)
    return _by_engine(planner, node, how, left, right, condition)


def _condition(node: Expr | None, left: set[str], right: set[str]) -> _Condition:
    pairs: list[tuple[Expr, Expr]] = []
    equal: list[Expr] = []
    rest: list[Expr] = []
    for one in conjuncts(node):
        pair = _pair(one, left, right)
        if pair is None:
            rest.append(one)
        else:
            pairs.append(pair)
            equal.append(one)
    return _Condition(pairs, equal, any(one.cls == "EqualNullSafe" for one in equal), rest)


def _pair(one: Expr, left: set[str], right: set[str]) -> tuple[Expr, Expr] | None:
    """The sides of an equality of the left rows and the right ones, in this order; None: it is something else."""
    if one.cls not in ("EqualTo", "EqualNullSafe") or one["left"].type != one["right"].type:
        return None
    for a, b in ((one["left"], one["right"]), (one["right"], one["left"])):
        reads_a, reads_b = attributes(a), attributes(b)
        if reads_a and reads_b and reads_a <= left and reads_b <= right:
            checked(a.type)
            return a, b
    return None


def _columns(how: str, node: Expr, left: Columns, right: Columns) -> Columns:
    if how in ("semi", "anti"):
        return left
    if how == "exists":
        return {**left, f"c{node['joinType']['exists']['exprId']}": "boolean"}
    return {**left, **right}


def _keyed(planner: Planner, rows: Rows, keys: list[Expr], own: bool) -> tuple[Rows, tuple[str, ...]]:
    """The rows with a column for each key. ``own``: also where the key is a column itself."""
    x = Expressions()
    names: list[str] = []
    new: dict[str, tuple[str, str]] = {}
    for key in keys:
        if key.cls == "AttributeReference" and not own and key.id not in names:
            names.append(key.id)
            continue
        name = planner.names.new("k")
        new[name] = (x.text(key), checked(key.type))
        names.append(name)
    return rows.adding(new, "keys", any_raises(keys)), tuple(names)


def _adaptive(planner: Planner, how: str, left: Rows, right: Rows, condition: _Condition) -> Rows:
    """Broadcast, hashed or divided, as is decided while the job runs."""
    outer = how in ("right", "full")
    wanted = {**left.columns} if how in ("semi", "anti") else {**left.columns, **right.columns}
    left, left_keys = _keyed(planner, left, [a for a, _ in condition.pairs], own=outer)
    if how in ("semi", "anti"):
        right, right_keys = _keyed(planner, right, [b for _, b in condition.pairs], own=False)
        kept = {name: right.columns[name] for name in right_keys}
        right = right.selecting(", ".join(kept), kept, "keys", passed=right.unchanged)
    else:
        right, right_keys = _keyed(planner, right, [b for _, b in condition.pairs], own=how != "inner")
    a, b = keyed.key_by(left.step(), left_keys), keyed.key_by(right.step(), right_keys)
    joined = keyed.join_of(a, b, how, "_right", None, "")
    # of an inner join a key of the right side is the left one's
    copies = dict(zip(right_keys, left_keys, strict=True)) if how == "inner" else {}
    columns = {name: {**left.columns, **right.columns}[name] for name in joined.names}
    rows = Rows(joined, columns)
    if list(wanted) != list(columns):
        items = ", ".join(f"{copies[n]} AS {n}" if n not in columns else n for n in wanted)
        rows = rows.selecting(items, wanted, "join", passed={n: copies.get(n, n) for n in wanted})
    if condition.rest:
        rows = filtered(planner, rows, condition.rest)
    return rows


def _by_engine(planner: Planner, node: Operator, how: str, left: Rows, right: Rows, condition: _Condition) -> Rows:  # noqa: PLR0917
    """Of all rows of a key at once."""
    out = _columns(how, node, left.columns, right.columns)
    text = _text(Expressions(), condition)
    left, left_keys = _keyed(planner, left, [a for a, _ in condition.pairs], own=False)
    right, right_keys = _keyed(planner, right, [b for _, b in condition.pairs], own=False)
    query = _query(how, out, "input0", "input1", text)
    of_left = {} if how in ("right", "full") else {name: name for name in left.columns if name in out}
    of_right = {key: other for key, other in zip(left_keys, right_keys, strict=True) if key in of_left}
    inputs, keys = [left.step(), right.step()], [left_keys, right_keys]
    passed, raises = (of_left, of_right), may_raise(node["condition"])
    return by_keys(inputs, keys, query, out, f"sql({how} join)", None, passed, raises)


def _nested(planner: Planner, node: Operator, how: str, left: Rows, right: Rows, condition: _Condition) -> Rows:  # noqa: PLR0917
    """Every pair: one side, of outer joins that whose rows may be alone not, in the memory of each task; of full joins in one."""
    out = _columns(how, node, left.columns, right.columns)
    if how == "full":
        text = _text(Expressions(), condition)
        query = _query(how, out, "input0", "input1", text)
        return by_keys([left.step(), right.step()], [(), ()], query, out, "sql(nested full join)", None)
    if how == "right":
        how, left, right = "left", right, left
    sides: list[tuple[str, Pipeline]] = []
    text = _text(planner.expressions(sides), condition)
    name = planner.names.new("side")
    sides.append((name, right.step()))
    query, what = _query(how, out, "input", name, text), (f"nested {how} join",)
    return Rows(left.step(), out, query, what, tuple(sides), raises=any_raises(condition.rest))


def _text(x: Expressions, condition: _Condition) -> str:
    """The condition of a pair of rows. What may raise is one condition for the engine."""
    rest = x.texts(condition.rest)
    if any_raises(condition.rest):
        rest = [undivided(rest)]
    return " AND ".join([*x.texts(condition.equal), *rest]) or "true"


def _query(how: str, out: Columns, left: str, right: str, condition: str) -> str:
    if how == "exists":
        *names, found = out
        return f"SELECT {', '.join(names)}, EXISTS (SELECT 1 FROM {right} WHERE {condition}) AS {found} FROM {left}"
    return f"SELECT {', '.join(out)} FROM {left} {_SQL[how]} {right} ON {condition}"
