"""Benchmark 11: what a check of the slow task detector costs, beside a loop over the executions in plain Python.

One vertex, four fifths of it finished, the rest running for so long that all of them have to be looked at. No Spark.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable

import numpy as np

from firesteel.model.job_graph import JobGraph, JobVertex, SourceInfo
from firesteel.options import Options
from firesteel.scheduler.inputs import DirectInputs
from firesteel.scheduler.kernel.states import ExecutionState
from firesteel.scheduler.speculation.detector import SlowTaskDetector
from firesteel.scheduler.topology.execution_graph import DefaultExecutionGraph, ExecutionJobVertex, VertexInitialization
from firesteel.scheduler.topology.executions import ExecutionTable

RUNNING = (10_000, 100_000)
FINISHED_PER_RUNNING = 4
NOW = 200.0
LEAST_CHECKS = 20
S = ExecutionState


def graph_of(running: int) -> DefaultExecutionGraph:
    """A thousand finished vertices, and one of which ``running`` subtasks run, each hundredth far too long."""
    vertices = [
        JobVertex(number, f"step {number}", f"uid-{number}", source=SourceInfo(np.ones(1, np.int64)))
        for number in range(1001)
    ]
    table = ExecutionTable()
    graph = DefaultExecutionGraph(JobGraph("detector", vertices, []), table)
    for number in range(1000):
        graph.initialize_job_vertex(VertexInitialization(number, 1, {}, (), np.ones(1, np.int64)), 0.0)
        _finish(table, graph.vertices[number], 1)
    rng = np.random.default_rng(7)
    n = running * (1 + FINISHED_PER_RUNNING)
    read = rng.integers(1 << 20, 1 << 28, n)
    vertex = graph.initialize_job_vertex(VertexInitialization(1000, n, {}, (), read), 0.0)
    _finish(table, vertex, n - running)
    rows = vertex.newest[n - running :]
    for state in (S.SCHEDULED, S.DEPLOYING, S.RUNNING):
        table.transition(rows, state, np.where(np.arange(running) % 100, NOW - 70.0 - rng.random(running), 0.0))
    return graph


def _finish(table: ExecutionTable, vertex: ExecutionJobVertex, count: int) -> None:
    rows = vertex.newest[:count]
    for state in (S.SCHEDULED, S.DEPLOYING, S.RUNNING):
        table.transition(rows, state, 0.0)
    assert vertex.input_bytes is not None
    took = 50.0 + vertex.input_bytes[:count] / (1 << 26)
    table.transition(rows, S.FINISHED, took)
    vertex.winner[:count] = rows
    vertex.num_finished = count


def by_loop(graph: DefaultExecutionGraph, weighted: bool, ratio: float, multiplier: float, least: float) -> int:
    """The same rules, one execution after the other; returns how many are slow."""
    table, found = graph.executions, 0
    for vertex in graph.vertices:
        if vertex.is_finished or vertex.input_bytes is None:
            continue
        needed = math.ceil(vertex.parallelism * ratio)
        finished: list[tuple[float, float, int]] = []
        running: list[tuple[float, int]] = []
        for subtask, row in enumerate(vertex.newest.tolist()):
            state, read = table.state[row], int(vertex.input_bytes[subtask])
            deployed = table.stamps[S.DEPLOYING].item(row)
            if state == S.FINISHED:
                ended = table.stamps[S.FINISHED].item(row)
                finished.append(((ended - deployed) / read if weighted else ended, ended - deployed, read))
            elif state in (S.DEPLOYING, S.RUNNING):
                running.append((NOW - deployed, read))
        if len(finished) < needed:
            continue
        chosen = sorted(finished)[:needed]
        times = sorted(seconds for _, seconds, _ in chosen)
        usual = times[needed // 2]
        rate = sorted(seconds / read for _, seconds, read in chosen)[needed // 2] if weighted else 0.0
        found += sum(elapsed >= max(multiplier * max(rate * read, usual), least) for elapsed, read in running)
    return found


def _median_ms(work: Callable[[], object], times: int) -> float:
    def once() -> float:
        started = time.perf_counter()
        work()
        return (time.perf_counter() - started) * 1e3

    return statistics.median(once() for _ in range(times))


def _measure(running: int, rule: str, runs: int) -> str:
    graph = graph_of(running)
    detector = SlowTaskDetector(Options({"firesteel.slow-task-detector.rule": rule}), graph, DirectInputs())

    def changed() -> None:
        # As if there were a row more, a restart: what is usual is taken anew.
        graph.executions.size += 1
        detector.slow_tasks(NOW)

    found = sum(len(tasks.rows) for tasks in detector.slow_tasks(NOW))
    checks = max(runs, LEAST_CHECKS)
    again = _median_ms(lambda: detector.slow_tasks(NOW), checks)
    anew = _median_ms(changed, checks)
    loop = _median_ms(lambda: by_loop(graph, rule != "seed", 0.75, 1.5, 60.0), 3)
    assert by_loop(graph, rule != "seed", 0.75, 1.5, 60.0) == found, "the loop finds others"
    return f"| {running:,} | {rule} | {found:,} | {anew:.2f} | {again:.2f} | {loop:.0f} | {loop / anew:.0f} |"


def main(runs: int, only: str) -> None:
    """Prints the table of docs/benchmarks.md."""
    print("\n### detector: one check, milliseconds, medians\n")
    print("| running | rule | slow | a subtask has finished | nothing has changed | Python loop | loop / detector |")
    print("|---:|---|---:|---:|---:|---:|---:|")
    for running in RUNNING:
        for rule in ("input-weighted", "seed"):
            if only in (rule, "", f"{running}"):
                print(_measure(running, rule, runs), flush=True)
