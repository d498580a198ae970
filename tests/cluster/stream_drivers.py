"""Drivers of streams on a cluster: ``stream_drivers.py CASE FOLDER`` prints its answer as JSON."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pyspark.sql.functions as F

from firesteel.spark.session import create_session
from firesteel.streaming import AdaptiveStream, ResourceRequirements
from stream_sources_kit import register_sources, until, write_file

AS = "jobmanager.adaptive-scheduler."
OPTIONS = {
    AS + "executing.cooldown-after-rescaling": "500 ms",
    AS + "executing.resource-stabilization-timeout": "1 s",
    AS + "submission.resource-stabilization-timeout": "1 s",
    AS + "max-delay-for-scale-trigger": "5 min",
    "firesteel.stream.partitions-per-core": 1,
    "firesteel.stream.max-partitions-per-core": 1,
    "firesteel.progress": False,
}


DYNAMIC = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.timeout": "4s",
    "spark.dynamicAllocation.minExecutors": "0",
    "spark.dynamicAllocation.maxExecutors": "2",
    "spark.dynamicAllocation.initialExecutors": "1",
    "spark.dynamicAllocation.executorIdleTimeout": "4s",
    "spark.executor.cores": "1",
}


def dynamic(folder: Path):
    """A stream between whose files Spark takes all executors away; then the user allows one partition only."""
    conf = {"spark.executor.memory": "512m", "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", **DYNAMIC}
    spark = create_session(os.environ["FIRESTEEL_TEST_MASTER"], "stream test", conf)
    batches, source = [], folder / "source"
    alive = spark.sparkContext._jsc.sc().statusTracker()

    def executors():
        return len(alive.getExecutorInfos()) - 1  # the driver counts

    def build(session):
        rows = session.readStream.schema("key long, value long").option("maxFilesPerTrigger", 1).json(str(source))
        counted = rows.groupBy("key").agg(F.count("*"))
        writer = counted.writeStream.outputMode("update")
        return writer.foreachBatch(lambda rows, batch: batches.append((batch, [tuple(row) for row in rows.collect()])))

    def feed(number):
        write_file(source, number, [{"key": key, "value": number} for key in range(50)])
        until(lambda: len(batches) > number or not stream.is_active, f"batch {number}")

    source.mkdir(parents=True)
    options = {**OPTIONS, "firesteel.journal.directory": str(folder / "journal")}
    options[AS + "submission.resource-stabilization-timeout"] = (
        "2 min"  # ends with the first executor, late as it may be
    )
    wanted = ResourceRequirements(lower=1, upper=4)
    with AdaptiveStream.start(build, folder / "chk", wanted, options=options, spark=spark) as stream:
        feed(0)
        until(lambda: not executors(), "Spark to take its executors away")
        seen = stream.status().parallelism
        stream.update_requirements(1, 1)
        feed(1)
        until(lambda: stream.status().parallelism == 1 or not stream.is_active, "one partition")
        feed(2)
    ids = [batch for batch, _ in batches]
    return {
        "seen": seen,
        "twice": len(ids) - len(set(ids)),
        "totals": sorted({row[0]: row[1] for _, rows in batches for row in rows}.items()),
        "rescales": [
            (one.before, one.granted, one.replayed_rows) for one in stream.history() if one.end == "completed"
        ],
    }


def follow(folder: Path):
    """A stream that says in ``folder`` where its tasks run and how far it has come, until it has grown and shrunk."""
    conf = {"spark.executor.memory": "512m", "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1"}
    spark = create_session(os.environ["FIRESTEEL_TEST_MASTER"], "stream test", conf)
    where, batches = str(folder), []

    def keyed(frames):
        began = time.time()
        host = os.environ.get("SPARK_LOCAL_IP")
        (Path(where) / f"busy-{host}-{began}").touch()
        time.sleep(0.3)
        for frame in frames:
            yield frame.assign(key=frame["value"] % 7)

    def build(session):
        log = register_sources(session).readStream.format("log").option("most", 40).load()
        counted = log.mapInPandas(keyed, "value long, key long").groupBy("key").agg(F.count("*"), F.sum("value"))
        writer = counted.writeStream.outputMode("update")
        return writer.foreachBatch(lambda rows, batch: batches.append((batch, [tuple(row) for row in rows.collect()])))

    options = {**OPTIONS, "firesteel.journal.directory": str(folder / "journal")}
    wanted = ResourceRequirements(lower=1, upper=4)
    with AdaptiveStream.start(build, folder / "chk", wanted, options=options, spark=spark) as stream:
        for parallelism, mark in ((1, "started"), (2, "grown"), (1, "shrunk")):

            def came(parallelism=parallelism):
                return stream.status().parallelism == parallelism or not stream.is_active

            until(came, mark, 120.0)
            seen = len(batches)
            until(lambda seen=seen: len(batches) > seen or not stream.is_active, f"a batch once it has {mark}", 120.0)
            (folder / mark).touch()
    ids = [batch for batch, _ in batches]
    return {
        "twice": len(ids) - len(set(ids)),
        "totals": sorted({row[0]: row for _, rows in batches for row in rows}.values()),
        "rescales": [
            (one.before, one.granted, one.replayed_rows) for one in stream.history() if one.end == "completed"
        ],
        "what": [one.what for one in stream.history()],
    }


if __name__ == "__main__":
    print(json.dumps({"follow": follow, "dynamic": dynamic}[sys.argv[1]](Path(sys.argv[2]))))
