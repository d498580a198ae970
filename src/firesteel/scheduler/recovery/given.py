"""All that a scheduler is made with besides its graph and options, as the driver found it when the job began."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from firesteel.model.steps.costs import StepCosts
from firesteel.scheduler.slots.resource_profile import SlotMode


@dataclass(frozen=True)
class Given:
    """Plain data, so that the next driver makes its scheduler with the same; fields as ``create_scheduler`` takes them."""

    slots: int
    in_order: bool
    slot_mode: SlotMode | None
    cold_start: float
    costs: StepCosts
    request_seconds: float | None
    task_memory: float | None
    pinned: dict[int, int] = field(default_factory=dict[int, int])

    def arguments(self) -> dict[str, Any]:
        """Arguments of ``create_scheduler``."""
        return {
            "slots": self.slots,
            "request_seconds": lambda: self.request_seconds,
            "in_order": self.in_order,
            "slot_mode": self.slot_mode,
            "task_memory": lambda: self.task_memory,
            "costs": self.costs,
            "cold_start": self.cold_start,
            "pinned": self.pinned,
        }
