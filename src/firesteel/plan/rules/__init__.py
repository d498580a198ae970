"""Rules that make a plan cheaper and keep its rows. Each is a file of this folder; ``RULES`` has them in the order in which they apply."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from firesteel.plan.relation import Relation
from firesteel.plan.rules.aggregates import reduce_aggregates
from firesteel.plan.rules.check import check
from firesteel.plan.rules.facts import Facts
from firesteel.plan.rules.join_order import order_joins
from firesteel.plan.rules.null_checks import drop_null_checks
from firesteel.plan.rules.partners import reduce_partners
from firesteel.plan.rules.sharing import share_subtrees


@dataclass(frozen=True, slots=True)
class Rule:
    """``why``: a sentence for people. ``apply``: returns the plan itself if there is nothing to do."""

    name: str
    why: str
    apply: Callable[[Relation, Facts], Relation]


@dataclass(frozen=True, slots=True)
class Applied:
    """A rule, and the plan before and after it."""

    rule: Rule
    before: Relation
    after: Relation

    @property
    def changed(self) -> bool:
        return self.after is not self.before


SHARE = Rule("share_subtrees", "Aggregates of the same rows are computed once.", share_subtrees)
REDUCE = Rule(
    "reduce_aggregates",
    "An aggregate that is joined on its own keys reads only rows whose keys the other side has.",
    reduce_aggregates,
)
RULES = (
    SHARE,
    Rule(
        "drop_null_checks",
        "Nulls that a join or another condition rejects are not looked for below it.",
        drop_null_checks,
    ),
    REDUCE,
)
"""For a plan that the engine runs as one statement: it orders the joins itself."""
IN_STAGES = (
    SHARE,
    REDUCE,
    Rule("order_joins", "Inner joins are made in the order that makes the fewest rows.", order_joins),
    Rule(
        "reduce_partners",
        "Of a large side in which few rows are looked up, only what has their keys is exchanged.",
        reduce_partners,
    ),
)
"""For a plan that is computed in stages, where the engine sees one join at a time. A row without a partner is better dropped before an exchange."""


def optimise(relation: Relation, facts: Facts, rules: Sequence[Rule] = RULES) -> tuple[Relation, tuple[Applied, ...]]:
    """The cheaper plan, and what each rule did. Raises PlanError where a rule made a plan that cannot be right."""
    record: list[Applied] = []
    for rule in rules:
        record.append(Applied(rule, relation, rule.apply(relation, facts)))
        relation = record[-1].after
    check(relation)
    return relation, tuple(record)
