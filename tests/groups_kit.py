"""Jobs whose slot sharing groups have resources, for tests of the control plane."""

from __future__ import annotations

from tests.scheduler_kit import GraphBuilder, Plane, plane

from firesteel.model.job_graph import ResultPartitionType, ShipStrategy
from firesteel.model.slot_sharing_group import SlotSharingGroup
from firesteel.scheduler.kernel import records as r
from firesteel.scheduler.slots.resource_profile import WorkerResources

GIB = 1 << 30
LIGHT = SlotSharingGroup("light", 1.0, GIB)
HEAVY = SlotSharingGroup("heavy", 4.0, 2 * GIB)
FOUR = WorkerResources(4.0, 8 * GIB)
TWO = WorkerResources(2.0, 8 * GIB)
SPECULATIVE = {"jobmanager__adaptive-batch-scheduler__speculative__enabled": "true"}
DEFAULT = {"jobmanager__scheduler": "Default"}
MOST_EVENTS = 2000


def sources(*counts, groups=(LIGHT, HEAVY), mode=None, join=None, **options) -> Plane:
    """A source of the ``k``-th group with so many subtasks, for each of the counts."""
    builder = GraphBuilder("sources", *groups)
    for group, count in zip(groups, counts, strict=True):
        builder.source([100] * count, parallelism=count, slot_sharing_group=group.name)
    return plane(builder.graph, slot_mode=mode, join=join, **options)


def requests(job) -> list[r.Decision]:
    return job.decisions("slot request")


def pipelined(first, second, count=5, **fields):
    builder = GraphBuilder("regions", LIGHT, HEAVY, SlotSharingGroup("third", 1.5, GIB))
    a = builder.source([1] * count, parallelism=count, slot_sharing_group=first)
    edge = (a, ShipStrategy.FORWARD, ResultPartitionType.PIPELINED)
    builder.step(edge, parallelism=count, slot_sharing_group=second, **fields)
    return plane(builder.graph, **DEFAULT)


def ring(group, parallelism=4):
    """One region: a vertex feeds a second and a third one, pipelined, and the second one's result is stored for the third.

    The third alone has several subtasks; its last one reads what the first vertex makes.
    """
    builder = GraphBuilder("ring", group)
    first = builder.source([1], parallelism=1, slot_sharing_group=group.name)
    edge = (first, ShipStrategy.HASH, ResultPartitionType.PIPELINED)
    second = builder.step(edge, parallelism=1, slot_sharing_group=group.name)
    edges = (first, ShipStrategy.GLOBAL, ResultPartitionType.PIPELINED), (second, ShipStrategy.HASH)
    builder.step(*edges, parallelism=parallelism, slot_sharing_group=group.name)
    return builder.graph
