"""The slot sharing group of every step, and what each group's slots need (FLIP-169; Flink: StreamGraphGenerator).

A step takes its inputs' group if they all share one and none was set on it, else "default". Inputs are all that it reads:
side inputs count, a union stands for the streams it unites.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from firesteel.compile.stream_graph import StreamNode
from firesteel.errors import UsageError
from firesteel.model.job_graph import JobGraph
from firesteel.model.slot_sharing_group import DEFAULT_SLOT_SHARING_GROUP, SlotSharingGroup


@dataclass(frozen=True, slots=True)
class SlotSharing:
    """``group_of``: the name of each step's group. ``groups``: those that have resources, by name; others are coarse."""

    group_of: Mapping[StreamNode, str]
    groups: Mapping[str, SlotSharingGroup]


def slot_sharing(nodes: Iterable[StreamNode], registered: Mapping[str, SlotSharingGroup]) -> SlotSharing:
    """``nodes``: every step behind its inputs. ``registered``: by name, in place of what steps say of these groups.

    Raises UsageError where two steps give one group different resources and none are registered for it.
    """
    nodes = list(nodes)
    groups = {**_given(nodes, registered), **registered}
    group_of: dict[StreamNode, str] = {}
    for node in nodes:
        group_of[node] = _group(node, group_of)
    return SlotSharing(group_of, {name: group for name, group in groups.items() if group.has_resources})


def unused_groups(graph: JobGraph, names: Iterable[str]) -> dict[str, str]:
    """Of these groups those that no step is in, with a sentence for each."""
    used = list(dict.fromkeys(vertex.slot_sharing_group for vertex in graph.vertices))
    return {
        name: f"No step of this job is in slot sharing group '{name}', for which resources were given. {_meant(name, used)}"
        for name in names
        if name not in used
    }


def _meant(name: str, used: list[str]) -> str:
    close = difflib.get_close_matches(name, used, n=1)
    if close:
        return f"Did you mean '{close[0]}'?"
    return f"Its steps are in {', '.join(repr(group) for group in used)}."


def _group(node: StreamNode, group_of: Mapping[StreamNode, str]) -> str:
    # A union of two groups is in "default", and so is what reads it, whatever else it reads: it need not be dissolved.
    if node.config.slot_sharing_group is not None:
        return node.config.slot_sharing_group.name
    inputs = {group_of[edge.source] for edge in (*node.inputs, *(edge for _, edge in node.sides))}
    return inputs.pop() if len(inputs) == 1 else DEFAULT_SLOT_SHARING_GROUP


def _given(nodes: Iterable[StreamNode], registered: Mapping[str, SlotSharingGroup]) -> dict[str, SlotSharingGroup]:
    """The groups to which steps give resources, by name. A step that only names a group adds nothing."""
    first: dict[str, StreamNode] = {}
    for node in nodes:
        group = node.config.slot_sharing_group
        if group is None or not group.has_resources or group.name in registered:
            continue
        other = first.setdefault(group.name, node)
        said = other.config.slot_sharing_group
        assert said is not None
        if said != group:
            raise UsageError(
                f"Slot sharing group '{group.name}' is given two different resources: {said.resources} for {_where(other)}, and "
                f"{group.resources} for {_where(node)}.",
                hint="Make one SlotSharingGroup and use it for both, or give one of them another name. "
                "env.register_slot_sharing_group() sets the resources of a group for all steps.",
            )
    return {name: group for name, node in first.items() if (group := node.config.slot_sharing_group) is not None}


def _where(node: StreamNode) -> str:
    """``step 'map' at a.py:3 (slot_sharing_group() at a.py:4)``."""
    place = node.config.group_place
    return f"{node} (slot_sharing_group() at {place})" if place and place != node.place else str(node)
