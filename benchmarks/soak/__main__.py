"""``python -m benchmarks.soak [--jobs N] [--first SEED] [--drivers | --corrections | --kills N]``: thousands of random jobs on simulated clusters with failures.

Most of them speculate: with detectors that call slow what is not, nodes that slow down, stand still and die, attempts that
finish in the same moment or after they were cancelled, and events that come late, twice or never. In odd seeds slot sharing
groups have resources, and workers of different sizes come and go. With ``--drivers`` the drivers die as well, and others go on; with ``--corrections``
jobs are cut off, some of their steps changed, and what is as it was is kept. Each seed is a job; what goes wrong is printed with its seed, and the exit code
is 1 then. ``--kills N``: real drivers of TPC-H pipelines are killed instead (``kills``).
"""

from __future__ import annotations

import argparse
import collections
import sys
import time
from collections.abc import Callable
from dataclasses import asdict

from tests.simulation.corrected import corrected_jobs
from tests.simulation.random_jobs import random_job, run_random_job

from benchmarks.soak import kills
from firesteel.errors import UsageError

TELL_SECONDS = 60.0
Counts = collections.Counter[str]


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.soak", description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, metavar="SEED")
    parser.add_argument("--validate-every", type=int, default=10, metavar="N", help="events between two validations")
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--drivers", action="store_true", help="drivers die, too")
    chosen.add_argument(
        "--corrections", action="store_true", help="jobs are cut off, and corrected ones keep what they can"
    )
    chosen.add_argument("--kills", type=int, default=0, metavar="N", help="kill so many real drivers")
    parser.add_argument(
        "--spark", type=float, default=0.1, metavar="SHARE", help="of the jobs with --kills (default 0.1)"
    )
    parser.add_argument("--cluster", action="store_true", help="that share on a standalone cluster")
    arguments = parser.parse_args()
    if arguments.kills:
        given = arguments.kills, arguments.first, arguments.spark
        return int(kills.run(*given, lambda text: print(text, flush=True), cluster=arguments.cluster) > 0)

    def simulated(seed: int) -> Counts:
        job = random_job(seed, resources=seed % 2 == 1, drivers=arguments.drivers)
        outcome, _ = run_random_job(job, validate_every=arguments.validate_every)
        return Counts({outcome.status.value: 1, "events": outcome.events}) + Counts(asdict(outcome.speculation))

    run = corrected_jobs if arguments.corrections else simulated
    return int(_soak(run, range(arguments.first, arguments.first + arguments.jobs))["broken"] > 0)


def _soak(run: Callable[[int], Counts], seeds: range) -> Counts:
    """All seeds, whatever is wrong with some of them."""
    counts, started = Counts(), time.perf_counter()
    told = started
    for seed in seeds:
        try:
            counts += run(seed)
        except UsageError:
            counts["refused"] += 1
        except Exception as error:  # whatever it is, the other seeds are to be heard as well
            counts["broken"] += 1
            print(f"seed {seed}: {type(error).__name__}: {error}", flush=True)
        if time.perf_counter() - told > TELL_SECONDS or seed == seeds[-1]:
            told = time.perf_counter()
            listed = ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
            print(f"seeds {seeds.start} to {seed}, {told - started:.0f} s: {listed}", flush=True)
    return counts


if __name__ == "__main__":
    sys.exit(main())
