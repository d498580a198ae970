"""Benchmark 10: how soon a loser's slot is free, and how soon an attempt runs again after its executor has died.

A real standalone cluster of three nodes with one slot each; the driver is this process. Times are wall-clock times of
one machine: journal records as they are made, what Spark's scheduler counts as running (asked every few milliseconds), and
stamps that attempts leave when they start.
"""

from __future__ import annotations

import contextlib
import statistics
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks.cluster.speculation import DETECTOR, SPECULATION
from benchmarks.kit import ticks
from benchmarks.kit.harness import temporary_folder
from firesteel.scheduler.kernel.records import JournalRecord, StateChange

POLL = 0.005
PATIENCE = 120.0
FURTHER = {
    SPECULATION: "true",
    **DETECTOR,
    "firesteel.slow-task-detector.absolute-time": "2 s",
    "jobmanager.adaptive-batch-scheduler.speculative.block-slow-node-duration": "1 s",
}


class Stamps:
    """An instrument that keeps when each record was made, in seconds of the day's clock."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, JournalRecord]] = []

    def record(self, record: JournalRecord) -> None:
        self.seen.append((time.time(), record))

    def close(self) -> None: ...

    def finished(self, subtask: int) -> float:
        """When an attempt of this subtask was admitted."""
        return next(
            at
            for at, record in self.seen
            if isinstance(record, StateChange) and record.state == "FINISHED" and subtask in record.subtasks
        )


class Slots:
    """How many tasks Spark has running on a host, and since when; a thread asks."""

    def __init__(self, context: Any) -> None:
        self._tracker = context._jsc.sc().statusTracker()
        self._changes: dict[str, list[tuple[float, int]]] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="slots", daemon=True)

    def __enter__(self) -> Slots:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def executors(self) -> dict[str, int]:
        """Running tasks by host; the driver is not among them."""
        return {
            str(info.host()): int(info.numRunningTasks())
            for info in self._tracker.getExecutorInfos()
            if str(info.host()) != "127.0.0.1"
        }

    def free_since(self, host: str, after: float) -> float:
        """When the last task on ``host`` ended, not before ``after``. Waits for it. Raises TimeoutError."""

        def ended() -> float | None:
            last = self._changes.get(host, [])[-1:]
            return max(after, last[0][0]) if last and last[0][1] == 0 else None

        return wait_until(ended, f"a free slot on {host}")

    def _run(self) -> None:
        while not self._over.wait(POLL):
            now = time.time()
            for host, running in self.executors().items():
                known = self._changes.setdefault(host, [])
                if not known or known[-1][1] != running:
                    known.append((now, running))


def wait_until(found: Any, what: str) -> Any:
    """What ``found`` gives once it is not None."""
    until = time.monotonic() + PATIENCE
    while (value := found()) is None:
        if time.monotonic() > until:
            raise TimeoutError(f"waited {PATIENCE:g} s for {what}")
        time.sleep(POLL)
    return value


def main(runs: int, only: str) -> None:
    """``only``: "loser" or "death"."""
    from tools.standalone import StandaloneCluster

    with StandaloneCluster() as cluster, temporary_folder("recovery") as folder:
        env = ticks.environment(cluster.url, len(cluster.hosts), _options(folder, {}))
        try:
            print(f"### recovery: medians of {runs}\n\n| from ... to ... | median s | min - max |\n|---|---|---|")
            if only in ("", "loser"):
                stuck = [_loser(cluster, env, folder, stuck=True) for _ in range(runs)]
                _row("a mirror's commit to its loser's slot being free; the loser sleeps on a healthy node", stuck)
                slow = [_loser(cluster, env, folder, stuck=False) for _ in range(runs)]
                _row("the same; the loser ticks on a node at a tenth of its speed", slow)
            if only in ("", "death"):
                for with_it in ("false", "true"):
                    died = [_death(cluster, env, folder, with_it) for _ in range(runs)]
                    name = "an executor's death to the restarted attempt running"
                    _row(f"{name}, speculation {'on' if with_it == 'true' else 'off'}", died)
            print(flush=True)
        finally:
            env.spark.stop()


def _row(name: str, seconds: list[float]) -> None:
    print(f"| {name} | {statistics.median(seconds):.2f} | {min(seconds):.2f} - {max(seconds):.2f} |", flush=True)


def _options(folder: Path, more: dict[str, str]) -> dict[str, str]:
    return {
        "firesteel.progress": "false",
        "firesteel.journal.directory": str(folder / "journal"),
        "firesteel.storage.directory": str(folder / "storage"),
        **more,
    }


def _start(env: Any, folder: Path, options: dict[str, str], source: ticks.Ticks) -> tuple[Any, Stamps]:
    """The job, running, with an instrument that listens."""
    from firesteel.spark.driver.runtime import submit

    stamps = Stamps()
    own = type(env)(spark=env.spark, options=_options(folder, options))
    sink = folder / f"out-{time.monotonic_ns()}"
    own.from_source(source).write_parquet(sink)
    return submit(own.compile("recovery"), own.spark, own.options, [stamps]), stamps


def _loser(cluster: Any, env: Any, folder: Path, *, stuck: bool) -> float:
    """Seconds from the admission of a mirror to the end of the task that it has beaten."""
    marks = _marks(folder)
    slow = cluster.hosts[-1]
    with Slots(env.spark.sparkContext) as slots:
        _ready(slots, cluster, env)
        with contextlib.nullcontext() if stuck else cluster.slow(slow, 0.1):
            source = ticks.Ticks([1000] * 3, marks, stuck=1 if stuck else 0)
            run, stamps = _start(env, folder, FURTHER, source)
            where = wait_until(lambda: _attempts(marks), "three attempts") if stuck else {}
            if not run.wait(PATIENCE):
                raise TimeoutError(f"the job does not end: {' '.join(run.waiting_for())}")
            _succeeded(run)
            host, subtask = (where[0], 0) if stuck else (slow, _subtask_on(marks, slow))
            committed = stamps.finished(subtask)
            return slots.free_since(host, committed) - committed


def _death(cluster: Any, env: Any, folder: Path, speculation: str) -> float:
    """Seconds from the death of an executor with a running attempt to the start of the next attempt."""
    marks = _marks(folder)
    with Slots(env.spark.sparkContext) as slots:
        _ready(slots, cluster, env)
        options = {**DETECTOR, SPECULATION: speculation}
        run, _ = _start(env, folder, options, ticks.Ticks([1500] * 2, marks))  # a third slot stays free
        host = wait_until(lambda: _attempts(marks, 2), "two attempts")[0]
        killed = time.time()
        cluster.kill_executor(host)
        restarted = wait_until(lambda: _next_start(marks, 0, killed), "the next attempt")
        if not run.wait(PATIENCE):
            raise TimeoutError(f"the job does not end: {' '.join(run.waiting_for())}")
        _succeeded(run)
        return restarted - killed


def _ready(slots: Slots, cluster: Any, env: Any) -> None:
    """All executors are there, have their Python workers, and nothing to do."""
    wait_until(lambda: _all_there(slots, cluster) or None, "all executors, idle")
    env.from_source(ticks.Ticks([200] * 6)).to_arrow()
    wait_until(lambda: _all_there(slots, cluster) or None, "all executors, idle")


def _succeeded(run: Any) -> None:
    error = run.result().error
    if error is not None:
        raise error


def _marks(folder: Path) -> Path:
    made = folder / f"marks-{time.monotonic_ns()}"
    made.mkdir(mode=0o777)
    return made


def _all_there(slots: Slots, cluster: Any) -> bool:
    found = slots.executors()
    return set(found) == set(cluster.hosts) and not any(found.values())


def _starts(marks: Path) -> list[tuple[int, int, str, float]]:
    """(subtask, attempt, host, time of day) of all that have started."""
    found: list[tuple[int, int, str, float]] = []
    for path in marks.glob("[0-9]*"):
        subtask, attempt, host = path.name.split()
        found.append((int(subtask), int(attempt), host, float(path.read_text())))
    return found


def _attempts(marks: Path, count: int = 3) -> dict[int, str] | None:
    """Hosts of the first attempts by subtask, once there are ``count``."""
    first = {subtask: host for subtask, attempt, host, _ in _starts(marks) if attempt == 0}
    return first if len(first) == count else None


def _subtask_on(marks: Path, host: str) -> int:
    return next(subtask for subtask, attempt, where, _ in _starts(marks) if where == host and attempt == 0)


def _next_start(marks: Path, subtask: int, after: float) -> float | None:
    later = [at for found, _, _, at in _starts(marks) if found == subtask and at > after]
    return min(later) if later else None
