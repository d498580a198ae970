"""Readiness of executions: those that may be deployed now. The one place where it is asked whether an input can be read."""

from __future__ import annotations

import numpy as np

from firesteel.model.arrays import Ints
from firesteel.scheduler.kernel.states import ExecutionState
from firesteel.scheduler.topology.execution_graph import DefaultExecutionGraph, ExecutionJobVertex
from firesteel.scheduler.topology.groups import EdgeGroups, Mask
from firesteel.scheduler.topology.regions import RegionBlock


def deployable(graph: DefaultExecutionGraph, vertex_id: int, subtasks: Ints) -> Mask:
    """Returns a mask of these subtasks: True where only a slot and the rest of the region are missing."""
    vertex, table = graph.vertices[vertex_id], graph.executions
    rows = vertex.newest[subtasks]
    # Those that joined a round are the speculation's to deploy.
    able = (table.state[rows] == ExecutionState.CREATED) & table.opens[rows]
    if vertex.held.any():
        able &= ~vertex.held[subtasks]
    able &= has_inputs(graph, vertex, subtasks)
    if not vertex.job.supports_concurrent_attempts:
        able &= ~vertex.has_pending_prior(subtasks)
    return able


def has_inputs(graph: DefaultExecutionGraph, vertex: ExecutionJobVertex, subtasks: Ints) -> Mask:
    """Returns a mask of these subtasks: True for those that can read all they need, once their whole region runs."""
    able = np.full(len(subtasks), vertex.ranges is not None)
    for edge in vertex.inputs:
        able &= readable(graph, edge, subtasks)
    return able


def deployable_regions(graph: DefaultExecutionGraph, block: RegionBlock, regions: Ints) -> Ints:
    """Returns the ones of these (ascending) regions whose members can all run. Each consumed group is asked once, however many
    read it."""
    if block.is_trivial:
        return regions[deployable(graph, block.vertices[0], regions)]
    able = np.ones(len(regions), np.bool_)
    for vertex, subtasks in block.members(regions).items():
        unable = subtasks[~deployable(graph, vertex, subtasks)]
        able[np.searchsorted(regions, block.of(vertex, unable))] = False
    return regions[able]


def readable(graph: DefaultExecutionGraph, edge: EdgeGroups, subtasks: Ints) -> Mask:
    """Returns a mask of these consumers: True for those that can read all they need of this input, once their whole region runs."""
    result = graph.result(edge.dataset)
    if result.is_withheld:
        return np.zeros(len(subtasks), np.bool_)
    if result.is_pipelined:
        return np.ones(len(subtasks), np.bool_)
    return _readable_inside(graph, edge, subtasks) if edge.inside else edge.ready(subtasks)


def _readable_inside(graph: DefaultExecutionGraph, edge: EdgeGroups, subtasks: Ints) -> Mask:
    """A blocking result on a circle: what the consumer's own region makes is waited for while it runs."""
    result, regions = graph.result(edge.dataset), graph.regions
    readable = np.ones(len(subtasks), np.bool_)
    if regions.block(edge.vertex).count == 1:
        return readable
    groups = edge.group_of(subtasks)
    spans = (edge.partition_end - edge.partition_first)[groups]
    reader = np.repeat(np.arange(len(subtasks)), spans)
    first = np.concatenate(([0], np.cumsum(spans)))[:-1]
    partitions = np.arange(len(reader)) + (edge.partition_first[groups] - first)[reader]
    edge.touched += len(partitions)
    elsewhere = regions.of(result.dataset.producer, partitions) != regions.of(edge.vertex, subtasks)[reader]
    readable[reader[elsewhere & ~result.available[partitions]]] = False
    return readable
