"""Rules that make a plan cheaper and keep its rows. Each is a file of this folder; ``RULES`` has them in the order in which they apply."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from firesteel.plan.relation import Relation
from firesteel.plan.rules.aggregates import reduce_aggregates
from firesteel.plan.rules.facts import Facts
from firesteel.plan.rules.null_checks import drop_null_checks
from firesteel.plan.rules.sharing import share_subtrees


@dataclass(frozen=True, slots=True)
class Rule:
    """``why``: a sentence for people. ``apply``: returns the plan itself if there is nothing to do."""

    name: str
    why: str
    apply: Callable[[Relation, Facts], Relation]


RULES = (
    Rule("share_subtrees", "Aggregates of the same rows are computed once.", share_subtrees),
    Rule(
        "drop_null_checks",
        "Nulls that a join or another condition rejects are not looked for below it.",
        drop_null_checks,
    ),
    Rule(
        "reduce_aggregates",
        "An aggregate that is joined on its own keys reads only rows whose keys the other side has.",
        reduce_aggregates,
    ),
)


def optimise(
    relation: Relation, facts: Facts, rules: Sequence[Rule] = RULES, applied: list[Rule] | None = None
) -> Relation:
    """``applied``: gets the rules that changed the plan."""
    for rule in rules:
        changed = rule.apply(relation, facts)
        if changed is not relation and applied is not None:
            applied.append(rule)
        relation = changed
    return relation
