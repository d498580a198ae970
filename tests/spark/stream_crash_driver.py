"""A driver for the crash tests: brings a checkpoint into order, runs what there is to run, and repartitions; killed on the way.

Its one argument is a JSON object: ``checkpoint``, ``source``, ``sink``, ``kind`` (of the query), ``settings`` (of its session),
``to`` (partitions; 0: no repartition), ``hang`` (a batch in which the sink waits to be killed; -1: none). Tells what it does in
lines of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from firesteel.spark.session import create_session
from firesteel.spark.streams.inspection import STREAM_SETTINGS
from firesteel.spark.streams.recovery import recover, replay_pending
from firesteel.spark.streams.repartition import repartition_state


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


def main(spec):
    spark = create_session("local[2]", conf={"spark.ui.enabled": "false"})
    spark.sparkContext.setLogLevel("OFF")
    tell("started", jvm=spark._jvm.java.lang.ProcessHandle.current().pid())
    checkpoint = spec["checkpoint"]
    recovery = recover(spark, checkpoint)
    tell("recovered", outcome=recovery.outcome.value, sentence=recovery.sentence)
    sink = Sink(spec["sink"], spec["hang"])

    def writer():
        session = spark.newSession()
        for key, value in {**STREAM_SETTINGS, **spec["settings"], "spark.sql.shuffle.partitions": "2"}.items():
            session.conf.set(key, value)
        frame, mode = {"sums": sums, "joined": joined}[spec["kind"]](session, spec["source"])
        return frame.writeStream.outputMode(mode).foreachBatch(sink)

    if recovery.state.pending is not None:
        replayed = replay_pending(writer(), spark, checkpoint)
        tell("replayed", batch=replayed.batch, rows=replayed.rows)
    query = writer().option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    operators = query.lastProgress["stateOperators"] if query.lastProgress else []
    tell("ran", partitions=[o["numShufflePartitions"] for o in operators])
    if spec["to"]:
        tell("repartitioning")
        done = repartition_state(spark, checkpoint, spec["to"])
        tell("repartitioned", batch=done.batch, before=done.before)
        time.sleep(600)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
    os._exit(0)
