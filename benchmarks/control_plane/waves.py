"""Slot time that a source's subtasks use, by how they are cut into waves, on a simulated cluster of four nodes with four slots each.

``by volume``: as many subtasks as the volume per task asks for; ``even``: whole waves of equal subtasks; ``falling``: later waves
smaller, as decided by default. Each subtask of the simulation takes 20 ms to start, and up to 10 % more or less than its bytes say.
"""

from __future__ import annotations

import numpy as np

from firesteel.model.job_graph import JobGraph, JobVertex, SourceInfo
from firesteel.options import Options
from firesteel.report.explain import uses
from firesteel.report.fold import JobFold
from firesteel.scheduler.inputs import Inputs
from firesteel.scheduler.kernel.records import JournalRecord
from firesteel.scheduler.scheduler import create_scheduler
from firesteel.scheduler.topology.planned import planned
from firesteel.simulation.cluster.nodes import ClusterSpec
from firesteel.simulation.job import SimulatedJob
from firesteel.simulation.plane import World

VOLUMES = (17, 20, 36, 48, 100)
SPLIT = 4 << 20
CLUSTERS = {
    "alike": ClusterSpec(nodes=4, slots=4),
    "one at half speed": ClusterSpec(nodes=4, slots=4, slow_nodes=1, slow_factor=0.5),
}


class _Kept:
    def __init__(self) -> None:
        self.records: list[JournalRecord] = []

    def record(self, record: JournalRecord) -> None:
        self.records.append(record)

    def close(self) -> None:
        """Nothing is open."""


def main(runs: int, only: str = "") -> None:
    print("### waves: seconds, subtasks and slot time used, of a source on 16 slots\n")
    print("| times 64 MiB | nodes | by volume | even | falling |\n|---|---|---|---|---|")
    for volumes in VOLUMES:
        for name, cluster in CLUSTERS.items():
            if only in ("", name, str(volumes)):
                cells = [_cell(volumes, cluster, runs, kind) for kind in ("by volume", "even", "falling")]
                print(f"| {volumes} | {name} | {' | '.join(cells)} |", flush=True)
    print()


def _cell(volumes: int, cluster: ClusterSpec, runs: int, kind: str) -> str:
    found = [_run(volumes, cluster, seed, kind) for seed in range(max(runs, 5))]
    seconds, subtasks, used = (float(np.mean([each[place] for each in found])) for place in range(3))
    return f"{seconds:.2f} s, {subtasks:.0f}, {100 * used:.0f} %"


def _run(volumes: int, cluster: ClusterSpec, seed: int, kind: str) -> tuple[float, int, float]:
    """Seconds from the first launch to the last end, subtasks, and the share of the slots' time that they used."""
    vertex = JobVertex(0, "source", "uid", source=SourceInfo(np.full(16 * volumes, SPLIT)), has_sink=kind == "even")
    graph = JobGraph("waves", [vertex], [])
    options = Options({"firesteel.decider.least-volume-per-slot": "0 b"} if kind == "by volume" else {})
    kept = _Kept()
    kept.record(planned(graph, "waves", options))
    scheduler = create_scheduler(graph, options, Inputs(slots=cluster.total_slots))
    SimulatedJob(scheduler, World(cluster, seed=seed, heartbeat=0.0), kept).run()
    use = uses(JobFold(kept.records))[0]
    return use.seconds, scheduler.graph.vertices[0].parallelism, use.used
