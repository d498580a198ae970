"""SlotSharingGroup (FLIP-169): what one slot of a group of steps needs. Immutable."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from types import MappingProxyType
from typing import Any, cast

from firesteel.errors import UsageError
from firesteel.humanize import format_bytes
from firesteel.options import parse_size
from firesteel.options.registry import TooLargeError

DEFAULT_SLOT_SHARING_GROUP = "default"

_MEMORY = {
    "task_heap_memory": "task heap memory",
    "task_off_heap_memory": "task off-heap memory",
    "managed_memory": "managed memory",
}
"""Field to its name in messages."""

_EXTERNAL_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_NO_EXTERNAL = {"cpu", "cpus", "core", "cores", "memory", "memoryoverhead", "offheap", "heap"}
"""Spark has its own resources of these names."""
_LEAST, _MOST = 1e-6, 1e6
"""Of cores and of pieces of an external resource: less or more is a slip, and is not counted exactly any more."""
_MOST_BYTES = 1 << 50


@dataclass(frozen=True, slots=True, repr=False)
class SlotSharingGroup:
    """Steps whose subtasks may share a slot, and what one slot of theirs needs.

    ``cpu_cores``: above 0, fractions are understood; memory: bytes, or text with a unit ("2 GiB"; KB, MB, GB are binary,
    as in Flink); ``external_resources``: amount by name ("gpu"), a whole number or a fraction of one. Who gives any of
    them gives CPU cores and task heap memory; the rest is 0 then. None at all: a coarse group, whose tasks take slots as
    they are.

    Sharing is a hint, not a guarantee: subtasks that run in slots of their own get slots of just these resources.
    Raises UsageError for a value that cannot be meant. Source: FLIP-169.
    """

    name: str
    cpu_cores: float = 0.0
    task_heap_memory: int = 0
    task_off_heap_memory: int = 0
    managed_memory: int = 0
    external_resources: Mapping[str, float] = field(default_factory=dict)

    def __init__(  # noqa: PLR0917 - the fields of a dataclass
        self,
        name: str,
        cpu_cores: float = 0.0,
        task_heap_memory: int | str = 0,
        task_off_heap_memory: int | str = 0,
        managed_memory: int | str = 0,
        external_resources: Mapping[str, float] | None = None,
    ) -> None:
        if not isinstance(name, str) or not name.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(
                f"The name of a slot sharing group is a string that is not empty, not {name!r}.",
                hint='Write, for example, SlotSharingGroup("gpu", ...).',
            )
        put = object.__setattr__
        put(self, "name", name)
        put(self, "cpu_cores", _cores(name, cpu_cores))
        put(self, "task_heap_memory", _bytes(name, "task_heap_memory", task_heap_memory))
        put(self, "task_off_heap_memory", _bytes(name, "task_off_heap_memory", task_off_heap_memory))
        put(self, "managed_memory", _bytes(name, "managed_memory", managed_memory))
        put(self, "external_resources", MappingProxyType(_externals(name, external_resources)))
        self._check_whole()

    @property
    def has_resources(self) -> bool:
        """False: a coarse group."""
        memory = self.task_heap_memory or self.task_off_heap_memory or self.managed_memory
        return bool(self.cpu_cores or memory or self.external_resources)

    @property
    def resources(self) -> str:
        """``2 cores, 2 GiB heap, 1 gpu``; empty for a coarse group."""
        if not self.has_resources:
            return ""
        told = [f"{self.cpu_cores:g} core{'s' if self.cpu_cores != 1 else ''}"]
        kinds = zip(_MEMORY, ("heap", "off-heap", "managed"), strict=True)
        told += [f"{format_bytes(getattr(self, kind))} {name}" for kind, name in kinds if getattr(self, kind)]
        return ", ".join(told + [f"{amount:g} {name}" for name, amount in self.external_resources.items()])

    def __hash__(self) -> int:
        return hash(
            (self.name, self.cpu_cores, *(getattr(self, kind) for kind in _MEMORY), *self.external_resources.items())
        )

    def __reduce__(self) -> tuple[Any, ...]:  # a MappingProxyType cannot be pickled
        memory = (getattr(self, kind) for kind in _MEMORY)
        return SlotSharingGroup, (self.name, self.cpu_cores, *memory, dict(self.external_resources))

    def __repr__(self) -> str:
        told = [repr(self.name)]
        if self.has_resources:
            told.append(f"cpu_cores={self.cpu_cores:g}")
        told += [f"{kind}={_exact(getattr(self, kind))}" for kind in _MEMORY if getattr(self, kind)]
        if self.external_resources:
            told.append(f"external_resources={dict(self.external_resources)}")
        return f"SlotSharingGroup({', '.join(told)})"

    def __str__(self) -> str:
        """``gpu (2 cores, 2 GiB heap, 1 gpu)``; ``gpu``."""
        return f"{self.name} ({self.resources})" if self.has_resources else self.name

    def _check_whole(self) -> None:
        if not self.has_resources or (self.cpu_cores and self.task_heap_memory):
            return
        lacks = [
            what
            for what, value in (("CPU cores", self.cpu_cores), ("task heap memory", self.task_heap_memory))
            if not value
        ]
        raise UsageError(
            f"Slot sharing group '{self.name}' is given resources, but no {' and no '.join(lacks)}.",
            hint="A group that is given any resource needs CPU cores above 0 (cores) and task heap memory above 0 (bytes, or "
            "text such as '2 GiB').",
        )


def as_group(group: Any) -> SlotSharingGroup:
    """A name alone is a group without resources. Raises UsageError."""
    if isinstance(group, SlotSharingGroup):
        return group
    if isinstance(group, str):
        return SlotSharingGroup(group)
    raise UsageError(
        f"A slot sharing group is a name or a SlotSharingGroup, not {type(group).__name__}.",
        hint='Write, for example, slot_sharing_group("gpu").',
    )


def _cores(group: str, cores: Any) -> float:
    """0: not given."""
    if isinstance(cores, bool) or not isinstance(cores, Real):
        raise UsageError(
            f"The CPU cores of slot sharing group '{group}' are a number of cores, not {cores!r}.",
            hint="Give a number above 0, such as 2 or 0.5.",
        )
    number = float(cores)
    if not math.isfinite(number) or (number and not _LEAST <= number <= _MOST):
        raise UsageError(
            f"The CPU cores of slot sharing group '{group}' are {cores}: they must be a number of cores above 0{_counted(cores)}.",
            hint="Give a number such as 2 or 0.5, or leave out all resources.",
        )
    return number


def _bytes(group: str, kind: str, memory: Any) -> int:
    hint = "Give a whole number of bytes, or text with a unit, such as '512 MiB' or '2 GiB'."
    whole = not isinstance(memory, bool) and isinstance(memory, Integral)
    if not whole and not isinstance(memory, str):
        raise UsageError(f"The {_MEMORY[kind]} of slot sharing group '{group}' is not a size: {memory!r}.", hint=hint)
    if str(memory).strip().startswith("-"):
        raise UsageError(
            f"The {_MEMORY[kind]} of slot sharing group '{group}' is {memory!r}: bytes are never negative.", hint=hint
        )
    try:
        size = parse_size(memory if isinstance(memory, str) else int(cast(int, memory)))
    except TooLargeError as error:
        size = error.size
    except ValueError:
        raise UsageError(
            f"The {_MEMORY[kind]} of slot sharing group '{group}' is not a size: {memory!r}.", hint=hint
        ) from None
    if size > _MOST_BYTES:
        raise UsageError(
            f"The {_MEMORY[kind]} of slot sharing group '{group}' is {size} bytes: no slot has more than "
            f"{format_bytes(_MOST_BYTES)}.",
            hint="Check the unit; a number without one is of bytes.",
        )
    return size


def _externals(group: str, resources: Any) -> dict[str, float]:
    if not isinstance(resources, Mapping | None):
        raise UsageError(
            f"The external resources of slot sharing group '{group}' are amounts by name, not {resources!r}.",
            hint='Write external_resources={"gpu": 1}.',
        )
    given = cast("Mapping[Any, Any]", resources or {})
    return {name: _amount(group, name, given[name]) for name in sorted(given, key=str)}


def _amount(group: str, name: Any, amount: Any) -> float:
    """Spark gives a task whole units, or a fraction of one that several tasks share."""
    if not isinstance(name, str) or _EXTERNAL_NAME.fullmatch(name) is None or name.lower() in _NO_EXTERNAL:
        why = "it is not an external resource" if str(name).lower() in _NO_EXTERNAL else "it is not a name"
        raise UsageError(
            f"Slot sharing group '{group}' cannot have the external resource {name!r}: {why}.",
            hint="Name one that the executors offer, such as 'gpu' (letters, digits, '-', '_'); cores and memory have "
            "settings of their own.",
        )
    number = math.nan if isinstance(amount, bool) or not isinstance(amount, Real) else float(amount)
    if not math.isfinite(number) or not _LEAST <= number <= _MOST:
        raise UsageError(
            f"Slot sharing group '{group}' needs {amount!r} of the external resource '{name}': it must be a number of "
            f"{name} units above 0{_counted(amount)}.",
            hint="Give a whole number, or a fraction of one such as 0.5; leave it out where none is needed.",
        )
    if number > 1 and number != int(number):
        raise UsageError(
            f"Slot sharing group '{group}' needs {amount:g} units of the external resource '{name}': above 1 they are whole "
            "units, for only a single one can be shared by several tasks.",
            hint=f"Give {math.floor(number)} or {math.ceil(number)}, or a fraction of one such as 0.5.",
        )
    return number


def _exact(size: int) -> str:
    """A size as text that reads back as the same."""
    text = format_bytes(size)
    return repr(text) if parse_size(text) == size else str(size)


def _counted(amount: Any) -> str:
    """Returns the bounds in words for a number above 0 that is refused; empty for any other value."""
    return f", from {_LEAST:f} to {_MOST:,.0f}" if isinstance(amount, Real) and float(amount) > 0 else ""
