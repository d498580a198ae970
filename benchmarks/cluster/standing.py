"""Benchmark 3 on a cluster: 1,000 tiny subtasks in standing tasks, without these, and bare, in turns in one session.

A real standalone cluster of two nodes with two slots each; the driver is this process, whose CPU (without the JVM's) is told besides.
"""

from __future__ import annotations

import statistics
import time

from benchmarks.jobs.tasks import SHAPES, bare, firesteel
from benchmarks.kit import ticks
from benchmarks.kit.harness import temporary_folder

HOSTS = ("127.0.0.2", "127.0.0.3")
OFF = {"firesteel.standing-tasks": "false"}


def main(runs: int, only: str) -> None:
    """``only``: a contender."""
    from tools.standalone import StandaloneCluster

    with StandaloneCluster(hosts=HOSTS, cores=2) as cluster, temporary_folder("standing") as folder:
        ticks.environment(cluster.url, 4, {})  # the session of this process, from now on
        stored = {"firesteel.storage.directory": str(folder)}
        for producers, consumers in SHAPES:
            entered = {
                "bare runJob": bare(producers, consumers, cluster.url),
                "Firesteel": firesteel(producers, consumers, cluster.url, stored),
                "Firesteel, no standing tasks": firesteel(producers, consumers, cluster.url, {**stored, **OFF}),
            }
            told: dict[str, list[tuple[float, float]]] = {name: [] for name in entered if only in name}
            for turn in range(1 + runs):
                for name, counted in told.items():
                    wall, cpu = time.perf_counter(), time.process_time()
                    entered[name]()
                    if turn:
                        counted.append((time.perf_counter() - wall, time.process_time() - cpu))
            print(f"### standing: {producers} producers, {consumers} consumers, two nodes of two slots\n")
            print("| contender | median s | min - max | driver's CPU s | ratio |\n|---|---|---|---|---|")
            first = statistics.median(wall for wall, _ in next(iter(told.values())))
            for name, counted in told.items():
                walls, cpus = zip(*counted, strict=True)
                middle = statistics.median(walls)
                spread = f"{min(walls):.2f} - {max(walls):.2f}"
                print(f"| {name} | {middle:.2f} | {spread} | {statistics.median(cpus):.2f} | {middle / first:.2f} |")
            print(flush=True)
