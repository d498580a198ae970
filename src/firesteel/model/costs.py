"""Costs of steps as earlier runs measured them: a plain table, which the journal's reader makes and the scheduler looks into."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

FUSED = "+"
"""Between the identities of steps that one vertex does, one behind the other (``model.absorbing``)."""


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """One run of a step: plain bytes that it had to read (broadcasts left out, of a source its splits'), seconds that its subtasks worked, all
    together, and plain bytes that it wrote for other steps."""

    bytes: int
    seconds: float
    bytes_out: int = 0


@dataclass(frozen=True, slots=True)
class StepCost:
    """The cost of a step in ``runs`` earlier runs. ``bytes_out_per_byte``: 0 of a step that only has sinks."""

    seconds_per_byte: float
    runs: int = 1
    bytes_out_per_byte: float = 0.0

    @classmethod
    def of(cls, measured: Iterable[MeasuredStep]) -> StepCost | None:
        """The cost from the runs that had anything to read, and took any time; None: there are none.

        The least that was measured counts: whatever else ran on the machine, a cold worker, a model that each subtask loads, all
        only add to it.
        """
        runs = [run for run in measured if run.bytes > 0 and run.seconds > 0]
        if not runs:
            return None
        least = min(run.seconds / run.bytes for run in runs)
        return cls(least, len(runs), sum(run.bytes_out for run in runs) / sum(run.bytes for run in runs))


ENGINE_COST = StepCost(1 / (1 << 30), 0)
"""The cost of an unmeasured step that the engine alone computes: that of a scan with a filter and a sum on one core (docs/benchmarks.md)."""
HASHING_COST = StepCost(7 / (1 << 30), 0)
"""The same of rows that come by their keys, to be hashed (docs/benchmarks.md)."""


class Outcome(NamedTuple):
    """The bytes that a step writes for one that it reads, as ``runs`` earlier runs tell."""

    bytes_out_per_byte: float
    runs: int


@dataclass(frozen=True, slots=True)
class StepCosts:
    """Costs by the identity of a step (``JobVertex.step``)."""

    by_step: Mapping[str, StepCost]

    def of(self, step: str) -> StepCost | None:
        """Returns None for a step of unknown cost, or without an identity."""
        return self.by_step.get(step) if step else None

    def came_out(self, step: str) -> Outcome | None:
        """The part that came out of a step; of fused ones, of what the first of them reads. None: neither known of all together, nor of
        each."""
        together = self.of(step)
        if together is not None:
            return Outcome(together.bytes_out_per_byte, together.runs)
        known = [cost for cost in map(self.of, step.split(FUSED)) if cost is not None]
        if len(known) <= step.count(FUSED):
            return None
        return Outcome(prod(cost.bytes_out_per_byte for cost in known), min(cost.runs for cost in known))


def fused(first: str, second: str) -> str:
    """The identity of two steps in one vertex; empty: one of them has none."""
    return f"{first}{FUSED}{second}" if first and second else ""


NO_COSTS = StepCosts({})
