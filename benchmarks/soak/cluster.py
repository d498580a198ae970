"""``./dev soak [--minutes 15] [--seed N]``: TPC-H on a real standalone cluster whose nodes are killed, frozen and slowed.

Pipelines run one after another, with speculation, while a thread does harm to at most two of the three nodes at a time. Every
answer is compared with DuckDB's. The exit code is 1 after a wrong answer, a job that hangs, an error that is not a clear
sentence, a file that a job left in the storage, or a node that did not come back. A seed repeats the plan (queries, options, faults and the time between them), not the machine's timing.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.cluster.speculation import SPECULATION, rules
from benchmarks.kit import ticks

PATIENCE = 180.0
"""Seconds after which a job is said to hang; every fault is over long before. On a busy machine more, by what the first job took."""
SLOWNESS = 4.0
"""So many times as long as the first job, which nothing disturbs, a job may take in addition."""
CANCEL_PATIENCE = 60.0
MOST_HANGS = 3
QUIET_AFTER = 60.0
"""Most seconds after the last job until nothing may lie in the storage: killed workers write for some seconds more, longer on a busy machine."""
BASE = {
    SPECULATION: "true",
    "jobmanager.adaptive-batch-scheduler.max-parallelism": "8",
    "slow-task-detector.check-interval": "100 ms",
    "slow-task-detector.execution-time.baseline-lower-bound": "300 ms",
    "jobmanager.adaptive-batch-scheduler.speculative.block-slow-node-duration": "5 s",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1000",
    "restart-strategy.fixed-delay.delay": "200 ms",
    "firesteel.results.retain-on-failure": "0",
    "firesteel.progress": "false",
}
VARIANTS: dict[str, dict[str, str]] = {
    "defaults": {},
    "by count": {"firesteel.decider.cut": "by-count", "firesteel.results.codec": "zstd"},
    "seed rule": {"firesteel.slow-task-detector.rule": "seed", "firesteel.slow-task-detector.expected": "true"},
    "absolute": {"firesteel.slow-task-detector.absolute-time": "3 s"},
    "three at once": {"jobmanager.adaptive-batch-scheduler.speculative.max-concurrent-executions": "3"},
    "offloaded": {"firesteel.deployment.offload-threshold": "1 b", "firesteel.memory.per-task": "1 MiB"},
    "kept": {"jobmanager.partition.release-during-job-execution": "false"},
}


# --- harm ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fault:
    kind: str
    host: str
    seconds: float
    """How long it lasts; an executor that was killed is started again by its worker."""


class Plan:
    """What to do next, and when: all from one seed."""

    def __init__(self, seed: int, every: float) -> None:
        self._random = random.Random(seed)
        self._every = every

    def pause(self) -> float:
        return min(self._random.expovariate(1 / self._every), 3 * self._every)

    def fault(self, healthy: Sequence[str]) -> Fault:
        """Something for one of the healthy nodes."""
        kind = self._random.choice(("kill executor", "kill executor", "kill worker", "freeze", "slow", "slow"))
        least, most = {"kill executor": (3, 6), "kill worker": (3, 10), "freeze": (2, 15), "slow": (5, 20)}[kind]
        return Fault(kind, self._random.choice(sorted(healthy)), self._random.uniform(least, most))


class Harm:
    """A thread that hurts the cluster as planned; a node is healthy at any time."""

    def __init__(self, cluster: Any, plan: Plan, say: Callable[[str], None]) -> None:
        self._cluster, self._plan, self._say = cluster, plan, say
        self.done: Counter[str] = Counter()
        self.broken: list[str] = []
        self._hurt: dict[str, tuple[float, Callable[[], object]]] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="harm", daemon=True)

    def __enter__(self) -> Harm:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """All nodes are well again."""
        self._over.set()
        self._thread.join()
        for host in list(self._hurt):
            self._heal(host)

    def _run(self) -> None:
        due = time.monotonic() + self._plan.pause()
        while True:
            wake = min([due, *(until for until, _ in self._hurt.values())])
            if self._over.wait(max(0.0, wake - time.monotonic())):
                return
            now = time.monotonic()
            for host in [host for host, (until, _) in self._hurt.items() if until <= now]:
                self._heal(host)
            if due <= now:
                self._hurt_one()
                due = time.monotonic() + self._plan.pause()

    def _hurt_one(self) -> None:
        healthy = [host for host in self._cluster.hosts if host not in self._hurt]
        if len(healthy) < 2:  # the last one stays
            return
        fault = self._plan.fault(healthy)
        try:
            undo = self._commit(fault)
        except RuntimeError as error:  # its executor has just died, or is not there yet
            self._say(f"  ({fault.kind} on {fault.host} was not possible: {error})")
            return
        self.done[fault.kind] += 1
        self._hurt[fault.host] = (time.monotonic() + fault.seconds, undo)
        self._say(f"  {fault.kind} on {fault.host}, {fault.seconds:.1f} s")

    def _commit(self, fault: Fault) -> Callable[[], object]:
        cluster, host = self._cluster, fault.host
        if fault.kind == "kill executor":
            cluster.kill_executor(host)
            return lambda: None
        if fault.kind == "kill worker":
            cluster.kill_worker(host)
            return lambda: cluster.start_workers(host)
        return (cluster.freeze(host) if fault.kind == "freeze" else cluster.slow(host, 0.1)).end

    def _heal(self, host: str) -> None:
        _, undo = self._hurt.pop(host)
        try:
            undo()
        except RuntimeError as error:
            self.broken.append(f"{host} did not come back: {error}")


# --- jobs ----------------------------------------------------------------------------------------------------------


class Stuck(Exception):
    """A job hangs and cannot be cancelled either: there is no going on."""


@dataclass
class Tally:
    jobs: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    hangs: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    """Those that say clearly what went wrong."""
    unclear: list[str] = field(default_factory=list)
    decisions: Counter[str] = field(default_factory=Counter)

    @property
    def failed(self) -> bool:
        return bool(self.wrong or self.hangs or self.unclear)


def is_clear(error: BaseException) -> bool:
    """Whether a user can read it: an error of ours, in sentences, without a trace of Java or Python in it."""
    from firesteel.errors import FiresteelError

    text = str(error).strip()
    ugly = ("Traceback", "\tat ", "py4j", "java.lang", "Py4J", "object at 0x")
    return isinstance(error, FiresteelError) and text.endswith((".", "?")) and not any(u in text for u in ugly)


class Soak:
    def __init__(self, env: Any, data: Path, folder: Path, tally: Tally, say: Callable[[str], None]) -> None:
        from tests.oracle import TPCH_SQL, duckdb_answer
        from tests.tpch_kit import QUANTITY

        self._env, self._data, self._folder, self.tally, self._say = env, data, folder, tally, say
        self.patience = PATIENCE
        self._answers = {name: duckdb_answer(sql.format(quantity=QUANTITY), data) for name, sql in TPCH_SQL.items()}

    def job(self, query: str, variant: str) -> None:
        """Runs one job, and notes what came of it."""
        name = f"job {sum(self.tally.jobs.values()) + 1}, {query}, {variant}"
        self.tally.jobs[query] += 1
        began = time.monotonic()
        sink = self._folder / f"out-{sum(self.tally.jobs.values())}"
        verdict = "right"
        try:
            client = self._submit(query, variant, sink)
            try:
                result = client.wait(self.patience)
            except TimeoutError as error:
                verdict = self._hangs(client, name, error)
            else:
                self._count(result.decision_records)
                self._compare(query, sink)
        except Stuck:
            verdict = "hangs, and cannot be cancelled"
            raise
        except AssertionError as error:
            verdict = f"WRONG: {error}"
            self.tally.wrong.append(f"{name}: {error}")
        except Exception as error:
            kind = "clear" if is_clear(error) else "UNCLEAR"
            verdict = f"{kind} error: {type(error).__name__}: {error}"
            (self.tally.errors if kind == "clear" else self.tally.unclear).append(f"{name}: {verdict}")
        finally:
            shutil.rmtree(sink, ignore_errors=True)
            self.tally.seconds.append(time.monotonic() - began)
            self._say(f"{name}: {verdict} after {self.tally.seconds[-1]:.1f} s")

    def _submit(self, query: str, variant: str, sink: Path) -> Any:
        from tests.tpch_kit import QUANTITY, SMALL, example

        env = type(self._env)(spark=self._env.spark, options={**SMALL, **BASE, **self._places(), **VARIANTS[variant]})
        tables = example.Tables(env, self._data)
        stream = example.q18(tables, QUANTITY) if query == "q18" else example.QUERIES[query](tables)
        stream.write_parquet(sink)
        return env.execute_async(query)

    def _places(self) -> dict[str, str]:
        return {
            "firesteel.storage.directory": str(self._folder / "storage"),
            "firesteel.journal.directory": str(self._folder / "journal"),
        }

    def _compare(self, query: str, sink: Path) -> None:
        import pyarrow.parquet as pq
        from tests.oracle import assert_same_rows

        assert (sink / "_SUCCESS").exists(), "the job has finished and published nothing"
        assert_same_rows(pq.read_table(sink), self._answers[query])

    def _count(self, decisions: Sequence[Any]) -> None:
        for decision in decisions:
            self.tally.decisions["mirrors"] += len(rules(decision))
            self.tally.decisions["won by a mirror"] += decision.what == "winner" and decision.inputs["mirror"]
            self.tally.decisions["failovers"] += decision.what == "failover"

    def _hangs(self, client: Any, name: str, error: TimeoutError) -> str:
        """Tells what it waits for, then cancels it. A job that cannot even be cancelled ends the soak."""
        self.tally.hangs.append(f"{name}: {error}")
        faulthandler.dump_traceback(all_threads=True)
        client.cancel()
        try:
            client.wait(CANCEL_PATIENCE)
        except TimeoutError as again:
            self.tally.hangs[-1] += f" It cannot be cancelled either: {again}"
            raise Stuck(name) from again
        except Exception as cancelled:
            return f"HANGS: {error} Cancelled: {cancelled}"
        return f"HANGS: {error}"


def leftovers(folder: Path, patience: float = QUIET_AFTER) -> list[str]:
    """Return the files in the storage that no job owns any more. Look again until there are none, for at most ``patience`` s.

    The log of this script's run is not one of them: it names the jobs that have published, and goes when the script ends."""
    from firesteel.recovery.places import RUN_PREFIX

    until = time.monotonic() + patience
    while True:
        files = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
        found = sorted(str(path) for path in files if not path.parts[0].startswith(RUN_PREFIX))
        if not found or time.monotonic() > until:
            return found
        time.sleep(0.2)


# --- all of it -----------------------------------------------------------------------------------------------------


def run(arguments: argparse.Namespace, folder: Path, say: Callable[[str], None]) -> int:
    from tests.oracle import tpch
    from tests.tpch_kit import example
    from tools.standalone import StandaloneCluster

    data = tpch(arguments.scale)
    tally, chance = Tally(), random.Random(arguments.seed)
    with StandaloneCluster() as cluster:
        # An executor that answers no more is given up after 30 s, as a job must not wait for a frozen one for ever.
        spark = {
            "spark.network.timeout": "30s",
            "spark.network.timeoutInterval": "5s",
            "spark.executor.heartbeatInterval": "2s",
        }
        env = ticks.environment(cluster.url, len(cluster.hosts), {}, spark)
        soak = Soak(env, data, folder, tally, say)
        harm = Harm(cluster, Plan(arguments.seed, arguments.every), say)
        with suppress(Stuck):
            soak.job("q1", "defaults")  # starts the executors
            soak.patience += SLOWNESS * tally.seconds[0]
            until = time.monotonic() + 60 * arguments.minutes
            with harm:
                while time.monotonic() < until and len(tally.hangs) < MOST_HANGS:
                    soak.job(chance.choice(sorted(example.QUERIES)), chance.choice(list(VARIANTS)))
            say("All nodes are well again.")
            soak.job("q18", "defaults")
        left = leftovers(folder / "storage")
        with suppress(Exception):
            env.spark.stop()
    report(tally, harm, left, say)
    return exit_code(tally, left, harm.broken)


def exit_code(tally: Tally, left: Sequence[str], broken: Sequence[str]) -> int:
    """0, or 1 where something is wrong. ``left``: files in the storage; ``broken``: nodes that the soak itself lost."""
    return int(tally.failed or bool(left) or bool(broken))


def report(tally: Tally, harm: Harm, left: list[str], say: Callable[[str], None]) -> None:
    jobs = ", ".join(f"{count} x {query}" for query, count in sorted(tally.jobs.items()))
    faults = ", ".join(f"{count} x {kind}" for kind, count in sorted(harm.done.items())) or "none"
    seconds = sorted(tally.seconds)
    say(
        f"\njobs: {sum(tally.jobs.values())} ({jobs}); median {seconds[len(seconds) // 2]:.1f} s, longest {seconds[-1]:.1f} s"
    )
    say(f"faults: {sum(harm.done.values())} ({faults})")
    say(", ".join(f"{name}: {count}" for name, count in tally.decisions.items()))
    lists = {
        "wrong answers": tally.wrong,
        "hangs": tally.hangs,
        "clear errors": tally.errors,
        "unclear errors": tally.unclear,
        "left in the storage": left,
        "nodes lost by the soak itself": harm.broken,
    }
    for name, found in lists.items():
        say(f"{name}: {len(found)}" + "".join(f"\n  {line}" for line in found[:20]))


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scale", type=float, default=0.01, help="TPC-H scale factor (default 0.01)")
    parser.add_argument("--every", type=float, default=5.0, metavar="SECONDS", help="mean time between two faults")
    parser.add_argument("--keep", action="store_true", help="keep the folder with journals and what the storage holds")
    arguments = parser.parse_args()
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - started:7.1f} {text}" if not text.startswith("\n") else text, flush=True)

    folder = Path(tempfile.mkdtemp(prefix="firesteel-soak-"))
    print(f"seed {arguments.seed}; journals in {folder}", flush=True)
    code = run(arguments, folder, say)
    if code == 0 and not arguments.keep:
        shutil.rmtree(folder, ignore_errors=True)
    sys.stdout.flush()
    if code:
        os._exit(code)  # threads of a job that hangs must not hold up the end
    return code


if __name__ == "__main__":
    sys.exit(main())
