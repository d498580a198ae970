"""SlotSharingGroup (FLIP-169): what one slot of a group of steps needs. Immutable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

DEFAULT_SLOT_SHARING_GROUP = "default"


@dataclass(frozen=True, slots=True)
class SlotSharingGroup:
    """``cpu_cores``: of a slot; memory in bytes; ``external_resources``: amount by name. All 0: a coarse group, which
    takes slots as they are.
    """

    name: str
    cpu_cores: float = 0.0
    task_heap_memory: int = 0
    task_off_heap_memory: int = 0
    managed_memory: int = 0
    external_resources: Mapping[str, float] = field(default_factory=dict)

    @property
    def has_resources(self) -> bool:
        """False: a coarse group."""
        memory = self.task_heap_memory or self.task_off_heap_memory or self.managed_memory
        return bool(self.cpu_cores or memory or self.external_resources)
