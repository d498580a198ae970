"""The script of ``resuming``: a job of four steps that writes files, whose driver dies, if it is told so, as a share of its subtasks is in the log.

Called by ``firesteel run`` with a folder, the number of subtasks, and "plane" or "spark". Each subtask leaves a line in ``marks`` with the time of day at
which its program began; the driver one in ``reached`` with the time at which the share was in the log. ``DIES_AT``: that share; ``DIES``: whether it dies; ``MODE``: ``firesteel.recovery.mode``.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from firesteel import ExecutionEnvironment

FOLDER = Path(sys.argv[1]) if __name__ == "__main__" else Path()
ROWS = 20
"""For each subtask."""
SLOTS = 2
Batches = Iterator[pa.RecordBatch]


def began() -> None:
    with (FOLDER / "marks").open("a") as file:
        file.write(f"{time.time()}\n")


def parsed(batches: Batches) -> Batches:
    began()
    for batch in batches:
        yield batch.set_column(1, "v", pc.add(batch.column("v"), 1))


def scored(batches: Batches) -> Batches:
    began()
    for batch in batches:
        yield batch.set_column(1, "v", pc.multiply(batch.column("v"), 2))


def job(env: Any, subtasks: int) -> None:
    """Of 10,000 subtasks 5,000 parse, 1,000 add up by key, and 4,000 write a file each."""
    rows = subtasks * ROWS
    numbers = pa.table({"k": np.arange(rows) % (rows // 2), "v": np.arange(rows)})
    read = env.from_arrow(numbers).rebalance().map_in_arrow(parsed, "k bigint, v bigint").set_parallelism(subtasks // 2)
    sums = read.key_by("k").aggregate({"v": "sum"}).set_parallelism(subtasks // 10)
    scores = sums.rebalance().map_in_arrow(scored, "k bigint, v bigint").set_parallelism(subtasks * 2 // 5)
    scores.write_parquet(FOLDER / "out")
    env.execute("scores")


def watch(count: int, *, dies: bool) -> None:
    """Waits for the write to the log behind which so many subtasks are in it."""
    from firesteel.recovery.files import FileLog
    from firesteel.scheduler.kernel.events import ExecutionsFinished
    from firesteel.spark.recovery.gate import LogGate

    heard, append = LogGate.heard, FileLog.append
    left = count

    def counted(self: Any, event: Any, commands: Any) -> None:
        nonlocal left
        heard(self, event, commands)
        left -= len(event.subtasks) if isinstance(event, ExecutionsFinished) else 0

    def written(self: Any, data: bytes) -> None:
        is_reached = left <= 0  # what was heard by now is in this group, or was in one before
        append(self, data)
        if is_reached and not (FOLDER / "reached").exists():
            (FOLDER / "reached").write_text(str(time.time()))
            if dies:
                os.kill(os.getpid(), signal.SIGKILL)

    LogGate.heard, FileLog.append = counted, written  # type: ignore[method-assign]


def main() -> None:
    subtasks, where, session = int(sys.argv[2]), sys.argv[3], None
    if where == "plane":
        from plane.session import Session

        session = Session(slots=SLOTS)
    if "DIES_AT" in os.environ:
        watch(int(float(os.environ["DIES_AT"]) * subtasks), dies="DIES" in os.environ)
    options = {
        "firesteel.progress": False,
        "firesteel.journal.directory": str(FOLDER / "journal"),
        "firesteel.storage.directory": str(FOLDER / "storage"),
        "firesteel.recovery.mode": os.environ["MODE"],
        "max-parallelism": subtasks,
        "firesteel.subpartition-factor": 1,
    }
    env = ExecutionEnvironment(spark=session, options=options)  # type: ignore[arg-type]
    job(env, subtasks)


if __name__ == "__main__":
    main()
