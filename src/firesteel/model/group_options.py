"""Slot sharing groups as options give them resources: ``slot-sharing-group.<name>.*``."""

from __future__ import annotations

from typing import Any

from firesteel.errors import UsageError
from firesteel.model.slot_sharing_group import DEFAULT_SLOT_SHARING_GROUP, SlotSharingGroup, as_group
from firesteel.options import (
    GROUP_CPU_CORES,
    GROUP_EXTERNAL,
    GROUP_MANAGED_MEMORY,
    GROUP_TASK_HEAP_MEMORY,
    GROUP_TASK_OFF_HEAP_MEMORY,
    Layer,
    Option,
    Options,
)
from firesteel.options.registry import parts_of

_OPTIONS: dict[str, Option[Any]] = {
    "cpu_cores": GROUP_CPU_CORES,
    "task_heap_memory": GROUP_TASK_HEAP_MEMORY,
    "task_off_heap_memory": GROUP_TASK_OFF_HEAP_MEMORY,
    "managed_memory": GROUP_MANAGED_MEMORY,
}
_FAMILIES = (GROUP_EXTERNAL, *_OPTIONS.values())
"""One with more parts before those with fewer."""
_NEEDED = ("cpu_cores", "task_heap_memory")


def groups_of(options: Options) -> dict[str, SlotSharingGroup]:
    """The groups that ``slot-sharing-group.<name>.*`` give resources, by name. Raises UsageError for resources that do not
    make a slot."""
    values: dict[str, dict[str, Any]] = {}
    for resource, family in _OPTIONS.items():
        for (name,), value in options.members(family).items():
            values.setdefault(name, {})[resource] = value
    for (name, external), amount in options.members(GROUP_EXTERNAL).items():
        values.setdefault(name, {}).setdefault("external_resources", {})[external] = amount
    return {name: _from_options(name, resources) for name, resources in values.items()}


def _from_options(name: str, resources: dict[str, Any]) -> SlotSharingGroup:
    lacks = [_OPTIONS[need].key.replace("<name>", name) for need in _NEEDED if need not in resources]
    if lacks:
        raise UsageError(
            f"The options give slot sharing group '{name}' resources, but not {' and '.join(lacks)}.",
            hint="A group that is given any resource needs its CPU cores and its task heap memory: set them, too.",
        )
    return SlotSharingGroup(name, **resources)


def group_of_stream(given: Any, options: Options) -> SlotSharingGroup:
    """The one group of a stream: ``given`` (a name or a group; None: "default"), with the resources that the options give it.

    Raises UsageError where the program gives this very stream resources for another group.
    """
    if isinstance(given, list | tuple | set | frozenset):
        raise UsageError(
            "A stream is in one slot sharing group: Spark gives all tasks of a streaming query the same resources.",
            hint="Give one group, with what its largest task needs; or make two streams, on sessions of their own.",
        )
    group = as_group(DEFAULT_SLOT_SHARING_GROUP if given is None else given)
    for other, key in other_groups(group.name, options).items():
        origin = options.origin(key)
        if origin.layer is Layer.PROGRAM:
            raise UsageError(
                f"{key}, from {origin.where}, gives slot sharing group '{other}' resources, and the whole stream is in "
                f"'{group.name}': Spark gives all tasks of a streaming query the same resources.",
                hint=f"Name the stream's group, slot_sharing_group='{other}', or leave the options of '{other}' out.",
            )
    return groups_of(options).get(group.name, group)


def other_groups(name: str, options: Options) -> dict[str, str]:
    """Groups beside ``name`` to which options give resources, each with the key of one of these."""
    found: dict[str, str] = {}
    for key in sorted(options):
        parts = next((parts for family in _FAMILIES if (parts := parts_of(family, key)) is not None), None)
        if parts is not None and parts[0] != name:
            found.setdefault(parts[0], key)
    return found
