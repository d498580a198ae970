"""Forward groups (FLIP-187): one parallelism for vertices joined by forward edges."""

from __future__ import annotations

import numpy as np
import pytest

from firesteel.errors import UsageError
from firesteel.model.forward_group import ForwardGroup, forward_groups
from firesteel.model.job_graph import IntermediateDataSet, JobEdge, JobGraph, JobVertex, ShipStrategy, SourceInfo


def graph(edges, n, parallelism=None, maximum=None, fixed=None):
    """``edges``: (producer, consumer, ship)."""
    vertices = [JobVertex(i, f"v{i}", f"u{i}") for i in range(n)]
    datasets = []
    for i, p in (parallelism or {}).items():
        vertices[i].parallelism = p
    for i, p in (maximum or {}).items():
        vertices[i].max_parallelism = p
    for i, p in (fixed or {}).items():
        vertices[i].source = SourceInfo(np.zeros(p, np.int64), fixed_parallelism=p)
    for producer, consumer, ship in edges:
        datasets.append(IntermediateDataSet(len(datasets), producer, ship))
        vertices[producer].outputs.append(datasets[-1].id)
        vertices[consumer].inputs.append(JobEdge(datasets[-1].id, len(vertices[consumer].inputs)))
    return JobGraph("job", vertices, datasets)


F, R = ShipStrategy.FORWARD, ShipStrategy.RESCALE


def test_every_vertex_is_in_one_group():
    groups = forward_groups(graph([(0, 1, F), (1, 2, R), (2, 3, F), (0, 4, F)], 6))
    assert groups == [ForwardGroup((0, 1, 4)), ForwardGroup((2, 3)), ForwardGroup((5,))]


def test_groups_grow_together_through_a_common_consumer():
    assert forward_groups(graph([(0, 2, F), (1, 2, F)], 3)) == [ForwardGroup((0, 1, 2))]


def test_one_member_sets_the_parallelism_of_all():
    assert forward_groups(graph([(0, 1, F), (1, 2, F)], 3, {2: 4})) == [ForwardGroup((0, 1, 2), 4)]
    assert forward_groups(graph([(0, 1, F)], 2, {0: 4, 1: 4})) == [ForwardGroup((0, 1), 4)]


def test_two_parallelisms_in_a_group_are_an_error():
    with pytest.raises(UsageError, match="'v0' has parallelism 2 and 'v2' has 3"):
        forward_groups(graph([(0, 1, F), (1, 2, F)], 3, {0: 2, 2: 3}))


def test_rescale_does_not_join():
    assert [g.parallelism for g in forward_groups(graph([(0, 1, R)], 2, {0: 2, 1: 3}))] == [2, 3]


def test_the_smallest_maximum_counts_and_must_hold_the_parallelism():
    assert forward_groups(graph([(0, 1, F)], 2, maximum={0: 8, 1: 4})) == [ForwardGroup((0, 1), -1, 4)]
    with pytest.raises(
        UsageError, match="'v0' has parallelism 5, above the max parallelism 4 of 'v1', to which forward"
    ):
        forward_groups(graph([(0, 1, F)], 2, {0: 5}, {1: 4}))
    with pytest.raises(UsageError, match=r"above the max parallelism 4 of 'v0'\."):
        forward_groups(graph([], 1, {0: 5}, {0: 4}))


def test_a_source_with_a_parallelism_by_nature_counts_as_set():
    assert forward_groups(graph([(0, 1, F)], 2, fixed={0: 6})) == [ForwardGroup((0, 1), 6)]
    with pytest.raises(UsageError, match="parallelism 2 and 'v0' has 6"):
        forward_groups(graph([(0, 1, F)], 2, {1: 2}, fixed={0: 6}))
