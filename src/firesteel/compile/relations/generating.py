"""Rows of the values of arrays and maps: ``explode``, ``posexplode``, ``inline``, ``stack``, each with ``LATERAL VIEW`` or without; and copies of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firesteel.compile.relations.rows import Rows
from firesteel.plan.raising import any_raises, may_raise
from firesteel.plan.relation import Generate
from firesteel.render.relations import copies_text, generate_text

if TYPE_CHECKING:
    from firesteel.compile.relations.steps import Steps


def generate(steps: Steps, relation: Generate) -> Rows:
    rows, kept = steps.rows(relation.child).settled(), relation.kept
    if relation.generator.cls == "ReplicateRows":
        items, copied = copies_text(relation)
        columns = {**relation.output, **{name: rows.columns[name] for name in kept}}
        raises = any_raises(relation.generator["children"])
        return rows.selecting(items, columns, "copies", copied, raises=raises)
    lists, walked, items = generate_text(relation, steps.names)
    new = {name: (text, "generated") for name, text in lists.items()}
    rows = rows.adding(new, "generate", may_raise(relation.generator))
    passed = {name: name for name in kept}
    rows = rows.selecting(walked, rows.columns, "generate", passed=passed)
    return rows.selecting(items, relation.columns, "generate", passed=passed)
