"""Random slot sharing groups for random jobs, and random workers on which each of them can run: or, on purpose, cannot."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace

from tests.simulation.faults import Faults

from firesteel.model.job_graph import JobGraph
from firesteel.model.slot_sharing_group import SlotSharingGroup
from firesteel.scheduler.slots.resource_profile import SlotEnforcement, SlotMode, WorkerResources
from firesteel.simulation.cluster.nodes import ClusterSpec, ExecutorSpec

MIB = 1 << 20
MOST_TASKS = 64
"""More than a region ever has."""
IMPOSSIBLE = "1000 cores"
"""Resources of a group that no worker can ever hold, in words."""
SPARE = 2
"""Workers have so many times the memory that a group asks for: some of it goes to network memory."""


@dataclass(frozen=True, slots=True)
class Resources:
    """``late_nodes``: as in ``Faults``. ``impossible``: the name of a group that no worker can ever hold; empty: there is none."""

    cluster: ClusterSpec
    late_nodes: int
    impossible: str


def give_resources(rng: random.Random, graph: JobGraph, faults: Faults, *, pipelined: bool = False) -> Resources:
    """Puts the graph's vertices into up to three groups, at least one of them with resources. Each fits some worker; each
    worker, where workers may go for good."""
    mode = _mode(rng)
    workers = [_worker(rng, mode.enforcement) for _ in range(rng.randint(2, 5))]
    late = int(mode.grows and rng.random() < 0.3)
    if late:  # what was left to Spark before a worker of another shape came may start there
        workers[-1] = workers[0]
    for_good = bool(faults.freeze_every) and not math.isfinite(faults.freeze_for)
    bounds = _least_of(workers) if for_good else rng.choice(workers)
    if pipelined:  # each worker alone has room for a whole region
        workers = [_large(worker) for worker in workers]
        bounds = WorkerResources(4.0, 2048 * MIB, {"gpu": 1.0})
    groups = [_group(rng, name, bounds) for name in ("light", "heavy", "other")[: rng.randint(1, 3)]]
    if not any(group.has_resources for group in groups):
        groups[0] = _sized(rng, groups[0].name, bounds)
    impossible = groups[-1].name if rng.random() < 0.08 and not mode.grows else ""
    if impossible:
        groups[-1] = replace(_sized(rng, impossible, bounds), cpu_cores=1000.0)  # as IMPOSSIBLE says
    graph.slot_sharing_groups = {group.name: group for group in groups}
    for vertex in graph.vertices:
        vertex.slot_sharing_group = rng.choice(groups).name
    if impossible:
        rng.choice(graph.vertices).slot_sharing_group = impossible
    cluster = ClusterSpec(
        nodes=len(workers),
        slots=MOST_TASKS if pipelined else 2,
        slow_nodes=rng.randint(0, 1),
        workers=tuple(workers),
        mode=mode,
        executors=ExecutorSpec(rng.randint(1, 4), 256 * MIB, rng.choice([0.0, 2.0]), rng.choice([1.0, 10.0])),
    )
    return Resources(cluster, late, impossible)


def _mode(rng: random.Random) -> SlotMode:
    enforcement = rng.choice(list(SlotEnforcement))
    grows = enforcement is SlotEnforcement.EXECUTOR_PROFILES
    if enforcement is SlotEnforcement.TASK_PROFILES:
        grows = rng.random() < 0.3
    return SlotMode(enforcement, grows)


def _worker(rng: random.Random, enforcement: SlotEnforcement) -> WorkerResources:
    memory = rng.choice([1, 2, 8]) * 1024 * MIB
    gpus = rng.choice([0, 0, 1, 2, 4])
    addresses: dict[str, tuple[str, ...]] = {}
    if enforcement is SlotEnforcement.POOL and gpus:
        addresses["gpu"] = tuple(str(number) for number in range(gpus))
    external = {"gpu": float(gpus)} if gpus else {}
    return WorkerResources(float(rng.choice([1, 2, 4, 6])), memory, external, addresses=addresses)


def _large(worker: WorkerResources) -> WorkerResources:
    addresses = {"gpu": tuple(map(str, range(MOST_TASKS)))} if worker.addresses else {}
    return WorkerResources(4.0 * MOST_TASKS, 2048 * MIB * MOST_TASKS, {"gpu": float(MOST_TASKS)}, addresses=addresses)


def _least_of(workers: list[WorkerResources]) -> WorkerResources:
    gpus = min(worker.external.get("gpu", 0.0) for worker in workers)
    return WorkerResources(
        min(worker.cpu_cores for worker in workers),
        min(worker.memory for worker in workers),
        {"gpu": gpus} if gpus else {},
    )


def _group(rng: random.Random, name: str, bounds: WorkerResources) -> SlotSharingGroup:
    return SlotSharingGroup(name) if rng.random() < 0.25 else _sized(rng, name, bounds)


def _sized(rng: random.Random, name: str, bounds: WorkerResources) -> SlotSharingGroup:
    """At most what a worker of these bounds can hold."""
    memory = bounds.memory // SPARE
    heap = rng.choice([MIB, memory // 8, memory // 2])
    left = memory - heap
    gpus = rng.randint(0, int(bounds.external.get("gpu", 0.0)))
    return SlotSharingGroup(
        name,
        cpu_cores=rng.choice([0.5, 1.0, *(float(n) for n in range(1, int(bounds.cpu_cores) + 1))]),
        task_heap_memory=heap,
        task_off_heap_memory=rng.choice([0, left // 4]),
        managed_memory=rng.choice([0, left // 4, left // 2]),
        external_resources={"gpu": float(gpus)} if gpus else {},
    )
