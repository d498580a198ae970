"""Rows of the values of arrays and maps: ``explode``, ``posexplode``, ``inline``, ``stack``, each with ``LATERAL VIEW`` or without; and copies of rows.

The engine's ``unnest`` gives a row for each value, of several lists in step; a list of nothing gives none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from firesteel.plan.expr import Unsupported
from firesteel.plan.raising import any_raises, may_raise
from firesteel.plan.relation import Generate
from firesteel.plan.types import engine_type
from firesteel.render.expressions.generators import lists as lists_of
from firesteel.render.expressions.translator import Expressions
from firesteel.sql.steps.rows import Rows

if TYPE_CHECKING:
    from firesteel.sql.steps.steps import Steps


def generate(steps: Steps, relation: Generate) -> Rows:
    if relation.generator.cls == "ReplicateRows":
        return _copies(steps, relation)
    rows, generator, kept, output = steps.rows(relation.child), relation.generator, relation.kept, relation.output
    lists, fields = lists_of(generator)
    names = [steps.names.new("u") for _ in lists]
    new = {name: (text, "generated") for text, name in zip(lists, names, strict=True)}
    rows = rows.settled().adding(new, "generate", may_raise(generator))
    passed = {name: name for name in kept}
    if relation.outer:
        unnested = [f"unnest(CASE WHEN len({names[0]}) > 0 THEN {name} ELSE [NULL] END) AS {name}" for name in names]
    else:
        unnested = [f"unnest({name}) AS {name}" for name in names]
    rows = rows.selecting(", ".join([*kept, *unnested]), rows.columns, "generate", passed=passed)
    values = [f"struct_extract_at({names[0]}, {i + 1})" for i in range(len(output))] if fields else names
    if len(values) != len(output):
        raise Unsupported(f"{generator.cls} of other columns is not taken over")
    items = [
        f"CAST({v} AS {engine_type(kind)}) AS {name}" for v, (name, kind) in zip(values, output.items(), strict=True)
    ]
    return rows.selecting(", ".join([*kept, *items]), relation.columns, "generate", passed=passed)


def _copies(steps: Steps, relation: Generate) -> Rows:
    """Each row as often as its first element says: the end of INTERSECT ALL and EXCEPT ALL."""
    rows = steps.rows(relation.child)
    x = Expressions()
    times, *values = relation.generator["children"]
    items = [f"{x.text(value)} AS {name}" for name, value in zip(relation.output, values, strict=True)]
    copied = f"CROSS JOIN LATERAL (SELECT unnest(range({x.text(times)}))) n(fs_copy)"
    columns = {**relation.output, **{name: rows.columns[name] for name in relation.kept}}
    return rows.settled().selecting(
        ", ".join([*items, *relation.kept]), columns, "copies", copied, raises=any_raises([times, *values])
    )
