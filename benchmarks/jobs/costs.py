"""What knowing a step's cost from earlier runs is worth, and the measurement behind ``firesteel.decider.target-task-duration``.

The costly function waits, which needs no core: on more slots than the machine has cores scheduling alone shows. Every round begins
with an empty folder of journals, so that its first run knows nothing; its second run knows the first. All in one Spark, in turn.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from benchmarks.kit import cases
from benchmarks.kit.harness import cpu_seconds

SLOTS = 8
PRODUCERS = 16
COSTLY_MIB, COSTLY_SECONDS = 8, 8.0
FIXED = (2, 4, 8, 16, 32)
STEPS = 40
OTHERS = ("tiny", "costly", "small files", "apply", "skewed")
TARGETS = (0.1, 0.25, 1.0, 4.0)
SCHEMA = pa.schema({"v": pa.int64()})
OPTION = "firesteel.decider.target-task-duration"
Batches = Iterator[pa.RecordBatch]


@dataclass
class Taken:
    """Wall and CPU seconds of the runs of one way, and the subtasks of the measured step in the last of them."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    subtasks: str = ""

    def row(self, name: str, base: float) -> str:
        wall, spread = statistics.median(self.wall), f"{min(self.wall):.2f} - {max(self.wall):.2f}"
        return f"| {name} | {self.subtasks} | {wall:.2f} | {spread} | {statistics.median(self.cpu):.2f} | {wall / base:.2f} |"


def main(runs: int, only: str) -> None:
    """``only``: one of the cases; "others" has a Spark with another number of slots, so it runs only where it is named."""
    named = {"costly": _costly, "targets": _targets, "forty": _forty, "cheap": _cheap, "others": _others}
    for name, case in named.items():
        if only == name or (not only and name != "others"):
            case(runs)


def _costly(runs: int) -> None:
    ways = ["first run", "second run", *(f"fixed {n}" for n in FIXED)]
    taken = {way: Taken() for way in ways}
    for journals in _rounds(runs):
        env = _env(journals)
        for way in ways:
            fixed = int(way.split()[1]) if way.startswith("fixed") else None
            _measure(taken[way], lambda env=env, fixed=fixed: _waited(env, COSTLY_SECONDS, COSTLY_MIB, fixed))
    best = min(statistics.median(taken[way].wall) for way in ways[2:])
    title = f"{COSTLY_MIB} MiB through a function that waits {COSTLY_SECONDS:g} s in all, local[{SLOTS}]"
    _print(title, taken, best, "best fixed")


def _targets(runs: int) -> None:
    """Second runs by the target, for functions of several costs."""
    for seconds in (0.2, 1.0, 4.0):
        taken = {f"target {target:g} s": Taken() for target in TARGETS}
        for journals in _rounds(runs):
            _waited(_env(journals), seconds, COSTLY_MIB, None)
            for target, way in zip(TARGETS, taken, strict=True):
                env = _env(journals, **{OPTION: f"{target} s"})
                _measure(taken[way], lambda env=env, seconds=seconds: _waited(env, seconds, COSTLY_MIB, None))
        base = min(statistics.median(each.wall) for each in taken.values())
        _print(f"second runs by {OPTION}, a function that waits {seconds:g} s in all", taken, base, "best")


def _forty(runs: int) -> None:
    taken = {way: Taken() for way in ("first run", "second run", "costs off")}
    for journals in _rounds(runs):
        on, off = _env(journals), _env(journals, **{OPTION: "0"})
        for way, env in zip(taken, (on, on, off), strict=True):
            _measure(taken[way], lambda env=env: _chain(env))
    base = statistics.median(taken["costs off"].wall)
    _print(f"{STEPS} steps of unknown cost in one job (0 to 0.8 s for 1 MiB), local[{SLOTS}]", taken, base, "costs off")


def _cheap(runs: int) -> None:
    taken = {way: Taken() for way in ("first run", "second run", "costs off")}
    small = {"data-volume-per-task": "2 MiB"}
    for journals in _rounds(runs):
        on, off = _env(journals, **small), _env(journals, **small, **{OPTION: "0"})
        for way, env in zip(taken, (on, on, off), strict=True):
            _measure(taken[way], lambda env=env: _waited(env, 0.0, 64, None))
    base = statistics.median(taken["costs off"].wall)
    _print(f"64 MiB through a step that does nothing, 2 MiB a subtask, local[{SLOTS}]", taken, base, "costs off")


def _others(runs: int) -> None:
    """Cases of the other benchmarks on all cores, with costs known and off: nothing may take longer."""
    for name in OTHERS:
        taken = {way: Taken() for way in ("costs known", "costs off")}
        with tempfile.TemporaryDirectory() as journals:
            on, off = (_env(journals, "local[*]", **{OPTION: target}) for target in ("250 ms", "0"))
            for number in range(runs + 1):
                Round.counted = number > 0
                ways = list(zip(taken, (on, off), strict=True))
                for way, env in ways[:: 1 if number % 2 else -1]:
                    _measure(taken[way], lambda env=env, name=name: _case(env, name))
        _print(f"{name}, local[*]", taken, statistics.median(taken["costs off"].wall), "costs off")


def _case(env: object, name: str) -> str:
    stream, column = cases.FIRESTEEL[name](env)
    stream.write_to(cases.ChecksumSink(column))
    return _decided(env.execute(name))  # pyright: ignore


def _rounds(runs: int) -> Iterator[str]:
    """Folders of journals; what the first round takes is not counted."""
    for number in range(runs + 1):
        Round.counted = number > 0
        with tempfile.TemporaryDirectory() as journals:
            yield journals


class Round:
    counted = False


def _env(journals: str, master: str = f"local[{SLOTS}]", **options: str) -> object:
    given = {"firesteel.journal.directory": journals, "firesteel.merge.threshold": 0, **options}
    return cases._environment(given, master=master)  # pyright: ignore[reportPrivateUsage]


def _measure(taken: Taken, run: Callable[[], str]) -> None:
    wall, cpu = time.perf_counter(), cpu_seconds()
    subtasks = run()
    if Round.counted:
        taken.wall.append(time.perf_counter() - wall)
        taken.cpu.append(cpu_seconds() - cpu)
        taken.subtasks = subtasks


def _waiting(seconds_per_row: float) -> Callable[[Batches], Batches]:
    def work(batches: Batches) -> Batches:
        for batch in batches:
            time.sleep(seconds_per_row * batch.num_rows)
            yield batch

    return work


def _numbers(env: object, mib: int) -> object:
    rows = (mib << 20) // 8 // PRODUCERS

    def made(batches: Batches) -> Batches:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield pa.record_batch([np.arange(rows) + number * rows], schema=SCHEMA)

    return env.from_arrow(pa.table({"v": np.arange(PRODUCERS)})).map_in_arrow(made, SCHEMA)  # pyright: ignore


def _waited(env: object, seconds: float, mib: int, fixed: int | None) -> str:
    step = _numbers(env, mib).rebalance().map_in_arrow(_waiting(seconds / ((mib << 20) // 8)), SCHEMA)  # pyright: ignore
    if fixed is not None:
        step = step.set_parallelism(fixed)
    step.write_to(cases.ChecksumSink("v"))
    return _decided(env.execute("costly"))  # pyright: ignore


def _chain(env: object) -> str:
    stream = _numbers(env, 1)
    for number in range(STEPS):
        per_row = (number * 7 % STEPS) * 0.02 / ((1 << 20) // 8)
        stream = stream.rebalance().map_in_arrow(_waiting(per_row), SCHEMA)  # pyright: ignore
    stream.write_to(cases.ChecksumSink("v"))  # pyright: ignore
    return _decided(env.execute("forty"))  # pyright: ignore


def _decided(result: object) -> str:
    """The subtasks of all steps that read exchanges."""
    decisions = [d for d in result.decision_records if d.what == "parallelism"]  # pyright: ignore
    return str(sum(d.result["parallelism"] for d in decisions))


def _print(title: str, taken: dict[str, Taken], base: float, base_name: str) -> None:
    print(f"### costs: {title}\n")
    print(f"| | subtasks | median s | min - max | CPU s | to {base_name} |\n|---|---:|---:|---|---:|---:|")
    print(*(each.row(way, base) for way, each in taken.items()), sep="\n", end="\n\n", flush=True)
