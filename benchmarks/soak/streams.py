"""``python -m benchmarks.soak.streams [--streams N] [--first SEED] [--hours H] [--batches N]``: random streams in the simulation.

Each seed is a stream of up to ``--hours`` simulated hours on which everything that can go wrong does, every other one without
faults; what goes wrong is printed with its seed, and the exit code is 1 then. ``--batches``: one stream of so many batches instead,
and what the scheduler takes for it: time of each event, and memory.
"""

from __future__ import annotations

import argparse
import collections
import math
import resource
import sys
import time
from dataclasses import replace
from typing import Any

from tests.simulation.streams.random_streams import RandomStream, random_stream, run_random_stream
from tests.simulation.streams.stream import SimulatedStream
from tests.simulation.streams.world import SimulatedUser, StreamWorld


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.soak.streams", description=__doc__)
    parser.add_argument("--streams", type=int, default=2_000)
    parser.add_argument("--first", type=int, default=0, metavar="SEED")
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--batches", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.batches:
        _long(arguments.batches)
        return 0
    return _soak(range(arguments.first, arguments.first + arguments.streams), arguments.hours)


def _soak(seeds: range, hours: float) -> int:
    ended: collections.Counter[str] = collections.Counter()
    events, rescales, simulated, started = 0, 0, 0.0, time.perf_counter()
    for seed in seeds:
        try:
            outcome = run_random_stream(random_stream(seed, faults=seed % 2 == 0, hours=hours))
        except Exception as error:  # whatever it is, the other seeds are to be heard as well
            ended["broken"] += 1
            print(f"seed {seed}: {type(error).__name__}: {error}", flush=True)
        else:
            ended["failed" if outcome.failed else "ended as asked"] += 1
            events, rescales = events + outcome.events, rescales + outcome.rescales
            simulated += outcome.seconds
    told = ", ".join(f"{count} {how}" for how, count in sorted(ended.items()))
    print(f"{len(seeds)} streams, {simulated / 3600:.0f} simulated hours, {events} events, {rescales} rescales: {told}")
    print(f"{time.perf_counter() - started:.0f} s")
    return int(ended["broken"] > 0)


def _long(batches: int) -> None:
    world = StreamWorld(most_rows=1000, overhead=0.1, user=SimulatedUser(lower=1, upper=16, end_at=math.inf))
    scheduler = RandomStream(world, {}).scheduler()
    handle, spent = scheduler.handle, [0.0, 0]

    def timed(event: Any) -> Any:
        began = time.perf_counter()
        commands = handle(event)
        spent[0] += time.perf_counter() - began
        spent[1] += 1
        return commands

    scheduler.handle = timed  # type: ignore[method-assign]
    simulated = SimulatedStream(scheduler, replace(world, rates=(5000.0,)))
    simulated.begin()
    peaks: list[int] = []
    for tenth in range(1, 11):
        while simulated.plane.checkpoint.batch < batches * tenth // 10:
            simulated.step()
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    print(f"{batches} batches, {spent[1]} events: {1e6 * spent[0] / spent[1]:.1f} us of the scheduler's for each,")
    print(f"{spent[1] / spent[0]:,.0f} a second; most memory after each tenth, MiB: {[peak // 1024 for peak in peaks]}")


if __name__ == "__main__":
    sys.exit(main())
