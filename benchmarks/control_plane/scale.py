"""Benchmark 6: what the control plane takes, 10,000 x 10,000 against Flink, and from 1,000 to 1,000,000 subtasks.

No Spark: the Scheduler itself is handed its events, and its commands are dropped. All in one process.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.control_plane import plot
from benchmarks.control_plane.scale_phases import EDGES, Shape, held_bytes, one_by_one, regions, run

N = 10_000
SIZES = (1_000, 4_000, 16_000, 64_000, 250_000, 1_000_000)
MAX_SLOPE = 1.1
PLOT = Path(__file__).resolve().parents[2] / "docs" / "scale.svg"
Phases = Mapping[str, float]
"""Seconds by phase."""
LINES = {
    "build": ("build",),
    "regions": ("regions",),
    "start and schedule": ("start",),
    "sources finish, one event each": ("each",),
    "sources finish, in bulk": ("finish",),
    "last source, consumers scheduled": ("last", "decide"),
    "deployments of all consumers": ("deploy",),
    "failover set of one source": ("failover",),
    "all consumers finish, release": ("finish consumers", "release"),
}
"""What is drawn, and the phases that make it up."""


@dataclass(frozen=True)
class Figure:
    phase: str
    flink: str
    aim: str
    ours: str


def main(runs: int, only: str, *, draw: bool = False) -> None:
    if only in ("", "figures"):
        print(figures(runs), flush=True)
    if only in ("", "large"):
        print(large(), flush=True)
    if only in ("", "growth", *EDGES):
        edges = (only,) if only in EDGES else EDGES
        grown = {edge: growth(edge, min(runs, 3)) for edge in edges}
        if draw:
            panels = {edge: {name: _points(grown[edge], name) for name in _drawn(grown[edge])} for edge in edges}
            PLOT.write_text(plot.log_log(panels, "subtasks of each of the two vertices", "milliseconds"))
            print(f"The plot is in {PLOT}.", flush=True)


# --- 10,000 x 10,000 ----------------------------------------------------------------------------------------------


def figures(runs: int) -> str:
    """The table of the issue, with a column of our own: medians of ``runs`` jobs."""
    static, each = (_medians(Shape(N, bulk=bulk), runs) for bulk in (True, False))
    dynamic = _medians(Shape(N, dynamic=True), runs)
    dynamic_each = _medians(Shape(N, dynamic=True, bulk=False), runs)
    sized = _medians(Shape(N, dynamic=True, sizes=True), runs)
    travels = run(Shape(N)).descriptors
    assert travels is not None
    alone = statistics.median(regions(Shape(N)) for _ in range(runs))
    graph, with_sizes = held_bytes(Shape(N)), held_bytes(Shape(N, dynamic=True, sizes=True))
    taken = sized["finish"] + sized["last"] + sized["decide"]
    rows = [
        Figure("build execution graph with topology and regions", "140 ms", "10 ms", _ms(static["build"])),
        Figure("pipelined regions alone", "30 ms (blog: 8,257 to 120)", "3 ms", _ms(alone)),
        Figure("start the strategy and schedule all sources", "92 ms", "10 ms", _ms(static["start"])),
        Figure("all sources finish, no sizes, one event each, static", "1,222 ms", "80 ms", _ms(each["finish"])),
        Figure("... dynamic", "24 ms", "80 ms", _ms(dynamic_each["finish"])),
        Figure("... in bulk, static", "", "3 ms", _ms(static["finish"])),
        Figure("... in bulk, dynamic", "", "3 ms", _ms(dynamic["finish"])),
        Figure("sizes of all sources taken in, consumer decided with byte ranges", "289 ms", "250 ms", _ms(taken)),
        Figure("... of which the decision from folded sums", "265 ms", "20 ms", _ms(sized["decide"])),
        Figure("initialise the consumers", "73 ms", "5 ms", _ms(sized["initialise"])),
        Figure("last source finishes, consumers scheduled", "11 ms", "3 ms", _ms(static["last"])),
        Figure("... and its ranges are cut (static, by bytes)", "", "", _ms(static["decide"])),
        Figure("create all consumer deployments (bulk)", "109 ms", "10 ms", _ms(static["deploy"])),
        Figure("one consumer's deployment", "208,886 B, 6,602 with the blob", "1,000 B", f"{travels.consumer:,} B"),
        Figure(
            "descriptor group, raw to compressed",
            "1,054,519 to 202,729 B",
            "40,000 B",
            f"{travels.group_raw:,} to {travels.group:,} B",
        ),
        Figure("failover set of one source (10,001 tasks)", "19 ms", "1 ms", _ms(static["failover"])),
        Figure("release decisions, all consumers finish (bulk)", "20 ms", "3 ms", _ms(static["release"])),
        Figure("... with the consumers' finishing", "", "", _ms(static["release"] + static["finish consumers"])),
        Figure("memory: graph", "50 MiB", "3 MiB", _mib(graph)),
        Figure("memory: with the sizes of a dynamic job", "821 MiB", "5 MiB", _mib(with_sizes)),
    ]
    lines = [
        f"### scale: 10,000 x 10,000, all-to-all, blocking, medians of {runs}",
        "",
        "| phase | Flink | aim | Firesteel |",
    ]
    lines += ["|---|---|---|---|", *(f"| {r.phase} | {r.flink} | {r.aim} | {r.ours} |" for r in rows), ""]
    return "\n".join(lines)


def large() -> str:
    """1,000,000 x 1,000,000."""
    shape = Shape(1_000_000)
    built = min(run(shape).seconds["build"] for _ in range(2))
    lines = ["### scale: 1,000,000 x 1,000,000, all-to-all", "", "| what | aim | Firesteel |", "|---|---|---|"]
    lines += [f"| build | 1,000 ms | {_ms(built)} |", f"| memory of the graph | 200 MiB | {_mib(held_bytes(shape))} |"]
    return "\n".join([*lines, ""])


def _medians(shape: Shape, runs: int) -> Phases:
    run(shape)  # warm
    return _together([run(shape).seconds for _ in range(runs)], statistics.median)


def _together(phases: Sequence[Phases], of: Callable[[list[float]], float]) -> Phases:
    return {name: of([p.get(name, 0.0) for p in phases]) for name in phases[0]}


# --- time against n -----------------------------------------------------------------------------------------------


def growth(edge: str, runs: int) -> dict[int, Phases]:
    """Prints as it goes: milliseconds per phase (the best of ``runs``) against n, and the slope on log-log paper."""
    measured = {n: _phases(Shape(n, edge), runs if n <= 100_000 else 1) for n in SIZES}
    names = _drawn(measured)
    lines = [f"### scale: milliseconds against n, {edge} (slope at most {MAX_SLOPE})", ""]
    lines += [f"| phase | {' | '.join(f'{n:,}' for n in SIZES)} | slope |", "|---" * (len(SIZES) + 2) + "|"]
    for name in names:
        points = _points(measured, name)
        cells = " | ".join(f"{y:,.2f}" for _, y in points)
        lines.append(f"| {name} | {cells} | {slope(points):.2f} |")
    print("\n".join([*lines, ""]), flush=True)
    return measured


def slope(points: plot.Points) -> float:
    """Of the line that fits best on log-log paper."""
    x, y = np.log(np.array(points)).T
    return float(np.polyfit(x, y, 1)[0])


def _phases(shape: Shape, runs: int) -> Phases:
    found = dict(_together([run(shape).seconds for _ in range(runs)], min))
    found["regions"] = min(regions(shape) for _ in range(runs))
    found["each"] = min(one_by_one(shape) for _ in range(runs))
    return found


def _drawn(measured: Mapping[int, Phases]) -> list[str]:
    known = set.intersection(*(set(phases) for phases in measured.values()))
    return [name for name, parts in LINES.items() if known.intersection(parts)]


def _points(measured: Mapping[int, Phases], name: str) -> list[tuple[float, float]]:
    return [(n, 1e3 * sum(phases.get(part, 0.0) for part in LINES[name])) for n, phases in measured.items()]


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.2f} ms"


def _mib(count: int) -> str:
    return f"{count / 2**20:,.1f} MiB"
