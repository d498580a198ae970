"""A driver for the crash tests: an AdaptiveStream that does as it is told on its standard input, until it is killed.

Its one argument is a JSON object: ``checkpoint``, ``source``, ``sink``, ``journal``, ``kind`` (of the query), ``settings`` (of its
session), ``hang`` (a batch in which the sink waits to be killed; -1: none), ``deadly`` (a step of a rescale, before which the JVM
and the driver are killed; empty: none). A line of input is the number of partitions to rescale to. Tells what happens in
lines of JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

from firesteel.scheduler.kernel.records import Decision
from firesteel.scheduler.streaming.records import RescaleRecord, StreamBatch, StreamEnded
from firesteel.spark.session.sessions import create_session
from firesteel.streaming import AdaptiveStream, ResourceRequirements


def tell(what, **numbers):
    print(json.dumps({"what": what, **numbers}), flush=True)


def sums(session, source):
    from pyspark.sql import functions as f

    return _rows(session, source, "left").groupBy("k").agg(f.sum("v").alias("v")), "update"


def joined(session, source):
    right = _rows(session, source, "right").withColumnRenamed("v", "w")
    return _rows(session, source, "left").join(right, "k"), "append"


def _rows(session, source, side):
    stream = session.readStream.format("json").schema("k long, v long").option("maxFilesPerTrigger", 1)
    return stream.load(f"{source}/{side}")


class Sink:
    """One file for each batch, written as a whole: a batch that is run again replaces it."""

    def __init__(self, folder, hang):
        self.folder = Path(folder)
        self.hang = hang

    def __call__(self, frame, batch):
        rows = [row.asDict() for row in frame.collect()]
        if batch == self.hang:
            tell("in the batch")
            time.sleep(600)
        part = self.folder / f".{batch}"
        part.write_text(json.dumps(rows))
        part.rename(self.folder / f"{batch}.json")


class Watcher:
    """Tells what is decided and done, and dies at a step of a rescale."""

    def __init__(self, jvm, deadly):
        self.jvm, self.deadly = jvm, deadly

    def record(self, record):
        match record:
            case Decision(what="recovery"):
                tell("recovered", sentence=record.reason, rows=record.inputs["replayed rows"])
            case StreamBatch():
                tell("batch", batch=record.batch, partitions=record.parallelism)
            case RescaleRecord():
                tell("rescaled", end=record.end, reason=record.reason, to=record.granted, rows=record.replayed_rows)
            case StreamEnded():
                tell("ended", status=record.status, cause=record.cause)

    def stepped(self, step):
        tell("step", step=step.value)
        if step.value == self.deadly:
            os.kill(self.jvm, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)

    def close(self):
        pass


def main(spec):
    spark = create_session("local[2]", conf={"spark.ui.enabled": "false"})
    spark.sparkContext.setLogLevel("OFF")
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()
    tell("started", jvm=jvm)
    sink = Sink(spec["sink"], spec["hang"])

    def build(session):
        for key, value in spec["settings"].items():
            session.conf.set(key, value)
        frame, mode = {"sums": sums, "joined": joined}[spec["kind"]](session, spec["source"])
        return frame.writeStream.outputMode(mode).foreachBatch(sink)

    stream = AdaptiveStream.start(
        build,
        spec["checkpoint"],
        ResourceRequirements(1, 64),
        options={
            "firesteel.progress": False,
            "firesteel.journal.directory": spec["journal"],
            "firesteel.stream.partitions-per-core": 1,
            "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling": "0 s",
        },
        spark=spark,
        instruments=[Watcher(jvm, spec["deadly"])],
    )
    for line in sys.stdin:
        stream.rescale(int(line))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
