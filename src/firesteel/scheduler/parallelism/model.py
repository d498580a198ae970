"""Arguments and results of parallelism deciders. Plain values, no state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from msgspec import to_builtins
from numpy.typing import NDArray

from firesteel.errors import UsageError
from firesteel.humanize import plural
from firesteel.model.costs import StepCost
from firesteel.model.job_graph import ShipStrategy
from firesteel.scheduler.kernel.commands import InputRanges
from firesteel.scheduler.kernel.decisions import Sized, SourceSized

Longs = NDArray[np.int64]
Cut = Literal["by-bytes", "by-count"]
MAX_NUMBERS_RECORDED = 4096
"""In one list of a decision's record."""
MOST_SUBTASKS = 1 << 20
"""Of one step. Beyond it a decision would cost more memory than any cluster that could run it is worth."""


@dataclass(frozen=True, slots=True, eq=False)
class ConsumedResult:
    """One finished result that a vertex consumes (FLIP-187: BlockingResultInfo).

    Either ``subpartition_bytes`` (sums over the producers, length ``num_subpartitions``) or ``cells``
    (``num_partitions`` x ``num_subpartitions``) tells the plain bytes, int64. Keyed inputs need one of them,
    pointwise and rebalanced inputs need ``cells`` to be cut by bytes, forward and broadcast inputs need neither.
    """

    dataset: int
    ship: ShipStrategy
    co_partitioned: bool
    num_partitions: int
    num_subpartitions: int
    subpartition_bytes: Longs | None = None
    cells: Longs | None = None
    total_bytes: int = 0
    """Plain bytes of the whole result; a broadcast counted once."""
    is_broadcast: bool = False
    divisible: bool = False
    """See ``JobEdge``, as for the next ones."""
    indivisible: str = ""
    by_value: bool = False

    @property
    def is_keyed(self) -> bool:
        """Rows of one subpartition belong together, whoever produced them."""
        return not (self.is_broadcast or self.is_forward) and (self.co_partitioned or self.ship.is_keyed)

    @property
    def is_forward(self) -> bool:
        return not self.is_broadcast and self.ship is ShipStrategy.FORWARD

    @property
    def is_pointwise(self) -> bool:
        return not self.is_keyed and self.ship is ShipStrategy.RESCALE

    def folded(self) -> Longs | None:
        """Bytes per subpartition, summed over the producers; None if unknown."""
        if self.subpartition_bytes is not None:
            return np.asarray(self.subpartition_bytes, dtype=np.int64)
        return None if self.cells is None else np.asarray(self.cells, dtype=np.int64).sum(axis=0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class SlotBound:
    """Slots that a slot sharing group can get at once: of all workers that can be used, if they were empty."""

    count: int
    group: str

    def __str__(self) -> str:
        return f"the {plural(self.count, 'slot')} of group '{self.group}'"


BEFORE_RESUME = "as before the resume"
"""The rule of a parallelism that was decided before the job was resumed with another program."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Within what a parallelism may lie, and how input is cut. ``bounds_for`` makes one from the options.

    ``fixed``: the parallelism is given (by the user or a forward group), only the ranges are to be cut.
    ``data_volume``: plain bytes a subtask should process. ``max_slices``: most (producer, subpartition) slices a
    subtask should read. ``vertex_maximum``: the step's own maximum, which also cuts ``minimum``.
    """

    minimum: int
    maximum: int
    fixed: int | None
    data_volume: int
    max_slices: int
    cut: Cut
    vertex_maximum: int | None = None
    maximum_key: str = "max-parallelism"
    """The option the maximum came from: max-parallelism or parallelism.default."""
    fixed_rule: str = "fixed"
    """Why it is fixed, as the rule of the decision: "fixed", "forward group", or the function that decided it."""
    slots: int = 1
    """Tasks that can run at once, as far as it is known."""
    least_volume: int = 0
    """Plain bytes that make a subtask worth its start where slots would stand idle; 0: none do."""
    slots_maximum: SlotBound | None = None
    """The slots that it may not exceed; like the step's own maximum it cuts ``minimum``."""
    divides: bool = True
    """Heavy subpartitions of divisible inputs are divided among subtasks where that pays."""
    cost: StepCost | None = None
    """Measured in earlier runs; None: not known."""
    apart: bool = False
    """Each subpartition that has anything is a subtask of its own, where so many are allowed: it has the rows of a file."""
    tapers: bool = False
    """Later waves of subtasks may be smaller than earlier ones: no output of its shows how its input was cut."""
    target_seconds: float = 0.0
    """The time that a subtask of a step of known cost should take; 0: whatever it takes."""
    rebuilt: int = 0
    """Plain bytes that each subtask hashes again before it begins: the build sides of joins that the engine computes."""

    def interval(self) -> tuple[int, int]:
        """Smallest and largest allowed parallelism; by count both are powers of two, so that subpartitions, whose number is a
        multiple of the largest one, divide evenly (FLIP-187). Raises UsageError when empty.
        """
        low, high = self._global_interval()
        most = self._own_maximum
        return (low, high) if most is None else (min(low, most), min(high, most))

    @property
    def _own_maximum(self) -> int | None:
        """Returns the parallelism that is left of ``lower_maximum`` by this cut; None: there is no such maximum."""
        own = self.lower_maximum
        if own is None:
            return None
        return power_of_two_at_most(own[0]) if self.cut == "by-count" else own[0]

    @property
    def lower_maximum(self) -> tuple[int, str] | None:
        """The smaller of the step's own maximum and the slots it may have, and its name."""
        found: list[tuple[int, str]] = []
        if self.vertex_maximum is not None:
            found.append((self.vertex_maximum, f"the step's max parallelism {self.vertex_maximum}"))
        if self.slots_maximum is not None:
            found.append((self.slots_maximum.count, str(self.slots_maximum)))
        return min(found, default=None)

    def _global_interval(self) -> tuple[int, int]:
        low, high = self.minimum, self.maximum
        if low < 1 or high < low:
            raise UsageError(
                f"min-parallelism {low} and {self.maximum_key} {high} leave no parallelism to choose.",
                hint="Set min-parallelism to at least 1 and at most the maximum.",
            )
        if self.cut == "by-count":
            low, high = power_of_two_at_least(low), power_of_two_at_most(high)
            if high < low:
                raise UsageError(
                    f"No power of two lies between min-parallelism {self.minimum} and {self.maximum_key} "
                    f"{self.maximum}, and the cut by-count decides powers of two only.",
                    hint="Widen the two bounds, or set firesteel.decider.cut to by-bytes.",
                )
        return low, high

    def bound_hit(self, wanted: int) -> list[str]:
        """The bound that keeps ``wanted`` from being chosen, in words; none if it is allowed."""
        low, high = self._global_interval()
        own, most = self.lower_maximum, self._own_maximum
        if own is not None and most is not None and most < min(wanted, high):
            return [_used(own[1], own[0], most)]
        if wanted > high:
            return [_used(f"{self.maximum_key} {self.maximum}", self.maximum, high)]
        if wanted < low:
            cut = "" if own is None or most is None or most >= low else f", cut to {_used(own[1], own[0], most)}"
            return [_used(f"min-parallelism {self.minimum}", self.minimum, low) + cut]
        return []


def _used(words: str, value: int, used: int) -> str:
    return words if value == used else f"{words} ({used} as a power of two)"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Plan:
    """A decided parallelism, and why: the fields of a ``records.Decision``, its inputs as ``facts``."""

    parallelism: int
    facts: Sized | SourceSized
    rule: str
    bounds: list[str]
    result: Any
    input_bytes: Longs | None
    """Plain bytes each subtask will read, broadcasts included; None where sizes are unknown."""

    @property
    def decision(self) -> dict[str, Any]:
        """``Decision(at=..., what="parallelism", vertex=..., **plan.decision)``."""
        return {"inputs": to_builtins(self.facts), "rule": self.rule, "bounds": self.bounds, "result": self.result}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class VertexPlan(Plan):
    """``ranges`` runs parallel to the inputs."""

    facts: Sized
    ranges: tuple[InputRanges, ...]


def power_of_two_at_most(n: int) -> int:
    return 1 << (n.bit_length() - 1)


def power_of_two_at_least(n: int) -> int:
    return 1 << (n - 1).bit_length()


def closest_power_of_two(n: int) -> int:
    """FLIP-187's normalize: the nearer power of two, a tie goes up (3 -> 4, 6 -> 8); at least 1."""
    if n < 1:
        return 1
    below = power_of_two_at_most(n)
    return below if n - below < 2 * below - n else 2 * below
