"""The script of ``kills``: a TPC-H query whose answer is written to files, by a driver that may die as it writes to its log.

Called by ``firesteel run`` with a folder, the folder of the data, the query, and "plane", "spark" (a session that
we make) or the URL of a standalone cluster. ``DIES``: "WHEN N [SECONDS]": before, in the middle of
(``torn``) or after the N-th write, or so many seconds later. The number of writes is left in ``writes``.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from dying_kit import dies_at
from firesteel import ExecutionEnvironment
from firesteel.recovery import log
from firesteel.recovery.files import FileLog
from tpch_kit import QUANTITY, SMALL, example


def watch(folder: Path) -> None:
    """Lets this process die where it is told to."""
    log.PAUSE_SECONDS = 0.0
    when, number, *seconds = os.environ.get("DIES", "never 0").split()
    written = 0

    def is_here(_data: bytes) -> bool:
        nonlocal written
        written += 1
        (folder / "writes").write_text(str(written))
        if when == "later" and written == int(number):
            threading.Timer(float(*seconds), os.kill, (os.getpid(), signal.SIGKILL)).start()
        return when != "later" and written == int(number)

    dies_at(FileLog, "append", when, is_here)


def main() -> None:
    folder, data, query, where = Path(sys.argv[1]), *sys.argv[2:5]
    watch(folder)
    session: Any = None
    if where == "plane":
        from plane.session import Session

        session = Session(slots=2)
    elif where != "spark":
        from benchmarks.kit import ticks
        from firesteel.spark.session.sessions import create_session

        session = create_session(where, "kills", ticks.conf(3))
    options = {
        **SMALL,
        "firesteel.progress": False,
        "firesteel.journal.directory": str(folder / "journal"),
        "firesteel.storage.directory": str(folder / "storage"),
        "firesteel.decider.least-volume-per-slot": 0,
    }
    env = ExecutionEnvironment(spark=session, options=options)
    tables = example.Tables(env, data)
    rows = example.q18(tables, QUANTITY) if query == "q18" else example.QUERIES[query](tables)
    rows.write_parquet(folder / "out")
    env.execute(query)


if __name__ == "__main__":
    main()
