"""The sweep behind the default of ``data-volume-per-task``: the same jobs over a range of volumes."""

from __future__ import annotations

import statistics

from benchmarks.kit.harness import Contender, compete

VOLUMES = ("4 MiB", "8 MiB", "16 MiB", "32 MiB", "64 MiB", "128 MiB")
CASES = ("groupby", "apply", "join", "skewed")


def main(runs: int, only: str) -> None:
    print("### sweep: seconds (warm median) against data-volume-per-task\n")
    print("| case | " + " | ".join(VOLUMES) + " |\n|---|" + "---|" * len(VOLUMES))
    ratios: dict[str, list[float]] = {volume: [] for volume in VOLUMES}
    for case in CASES:
        if only and only != case:
            continue
        entered = [
            Contender(v, "benchmarks.kit.cases:firesteel", {"case": case, "options": {"data-volume-per-task": v}})
            for v in VOLUMES
        ]
        compete(entered, runs=runs)
        best = min(c.median for c in entered)
        for contender in entered:
            ratios[contender.name].append(contender.median / best)
        print(f"| {case} | " + " | ".join(f"{c.median:.2f}" for c in entered) + " |", flush=True)
    print("| mean ratio to the best | " + " | ".join(f"{statistics.mean(ratios[v]):.2f}" for v in VOLUMES) + " |\n")
