"""Benchmark 11: slots of two sizes against slots that are all as large as the largest need.

A job of two stages, light and heavy, whose core-seconds stand 3 to 1; a subtask of the light one needs 1 core and 512 MiB,
one of the heavy 2 cores and 2 GiB. A real standalone cluster on this machine; each contender is an application of its own
with executors of the same size. "waits": subtasks sleep, so that the claimed cores need not be there and only scheduling is
measured. "burns": they compute, on no more cores than there are. Held: from a task's launch to its end, times what
its slot has; ours from the journal (SlotUsage), PySpark's from Spark's own list of tasks.
"""

from __future__ import annotations

import hashlib
import shutil
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from benchmarks.kit import ticks
from benchmarks.kit.data import BASE
from benchmarks.kit.harness import Contender, alternate

GIB = 1 << 30
LIGHT = {"cpu_cores": 1, "task_heap_memory": "512 MiB"}
HEAVY = {"cpu_cores": 2, "task_heap_memory": "2 GiB"}
JOURNALS = BASE / "resources"
AIM = 1.6
BUFFER = 1 << 20


@dataclass(frozen=True)
class Case:
    """``light``, ``heavy``: (subtasks, amount of work of each): seconds to sleep, or MiB to hash, by each core of a slot."""

    light: tuple[int, float]
    heavy: tuple[int, float]
    nodes: int
    cores: int
    """Of each node."""


CASES = {
    "waits": Case((24, 1.0), (4, 1.0), nodes=2, cores=4),
    "burns": Case((24, 700), (2, 1400), nodes=1, cores=2),
}


# --- the work ------------------------------------------------------------------------------------------------------


def work(kind: str, amount: float, threads: int) -> None:
    """The same for each of ``threads``; hashing lets go of the interpreter's lock."""
    if kind == "waits":
        time.sleep(amount)
        return
    others = [threading.Thread(target=_hash, args=(amount,)) for _ in range(threads - 1)]
    for thread in others:
        thread.start()
    _hash(amount)
    for thread in others:
        thread.join()


def _hash(mebibytes: float) -> None:
    digest, buffer = hashlib.sha256(), bytes(BUFFER)
    for _ in range(int(mebibytes)):
        digest.update(buffer)


def light_step(kind: str, amount: float) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Works once for each row."""

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                work(kind, amount, 1)
                yield pa.RecordBatch.from_arrays([pa.array([number], pa.int64())], schema=ticks.SCHEMA)

    return step


def heavy_step(kind: str, amount: float) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Works once, on two cores, whatever its rows are."""

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        work(kind, amount, 2)
        yield from batches

    return step


# --- contenders: each in a process of its own ------------------------------------------------------------------------


def firesteel(master: str, case: str, fine: bool, journal: str) -> Callable[[], Any]:
    """``fine``: a group for each stage; else one group for both, as large as the larger."""
    from firesteel import ExecutionEnvironment, SlotSharingGroup
    from firesteel.journal.file import read
    from firesteel.journal.places import journals
    from firesteel.report.fold import JobHistory
    from firesteel.spark.session.sessions import create_session

    shape = CASES[case]
    session = create_session(master, "firesteel benchmark", _conf(shape))
    options = {
        **ticks.QUIET,
        "firesteel.journal.directory": journal,
        "firesteel.executor.memory": shape.cores * 2 * GIB,
    }
    env = ExecutionEnvironment(spark=session, options=options)
    env.register_slot_sharing_group(SlotSharingGroup("light", **(LIGHT if fine else HEAVY)))  # pyright: ignore[reportArgumentType]
    env.register_slot_sharing_group(SlotSharingGroup("heavy", **HEAVY))  # pyright: ignore[reportArgumentType]
    (subtasks, amount), (heavy_subtasks, heavy_amount) = shape.light, shape.heavy

    def run() -> dict[str, Any]:
        began = time.perf_counter()
        numbers = env.from_source(ticks.Ticks([0] * subtasks)).slot_sharing_group("light")
        lit = numbers.map_in_arrow(light_step(case, amount), ticks.SCHEMA).slot_sharing_group("light")
        heavy = lit.rebalance().map_in_arrow(heavy_step(case, heavy_amount), ticks.SCHEMA)
        ended = heavy.slot_sharing_group("heavy").set_parallelism(heavy_subtasks)
        rows = ended.to_arrow().column("v").to_pylist()
        seconds = time.perf_counter() - began
        groups = JobHistory(read(journals(env.options)[-1])).groups.values()
        return {
            "seconds": seconds,
            "rows": ticks.answer(rows),
            "cores": sum(group.core_seconds for group in groups),
            "gib": sum(group.gib_seconds for group in groups),
        }

    return run


def pyspark(master: str, case: str, by_hand: bool) -> Callable[[], Any]:
    """``by_hand``: the heavy stage gets a resource profile of its own; else ``spark.task.cpus`` is 2 for all."""
    from pyspark.resource import ResourceProfileBuilder, TaskResourceRequests

    shape = CASES[case]
    spark = ticks.spark_session(master, 0, {**_conf(shape), **({} if by_hand else {"spark.task.cpus": "2"})})
    heavy_profile = ResourceProfileBuilder().require(TaskResourceRequests().cpus(2)).build if by_hand else None
    (subtasks, amount), (heavy_subtasks, heavy_amount) = shape.light, shape.heavy
    light, heavy = light_step(case, amount), heavy_step(case, heavy_amount)
    turn = 0

    def run() -> dict[str, Any]:
        nonlocal turn
        turn += 1
        context = spark.sparkContext
        context.setJobGroup(f"turn {turn}", "benchmark")
        began = time.perf_counter()
        numbers = spark.range(0, subtasks, 1, subtasks).mapInArrow(light, "v bigint")
        frame = numbers.repartition(heavy_subtasks).mapInArrow(heavy, "v bigint", profile=heavy_profile)
        rows = [row[0] for row in frame.collect()]
        seconds = time.perf_counter() - began
        slot = (1, 0.5) if by_hand else (2, 2.0)
        held = {subtasks: slot, heavy_subtasks: (2, 2.0)}
        cores = gib = 0.0
        for tasks, busy in _task_seconds(context, f"turn {turn}"):
            cores, gib = cores + busy * held[tasks][0], gib + busy * held[tasks][1]
        return {"seconds": seconds, "rows": ticks.answer(rows), "cores": cores, "gib": gib}

    return run


def _conf(shape: Case) -> dict[str, str]:
    return {
        **ticks.conf(shape.nodes * shape.cores),
        "spark.executor.cores": str(shape.cores),
    }


def _task_seconds(context: Any, group: str) -> list[tuple[int, float]]:
    """Of each stage that the group's jobs ran: its tasks, and the seconds from launch to end of all of them."""
    tracker, store = context._jsc.sc().statusTracker(), context._jsc.sc().statusStore()
    found: list[tuple[int, float]] = []
    stages = {
        stage for job in tracker.getJobIdsForGroup(group) for stage in context.statusTracker().getJobInfo(job).stageIds
    }
    for stage in sorted(stages):
        data = store.lastStageAttempt(stage)
        if data.numCompleteTasks() == 0:  # skipped: its shuffle was there
            continue
        tasks = store.taskList(stage, data.attemptId(), 100_000)
        busy = [tasks.apply(k).duration() for k in range(tasks.size())]
        found.append((len(busy), sum(float(d.get()) for d in busy) / 1000))
    return found


# --- what they are asked, and what is printed ----------------------------------------------------------------------


def main(runs: int, only: str) -> None:
    """``only``: "waits" or "burns"."""
    from tools.standalone import HOSTS, StandaloneCluster

    if only and only not in CASES:
        raise SystemExit(f"There is no case '{only}' here; there are {', '.join(CASES)}.")
    shutil.rmtree(JOURNALS, ignore_errors=True)
    for name in [only] if only else CASES:
        nodes = CASES[name].nodes
        with StandaloneCluster(hosts=HOSTS[:nodes], cores=32, memory="16g") as cluster:
            _compare(name, cluster.url, runs)


def _compare(case: str, master: str, runs: int) -> None:
    def ours(name: str, fine: bool) -> Contender:
        journal = str(JOURNALS / case / ("fine" if fine else "coarse"))
        return Contender(
            name, f"{__name__}:firesteel", {"master": master, "case": case, "fine": fine, "journal": journal}
        )

    def theirs(name: str, by_hand: bool) -> Contender:
        return Contender(name, f"{__name__}:pyspark", {"master": master, "case": case, "by_hand": by_hand})

    entered = [
        ours("Firesteel, a group for each stage", True),
        ours("Firesteel, every slot as large as the largest need", False),
        theirs("PySpark, spark.task.cpus=2", False),
        theirs("PySpark, a resource profile by hand", True),
    ]
    warm = alternate(entered, runs=runs, both_orders=True)
    if any(run["rows"] != entered[0].cold_answer["rows"] for found in warm.values() for run in found):
        raise AssertionError("the contenders give other rows")
    print(report(case, entered, warm), flush=True)


def report(case: str, entered: list[Contender], warm: dict[str, list[Any]]) -> str:
    """Markdown. Ratios are to the first contender."""
    shape = CASES[case]
    lines = [
        f"### resources: {case}; {shape.nodes} x {shape.cores} cores, {shape.light[0]} light and {shape.heavy[0]} heavy "
        "subtasks",
        "",
        "| contender | cold s | warm median s | min - max | ratio | core-s held, cold | warm | ratio | GiB-s held, cold | warm | "
        "ratio |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    medians = {c.name: {k: statistics.median(r[k] for r in warm[c.name]) for k in KEYS} for c in entered}
    base = medians[entered[0].name]
    for contender in entered:
        own = medians[contender.name]
        seconds = [run["seconds"] for run in warm[contender.name]]
        cells = [
            contender.name,
            f"{contender.cold:.2f}",
            f"{own['seconds']:.2f}",
            f"{min(seconds):.2f} - {max(seconds):.2f}",
            f"{own['seconds'] / base['seconds']:.2f}",
        ]
        for key in KEYS[1:]:
            cells += [f"{contender.cold_answer[key]:.1f}", f"{own[key]:.1f}", f"{own[key] / base[key]:.2f}"]
        lines.append(f"| {' | '.join(cells)} |")
    coarse = medians[entered[1].name]
    fewer, slower = coarse["cores"] / base["cores"], base["seconds"] / coarse["seconds"]
    aimed = "" if fewer >= AIM and slower <= 1.0 else "NOT AS AIMED: "
    lines += [
        "",
        f"{aimed}{fewer:.2f} times fewer core-seconds held (aim: {AIM}) in {slower:.2f} times the time (aim: 1).",
    ]
    return "\n".join(lines) + "\n"


KEYS = ("seconds", "cores", "gib")
