"""Facts that hold for every plan. A rule that breaks one has a defect, which is an error before anything runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from firesteel.errors import FiresteelError
from firesteel.plan.expr import attributes, walk
from firesteel.plan.relation import Columns, Generate, Join, Python, Relation, Union
from firesteel.plan.rules.trees import relations
from firesteel.plan.types import engine_type


class PlanError(FiresteelError):
    """A plan of ours that cannot be right."""


def check(root: Relation) -> None:
    """Every column that is read exists and has this type, no two inputs share a column, and branches of unions agree. Raises PlanError."""
    for relation in relations(root):
        wrong = next(_wrong(relation), None)
        if wrong:
            what = type(relation).__name__.lower()
            raise PlanError(
                f"A defect of Firesteel made a wrong plan: a {what} {wrong}.", hint="Please report the query."
            )


def _wrong(relation: Relation) -> Iterator[str]:
    if isinstance(relation, Union):
        kinds = [[*map(_named, one.columns.items())] for one in relation.branches]
        if any(one != kinds[0] for one in kinds):
            yield "has branches of different columns"
    elif not isinstance(relation, Python):  # its function knows its columns
        yield from _wrong_columns(relation)


def _wrong_columns(relation: Relation) -> Iterator[str]:
    known: Columns = {}
    for child in relation.children:
        yield from (f"has column {name} twice" for name in child.columns if name in known)
        known.update(child.columns)
    if isinstance(relation, Generate):
        yield from (f"keeps column {name}, which does not exist" for name in relation.kept if name not in known)
    if isinstance(relation, Join):
        sides = [(one, side) for pair in relation.pairs for one, side in zip(pair, relation.children, strict=True)]
        yield from (
            "has a key with a column of the other side"
            for one, side in sides
            if not attributes(one) <= set(side.columns)
        )
    for part in (part for one in relation.expressions for part in walk(one) if part.cls == "AttributeReference"):
        if part.id not in known:
            yield f"reads column {part.id}, which does not exist"
        elif part.type != known[part.id] and engine_type(part.type) != engine_type(known[part.id]):
            yield f"reads column {part.id} as {part.type}, which is {known[part.id]}"


def _named(column: tuple[str, Any]) -> tuple[str, str]:
    name, kind = column
    return name, engine_type(kind)
