"""The operators right above a relation that only choose from its rows: what it is read for, and what goes to Spark with it."""

from __future__ import annotations

from dataclasses import dataclass

from firesteel.plan.expr import Expr, conjuncts, walk
from firesteel.plan.raising import sure
from firesteel.sql.plans.catalyst import Operator


@dataclass(frozen=True, slots=True)
class Chosen:
    """``top``: number of the outermost of these operators, or of the relation."""

    top: int
    filters: tuple[Operator, ...] = ()

    def conditions(self) -> list[Expr]:
        """Each is true of every row that is wanted. Where one may raise an error of Spark's, only those are among them that are sure."""
        return sure(one for each in reversed(self.filters) for one in conjuncts(each["condition"]))


def chosen(root: Operator) -> dict[int, Chosen]:
    """By the number of the relation."""
    found: dict[int, Chosen] = {}
    seen: set[int] = set()
    for node in walk(root):
        if not isinstance(node, Operator) or node.handle in seen:
            continue
        chain = _chain(node)
        seen |= {one.handle for one in chain}
        if chain[-1].cls == "LogicalRelation":
            found[chain[-1].handle] = Chosen(chain[0].handle, tuple(one for one in chain if one.cls == "Filter"))
    return found


def _chain(node: Operator) -> list[Operator]:
    """A projection and filters, as they follow each other, and what is below them."""
    chain = [node]
    while chain[-1].cls == "Filter" or (chain[-1].cls == "Project" and len(chain) == 1):
        chain.append(chain[-1]["child"])
    return chain
