"""Benchmark 12: what the slot pool takes: matching 10,000 requests against 1,000 nodes, and its share of the driver's work.

No Spark: the pool itself is asked, beside a loop over workers in plain Python that grants the same; and a simulated job of
10,000 subtasks is run with the pool and without. All in one process.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from firesteel.model.arrays import Ints
from firesteel.model.job_graph import JobGraph, JobVertex
from firesteel.model.slot_sharing_group import SlotSharingGroup
from firesteel.options import SPECULATIVE_ENABLED, Options
from firesteel.scheduler.inputs import Inputs
from firesteel.scheduler.kernel.events import ExecutorChanged
from firesteel.scheduler.scheduler import create_scheduler
from firesteel.scheduler.slots.allocators import ExecutionDeploymentOption
from firesteel.scheduler.slots.pool import SlotPool
from firesteel.scheduler.slots.resource_profile import ResourceProfile, SlotEnforcement, SlotMode, WorkerResources
from firesteel.simulation.cluster.nodes import ClusterSpec
from firesteel.simulation.cluster.storage import StorageSpec
from firesteel.simulation.job import SimulatedJob
from firesteel.simulation.plane import World
from firesteel.simulation.workload import ChainShape, EdgeKind, Workload

REQUESTS, NODES = 10_000, 1_000
AIM_MS = 100.0
MIB = 1 << 20
NODE = WorkerResources(32.0, 128 << 30, {"gpu": 4.0})
ONE = SlotSharingGroup("one", 2.0, 4096 * MIB)
MIXED = tuple(
    SlotSharingGroup(
        f"mixed {k}",
        0.5 * (1 + k % 7),
        (1 + k % 5) * 1024 * MIB,
        external_resources={"gpu": 1.0} if k % 10 == 0 else {},
    )
    for k in range(20)
)
COARSE = SlotSharingGroup("coarse")


@dataclass(frozen=True)
class Case:
    """``groups``: asked for in turn, equally many of each. ``full``: slots of the first group each node holds before."""

    name: str
    groups: tuple[SlotSharingGroup, ...]
    full: int = 0


CASES = (
    Case("one profile", (ONE,)),
    Case("20 profiles", MIXED),
    Case("UNKNOWN", (COARSE,)),
    Case("nodes nearly full, one profile", (ONE,), full=15),
    Case("nodes nearly full, 20 profiles", (*MIXED[1:], MIXED[0]), full=31),
)


WHO_WAITS: dict[str, tuple[SlotEnforcement | None, bool]] = {
    "all are deployed at once, without resources": (None, False),
    "... with resources, on the executors there are": (SlotEnforcement.TASK_PROFILES, False),
    "... with resources, executors are made for them": (SlotEnforcement.EXECUTOR_PROFILES, False),
    "as many as there are slots, without resources": (None, True),
    "... the slot pool, with resources": (SlotEnforcement.POOL, True),
}
"""Who enforces, and whether only what has a slot is deployed (without resources: as where speculation is on in a session that
serves its jobs in order)."""


class PlainLoop:
    """First fit, a request at a time, each against the workers in their order. ``goes_on``: a request begins with the
    worker at which the last of its profile ended, which a loop may where nothing is given back meanwhile."""

    def __init__(self, workers: Sequence[WorkerResources], goes_on: bool) -> None:
        self._free = [[w.cpu_cores, float(w.memory), *w.external.values()] for w in workers]
        self._share = [[w.cpu_cores / int(w.cpu_cores), w.memory / int(w.cpu_cores), 0.0] for w in workers]
        self.goes_on = goes_on

    def allocate(self, group: SlotSharingGroup, count: int) -> list[int]:
        """The workers of those that got a slot."""
        profile = ResourceProfile.of(group)
        need = [profile.cpu_cores, float(profile.memory), dict(profile.external).get("gpu", 0.0)]
        found: list[int] = []
        start = 0
        for _ in range(count):
            for number in range(start, len(self._free)):
                free = self._free[number]
                own = need if profile.is_specified else self._share[number]
                if free[0] >= own[0] and free[1] >= own[1] and free[2] >= own[2]:
                    self._free[number] = [free[0] - own[0], free[1] - own[1], free[2] - own[2]]
                    found.append(number)
                    start = number if self.goes_on else 0
                    break
            else:
                break  # no other of this profile will find one either
        return found


def main(runs: int, only: str = "") -> None:
    if only in ("", "matching"):
        print(f"### slots: {REQUESTS:,} requests against {NODES:,} nodes, milliseconds, medians of {max(runs, 5)}\n")
        print("| requests | granted | pool | given back | loop | loop that goes on | loop / pool | goes on / pool |")
        print("|---|---:|---:|---:|---:|---:|---:|---:|")
        for case in CASES:
            print(_matching(case, max(runs, 5)), flush=True)
        print(f"\nAim: {AIM_MS:.0f} ms.\n")
    if only in ("", "driver"):
        print(
            f"### slots: a job of {REQUESTS:,} subtasks, the scheduler's time for each, microseconds, best of {runs}\n"
        )
        print("| what is deployed | finishes told together | one by one | against without resources |")
        print("|---|---:|---:|---:|")
        print(*_driver(runs), sep="\n", flush=True)
        print()


# --- matching ------------------------------------------------------------------------------------------------------


def _matching(case: Case, runs: int) -> str:
    asked = [len(part) for part in np.array_split(np.arange(REQUESTS), len(case.groups))]
    pool_seconds: list[float] = []
    back_seconds: list[float] = []
    granted: list[list[str]] = []
    for _ in range(runs + 1):  # the first is not counted
        pool = _pool(case)
        granted, seconds, rows = _ask(pool, asked)
        pool_seconds.append(seconds)
        back_seconds.append(_timed(lambda pool=pool, rows=rows: [pool.ended(own) for own in rows]))
    looped = [_looped(case, asked, goes_on=False) for _ in range(1 if case.full else min(runs, 3))]
    goes_on = [_looped(case, asked, goes_on=True) for _ in range(runs)]
    for found, _ in (*looped, *goes_on):
        assert found == granted, f"{case.name}: the loop grants others"
    mine, back = statistics.median(pool_seconds[1:]), statistics.median(back_seconds[1:])
    loop, quick = (statistics.median(seconds for _, seconds in ran) for ran in (looped, goes_on))
    return (
        f"| {case.name} | {sum(map(len, granted)):,} | {1e3 * mine:.2f} | {1e3 * back:.2f} | {1e3 * loop:,.0f} "
        f"| {1e3 * quick:.1f} | {loop / mine:,.0f} | {quick / mine:.1f} |"
    )


def _pool(case: Case) -> SlotPool:
    vertices = [JobVertex(n, g.name, g.name, slot_sharing_group=g.name) for n, g in enumerate(case.groups)]
    pool = SlotPool(JobGraph("slots", vertices, [], {g.name: g for g in case.groups}), SlotMode(SlotEnforcement.POOL))
    for number in range(NODES):
        pool.workers.change(
            ExecutorChanged(
                at=0.0,
                executor=f"w{number}",
                host=f"n{number}",
                slots=32,
                added=True,
                resources=NODE,
                node=f"n{number}",
            )
        )
    if case.full:
        rows = np.arange(REQUESTS, REQUESTS + case.full * NODES)
        pool.allocate_slots_for(ExecutionDeploymentOption(0, np.arange(len(rows)), rows))
    return pool


def _ask(pool: SlotPool, asked: Sequence[int]) -> tuple[list[list[str]], float, list[Ints]]:
    """Names of the workers by request, seconds, and the rows that got a slot."""
    rows = np.split(np.arange(sum(asked)), np.cumsum(asked)[:-1])
    options = [ExecutionDeploymentOption(n, np.arange(len(own)), own) for n, own in enumerate(rows)]
    began = time.perf_counter()
    granted = [pool.allocate_slots_for(option) for option in options]
    seconds = time.perf_counter() - began
    names = [pool.workers_of(option.executions) for option in granted]
    return names, seconds, [option.executions for option in granted]


def _looped(case: Case, asked: Sequence[int], *, goes_on: bool) -> tuple[list[list[str]], float]:
    loop = PlainLoop([NODE] * NODES, True)
    loop.allocate(case.groups[0], case.full * NODES)
    loop.goes_on = goes_on
    began = time.perf_counter()
    found = [loop.allocate(group, count) for group, count in zip(case.groups, asked, strict=True)]
    seconds = time.perf_counter() - began
    return [[f"w{number}" for number in numbers] for numbers in found], seconds


# --- the driver's cost ---------------------------------------------------------------------------------------------


def _driver(runs: int) -> list[str]:
    lines: list[str] = []
    without = 0.0
    for who, (mode, bounded) in WHO_WAITS.items():
        bulk = min(_scheduler_seconds(mode, bounded, one_by_one=False) for _ in range(runs)) / REQUESTS
        each = min(_scheduler_seconds(mode, bounded, one_by_one=True) for _ in range(runs)) / REQUESTS
        without = each if mode is None else without
        lines.append(f"| {who} | {1e6 * bulk:.1f} | {1e6 * each:.1f} | {each / without:.2f} |")
    return lines


def _scheduler_seconds(enforcement: SlotEnforcement | None, bounded: bool, *, one_by_one: bool) -> float:
    """Of all that the scheduler does in a job of one step, on 50 nodes with room for 16 of its executions each."""
    shape = ChainShape(vertices=1, parallelism=REQUESTS, edge=EdgeKind.ALL_TO_ALL)
    graph = shape.job_graph()
    workers: tuple[WorkerResources, ...] = ()
    if enforcement is not None:
        graph.slot_sharing_groups = {"default": SlotSharingGroup("default", 2.0, 4096 * MIB)}
        workers = (WorkerResources(32.0, 64 << 30),)
    mode = SlotMode(enforcement or SlotEnforcement.POOL, enforcement is SlotEnforcement.EXECUTOR_PROFILES)
    cluster = ClusterSpec(50, 16, workers=workers, mode=mode)
    options = Options(shape.options() | ({SPECULATIVE_ENABLED.key: True} if bounded else {}))
    scheduler = create_scheduler(graph, options, Inputs(slots=cluster.total_slots, in_order=bounded, slot_mode=mode))
    handle, spent = scheduler.handle, [0.0]

    def timed(event):  # type: ignore[no-untyped-def]
        began = time.perf_counter()
        commands = handle(event)
        spent[0] += time.perf_counter() - began
        return commands

    scheduler.handle = timed  # type: ignore[method-assign]
    world = World(cluster, StorageSpec(), workload=Workload(1, shape.partition_bytes), one_by_one=one_by_one)
    outcome = SimulatedJob(scheduler, world).run()
    assert outcome.status.value == "FINISHED", outcome
    return spent[0]


def _timed(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began
