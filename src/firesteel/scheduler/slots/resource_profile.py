"""The resources that a slot has or needs (ResourceProfile, FLIP-56), and those that a worker cuts slots from.

A worker is what gives slots: a Spark executor (Flink: a TaskManager).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import ClassVar

from firesteel.humanize import format_bytes
from firesteel.model.slot_sharing_group import SlotSharingGroup

MEMORY_KINDS = ("task_heap_memory", "task_off_heap_memory", "managed_memory", "network_memory")


@dataclass(frozen=True, slots=True)
class ResourceProfile:
    """``cpu_cores``; memory by kind, in bytes; ``external``: (name, amount), sorted by name.

    ``UNKNOWN``: nothing was specified, any slot will do.
    """

    cpu_cores: float = 0.0
    task_heap_memory: int = 0
    task_off_heap_memory: int = 0
    managed_memory: int = 0
    network_memory: int = 0
    external: tuple[tuple[str, float], ...] = ()
    kind: str = ""
    """"unknown"; empty: specified."""

    UNKNOWN: ClassVar[ResourceProfile]

    @classmethod
    def of(cls, group: SlotSharingGroup) -> ResourceProfile:
        """Without network memory, which is worked out later. UNKNOWN for a coarse group."""
        if not group.has_resources:
            return cls.UNKNOWN
        return cls(
            group.cpu_cores,
            group.task_heap_memory,
            group.task_off_heap_memory,
            group.managed_memory,
            external=tuple(sorted(group.external_resources.items())),
        )

    @property
    def is_specified(self) -> bool:
        return not self.kind

    @property
    def memory(self) -> int:
        """Bytes of all kinds."""
        return self.task_heap_memory + self.task_off_heap_memory + self.managed_memory + self.network_memory

    def with_network_memory(self, network_memory: int) -> ResourceProfile:
        return replace(self, network_memory=network_memory)

    def numbers(self) -> dict[str, float]:
        """As the journal has it: "cpu_cores", the memory kinds in bytes, "external.NAME"; what is 0 is left out. Empty: not
        specified."""
        named = {kind: getattr(self, kind) for kind in ("cpu_cores", *MEMORY_KINDS)}
        return {name: n for name, n in named.items() if n} | {f"external.{name}": n for name, n in self.external}

    @classmethod
    def of_numbers(cls, numbers: Mapping[str, float]) -> ResourceProfile:
        """The inverse of ``numbers``. What is not known here (journals of other versions) is left out."""
        if not numbers:
            return cls.UNKNOWN
        memory = [int(numbers.get(kind, 0)) for kind in MEMORY_KINDS]
        external = sorted((k.removeprefix("external."), n) for k, n in numbers.items() if k.startswith("external."))
        return cls(numbers.get("cpu_cores", 0.0), *memory, external=tuple(external))

    def __str__(self) -> str:
        """``2 cores, 2 GiB (heap), 1 gpu``; ``unknown``."""
        if self.kind:
            return self.kind
        names = ("heap", "off-heap", "managed", "network")
        told = [f"{self.cpu_cores:g} core{'s' if self.cpu_cores != 1 else ''}"]
        told += [
            f"{format_bytes(getattr(self, k))} {n}"
            for k, n in zip(MEMORY_KINDS, names, strict=True)
            if getattr(self, k)
        ]
        return ", ".join(told + [f"{amount:g} {name}" for name, amount in self.external])


ResourceProfile.UNKNOWN = ResourceProfile(kind="unknown")


@dataclass(frozen=True, slots=True)
class WorkerResources:
    """All that one worker can give to slots. ``memory``: bytes that all kinds together may take; a kind that is also
    bounded by itself says how many bytes (None: only by ``memory``).
    """

    cpu_cores: float
    memory: int
    external: Mapping[str, float] = field(default_factory=dict, hash=False)
    task_heap_memory: int | None = None
    task_off_heap_memory: int | None = None
    managed_memory: int | None = None
    network_memory: int | None = None
    addresses: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    """Of external resources that the slot pool hands out; none: Spark does it."""

    def __str__(self) -> str:
        """``4 cores, 8 GiB, 2 gpu``."""
        told = [f"{self.cpu_cores:g} core{'s' if self.cpu_cores != 1 else ''}", format_bytes(self.memory)]
        return ", ".join(told + [f"{amount:g} {name}" for name, amount in sorted(self.external.items())])


class SlotEnforcement(Enum):
    """The party that keeps a worker from holding more than it has."""

    POOL = "the slot pool alone"
    """Spark starts whatever it is given while it has a free core (local masters)."""
    TASK_PROFILES = "Spark, for cores and external resources; the slot pool, for memory"
    """Task-only resource profiles, on the executors there are."""
    EXECUTOR_PROFILES = "Spark, which makes executors that fit"
    """Resource profiles with dynamic allocation."""


@dataclass(frozen=True, slots=True)
class SlotMode:
    """``grows``: workers may come that are not there yet, of sizes that are not known. ``framework``: bytes of its worker's memory
    that each slot of a specified need takes in addition to its profile; 0: they are no part of the worker's memory."""

    enforcement: SlotEnforcement = SlotEnforcement.POOL
    grows: bool = False
    framework: int = 0
