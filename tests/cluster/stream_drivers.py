"""Drivers of streams on a cluster: ``stream_drivers.py CASE FOLDER`` prints its answer as JSON."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pyspark.sql.functions as F
from msgspec.structs import asdict
from pyspark import TaskContext
from pyspark.sql import SparkSession

from firesteel import SlotSharingGroup
from firesteel.api.environment import set_defaults
from firesteel.journal.file import read
from firesteel.scheduler.kernel.records import Decision
from firesteel.scheduler.streaming.records import RescaleRecord, StreamBatch, StreamStateChange
from firesteel.spark.session.sessions import create_session
from firesteel.streaming import AdaptiveStream, ResourceRequirements, UsageError
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


class Counting:
    """A stream on one partition that counts keys; each file is a batch. ``hold``: while it exists, the first task that begins
    stays where it is, until it is killed."""

    def __init__(self, folder: Path, **options):
        conf = {"spark.executor.memory": "512m", "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1"}
        spark = create_session(os.environ["FIRESTEEL_TEST_MASTER"], "stream test", conf)
        alive = spark.sparkContext._jsc.sc().statusTracker()
        until(lambda: len(alive.getExecutorInfos()) > 2, "both executors")
        self.source, self.hold, self.batches = folder / "source", folder / "hold", []
        self.source.mkdir(parents=True)
        given = {**OPTIONS, "firesteel.journal.directory": str(folder / "journal"), **options}
        self.stream = AdaptiveStream.start(
            self.build, folder / "chk", ResourceRequirements(lower=1, upper=1), options=given, spark=spark
        )

    def build(self, session):
        hold = str(self.hold)

        def gated(frames):
            if os.path.exists(hold):  # noqa: PTH110 - ships by value
                try:
                    os.close(os.open(hold + "-held", os.O_CREAT | os.O_EXCL))
                    while True:
                        time.sleep(0.01)
                except FileExistsError:
                    pass
            yield from frames

        rows = session.readStream.schema("key long, value long").option("maxFilesPerTrigger", 1).json(str(self.source))
        counted = rows.mapInPandas(gated, rows.schema).groupBy("key").agg(F.count("*"))
        return counted.writeStream.outputMode("update").foreachBatch(self.see)

    def see(self, rows, batch):
        self.batches.append((batch, [tuple(row) for row in rows.collect()]))

    def write(self, number):
        write_file(self.source, number, [{"key": key, "value": number} for key in range(50)])

    def committed(self, count):
        """So many batches; one that a rescale replays is not counted."""
        until(lambda: self.stream.status().batches >= count or not self.stream.is_active, f"{count} commits")

    def seen(self, number):
        """By the sink."""
        until(lambda: len(self.batches) > number or not self.stream.is_active, f"batch {number}")

    def rescaled(self):
        until(lambda: self.stream.status().rescales or not self.stream.is_active, "the rescale")

    def told(self):
        """The batches of the sink, the totals, and of the journal: phases, batches, rescales."""
        records = read(next((self.source.parent / "journal").glob("*.jsonl")))
        ids = [batch for batch, _ in self.batches]
        return {
            "twice": len(ids) - len(set(ids)),
            "totals": sorted({row[0]: row[1] for _, rows in self.batches for row in rows}.items()),
            "phases": [(r.at, r.phase) for r in records if isinstance(r, StreamStateChange) and r.phase],
            "batches": [(r.at, r.parallelism) for r in records if isinstance(r, StreamBatch)],
            "rescales": [asdict(r) for r in records if isinstance(r, RescaleRecord)],
        }


def in_cooldown(folder: Path):
    """A stream whose requirements change twice in the cooldown of its start."""
    counting = Counting(folder, **{AS + "executing.cooldown-after-rescaling": "10 s"})
    with counting.stream as stream:
        until(lambda: stream.status().phase == "Cooldown", "the cooldown of the start")
        stream.update_requirements(1, 4)
        stream.update_requirements(1, 2)
        waits = until(lambda: stream.status().waits_for, "what it waits for")
        counting.write(0), counting.committed(1)
        counting.rescaled()
        counting.write(1), counting.committed(2)
    return {**counting.told(), "waits": waits}


def failing(folder: Path):
    """A stream whose requirements change while a batch stands still, so that its checkpoint fails again and again."""
    counting = Counting(folder, **{"execution.checkpointing.timeout": "2 s"})
    with counting.stream as stream:
        counting.write(0), counting.committed(1)
        counting.hold.touch()
        counting.write(1)
        until(counting.hold.with_name("hold-held").exists, "a batch that stands still")
        stream.update_requirements(1, 2)
        counting.rescaled()
        counting.seen(1)
        counting.write(2), counting.committed(2)
    return counting.told()


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

            until(came, mark)
            seen = len(batches)
            until(lambda seen=seen: len(batches) > seen or not stream.is_active, f"a batch once it has {mark}")
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


def _counted(folder: Path, wanted: SlotSharingGroup, slots: int, spark=None):
    """A stream of this group that has counted the rows of a file, once so many slots were there. Its tasks write down what they
    are: cores, GPUs, host, from when until when."""
    seen, source, totals = str(folder / f"seen-{wanted.name}"), folder / f"source-{wanted.name}", {}
    Path(seen).mkdir()
    source.mkdir(parents=True)
    write_file(source, 0, [{"key": key, "value": key} for key in range(200)])

    def noted(frames):
        task, began = TaskContext.get(), time.time()
        gpus = [address for found in task.resources().values() for address in found.addresses]
        for frame in frames:
            time.sleep(0.3)
            yield frame
        note = [task.cpus(), gpus, os.environ.get("SPARK_LOCAL_IP", ""), began, time.time()]
        (Path(seen) / f"{task.taskAttemptId()}").write_text(json.dumps(note))

    def build(session):
        rows = session.readStream.schema("key long, value long").json(str(source))
        counted = rows.groupBy("key").agg(F.sum("value").alias("total")).mapInPandas(noted, "key long, total long")
        return counted.writeStream.outputMode("update").foreachBatch(
            lambda rows, batch: totals.update({row["key"]: row["total"] for row in rows.collect()})
        )

    options = {"firesteel.journal.directory": str(folder / "journal"), "firesteel.progress": False}
    options[AS + "submission.resource-stabilization-timeout"] = "500 ms"
    needs = ResourceRequirements(lower=slots, upper=64)
    with AdaptiveStream.start(
        build, folder / f"chk-{wanted.name}", needs, options=options, spark=spark, slot_sharing_group=wanted
    ) as stream:
        until(lambda: len(totals) == 200 or not stream.is_active, "the file")
        status = stream.status()
    tasks = [json.loads(path.read_text()) for path in Path(seen).iterdir()]
    right = totals == {key: key for key in range(200)}
    return stream, {"slots": status.slots, "parallelism": status.parallelism, "right": right}, tasks


def group(folder: Path):
    """Streams on a session that is made for the first of them, of 4 and 2 cores, and what is refused there."""
    set_defaults(master=os.environ["FIRESTEEL_TEST_MASTER"])
    stream, made, tasks = _counted(folder, SlotSharingGroup("wide", 2, "64 MiB"), 3)
    spark = SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
    made |= {
        "cpus": spark.sparkContext.getConf().get("spark.task.cpus"),
        "tasks take": sorted({task[0] for task in tasks}),
    }
    by_host = {host: [task for task in tasks if task[2] == host] for host in {task[2] for task in tasks}}
    at_once = {
        host: max(sum(other[3] <= task[3] < other[4] for other in here) for task in here)
        for host, here in by_host.items()
    }
    large, by_heap, _ = _counted(folder, SlotSharingGroup("heavy", 2, "400 MiB"), 2, spark)
    refused = {}
    options = {"firesteel.journal.directory": str(folder / "journal"), "firesteel.progress": False}
    narrow, fast = (
        {"slot_sharing_group": SlotSharingGroup("narrow", 1, "64 MiB")},
        "execution.batch.speculative.enabled",
    )
    for name, asked in (("refused", narrow), ("speculation", {"options": {**options, fast: True}})):
        try:
            AdaptiveStream.start(lambda session: None, folder / name, spark=spark, **{"options": options, **asked})
        except UsageError as error:
            refused[name] = str(error)
    why = next(d.reason for d in read(large.journal) if isinstance(d, Decision) and d.what == "parallelism")
    assert "wide (2 cores, 64 MiB heap)" in stream.explain()
    return {"made": made, "most at once": at_once, "by heap": by_heap, "why": why, **refused}


def gpus(folder: Path):
    """A stream on a session that gives each task a GPU; one executor has two, the other none."""
    conf = {"spark.executor.memory": "512m", "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1"}
    conf |= {"spark.task.resource.gpu.amount": "1", "spark.executor.resource.gpu.amount": "2"}
    spark = create_session(os.environ["FIRESTEEL_TEST_MASTER"], "stream test", conf)
    wanted = SlotSharingGroup("gpu", 1, "64 MiB", external_resources={"gpu": 1})
    _, told, tasks = _counted(folder, wanted, 2, spark)
    return {**told, "addresses": sorted({tuple(task[1]) for task in tasks})}


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](Path(sys.argv[2]))))
