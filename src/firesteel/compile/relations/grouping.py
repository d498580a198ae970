"""Aggregations: in each subtask first, where the functions can be parted, then of all rows of a group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firesteel.compile.relations.rows import Rows, by_keys
from firesteel.plan.raising import any_raises
from firesteel.plan.relation import Aggregate, Columns
from firesteel.plan.types import engine_type
from firesteel.render.expressions.grouping import Grouping, WholeGroups, group_columns
from firesteel.render.expressions.translator import Expressions

if TYPE_CHECKING:
    from firesteel.compile.relations.steps import Steps


def aggregate(steps: Steps, relation: Aggregate) -> Rows:
    rows = steps.rows(relation.child)
    try:
        return _aggregated(steps, relation, rows, parted=True)
    except WholeGroups:
        return _aggregated(steps, relation, rows, parted=False)


def _aggregated(steps: Steps, relation: Aggregate, rows: Rows, parted: bool) -> Rows:
    x = Expressions()
    groups, kinds, texts = group_columns(relation.groups, x, steps.names)
    grouping = Grouping(steps.names, x, groups, parted=parted)
    columns = relation.columns
    behind = Expressions(grouping.given)
    out = [
        f"CAST({behind.text(item)} AS {engine_type(columns[name])}) AS {name}" for name, item in relation.items.items()
    ]
    groups_raise = any_raises(relation.groups)
    raises = any_raises(relation.expressions)
    by = f" GROUP BY {', '.join(kinds)}" if kinds else ""
    keys = tuple(kinds)
    kept = keys if set(keys) <= set(columns) else None
    if parted:
        before = {**kinds, **{name: kind for name, (_, kind) in grouping.partial.items()}}
        items = [f"{text} AS {name}" for name, text in texts.items()]
        items += [f"CAST({text} AS {engine_type(kind)}) AS {name}" for name, (text, kind) in grouping.partial.items()]
        if not before:
            return _constants(steps, rows, out, columns)
        tail = f"GROUP BY {', '.join(texts.values())}" if kinds else ""
        passed = {name: name for name, text in texts.items() if text == name}
        local = rows.selecting(", ".join(items), before, "partial aggregate", tail, passed=passed, raises=raises)
    else:
        local = _with_groups(rows, kinds, texts, groups_raise)
    query = f"SELECT {', '.join(out)} FROM input0{by}"
    return by_keys([local.step()], [keys], query, columns, "sql(aggregate)", kept, raises=raises)


def _with_groups(rows: Rows, kinds: Columns, texts: dict[str, str], raises: bool) -> Rows:
    return rows.adding({n: (texts[n], kind) for n, kind in kinds.items() if n not in rows.columns}, "groups", raises)


def _constants(steps: Steps, rows: Rows, out: list[str], columns: Columns) -> Rows:
    """One row of constants, whatever the input has. The input is read all the same: it may raise an error of Spark's."""
    name = steps.names.new("rows")
    local = rows.selecting(f"count(*) AS {name}", {name: "long"}, "partial aggregate")
    query = f"SELECT {', '.join(out)} FROM input0 HAVING count(*) > 0"
    return by_keys([local.step()], [()], query, columns, "sql(one row)", None)
