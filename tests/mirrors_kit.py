"""A job with something slow in it, and what its records say of mirrors: for tests on a real Spark."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firesteel.scheduler.kernel.records import Decision, StateChange
from firesteel.spark.driver.runtime import submit
from runtime_support import Numbers, collected, options, two_steps

SECONDS, SLOW_SECONDS, PATIENCE_SECONDS = 0.4, 20.0, 600.0
SPECULATION = {
    "jobmanager__adaptive-batch-scheduler__speculative__enabled": "true",
    "slow-task-detector__check-interval": "100 ms",
    "slow-task-detector__execution-time__baseline-lower-bound": "1500 ms",
    "slow-task-detector__execution-time__baseline-ratio": "0.1",
}


@dataclass(frozen=True)
class SomeSlow(Numbers):
    """Slow: the first attempt of subtask 0 or, if a host is named, whatever runs there. A slow one goes on only long after
    another attempt has read the same split, however busy the machine is. After that, the other splits take no time, so there
    can be more of them than a busy machine reads before a mirror begins. ``folder``: for what attempts tell each other.
    """

    folder: str = ""
    host: str = ""

    def read(self, split: int, ctx: Any):
        slow, read, mirrored = (Path(self.folder, name) for name in (f"slow-{split}", f"read-{split}", "mirrored"))
        if os.environ.get("SPARK_LOCAL_IP") == self.host if self.host else (split, ctx.attempt) == (0, 0):
            slow.touch()
            end = time.monotonic() + PATIENCE_SECONDS
            while not read.exists() and time.monotonic() < end:
                time.sleep(0.01)
            time.sleep(SLOW_SECONDS)
        elif not mirrored.exists():
            time.sleep(SECONDS)
        yield from super().read(split, ctx)
        read.touch()
        if slow.exists():
            mirrored.touch()


class Records:
    def __init__(self):
        self.all: list[Any] = []

    def record(self, record):
        self.all.append(record)

    def close(self):
        pass

    def journal_path(self):
        return None


def run_with_a_slow_one(session, folder, splits: int, host: str = "") -> dict[str, Any]:
    """``launches``: (at, subtask, attempt, node) of all that finished in the first step; ``returned``: (at, subtask)."""
    records = Records()
    begun = time.monotonic()
    job = two_steps(splits, source=SomeSlow(10, folder=str(folder), host=host))
    outcome = submit(job, session, options(folder, **SPECULATION), [records]).result()
    assert outcome.error is None
    assert sorted(collected(outcome)["v"].to_pylist()) == list(range(splits * 10))
    outcome.close()
    changes = [r for r in records.all if isinstance(r, StateChange) and r.vertex == 0]
    launches, returned = [], []
    for change in changes:
        if change.state == "FINISHED":
            nodes = [change.hosts[number] for number in change.nodes]
            launches += zip(change.deployed, change.subtasks, change.attempts, nodes, strict=True)
        elif "rejected" in change.cause and change.state == "CANCELED":
            returned += [(change.at, subtask) for subtask in change.subtasks]
    decisions = [r for r in records.all if isinstance(r, Decision)]
    return {
        "seconds": time.monotonic() - begun,
        "queue": next(d.result for d in decisions if d.what == "queue"),
        "mirrors": [(d.at, *made) for d in decisions if d.what == "speculation" for made in d.result],
        "blocked": [(d.at, d.inputs["node"]) for d in decisions if d.what == "blocklist" and d.result == "blocked"],
        "kept": len([d for d in decisions if d.what == "placement" and d.result == "slot kept"]),
        "launches": sorted(launches),
        "returned": returned,
    }


def check_that_the_mirror_did_not_queue(told) -> None:
    """Executions that were asked for before the mirror began after it.

    How many began between the decision and its start depends on how long a busy machine takes to submit a Spark job; one
    that queues behind its own job starts after all of them.
    """
    _, subtask, attempt = told["mirrors"][0]
    (began,) = [at for at, *name, _ in told["launches"] if name == [subtask, attempt]]
    others = [at for at, *name, _ in told["launches"] if name != [subtask, attempt]]
    assert len([at for at in others if at > began]) >= 2, "the mirror queued behind its own job"
