"""Benchmark 24: rows that are answered by a service on loopback, by ``map_async``, by a pool of threads in PySpark's mapInArrow, and by a bare event loop.

The service is a process of its own that answers a line after 20 ms. Case "slots": it works on 20 at once, whatever comes waits, so it
gives about 1,000 answers a second. Case "rate": it works on any number, but refuses what comes beyond 1,000 in a second (a window that
slides); contenders that know of a limit keep to it, and whoever is refused asks again after 50 ms.
"""

from __future__ import annotations

import asyncio
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.kit.harness import ROOT, Contender, alternate, cpu_seconds

ROWS, LATENCY, AT_ONCE, LIMIT, CONCURRENCY, SLOTS = 6_000, 0.02, 20, 1_000, 30, 2
CASES = ("slots", "rate")
SCHEMA = "n bigint, answer string"
Run = Callable[[], list[Any]]


# --- the service ---------------------------------------------------------------------------------------------------


async def serve(case: str) -> None:
    """Prints its port, and answers until it is killed."""
    at_once = asyncio.Semaphore(AT_ONCE)
    taken: deque[float] = deque()

    def refused() -> bool:
        now = time.monotonic()
        while taken and taken[0] <= now - 1:
            taken.popleft()
        if len(taken) >= LIMIT:
            return True
        taken.append(now)
        return False

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            if case == "rate" and refused():
                writer.write(b"busy\n")
                continue
            if case == "slots":
                async with at_once:
                    await asyncio.sleep(LATENCY)
            else:
                await asyncio.sleep(LATENCY)
            writer.write(b"about " + line)

    server = await asyncio.start_server(client, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


# --- its clients ---------------------------------------------------------------------------------------------------


class Client:
    """As many connections as calls are in flight, each used by one call at a time."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def __call__(self, row: Any) -> tuple[int, str]:
        return row.n, await self.ask(row.n)

    async def ask(self, n: int) -> str:
        reader, writer = self.free.pop() if self.free else await asyncio.open_connection("127.0.0.1", self.port)
        while True:
            writer.write(b"%d\n" % n)
            answer = await reader.readline()
            if answer != b"busy\n":
                self.free.append((reader, writer))
                return answer.decode().strip()
            await asyncio.sleep(0.05)


def firesteel(case: str, port: int) -> Run:
    import pyarrow as pa

    from firesteel import ExecutionEnvironment

    env = ExecutionEnvironment(master=f"local[{SLOTS}]", options={"firesteel.progress": False})
    rows = env.from_arrow(pa.table({"n": pa.array(range(ROWS), pa.int64())})).repartition(SLOTS)
    rate = f"{LIMIT}/s" if case == "rate" else None

    def run() -> list[Any]:
        began = cpu_seconds()
        table = rows.map_async(Client(port), SCHEMA, concurrency=CONCURRENCY, rate=rate).to_arrow()
        return [table.num_rows, len(set(table["answer"].to_pylist())), cpu_seconds() - began]

    return run


def pyspark(case: str, port: int) -> Run:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = SparkSession.builder.master(f"local[{SLOTS}]").config("spark.ui.enabled", "false").getOrCreate()
    spark.conf.set("spark.sql.execution.arrow.pyspark.enabled", "true")
    frame = spark.range(0, ROWS, 1, SLOTS).withColumnRenamed("id", "n").cache()
    frame.count()

    def ask_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from concurrent.futures import ThreadPoolExecutor

        own = threading.local()

        def ask(n: int) -> str:
            if not hasattr(own, "file"):
                own.file = socket.create_connection(("127.0.0.1", port)).makefile("rwb")
            while True:
                own.file.write(b"%d\n" % n)
                own.file.flush()
                answer = own.file.readline()
                if answer != b"busy\n":
                    return answer.decode().strip()
                time.sleep(0.05)

        with ThreadPoolExecutor(CONCURRENCY) as pool:
            for batch in batches:
                yield pa.record_batch({"n": batch["n"], "answer": list(pool.map(ask, batch["n"].to_pylist()))})

    def run() -> list[Any]:
        began = cpu_seconds()
        table = frame.mapInArrow(ask_all, SCHEMA).toArrow()
        return [table.num_rows, len(set(table["answer"].to_pylist())), cpu_seconds() - began]

    return run


def alone(case: str, port: int) -> Run:
    """As many coroutines as both have together, on one event loop, without Spark: what the service gives at most."""

    async def all_rows() -> list[str]:
        client, left, found = Client(port), iter(range(ROWS)), list[str]()

        async def some() -> None:
            for n in left:
                found.append(await client.ask(n))

        await asyncio.gather(*(some() for _ in range(SLOTS * CONCURRENCY)))
        return found

    def run() -> list[Any]:
        began = cpu_seconds()
        found = asyncio.run(all_rows())
        return [len(found), len(set(found)), cpu_seconds() - began]

    return run


# --- what is asked, and what is printed ----------------------------------------------------------------------------


def main(runs: int, only: str) -> None:
    for case in CASES:
        if only in case:
            compare(case, runs)


def compare(case: str, runs: int) -> None:
    command = [sys.executable, "-m", __spec__.name, case]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as service:
        assert service.stdout is not None
        try:
            port = int(service.stdout.readline())
            entered = [
                Contender(name, f"{__name__}:{target}", {"case": case, "port": port})
                for name, target in (
                    ("map_async", "firesteel"),
                    ("threads in mapInArrow", "pyspark"),
                    ("event loop alone", "alone"),
                )
            ]
            answers = alternate(entered, runs=runs)
        finally:
            service.kill()
    assert {tuple(answer[:2]) for each in answers.values() for answer in each} == {(ROWS, ROWS)}, (
        "an answer for each row"
    )
    base = entered[1].median
    lines = [
        f"| {c.name} | {c.cold:.2f} | {c.median:.2f} | {min(c.warm):.2f} - {max(c.warm):.2f} | {ROWS / c.median / LIMIT:.3f} | "
        f"{c.median / base:.2f} | {statistics.median(answer[-1] for answer in answers[c.name]):.2f} |"
        for c in entered
    ]
    head = "| contender | cold s | warm median s | min - max | of the limit | ratio | CPU s |\n|---|---|---|---|---|---|---|"
    print("\n".join([f"### map_async: {case}, {ROWS:,} rows, local[{SLOTS}]", "", head, *lines, ""]), flush=True)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
