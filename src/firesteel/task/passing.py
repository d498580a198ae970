"""Operators that hand rows on as they come: only where rows lie, and in how many subtasks, changes (``repartition``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from firesteel.task.program import Batches, TaskContext, UnitInput


@dataclass(frozen=True, slots=True)
class Passing:
    name: str
    unitwise: ClassVar[bool] = True

    def apply(self, batches: Batches, ctx: TaskContext) -> Batches:
        return batches


@dataclass(frozen=True, slots=True)
class PassingByKey:
    """Behind a hash exchange."""

    name: str
    group_keys: tuple[str, ...]
    unitwise: ClassVar[bool] = True

    @property
    def keys(self) -> tuple[tuple[str, ...], ...]:
        return (self.group_keys,)

    def accepts(self, nbytes: list[int], limit: int) -> bool:
        return True

    def apply_unit(self, inputs: list[UnitInput], ctx: TaskContext) -> Batches:
        yield from inputs[0].batches()


def only_passes(operator: Any) -> bool:
    return isinstance(operator, Passing | PassingByKey)
