"""Executions of regions that share a slot (Flink: ExecutionSlotSharingGroup): those that run in one Spark task.

They are joined by pipelined exchanges, of one slot sharing group, and a slot holds at most one subtask of a vertex.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from firesteel.model.arrays import Ints
from firesteel.model.job_graph import JobGraph, ResultPartitionType
from firesteel.scheduler.slots.allocators import RegionDeploymentOption
from firesteel.scheduler.topology.executions import Rows


@dataclass(frozen=True, slots=True, eq=False)
class SharedSlots:
    """``rows``: of each slot the execution that names it; ``region`` and ``vertex`` run parallel: the region it is of,
    and one of the vertices in it. ``members``: all executions; ``place``: the slot that each is in.

    Slots ascend by region.
    """

    rows: Rows
    region: Ints
    vertex: Ints
    members: Rows
    place: Ints

    def select(self, slots: Ints) -> SharedSlots:
        """Returns only these slots (ascending)."""
        new = np.full(len(self.rows), -1, np.int64)
        new[slots] = np.arange(len(slots))
        place = new[self.place]
        kept = place >= 0
        return SharedSlots(self.rows[slots], self.region[slots], self.vertex[slots], self.members[kept], place[kept])


def shared_slots(option: RegionDeploymentOption, job_graph: JobGraph) -> SharedSlots:
    """The slots that these regions need. O(executions log executions)."""
    components = sharing([part.vertex for part in option.parts], job_graph)
    sizes = [len(part.executions) for part in option.parts]
    part = np.repeat(np.arange(len(sizes)), sizes)
    component = np.array(components, np.int64)[part]
    region = np.concatenate(option.regions)
    rank = np.concatenate([_ranks(own) for own in option.regions])
    members = np.concatenate([part.executions for part in option.parts])
    vertex = np.array([part.vertex for part in option.parts], np.int64)[part]
    order = np.lexsort((part, rank, component, region))
    keys = np.stack((region, component, rank))[:, order]
    first = np.ones(len(order), np.bool_)
    first[1:] = (keys[:, 1:] != keys[:, :-1]).any(axis=0)
    named = order[first]
    return SharedSlots(members[named], region[named], vertex[named], members[order], np.cumsum(first) - 1)


def sharing(vertices: list[int], job_graph: JobGraph) -> list[int]:
    """For each of the vertices a number, the same for those that share slots: they are joined by pipelined edges, in one group."""
    labels = list(range(len(vertices)))
    places = {vertex: place for place, vertex in enumerate(vertices)}
    for vertex in vertices:
        for edge in job_graph.vertices[vertex].inputs:
            dataset = job_graph.datasets[edge.dataset]
            if dataset.producer not in places or dataset.type is not ResultPartitionType.PIPELINED:
                continue
            if job_graph.group_of(vertex).name == job_graph.group_of(dataset.producer).name:
                old, new = labels[places[vertex]], labels[places[dataset.producer]]
                labels = [min(old, new) if label in (old, new) else label for label in labels]
    return labels


def _ranks(regions: Ints) -> Ints:
    """The how-maniest of its region each of these is."""
    order = np.argsort(regions, kind="stable")
    ordered = regions[order]
    first = np.ones(len(order), np.bool_)
    first[1:] = ordered[1:] != ordered[:-1]
    starts = np.flatnonzero(first)[np.cumsum(first) - 1]
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order)) - starts
    return ranks
