"""Benchmark 14: a stream whose load doubles twice and halves twice.

A row waits for something (it sleeps), so that slots count and not this machine's two cores: a batch takes as long as its
rows per slot. A real standalone cluster on loopback with executors of one core; a source that makes rows by the clock; state
by key in ``applyInPandasWithState``. Each contender is an application of its own, one after the other.

*Behind* is how old the oldest row is that came and is not committed, at each moment from the beginning of the load until all
of it is committed. Cores are held while their executor is there.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from benchmarks.kit import ticks
from benchmarks.kit.data import BASE
from benchmarks.kit.harness import Contender, alternate

ROOT = Path(__file__).resolve().parents[2]
ROWS_PER_SECOND = 38
WAIT = 0.016
"""Seconds that a row waits: 0.6 of a slot's work at the lowest load, 2.4 slots' at the highest."""
GAP = 3
"""Seconds of the query's trigger."""
WARM_ROWS, WARM_SECONDS = 200, 20.0
"""Before the load begins."""
KEYS = 256
LARGE, SMALL = 4, 1
PATIENCE = 240.0
STEP = 0.1
LOOK = 0.25
CHECKPOINTS = BASE / "load"


@dataclass(frozen=True)
class Case:
    """``rates``: in multiples of the lowest, one after another, each for ``phase`` seconds."""

    rates: tuple[int, ...] = (1, 2, 4, 2, 1)
    phase: float = 45.0


CASES = {"doubles": Case(), "steady": Case((1, 1)), "short": Case((1, 4, 1), 15.0)}
FIRESTEEL = {
    "firesteel.stream.scaling": "load",
    "firesteel.stream.partitions-per-core": 1,
    "firesteel.stream.load.window": "12 s",
    "firesteel.stream.load.low-utilization": 0.4,
    "firesteel.stream.load.target-utilization": 0.7,
    "firesteel.stream.load.high-utilization": 0.85,
    "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling": "5 s",
    "jobmanager.adaptive-scheduler.executing.resource-stabilization-timeout": "5 s",
}
DYNAMIC = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.timeout": "10s",
    "spark.dynamicAllocation.minExecutors": "1",
    "spark.dynamicAllocation.maxExecutors": str(LARGE),
    "spark.dynamicAllocation.initialExecutors": str(LARGE),
    "spark.dynamicAllocation.executorIdleTimeout": "10s",
}


# --- the load --------------------------------------------------------------------------------------------------------


class Pattern:
    """Rows that have come, as a function of the seconds since the load began, and back; WARM_ROWS came before."""

    def __init__(self, case: Case) -> None:
        self.ends = [0.0]
        self.rows = [float(WARM_ROWS)]
        for rate in case.rates:
            self.ends.append(self.ends[-1] + case.phase)
            self.rows.append(self.rows[-1] + rate * ROWS_PER_SECOND * case.phase)

    @property
    def seconds(self) -> float:
        return self.ends[-1]

    def arrived(self, at: float) -> float:
        place = min(bisect_right(self.ends, at), len(self.ends) - 1)
        return min(self.rows[-1], self._between(self.ends, self.rows, place, at))

    def due(self, row: float) -> float:
        """When row number ``row`` came."""
        place = min(max(bisect_right(self.rows, row), 1), len(self.rows) - 1)
        return self._between(self.rows, self.ends, place, row)

    @staticmethod
    def _between(xs: Sequence[float], ys: Sequence[float], place: int, x: float) -> float:
        share = (x - xs[place - 1]) / (xs[place] - xs[place - 1])
        return ys[place - 1] + share * (ys[place] - ys[place - 1])


def behind(pattern: Pattern, commits: Sequence[tuple[float, int]]) -> list[float]:
    """Seconds behind, each STEP from the beginning of the load. ``commits``: when, and rows so far."""
    last = max(commits[-1][0], pattern.seconds)
    whens = [when for when, _ in commits]
    found: list[float] = []
    for step in range(int(last / STEP)):
        at = step * STEP
        place = bisect_right(whens, at)
        done = commits[place - 1][1] if place else 0
        found.append(max(0.0, at - pattern.due(done)) if pattern.arrived(at) - done >= 1 else 0.0)
    return found


class LoadSource(DataSource):
    """``clock``: a file with the moment, in seconds since the epoch, when the load begins; ``case``: a name."""

    @classmethod
    def name(cls) -> str:
        return "load"

    def schema(self) -> str:
        return "id bigint"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return LoadReader(dict(self.options))


class LoadReader(DataSourceStreamReader):
    def __init__(self, options: dict[str, str]) -> None:
        self.pattern = Pattern(CASES[options["case"]])
        self.clock = Path(options["clock"])

    def initialOffset(self) -> dict[str, int]:
        return {"row": 0}

    def latestOffset(self) -> dict[str, int]:
        if self.clock.exists():
            return {"row": int(self.pattern.arrived(time.time() - float(self.clock.read_text())))}
        warm = min(1.0, (time.time() - self.clock.parent.stat().st_ctime) / WARM_SECONDS)
        return {"row": int(warm * WARM_ROWS)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition((start["row"], end["row"]))]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        begin, end = partition.value
        yield pa.RecordBatch.from_arrays([pa.array(range(begin, end), pa.int64())], names=["id"])


def wait_for_each(key: Any, frames: Iterator[Any], state: Any) -> Iterator[Any]:
    import pandas as pd

    rows = sum(len(frame) for frame in frames)
    time.sleep(rows * WAIT)
    state.update((rows + (state.get[0] if state.exists else 0),))
    yield pd.DataFrame({"rows": [rows]})


class Sink:
    """When rows were committed, by batch: one that is replayed counts once."""

    def __init__(self) -> None:
        self.batches: dict[int, tuple[float, int]] = {}

    def __call__(self, frame: Any, batch: int) -> None:
        rows = frame.groupBy().sum("rows").collect()[0][0] or 0
        self.batches.setdefault(batch, (time.time(), int(rows)))

    @property
    def rows(self) -> int:
        return sum(rows for _, rows in list(self.batches.values()))

    def commits(self, began: float) -> list[tuple[float, int]]:
        found: list[tuple[float, int]] = []
        for _, (when, rows) in sorted(self.batches.items()):
            found.append((when - began, rows + (found[-1][1] if found else 0)))
        return found


def query(case: str, clock: Path, sink: Sink) -> Callable[[Any], Any]:
    def build(spark: Any) -> Any:
        from pyspark.sql.functions import col
        from pyspark.sql.streaming.state import GroupStateTimeout

        spark.dataSource.register(LoadSource)
        source = spark.readStream.format("load").option("case", case).option("clock", str(clock)).load()
        keyed = source.select((col("id") % KEYS).alias("key"), "id").groupBy("key")
        waited = keyed.applyInPandasWithState(
            wait_for_each, "rows long", "rows long", "update", GroupStateTimeout.NoTimeout
        )
        return waited.writeStream.outputMode("update").trigger(processingTime=f"{GAP} seconds").foreachBatch(sink)

    return build


# --- contenders: each in a process of its own ------------------------------------------------------------------------


class Cores:
    """Core-seconds of the executors there are, from ``began`` on; they have one core each."""

    def __init__(self, context: Any, began: float) -> None:
        self._context, self._began = context, began
        self.held = 0.0
        self.most = self.least = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Cores:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        last = max(time.time(), self._began)
        while not self._over.wait(LOOK):
            now = time.time()
            if now < self._began:
                continue
            count = int(self._context._jsc.sc().getExecutorMemoryStatus().size()) - 1
            self.held += count * (now - last)
            self.most, self.least = max(self.most, count), min(self.least or count, count)
            last = now


def plain(master: str, case: str, cores: int, dynamic: bool) -> Callable[[], Any]:
    from firesteel.spark.streams.query import STREAM_SETTINGS

    def start(spark: Any, build: Callable[[Any], Any], checkpoint: str) -> tuple[Any, Callable[[], Any]]:
        spark.conf.set("spark.sql.shuffle.partitions", str(cores))
        started = build(spark).option("checkpointLocation", checkpoint).start()
        return started, lambda: {"rescales": 0}

    return _contender(master, case, start, cores, {**STREAM_SETTINGS, **(DYNAMIC if dynamic else {})})


def firesteel(master: str, case: str, dynamic: bool) -> Callable[[], Any]:
    def start(spark: Any, build: Callable[[Any], Any], checkpoint: str) -> tuple[Any, Callable[[], Any]]:
        from firesteel.streaming import AdaptiveStream, ResourceRequirements

        stream = AdaptiveStream.start(
            build, checkpoint, ResourceRequirements(1, LARGE), options={**ticks.QUIET, **FIRESTEEL}, spark=spark
        )

        def said() -> dict[str, Any]:
            done = [record for record in stream.history() if record.end == "completed"]
            return {
                "rescales": len(done),
                "path": [done[0].before, *(record.granted for record in done)] if done else [],
                "downtime": [round(record.downtime or 0.0, 2) for record in done],
                "twice": sum(record.replayed_rows for record in done),
            }

        return stream, said

    return _contender(master, case, start, LARGE, DYNAMIC if dynamic else {})


def _contender(master: str, case: str, start: Any, cores: int, settings: dict[str, str]) -> Callable[[], Any]:
    os.environ["PYTHONPATH"] = f"{ROOT / 'src'}:{ROOT}"
    spark = ticks.spark_session(master, cores, {"spark.driver.memory": "1g", **settings})
    pattern = Pattern(CASES[case])

    def run() -> dict[str, Any]:
        folder = CHECKPOINTS / f"{os.getpid()}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        sink, clock = Sink(), folder / "time" / "clock"
        clock.parent.mkdir()
        running, said = start(spark, query(case, clock, sink), str(folder / "checkpoint"))
        while sink.rows < WARM_ROWS:
            _still_runs(running)
            time.sleep(0.05)
        began = _begin(clock)
        with Cores(spark.sparkContext, began) as held:
            until = began + pattern.seconds + PATIENCE
            while sink.rows < int(pattern.rows[-1]) and time.time() < until:
                _still_runs(running)
                time.sleep(0.05)
        told = said()
        running.stop()
        shutil.rmtree(folder, ignore_errors=True)
        ages = behind(pattern, sink.commits(began))
        return {
            "rows": sink.rows,
            "behind": statistics.fmean(ages) if ages else 0.0,
            "most": max(ages),
            "over": max(0.0, sink.commits(began)[-1][0] - pattern.seconds),
            "held": held.held,
            "cores": [held.least, held.most],
            **told,
        }

    return run


def _still_runs(running: Any) -> None:
    if not (running.isActive if hasattr(running, "isActive") else running.is_active):
        raise RuntimeError("the query has ended")


def _begin(clock: Path) -> float:
    began = time.time()
    hidden = clock.with_suffix(".new")
    hidden.write_text(repr(began))
    hidden.rename(clock)
    return began


# --- what they are asked, and what is printed ------------------------------------------------------------------------


def contenders(master: str, case: str) -> list[Contender]:
    def fixed(name: str, cores: int, dynamic: bool = False) -> Contender:
        return Contender(
            name, f"{__name__}:plain", {"master": master, "case": case, "cores": cores, "dynamic": dynamic}
        )

    def ours(name: str, dynamic: bool) -> Contender:
        return Contender(name, f"{__name__}:firesteel", {"master": master, "case": case, "dynamic": dynamic})

    return [
        ours("Firesteel by load, Spark's dynamic allocation", True),
        ours(f"Firesteel by load, {LARGE} cores", False),
        fixed(f"fixed, {SMALL} core, {SMALL} partition", SMALL),
        fixed(f"fixed, {LARGE} cores, {LARGE} partitions", LARGE),
        fixed(f"Spark's dynamic allocation, {LARGE} partitions", LARGE, dynamic=True),
    ]


def main(runs: int, only: str) -> None:
    """``only``: a case ("doubles", "steady", "short"), and after a colon, where one is, words of the contenders' names."""
    from tools.standalone import HOSTS, StandaloneCluster

    case, _, words = (only or "doubles").partition(":")
    if case not in CASES:
        raise SystemExit(f"There is no case '{case}' here; there are {', '.join(CASES)}.")
    found: dict[str, list[dict[str, Any]]] = {}
    for _ in range(max(1, runs)):
        for place in range(len(contenders("", case))):
            with StandaloneCluster(hosts=HOSTS[:2], cores=LARGE // 2, memory="8g") as cluster:
                contender = contenders(cluster.url, case)[place]
                if words and words not in contender.name:
                    continue
                alternate([contender], runs=0, warmup=0)
            found.setdefault(contender.name, []).append(contender.cold_answer)
            print(f"<!-- {contender.name}: {json.dumps(contender.cold_answer)} -->", flush=True)
    print(report(case, found), flush=True)


def report(case: str, found: dict[str, list[dict[str, Any]]]) -> str:
    """Markdown; medians where there are several runs."""
    shape = CASES[case]
    runs = len(next(iter(found.values())))
    rates = ", ".join(str(rate * ROWS_PER_SECOND) for rate in shape.rates)
    lines = [
        f"### load: {rates} rows a second, {shape.phase:.0f} s each; a row waits {1000 * WAIT:.0f} ms ({runs} runs)",
        "",
        "| contender | s behind, mean | most | s from the load's end to the last commit | core-s held | rescales | rows twice |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, answers in found.items():
        middle = {
            key: statistics.median(answer.get(key, 0) for answer in answers)
            for key in ("behind", "most", "over", "held", "rescales", "twice")
        }
        lines.append(
            f"| {name} | {middle['behind']:.1f} | {middle['most']:.1f} | {middle['over']:.1f} | {middle['held']:.0f} "
            f"| {middle['rescales']:.0f} | {middle['twice']:.0f} |"
        )
    return "\n".join(lines) + "\n"
