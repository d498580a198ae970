"""``python -m benchmarks.soak.queries [--first SEED] [--seeds N] [--queries N] [--jobs-every N] [--file FILE]``: random queries.

A seed is tables of awkward rows and queries on them, in ANSI and legacy mode. Each is computed by the steps that the takeover makes of
it, every so many-th ten of them by a job as well, and compared with Spark's answer. A difference is printed with its query, and the
exit code is 1 then. FILE gets a line for each seed that is done, and seeds that are in it are not run again: a run can be ended at any
time, and goes on from there.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

from tests import sql_queries_kit as kit
from tests.older_spark import DEFAULTS

from benchmarks.kit.harness import cpu_seconds

SPARK = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.buffer.pageSize": "64k",  # each sort and hash table clears one, however few its rows
    "spark.shuffle.compress": "false",
    "spark.broadcast.compress": "false",
    "spark.network.timeout": "7d",  # a run that was stopped (SIGSTOP) goes on
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -Xmn384m",
}
"""Under which small queries take Spark the least CPU."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.soak.queries", description=__doc__)
    parser.add_argument("--first", type=int, default=1, metavar="SEED")
    parser.add_argument("--seeds", type=int, default=200, metavar="N")
    parser.add_argument("--queries", type=int, default=100, metavar="N", help="of each seed")
    parser.add_argument("--jobs-every", type=int, default=10, metavar="N", help="one ten of so many is a job, too")
    parser.add_argument("--file", type=Path, default=Path("queries.jsonl"))
    arguments = parser.parse_args()
    done = done_seeds(arguments.file)
    total, broken, spark = kit.Tally(), 0, _session()
    for tally in done.values():
        total.add(tally)
    with kit.quick(spark), arguments.file.open("a") as file:
        if file.tell() and not arguments.file.read_text().endswith("\n"):  # a line was cut short
            file.write("\n")
        for seed in range(arguments.first, arguments.first + arguments.seeds):
            if seed in done:
                continue
            began = cpu_seconds()
            try:
                tally = _run(spark, seed, arguments.queries, arguments.jobs_every)
            except Exception:  # the other seeds are to be heard as well
                broken += 1
                print(f"seed {seed} broke off: {traceback.format_exc()}", flush=True)
                continue
            cpu = cpu_seconds() - began
            file.write(line(seed, cpu, tally))
            file.flush()
            total.add(tally)
            each = f"{1000 * cpu / tally.queries:.0f} ms of CPU a query"
            print(f"seed {seed}: {each}; in all {kit.counts(total)}", flush=True)
    print(kit.report(total))
    return int(bool(total.wrong or broken))


def line(seed: int, cpu: float, tally: kit.Tally) -> str:
    """``cpu``: in seconds."""
    return json.dumps({"seed": seed, "cpu": round(cpu, 1), "tally": vars(tally)}) + "\n"


def done_seeds(file: Path) -> dict[int, kit.Tally]:
    """By seed; a line that was cut short is no seed."""
    done: dict[int, kit.Tally] = {}
    for text in file.read_text().splitlines() if file.exists() else ():
        try:
            one = json.loads(text)
        except ValueError:
            continue
        told = one["tally"]
        done[one["seed"]] = kit.Tally(**{**told, "left": Counter(told["left"]), "gave_up": Counter(told["gave_up"])})
    return done


def _run(spark: Any, seed: int, queries: int, jobs_every: int) -> kit.Tally:
    with tempfile.TemporaryDirectory() as directory:
        held = kit.Kit(spark, Path(directory), seed)
        return kit.run(held, seed, queries, jobs_every=jobs_every, tell=lambda wrong: print(wrong, flush=True))


def _session() -> Any:
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.master("local[2]").config(map={**DEFAULTS, **SPARK}).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


if __name__ == "__main__":
    sys.exit(main())
