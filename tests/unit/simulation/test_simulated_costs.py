"""A simulated job run again with what its first run measured: what is decided differs, and takes no longer."""

from __future__ import annotations

import pytest
from tests.simulation.job import SimulatedJob

from firesteel.model.costs import NO_COSTS, MeasuredStep, StepCost, StepCosts
from firesteel.options import Options
from firesteel.scheduler.inputs import Inputs
from firesteel.scheduler.scheduler import create_scheduler
from firesteel.simulation.cluster.nodes import ClusterSpec
from firesteel.simulation.cluster.storage import StorageSpec
from firesteel.simulation.plane import World
from firesteel.simulation.workload import ChainShape, EdgeKind, Workload

CLUSTER = ClusterSpec(4, 4)


def run(shape, costs, **options):
    """Returns virtual seconds, the subtasks of each step, and what it cost."""
    graph = shape.job_graph()
    for vertex in graph.vertices:
        vertex.step = vertex.uid
    chosen = Options(shape.options() | {key.replace("_", "-"): value for key, value in options.items()})
    scheduler = create_scheduler(graph, chosen, Inputs(slots=CLUSTER.total_slots, costs=costs))
    world = World(CLUSTER, StorageSpec(), workload=Workload(1, shape.partition_bytes))
    outcome = SimulatedJob(scheduler, world).run()
    assert outcome.status.value == "FINISHED"
    vertices = scheduler.graph.vertices
    measured = {v.job.step: MeasuredStep(scheduler.graph.bytes_consumed(v), v.busy_seconds) for v in vertices}
    found = {step: StepCost.of([one]) for step, one in measured.items()}
    known = StepCosts({step: cost for step, cost in found.items() if cost is not None})
    return outcome, [v.parallelism for v in vertices], known


@pytest.mark.parametrize("edge", [EdgeKind.ALL_TO_ALL, EdgeKind.POINTWISE])
@pytest.mark.parametrize(
    ("kib", "volume", "fewer"),
    [
        (1024, "1 MiB", True),  # waves of subtasks that take a fraction of the target
        (64, "64 MiB", False),  # one subtask that leaves slots idle
    ],
)
def test_a_second_run_is_decided_by_what_the_first_measured_and_no_slower(edge, kib, volume, fewer):
    shape = ChainShape(vertices=3, parallelism=64, edge=edge, partition_bytes=kib << 10)
    options = {"data_volume_per_task": volume, "target_task_duration": "250 ms" if fewer else "10 ms"}
    first, before, known = run(shape, NO_COSTS, **options)
    assert set(known.by_step) == {"uid-0", "uid-1", "uid-2"}
    second, after, _ = run(shape, known, **options)
    assert all((a < b) if fewer else (a > b) for a, b in zip(after[1:], before[1:], strict=True)), (before, after)
    assert all(n % CLUSTER.total_slots == 0 for n in after[1:]) or not fewer
    assert second.makespan <= 1.03 * first.makespan
