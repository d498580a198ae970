"""Joins: by Firesteel's adaptive join where keys are equal, by the engine where more is asked of a pair, nested without keys."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from firesteel.compile import nodes
from firesteel.compile.relations.relational import where
from firesteel.compile.relations.rows import Rows, by_keys
from firesteel.compile.stream_graph import StreamEdge, StreamNode
from firesteel.model.job_graph import ShipStrategy
from firesteel.plan.expr import Expr
from firesteel.plan.raising import any_raises
from firesteel.plan.relation import Columns, Filter, Join, Project, Relation
from firesteel.plan.rules.trees import renamed_column
from firesteel.plan.types import FLOATS, grouped
from firesteel.render.expressions.logic import COMPARED
from firesteel.render.expressions.translator import Expressions
from firesteel.render.relations import interval_of, join_text
from firesteel.task.operators.join import TURNED, Comparison

if TYPE_CHECKING:
    from firesteel.compile.relations.steps import Steps


INPUTS = "input0", "input1"


def join(steps: Steps, relation: Join) -> Rows:
    if not relation.pairs:
        return _nested(steps, relation)
    plain = not _has_safe(relation) and not any(a.type in FLOATS or isinstance(a.type, dict) for a, _ in relation.pairs)
    if plain and (relation.how == "inner" or _is_by_keys_alone(steps, relation)):
        return _adaptive(steps, relation)
    return _by_engine(steps, relation)


def _is_by_keys_alone(steps: Steps, relation: Join) -> bool:
    """Nothing but equal keys is asked of a pair, and no exchange is saved where the right side goes first."""
    if relation.how == "exists" or relation.rest:
        return False
    return not (_goes_first(relation) and _looks_up_few(steps, relation))


def _looks_up_few(steps: Steps, relation: Join) -> bool:
    """The left rows are likely no more than the right ones, which are then not broadcast."""
    few, many = map(steps.likely, relation.children)
    return few is not None and many is not None and few <= many


def _has_safe(relation: Join) -> bool:
    """Nulls are equal in some pair."""
    return any(one.cls == "EqualNullSafe" for one in relation.equal)


def _keyed(steps: Steps, rows: Rows, keys: list[Expr], own: bool) -> tuple[Rows, tuple[str, ...]]:
    """The rows with a column for each key. ``own``: also where the key is a column itself."""
    x = Expressions()
    names: list[str] = []
    new: dict[str, tuple[str, str]] = {}
    for key in keys:
        if key.cls == "AttributeReference" and not own and key.id not in names:
            names.append(key.id)
            continue
        name = steps.names.new("k")
        new[name] = (x.text(key), grouped(key.type))
        names.append(name)
    return rows.adding(new, "keys", any_raises(keys)), tuple(names)


def _adaptive(steps: Steps, relation: Join) -> Rows:
    """Broadcast, hashed or divided, as is decided while the job runs."""
    wanted, rest = relation.columns, relation.rest
    if relation.how == "inner" and _goes_first(relation):
        pairs = tuple(pair[::-1] for pair in relation.pairs)
        relation = replace(relation, left=relation.right, right=relation.left, pairs=pairs)
    how, left, right = relation.how, steps.rows(relation.left), steps.rows(relation.right)
    outer = how in ("right", "full")
    left, left_keys = _keyed(steps, left, [a for a, _ in relation.pairs], own=outer)
    if how in ("semi", "anti"):
        right, right_keys = _keyed(steps, right, [b for _, b in relation.pairs], own=False)
        kept = {name: right.columns[name] for name in right_keys}
        right = right.selecting(", ".join(kept), kept, "keys", passed=right.unchanged)
    else:
        right, right_keys = _keyed(steps, right, [b for _, b in relation.pairs], own=how != "inner")
    kinds, conditions, interval = {**left.columns, **right.columns}, (), interval_of(relation)
    ends = () if interval is None else interval.conditions
    if all(one[side].cls == "AttributeReference" for one in ends for side in ("left", "right")):
        conditions = tuple(_comparison(one, left.columns) for one in ends)
        rest = tuple(one for one in rest if one not in ends)
    hashed = StreamEdge(left.step(), ShipStrategy.HASH, left_keys)
    joined = nodes.join(hashed, StreamEdge(right.step(), ShipStrategy.HASH, right_keys), how, conditions=conditions)
    # of an inner join a key of the right side is the left one's
    copies = dict(zip(right_keys, left_keys, strict=True)) if how == "inner" else {}
    columns = {name: kinds[name] for name in joined.schema.names}
    rows = Rows(joined, columns)
    if list(wanted) != list(columns):
        items = ", ".join(f"{copies[n]} AS {n}" if n not in columns else n for n in wanted)
        rows = rows.selecting(items, wanted, "join", passed={n: copies.get(n, n) for n in wanted})
    return where(steps, rows, rest) if rest else rows


def _goes_first(relation: Join) -> bool:
    """The right side is a join by the same keys. Such a join needs no exchange as the first input (``keyed_chains``). Where both sides are joins, a
    semi join on the right goes first: it drops most of its rows."""
    mine, theirs = (_join_by(side, [pair[i] for pair in relation.pairs]) for i, side in enumerate(relation.children))
    return theirs is not None and (mine is None or theirs.how == "semi")


def _join_by(relation: Relation, keys: list[Expr]) -> Join | None:
    while isinstance(relation, Project | Filter):
        relation = relation.child
    if not isinstance(relation, Join):
        return None
    own = [renamed_column(key) for key, _ in relation.pairs]
    return relation if None not in own and own == [renamed_column(key) for key in keys] else None


def _comparison(one: Expr, left: Columns) -> Comparison:
    a, b, operator = one["left"].id, one["right"].id, COMPARED[one.cls]
    return Comparison(a, operator, b) if a in left else Comparison(b, TURNED[operator], a)


def _by_engine(steps: Steps, relation: Join) -> Rows:
    """Of all rows of a key at once."""
    how, out = relation.how, relation.columns
    left, left_keys = _keyed(steps, steps.rows(relation.left), [a for a, _ in relation.pairs], own=False)
    right, right_keys = _keyed(steps, steps.rows(relation.right), [b for _, b in relation.pairs], own=False)
    of_left = {} if how in ("right", "full") else {name: name for name in left.columns if name in out}
    of_right = {key: other for key, other in zip(left_keys, right_keys, strict=True) if key in of_left}
    inputs, keys, passed, names = [left.step(), right.step()], [left_keys, right_keys], (of_left, of_right), INPUTS
    if _goes_first(relation):
        inputs, keys, passed, names = inputs[::-1], keys[::-1], passed[::-1], INPUTS[::-1]
    query = join_text(relation, out, names[0], names[1], Expressions(), steps.names)
    raises = any_raises(relation.expressions)
    return by_keys(inputs, keys, query, out, f"sql({how} join)", None, passed, raises)


def _nested(steps: Steps, relation: Join) -> Rows:
    """Every pair: one side, of outer joins that whose rows may be alone not, in the memory of each task; of full joins in one."""
    out = relation.columns
    if relation.how == "right":
        relation = replace(relation, how="left", left=relation.right, right=relation.left)
    how, left, right = relation.how, steps.rows(relation.left), steps.rows(relation.right)
    if how == "full":
        query = join_text(relation, out, "input0", "input1", Expressions(), steps.names)
        return by_keys([left.step(), right.step()], [(), ()], query, out, "sql(nested full join)", None)
    sides: list[tuple[str, StreamNode]] = []
    x, name = steps.expressions(sides), steps.names.new("side")
    query, what = join_text(relation, out, "input", name, x, steps.names), (f"nested {how} join",)
    sides.append((name, right.step()))
    return Rows(left.step(), out, query, what, tuple(sides), raises=any_raises(relation.rest))
