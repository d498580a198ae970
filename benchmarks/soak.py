"""``python -m benchmarks.soak [--jobs N] [--first SEED] [--drivers]``: thousands of random jobs on simulated clusters with failures.

Most of them speculate: with detectors that call slow what is not, nodes that slow down, stand still and die, attempts that
finish in the same moment or after they were cancelled, and events that come late, twice or never. In odd seeds slot sharing
groups have resources, and workers of different sizes come and go. With ``--drivers`` the drivers die as well, and others go on. Each seed is a job; what goes wrong is printed with its
seed, and the exit code is 1 then.
"""

from __future__ import annotations

import argparse
import collections
import sys
import time
from dataclasses import asdict

from tests.simulation.random_jobs import random_job, run_random_job

from firesteel.errors import UsageError


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.soak", description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, metavar="SEED")
    parser.add_argument("--validate-every", type=int, default=10, metavar="N", help="events between two validations")
    parser.add_argument("--drivers", action="store_true", help="drivers die, too")
    arguments = parser.parse_args()
    ended: collections.Counter[str] = collections.Counter()
    done: collections.Counter[str] = collections.Counter()
    events, started = 0, time.perf_counter()
    for seed in range(arguments.first, arguments.first + arguments.jobs):
        try:
            job = random_job(seed, resources=seed % 2 == 1, drivers=arguments.drivers)
            outcome, _ = run_random_job(job, validate_every=arguments.validate_every)
        except UsageError:
            ended["refused"] += 1
        except Exception as error:  # whatever it is, the other seeds are to be heard as well
            ended["broken"] += 1
            print(f"seed {seed}: {type(error).__name__}: {error}", flush=True)
        else:
            ended[outcome.status.value] += 1
            events += outcome.events
            done.update(asdict(outcome.speculation))
    told = ", ".join(f"{count} {how}" for how, count in sorted(ended.items()))
    print(f"{arguments.jobs} jobs, {events} events in {time.perf_counter() - started:.0f} s: {told}")
    print(", ".join(f"{count} {what}" for what, count in done.items()))
    return int(ended["broken"] > 0)


if __name__ == "__main__":
    sys.exit(main())
