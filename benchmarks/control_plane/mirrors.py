"""What speculation is worth, in virtual time: makespans on simulated clusters with a slow or a frozen node.

No Spark and no clock: the same seeds give the same table. Each figure is a ratio to the same job on the healthy nodes
alone, without speculation; 1.00 means that the bad node costs nothing but its slots.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from firesteel.model.job_graph import JobGraph
from firesteel.options import Options
from firesteel.scheduler.inputs import Inputs
from firesteel.scheduler.scheduler import create_scheduler
from firesteel.simulation.cluster.nodes import ClusterSpec
from firesteel.simulation.dice import Faults
from firesteel.simulation.job import Outcome, SimulatedJob
from firesteel.simulation.plane import World
from firesteel.simulation.workload import ChainShape, Workload

PARTITION = 1 << 30
"""Plain bytes that a subtask reads on average: 16 s on a node of full speed."""
SPECULATION = {
    "jobmanager.adaptive-batch-scheduler.speculative.enabled": True,
    "slow-task-detector.execution-time.baseline-lower-bound": "1 s",
}
"""All else as it is by default: checks each second, ratio 0.75, multiplier 1.5, two attempts, nodes blocked for 1 min."""
RULES: Mapping[str, Mapping[str, object]] = {
    "off": {},
    "seed": {**SPECULATION, "firesteel.slow-task-detector.rule": "seed"},
    "input-weighted": SPECULATION,
    "input-weighted, nothing expected": {**SPECULATION, "firesteel.slow-task-detector.expected": False},
}
"""The last is without the fallback rule, for steps in which the ratio cannot be reached."""


@dataclass(frozen=True)
class Case:
    """``waves``: subtasks for each slot. ``slow`` and ``frozen``: nodes that are bad."""

    nodes: int
    slots: int
    waves: int
    slow: int = 0
    frozen: int = 0

    @property
    def tasks(self) -> int:
        return self.nodes * self.slots * self.waves

    @property
    def name(self) -> str:
        bad = (
            f"{self.slow} of {self.nodes} at a tenth" if self.slow else f"{self.frozen} of {self.nodes} frozen for good"
        )
        return bad if self.slow or self.frozen else "all nodes alike"

    @property
    def healthy(self) -> ClusterSpec:
        return ClusterSpec(self.nodes - self.slow - self.frozen, self.slots)

    def world(self, seed: int, skewed: bool) -> World:
        return _world(ClusterSpec(self.nodes, self.slots, self.slow, 0.1), seed, skewed, self.frozen)


CASES = tuple(
    Case(nodes, slots, waves, slow, frozen)
    for nodes, slots, waves in ((10, 4, 5), (10, 4, 1), (3, 1, 10), (2, 1, 1))
    for slow, frozen in ((0, 0), (1, 0), (0, 1))
)


def main(runs: int, only: str) -> None:
    print(f"### mirrors: simulated clusters, virtual time, medians of {runs} seeds\n")
    named = ", ".join(f"{key.rsplit('.', 1)[1]} {value}" for key, value in SPECULATION.items())
    print(
        "Makespan as a ratio to the same job on the healthy nodes alone, without speculation. In brackets: mirrors, and"
    )
    print(f"those of them that were needless, as they did not win. Options: {named}.\n")
    print(f"| nodes x slots | subtasks | bytes | cluster | {' | '.join(RULES)} |")
    print("|---" * (len(RULES) + 4) + "|")
    for case in CASES:
        if only in case.name:
            for skewed in (False, True):
                print(_line(case, skewed, runs), flush=True)
    print()


def _line(case: Case, skewed: bool, runs: int) -> str:
    alone = [job(case.tasks, skewed, {}, _world(case.healthy, seed, skewed)) for seed in range(runs)]
    cells: list[str] = []
    for rule in RULES.values():
        cells.append(_cell([job(case.tasks, skewed, rule, case.world(seed, skewed)) for seed in range(runs)], alone))
    kind = "skewed" if skewed else "uniform"
    return f"| {case.nodes} x {case.slots} | {case.tasks} | {kind} | {case.name} | {' | '.join(cells)} |"


def _cell(outcomes: Sequence[Outcome], alone: Sequence[Outcome]) -> str:
    ratio = statistics.median(o.makespan / a.makespan for o, a in zip(outcomes, alone, strict=True))
    mirrors = statistics.median(o.speculation.mirrors for o in outcomes)
    needless = statistics.median(o.speculation.mirrors - o.speculation.effective for o in outcomes)
    return f"{ratio:.2f} ({mirrors:g}, {needless:g})" if mirrors else f"{ratio:.2f}"


def job(tasks: int, skewed: bool, options: Mapping[str, object], world: World) -> Outcome:
    """Two steps of equal parallelism, all-to-all."""
    shape = ChainShape(2, tasks, partition_bytes=PARTITION)
    graph = shape.job_graph()
    if skewed:
        _skew(graph, world.seed)
    scheduler = create_scheduler(
        graph, Options({**shape.options(), **options}), Inputs(slots=world.cluster.total_slots)
    )
    return SimulatedJob(scheduler, world).run()


def _skew(graph: JobGraph, seed: int) -> None:
    """A few splits weigh ten times as much as most."""
    source = graph.vertices[0].source
    assert source is not None
    weights = (1 - np.random.default_rng(seed).random(len(source.split_bytes))) ** -0.7
    source.split_bytes[:] = (PARTITION * np.minimum(weights, 20.0) / 2).astype(np.int64)


def _world(spec: ClusterSpec, seed: int, skewed: bool, frozen: int = 0) -> World:
    faults = Faults(frozen_nodes=frozen)
    return World(spec, faults=faults, workload=Workload(seed, PARTITION, 0.8 if skewed else 0.0), seed=seed)
