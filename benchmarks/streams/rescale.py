"""Benchmark 15: what a rescale of a running stream costs: rows processed twice, and downtime.

A count by key over 1 thousand to 10 million keys, its state on RocksDB, batches back to back, brought from 4 to 8 partitions in the
middle of a batch. Each run begins with a copy of one checkpoint that holds all keys; contenders take turns, in one session.
"""

from __future__ import annotations

import math
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

KEYS = {"1 thousand": 1_000, "100 thousand": 100_000, "1 million": 1_000_000, "10 million": 10_000_000}
BEFORE, AFTER = 4, 8
ROWS = 100_000
"""In a batch."""
PATIENCE = 600.0
POLL = 0.002
OPTIONS = {
    "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling": "0 s",
    "jobmanager.adaptive-scheduler.executing.resource-stabilization-timeout": "0 s",
    "jobmanager.adaptive-scheduler.submission.resource-stabilization-timeout": "0 s",
    "jobmanager.adaptive-scheduler.max-delay-for-scale-trigger": "10 min",
    "firesteel.progress": False,
}


@dataclass
class Sink:
    """What it was given: batch, when it came, when it was done; seconds."""

    seen: list[tuple[int, float, float]] = field(default_factory=list)
    busy: bool = False

    def take(self, rows: Any, batch: int) -> None:
        came = time.monotonic()
        self.busy = True
        try:
            rows.write.format("noop").mode("overwrite").save()
        finally:
            self.busy = False
            self.seen.append((batch, came, time.monotonic()))

    @property
    def rows_twice(self) -> int:
        return ROWS * (len(self.seen) - len({batch for batch, _, _ in self.seen}))


@dataclass
class Cost:
    """``downtime``: seconds in which no batch was worked on. ``rows``: processed twice."""

    downtime: float
    rows: int
    repartition: float = 0.0


def query(session: Any, keys: int, rows: int, sink: Sink) -> Any:
    import pyspark.sql.functions as F

    source = session.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).load()
    counted = source.groupBy((F.col("value") % keys).alias("key")).count()
    return counted.writeStream.outputMode("update").foreachBatch(sink.take)


def new_session(spark: Any, parallelism: int) -> Any:
    session = spark.newSession()
    provider = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    session.conf.set("spark.sql.streaming.stateStore.providerClass", provider)
    session.conf.set("spark.sql.shuffle.partitions", str(parallelism))
    return session


def start(spark: Any, keys: int, checkpoint: Path, sink: Sink, **trigger: Any) -> Any:
    writer = query(new_session(spark, BEFORE), keys, ROWS, sink)
    if trigger:
        writer = writer.trigger(**trigger)
    return writer.option("checkpointLocation", str(checkpoint)).start()


def until(true: Callable[[], Any], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        if time.monotonic() > end:
            raise RuntimeError(f"waited {PATIENCE:.0f} s in vain for {what}")
        time.sleep(POLL)


def make_state(spark: Any, keys: int, checkpoint: Path) -> None:
    writer = query(new_session(spark, BEFORE), keys, keys, Sink()).trigger(once=True)
    made = writer.option("checkpointLocation", str(checkpoint)).start()
    made.awaitTermination()


def running(sink: Sink, batches: int = 2) -> None:
    """Returns in the middle of a batch, once some are done."""
    until(lambda: len(sink.seen) >= batches and sink.busy, "a running batch")
    time.sleep(statistics.median(end - came for _, came, end in sink.seen) / 2)


def next_batch(sink: Sink, seen: int) -> float:
    """When the batch after the first ``seen`` came to the sink."""
    until(lambda: len(sink.seen) > seen, "the next batch")
    return sink.seen[seen][1]


def firesteel(spark: Any, keys: int, checkpoint: Path) -> Cost:
    """From the end of the last batch's work at the sink to the moment at which the next one comes there."""
    from firesteel.streaming import AdaptiveStream, ResourceRequirements

    sink = Sink()
    options = {**OPTIONS, "firesteel.journal.directory": str(checkpoint.with_name("journal"))}
    requirements = ResourceRequirements(1, BEFORE)

    def build(session: Any) -> Any:
        return query(session, keys, ROWS, sink)

    with AdaptiveStream.start(build, checkpoint, requirements, options=options, spark=spark) as stream:
        running(sink)
        stream.rescale(AFTER)
        until(lambda: stream.status().parallelism == AFTER, "the rescale")
        next_batch(sink, len(sink.seen))
    done = next(record for record in stream.history() if record.end == "completed")
    gaps = [after[1] - before[2] for before, after in zip(sink.seen, sink.seen[1:], strict=False)]
    return Cost(max(gaps), max(sink.rows_twice, done.replayed_rows), done.steps.get("repartition", 0.0))


def stop_now(spark: Any, keys: int, checkpoint: Path) -> Cost:
    """Stopped in the middle of a batch; what is pending is replayed, the state repartitioned, the query started."""
    sink = Sink()
    first = start(spark, keys, checkpoint, sink)
    running(sink)
    began = time.monotonic()
    first.stop()
    start(spark, keys, checkpoint, sink, once=True).awaitTermination()
    seconds = repartition(spark, checkpoint)
    seen = len(sink.seen)
    second = start(spark, keys, checkpoint, sink)
    downtime = next_batch(sink, seen) - began
    second.stop()
    return Cost(downtime, twice_before(sink, seen), seconds)


def bare(spark: Any, keys: int, checkpoint: Path) -> Cost:
    """The measure: a plain stop between batches and a start, without a rescale, and Spark's bare call beside it."""
    sink = Sink()
    first = start(spark, keys, checkpoint, sink, processingTime="5 seconds")
    until(lambda: first.lastProgress and not first.status["isTriggerActive"], "a gap between batches")
    began = time.monotonic()
    first.stop()
    seen = len(sink.seen)
    second = start(spark, keys, checkpoint, sink)
    restart = next_batch(sink, seen) - began
    second.stop()
    start(spark, keys, checkpoint, sink, once=True).awaitTermination()
    seconds = repartition(spark, checkpoint)
    return Cost(restart + seconds, 0, seconds)


def twice_before(sink: Sink, seen: int) -> int:
    return Sink(sink.seen[:seen]).rows_twice


def repartition(spark: Any, checkpoint: Path) -> float:
    began = time.monotonic()
    new_session(spark, AFTER)._streamingCheckpointManager.repartition(str(checkpoint), AFTER, True)
    return time.monotonic() - began


CONTENDERS = {
    "stop and start + bare call": bare,
    "Firesteel, at a checkpoint": firesteel,
    "stop now, replay, repartition, start": stop_now,
}


def main(runs: int, only: str) -> None:
    from firesteel.spark.session.sessions import create_session

    spark = create_session("local[*]", "rescale benchmark", {"spark.driver.memory": "2g"})
    spark.sparkContext.setLogLevel("OFF")  # a stop in the middle of a batch is no news here
    try:
        for name, keys in KEYS.items():
            if only in ("", name):
                print(measure(spark, name, keys, runs), flush=True)
    finally:
        spark.stop()


def measure(spark: Any, name: str, keys: int, runs: int) -> str:
    costs: dict[str, list[Cost]] = {contender: [] for contender in CONTENDERS}
    with tempfile.TemporaryDirectory(prefix="firesteel-rescale-") as folder:
        template = Path(folder) / "template"
        make_state(spark, keys, template)
        for turn in range(1 + runs):  # the first is not counted
            for contender, run in CONTENDERS.items():
                copy = Path(folder) / "run" / "checkpoint"
                shutil.copytree(template, copy)
                cost = run(spark, keys, copy)
                shutil.rmtree(copy.parent)
                if turn:
                    costs[contender].append(cost)
        size = sum(file.stat().st_size for file in template.rglob("*") if file.is_file())
    return table(f"rescale: {name} keys, {size / 2**20:.1f} MiB of checkpoint", costs)


def table(title: str, costs: dict[str, list[Cost]]) -> str:
    """Ratio: of the medians, to the first contender."""
    lines = [f"### {title}", "", "| contender | rows twice | downtime s | min - max | of it the call s | ratio |"]
    lines.append("|---|---|---|---|---|---|")
    base = math.nan
    for contender, found in costs.items():
        times = [cost.downtime for cost in found]
        median = statistics.median(times)
        base = median if math.isnan(base) else base
        rows = f"{max(cost.rows for cost in found):,}"
        call = statistics.median(cost.repartition for cost in found)
        lines.append(
            f"| {contender} | {rows} | {median:.2f} | {min(times):.2f} - {max(times):.2f} | {call:.2f} | {median / base:.2f} |"
        )
    return "\n".join(lines) + "\n"
