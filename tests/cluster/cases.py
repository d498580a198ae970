"""Jobs on the cluster, one after another on one session: reads cases from its input, prints their answers, as JSON lines.

Tasks that ``hold`` make a file whose name says where they are, and wait for another one: so a test knows when to strike.
"""

from __future__ import annotations

import dataclasses
import faulthandler
import json
import os
import re
import signal
import sys
import time
import traceback
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import join_queries_kit
import no_script  # noqa: F401
import oracle
import runtime_support
import tpcds_kit
from firesteel import ExecutionEnvironment, Split
from firesteel.arrow import col
from firesteel.errors import JobCancelledError
from firesteel.scheduler.kernel.records import Decision, StateChange
from firesteel.spark.driver.runtime import submit
from firesteel.spark.session.preflight import executors
from firesteel.spark.session.sessions import create_session
from firesteel.spark.slots.session_account import _sessions
from firesteel.spark.standing import crew, small
from firesteel.spark.storage.cleaning import late
from runtime_support import collected, left_behind, options, two_steps

SCHEMA = pa.schema([("v", pa.int64())])


def holding(folder, name, after=0):
    """A step that hands on ``after`` batches, then says where it is and waits for the file ``go-NAME``."""
    where = str(folder)

    def hold(batches):
        import os
        import time
        import uuid
        from pathlib import Path

        batches = iter(batches)
        for _ in range(after):
            yield next(batches)
        (Path(where) / f"at-{name}-{uuid.uuid4().hex}-{os.environ.get('SPARK_LOCAL_IP')}").touch()
        while not (Path(where) / f"go-{name}").exists():
            time.sleep(0.01)
        yield from batches

    return hold


class Placed:
    """Numbers, each split with a file that says where it was read."""

    name = "placed"

    def __init__(self, folder, rows):
        self.folder, self.numbers = str(folder), runtime_support.Numbers(rows)

    def read(self, split, ctx):
        (Path(self.folder) / f"at-numbers-{split}-{os.environ.get('SPARK_LOCAL_IP')}").touch()
        yield from self.numbers.read(split, ctx)


class Pieces:
    """``splits`` splits of ``batches`` batches of ``rows`` rows each, numbered on. Ships by value."""

    name, schema = "pieces", SCHEMA
    supports_concurrent_execution_attempts = True

    def __init__(self, splits, batches, rows):
        self.splits, self.batches, self.rows = splits, batches, rows

    def list_splits(self, data_volume):
        return [Split(k, 8 * self.batches * self.rows, f"split {k}") for k in range(self.splits)]

    def read(self, split, ctx):
        for number in range(split * self.batches, (split + 1) * self.batches):
            yield pa.record_batch([pa.array(range(number * self.rows, (number + 1) * self.rows))], schema=SCHEMA)


class Records:
    """Keeps a job's records, as the journal would."""

    def __init__(self):
        self.records = []

    def record(self, record):
        self.records.append(record)

    def close(self):
        pass

    def decisions(self, what):
        return [msgspec.to_builtins(r) for r in self.records if isinstance(r, Decision) and r.what == what]

    def attempts(self):
        """[{vertex, subtask, attempt, mirror, node, states: {name: at}, cause}], in the order of their creation."""
        known = {}
        for r in self.records:
            if not isinstance(r, StateChange):
                continue
            columns = zip(r.subtasks, r.attempts, strict=True)
            for k, (subtask, attempt) in enumerate(columns):
                one = known.setdefault(
                    (r.vertex, subtask, attempt),
                    {"vertex": r.vertex, "subtask": subtask, "attempt": attempt, "states": {}, "node": "", "cause": ""},
                )
                one["states"][r.state] = r.times[k] if r.times else r.at
                if r.running:  # those that finish tell of their earlier states
                    one["states"] |= {"DEPLOYING": r.deployed[k], "RUNNING": r.running[k]}
                one["mirror"] = bool(r.mirrors[k]) if r.mirrors and r.state == "CREATED" else one.get("mirror", False)
                if r.nodes and r.nodes[k] >= 0:
                    one["node"] = r.hosts[r.nodes[k]]
                one["cause"] = r.cause or one["cause"]
        return list(known.values())


def environment(spark, folder, **more):
    given = {
        "firesteel.storage.directory": str(folder / "storage"),
        "firesteel.journal.directory": str(folder / "journal"),
        "firesteel.progress": "false",
        "restart-strategy.fixed-delay.delay": "10 ms",
    }
    return ExecutionEnvironment(spark=spark, options={**given, **{k.replace("__", "."): v for k, v in more.items()}})


def run(spark, folder, compiled, **more):
    """(rows sorted by v, records) of a hand-made job; its error is raised."""
    records = Records()
    outcome = submit(compiled, spark, options(folder, **more), [records]).result()
    if outcome.error is not None:
        raise outcome.error
    values = sorted(collected(outcome)["v"].to_pylist())
    outcome.close()
    late.run_all()
    return values, records


def story(folder):
    """The records of the only journal of a folder."""
    from firesteel.journal.file import read

    (path,) = (folder / "journal").glob("*.jsonl")
    records = Records()
    records.records = read(path)
    return records


# --- cases ------------------------------------------------------------------------------------------------------


def case_warm(spark, folder):
    """The session has started, knows all executors, and their Python workers have everything loaded."""
    env = environment(spark, folder)
    pieces = env.from_source(Pieces(9, 1, 10)).set_parallelism(9)
    pieces.rebalance().map_in_arrow(iter, SCHEMA).set_parallelism(9).write_parquet(folder / "out").set_parallelism(9)
    env.execute("warm")
    return {}


def case_damaged(spark, folder):
    """Two steps; the consumers hold before they read."""
    source = Placed(folder, 5_000)
    compiled = two_steps(splits=6, source=source, fn=holding(folder, "read"), parallelism=3)
    values, records = run(spark, folder, compiled)
    failovers = [{**d["inputs"], **d["result"], "vertex": d["vertex"]} for d in records.decisions("failover")]
    return {
        "right": values == list(range(30_000)),
        "failovers": failovers,
        "attempts": records.attempts(),
        "left": left_behind(folder),
    }


def case_writing(spark, folder):
    """Six splits, which hold in the middle of writing a result; three subtasks, which hold in the middle of a sink's file."""
    env = environment(spark, folder)
    pieces = env.from_source(Pieces(6, 8, 4_000)).set_parallelism(6)
    mapped = pieces.map_in_arrow(holding(folder, "source", after=4), SCHEMA).set_parallelism(6).rebalance()
    sunk = mapped.map_in_arrow(holding(folder, "sink", after=1), SCHEMA).set_parallelism(3)
    sunk.write_parquet(folder / "out").set_parallelism(3)
    env.execute("writing")
    late.run_all()
    return {
        "right": sorted(pq.read_table(folder / "out")["v"].to_pylist()) == list(range(6 * 8 * 4_000)),
        "attempts": story(folder).attempts(),
        "hidden": [p.name for p in (folder / "out").rglob("*") if p.name.startswith(".")],
        "beside": sorted(p.name for p in folder.iterdir() if p.name.startswith(".")),
        "left": left_behind(folder),
    }


def case_sorted(spark, folder):
    """Six producers of ranges, which hold in the middle of writing; three subtasks of a sort, which hold when they have begun."""
    env = environment(spark, folder)
    pieces = env.from_source(Pieces(6, 8, 4_000)).set_parallelism(6)
    mixed = pieces.with_column("v", pc.bit_wise_and(pc.multiply(col("v"), 7_919), (1 << 18) - 1)).set_parallelism(6)
    written = mixed.map_in_arrow(holding(folder, "ranges", after=4), SCHEMA).set_parallelism(6)
    ordered = written.sort("v").set_parallelism(3).map_in_arrow(holding(folder, "sorted", after=1), SCHEMA)
    found = ordered.to_arrow()["v"].to_pylist()
    late.run_all()
    return {
        "right": found == sorted(v * 7_919 % (1 << 18) for v in range(6 * 8 * 4_000)),
        "attempts": story(folder).attempts(),
        "left": left_behind(folder),
    }


def case_pipelined(spark, folder):
    """A source and two steps in the same tasks, which hold in the last step."""
    more = {"execution__batch-shuffle-mode": "ALL_EXCHANGES_PIPELINED", "jobmanager__scheduler": "Default"}
    env = environment(spark, folder, **more)
    tens = env.from_source(Pieces(4, 1, 10)).set_parallelism(4).disable_chaining()
    rows = tens.map_in_arrow(holding(folder, "step"), SCHEMA).disable_chaining().to_arrow()
    late.run_all()
    return {"values": sorted(rows["v"].to_pylist()), "left": left_behind(folder)}


def case_merged(spark, folder):
    """Consumers of merged objects, behind a file system of the user's, that hold."""
    given = {
        "firesteel__storage__filesystem": "far_storage:open_far",
        "firesteel__merge__request-time": "1 s",
        "firesteel__deployment__offload-threshold": "1 b",
        "firesteel__memory__per-task": "1 MiB",
    }
    source = runtime_support.Numbers(20_000, keys=10_007)
    compiled = two_steps(splits=12, source=source, fn=holding(folder, "merged"), parallelism=7)
    values, records = run(spark, folder, compiled, **given)
    return {
        "right": values == list(range(12 * 20_000)),
        "merged": [d["result"] for d in records.decisions("merged")],
        "left": left_behind(folder),
    }


def case_standing(spark, folder):
    """A job of small subtasks, one whose executors cannot reach its driver, and one after that."""
    answer = {}
    for name in ("reached", "unreached", "later"):
        own = folder / name
        own.mkdir()
        if name == "unreached":
            real = small.tcp_door
            small.tcp_door = closed_door
        values, records = run(spark, own, two_steps(splits=30, rows=10, parallelism=3))
        answer[name] = {
            "right": values == list(range(300)),
            "results": [d["result"] for d in records.decisions("deployment")],
            "failed": [a for a in records.attempts() if "FAILED" in a["states"]],
            "left": left_behind(own),
        }
    small.tcp_door = real
    small._unreached.clear()
    return answer


def closed_door(context):
    """A door that nobody can find: its port is another one's, who hangs up."""
    door = crew.tcp_door(context)
    door.address = dataclasses.replace(door.address, port=1)
    return door


def case_rated(spark, folder, rate, rows):
    """A service on three executors, whose calls note when and where they were made."""
    where = str(folder)

    async def call(row):
        import os
        import time
        from pathlib import Path

        host = os.environ.get("SPARK_LOCAL_IP")
        with (Path(where) / f"calls-{host}-{os.getpid()}").open("a") as calls:
            calls.write(f"{time.time()}\n")
        return {"v": row["v"]}

    env = environment(spark, folder)
    numbers = env.from_source(Pieces(3, 10, rows // 30))
    found = numbers.map_async(call, SCHEMA, concurrency=50, rate=f"{rate}/s").set_parallelism(3).to_arrow()
    late.run_all()
    files = sorted(folder.glob("calls-*"))
    return {
        "right": sorted(found["v"].to_pylist()) == list(range(rows)),
        "calls": sorted(float(line) for file in files for line in file.read_text().split()),
        "hosts": sorted({file.name.split("-")[1] for file in files}),
        "left": left_behind(folder),
    }


def case_hiccups(spark, folder, every):
    """A storage of which one request in ``every`` fails."""
    (folder / "storage").mkdir()
    (folder / "storage" / ".hiccups").write_text(str(every))
    compiled = two_steps(splits=12, rows=2_000, parallelism=5)
    given = {"firesteel__storage__filesystem": "far_storage:open_failing"}
    values, records = run(spark, folder, compiled, **given)
    return {
        "right": values == list(range(24_000)),
        "failovers": records.decisions("failover"),
        "failed": sum(len(p.read_bytes()) for p in (folder / "storage").glob(".failed-*")),
        "left": [name for name in left_behind(folder) if not name.startswith((".hiccups", ".failed"))],
    }


def case_cancelled(spark, folder):
    """Cancelled by another thread's word while tasks of two kinds hold; then another job on the same session."""
    env = environment(spark, folder)
    pieces = env.from_source(Pieces(4, 2, 10)).set_parallelism(4)
    held = pieces.map_in_arrow(holding(folder, "cancel", after=1), SCHEMA).set_parallelism(4)
    held.write_parquet(folder / "out").set_parallelism(4)
    client = env.execute_async("to be cancelled")
    while not (folder / "cancel").exists():
        time.sleep(0.01)
    began = time.monotonic()
    client.cancel()
    try:
        client.wait(600)
        told = "it finished"
    except JobCancelledError as error:
        told = str(error)
    seconds = time.monotonic() - began
    rows = environment(spark, folder).from_source(Pieces(3, 1, 10)).to_arrow()
    late.run_all()
    return {
        "told": told,
        "seconds": seconds,
        "next": sorted(rows["v"].to_pylist()),
        "out": [str(p) for p in folder.glob("*out*")],
        "left": left_behind(folder),
    }


def case_interrupted(spark, folder):
    """Ctrl-C comes while the main thread waits for the job."""
    env = environment(spark, folder)
    held = env.from_source(Pieces(4, 1, 10)).set_parallelism(4).map_in_arrow(holding(folder, "never"), SCHEMA)
    held.set_parallelism(4).write_parquet(folder / "out").set_parallelism(4)
    try:
        env.execute("to be interrupted")
        told = "it finished"
    except KeyboardInterrupt as error:
        told = str(error)
    late.run_all()
    rows = environment(spark, folder).from_source(Pieces(3, 1, 10)).to_arrow()
    return {
        "told": told,
        "next": sorted(rows["v"].to_pylist()),
        "out": [str(p) for p in folder.glob("*out*")],
        "left": left_behind(folder),
    }


def case_waiting(spark, folder):
    """Says what the job waits for, as it changes, into the file ``waits``; the job runs until nothing holds it."""
    env = environment(spark, folder)
    held = env.from_source(Pieces(3, 1, 10)).set_parallelism(3).map_in_arrow(holding(folder, "waits"), SCHEMA)
    held.set_parallelism(3).write_parquet(folder / "out").set_parallelism(3)
    client = env.execute_async("waiting")
    with (folder / "waits").open("w") as said:
        while client.status().value not in ("FINISHED", "FAILED", "CANCELED"):
            print(" ".join(client.waiting_for()), file=said, flush=True)
            time.sleep(0.05)
    client.wait()
    late.run_all()
    return {"rows": sorted(pq.read_table(folder / "out")["v"].to_pylist()), "left": left_behind(folder)}


def case_repartitioned(spark, folder, partitions):
    """A stream's state is brought to this many partitions; and the stream goes on."""
    from firesteel.spark.streams.checkpoint_files import CheckpointFiles
    from firesteel.spark.streams.query import STREAM_SETTINGS
    from firesteel.spark.streams.repartition import repartition_state

    checkpoint, source, counts = str(folder / "checkpoint"), folder / "source", {}

    def more(name):
        session = spark.newSession()
        for key, value in {**STREAM_SETTINGS, "spark.sql.shuffle.partitions": "3"}.items():
            session.conf.set(key, value)
        pq.write_table(pa.table({"v": range(3_000)}), source / f"{name}.parquet")
        frame = session.readStream.schema("v long").parquet(str(source)).groupBy("v").count()
        writer = frame.writeStream.outputMode("update").option("checkpointLocation", checkpoint)
        writer = writer.foreachBatch(lambda batch, _: counts.update({row[0]: row[1] for row in batch.collect()}))
        writer.trigger(availableNow=True).start().awaitTermination()

    source.mkdir()
    more("first")
    before = CheckpointFiles(spark, checkpoint).read().parallelism
    repartition_state(spark, checkpoint, partitions)
    more("second")
    state = CheckpointFiles(spark, checkpoint).read()
    return {
        "right": counts == dict.fromkeys(range(3_000), 2),
        "before": before,
        "parallelism": state.parallelism,
        "pending": state.pending,
    }


def case_joined(spark, folder, queries, strategy, fails, hold, slow):
    """Joins in one job, each into files of its own. ``strategy``: "decided",
    "hint" or "never"; ``fails``: the producers of all small sides fail once; ``hold``: "large" or "joined", where tasks of the
    first one hold after a batch; the large side of the last one has a task that ends only by its mirror if ``slow``."""
    from firesteel.scheduler.joins import deferrals

    prefix = "jobmanager.adaptive-batch-scheduler.speculative."
    more = {
        prefix + "enabled": "true",
        prefix + "block-slow-node-duration": "0 s",
        "slow-task-detector.check-interval": "100 ms",
        "slow-task-detector.execution-time.baseline-lower-bound": "500 ms",
        "slow-task-detector.execution-time.baseline-ratio": "0.5",
        "restart-strategy.fixed-delay.attempts": "100",
        "data-volume-per-task": "50 kb",
        "firesteel.decider.least-volume-per-slot": "0",
    }
    env = environment(spark, folder, **more)
    chosen = [join_queries_kit.Query(*query) for query in queries]
    for query in chosen:
        is_held = hold if query is chosen[0] else ""
        is_slow = slow and query is chosen[-1]
        _joined(env, folder, query, strategy, fails, is_held, is_slow).write_parquet(folder / query.name)
    share, deferrals.WAIT_SHARE = (
        deferrals.WAIT_SHARE,
        1e9,
    )  # what is decided does not depend on how busy the machine is
    try:
        env.execute("joined")
    finally:
        deferrals.WAIT_SHARE = share
    late.run_all()
    found = story(folder)
    return {
        "decisions": [(d["name"], d["result"], d["rule"]) for d in found.decisions("join")],
        "failovers": [(d["name"], d["inputs"]["kind"]) for d in found.decisions("failover")],
        "attempts": found.attempts(),
        "hidden": [p.name for p in folder.rglob("*") if p.name.startswith((".", "_temporary"))],
        "left": left_behind(folder),
    }


def _joined(env, folder, query, strategy, fails, hold, slow):
    tables = query.tables()
    small, large = ("l", "r") if query.small == "left" else ("r", "l")
    few = env.from_source(join_queries_kit.Rows(f"few of {query.name}", tables[small], 2))
    many = env.from_source(
        join_queries_kit.Rows(f"many of {query.name}", tables[large], join_queries_kit.SPLITS, slow=slow)
    )
    if fails:
        few = few.map_in_arrow(join_queries_kit.failing_once(folder, query.name), few.schema)
    if hold == "large":
        many = many.map_in_arrow(holding(folder, "half", after=1), many.schema)
    sides = (few, many) if query.small == "left" else (many, few)
    hint = {"decided": None, "hint": None if query.how == "full" else query.small, "never": "never"}[strategy]
    found = sides[0].key_by("k").join(sides[1].key_by("k"), query.how, broadcast=hint)
    return found.map_in_arrow(holding(folder, "half", after=1), found.schema) if hold == "joined" else found


SQL = """
    SELECT n_name, count(*) AS c, sum(price) AS price, count(DISTINCT l_quantity) AS q FROM {lines}
    JOIN (SELECT s_suppkey, n_name FROM supplier JOIN nation ON s_nationkey = n_nationkey) ON l_suppkey = s_suppkey
    WHERE l_orderkey IN (SELECT o_orderkey FROM orders WHERE o_orderdate >= DATE '1995-01-01') GROUP BY n_name"""
LINES = """
    SELECT l_orderkey, l_suppkey, l_quantity, l_extendedprice * (1 - l_discount) AS price FROM lineitem
    WHERE l_shipdate < DATE '1998-01-01'"""


_SPECULATIVE = "jobmanager.adaptive-batch-scheduler.speculative."
SQL_SPECULATING = {
    "firesteel.decider.least-volume-per-slot": "0",
    _SPECULATIVE + "enabled": "true",
    _SPECULATIVE + "block-slow-node-duration": "0 s",
    "slow-task-detector.check-interval": "100 ms",
    "slow-task-detector.execution-time.baseline-lower-bound": "500 ms",
}
"""Options of jobs of many small tasks, where who is slow has a mirror."""


def slow_once(folder):
    """A step whose first task never ends, wherever it runs; its mirror does."""
    where = str(folder)

    def slow(batches):
        import time
        from pathlib import Path

        try:
            (Path(where) / "slow").touch(exist_ok=False)
        except FileExistsError:
            yield from batches
            return
        while True:
            time.sleep(0.05)

    return slow


def case_sql(spark, folder, fault):
    """A query over a query with a Python step between: in tasks of ours that read, join and group by the engine. ``fault``: "lost": tasks hold
    in the step, until an executor is gone; "slow": one of them ends only by its mirror."""
    more = {
        **SQL_SPECULATING,
        "data-volume-per-task": "100 kb",
        _SPECULATIVE + "enabled": str(fault == "slow").lower(),
    }
    env = environment(spark, folder, **more)
    for table in oracle.tpch(0.01).iterdir():
        spark.read.parquet(str(table)).createOrReplaceTempView(table.name)
    lines = env.from_dataframe(spark.sql(LINES))
    step = holding(folder, "step") if fault == "lost" else slow_once(folder)
    found = env.sql(SQL, lines=lines.map_in_arrow(step, lines.schema))
    told = found.explain()
    found.write_parquet(folder / "out")
    env.execute("sql")
    late.run_all()
    records = story(folder)
    whole = SQL.replace("{lines}", f"({LINES})")
    return {"explain": told, "attempts": records.attempts(), "left": left_behind(folder), "sql": whole}


def case_tpcds(spark, folder, numbers, lost, slow):
    """Queries of TPC-DS in a job each, into files, and Spark's own answers. Tasks that read ``store_sales`` hold in the query ``lost``, until an
    executor is gone; in ``slow`` one of them ends only by its mirror."""
    home, known = tpcds_kit.tpcds(0.1)
    for table in home.iterdir():
        if table.is_dir():
            spark.read.parquet(str(table)).createOrReplaceTempView(table.name)
    attempts, explained = {}, {}
    for number in numbers:
        text = known[number][1]
        pq.write_table(spark.sql(text).toArrow(), folder / f"spark-{number}.parquet")
        env = environment(spark, folder / str(number), **SQL_SPECULATING, **{"data-volume-per-task": "1 mb"})
        streams = {}
        if number in (lost, slow):
            sales = env.from_dataframe(spark.table("store_sales"))
            step = holding(folder, "step") if number == lost else slow_once(folder)
            streams["store_sales"] = sales.map_in_arrow(step, sales.schema)
            text = re.sub(r"\bstore_sales\b", "{store_sales}", text)
        found = env.sql(text, **streams)
        explained[number] = found.explain()
        found.write_parquet(folder / str(number) / "out")
        env.execute(f"query {number}")
        late.run_all()
        attempts[number] = story(folder / str(number)).attempts()
    left = [name for number in numbers for name in left_behind(folder / str(number))]
    return {"explained": explained, "attempts": attempts, "left": left}


def case_skewed(spark, folder, queries, adaptive):
    """Queries over the tables in the folder, as results of one job."""
    more = {**SQL_SPECULATING, "data-volume-per-task": "50 kb", "firesteel.join.adaptive": adaptive}
    env = environment(spark, folder, **more)
    for table in (folder / "tables").iterdir():
        spark.read.parquet(str(table)).createOrReplaceTempView(table.name)
    explained = {}
    for name, text in queries.items():
        found = env.sql(text)
        explained[name] = found.explain()
        found.write_parquet(folder / name)
    env.execute("skewed")
    late.run_all()
    cut = [one["result"] for one in story(folder).decisions("parallelism")]
    return {
        "explained": explained,
        "divided": [one["divided"] for one in cut if "divided" in one],
        "left": left_behind(folder),
    }


class Work:
    """``splits`` splits, each of ``naps`` naps of a millisecond: what stops a process makes them long. Says where it begins.

    ``gate``: a file for which every attempt waits when it has begun. ``race``: every attempt at split 0 says its number and
    waits before its end for the file ``go-end``.
    """

    name, schema = "work", SCHEMA
    supports_concurrent_execution_attempts = True

    def __init__(self, folder, splits, naps, race=False, gate=None):
        self.folder, self.splits, self.naps, self.race, self.gate = str(folder), splits, naps, race, gate

    def list_splits(self, data_volume):
        return [Split(k, 800, f"split {k}") for k in range(self.splits)]

    def read(self, split, ctx):
        import os
        import time
        import uuid
        from pathlib import Path

        def tell(what):
            host = os.environ.get("SPARK_LOCAL_IP")
            (Path(self.folder) / f"at-{what}-{uuid.uuid4().hex}-{host}").touch()

        def wait_for(name):
            while not (Path(self.folder) / name).exists():
                time.sleep(0.001)

        tell("begin")
        if self.gate:
            wait_for(self.gate)
        for part in range(10):
            yield pa.record_batch(
                [pa.array(range(split * 100 + part * 10, split * 100 + part * 10 + 10))], schema=SCHEMA
            )
            for _ in range(self.naps // 10):
                time.sleep(0.001)
        if self.race and split == 0:
            tell(f"end-{ctx.attempt}")
            wait_for("go-end")


def case_speculating(
    spark, folder, splits, naps, race=False, side_effects=False, sink="parquet", hold=False, gate=None
):
    """Subtasks of equal length, written by a sink; ``hold``: with an exchange before it, at whose end consumers hold."""
    prefix = "jobmanager.adaptive-batch-scheduler.speculative."
    more = {
        prefix + "enabled": "true",
        "slow-task-detector.check-interval": "200 ms",
        "slow-task-detector.execution-time.baseline-lower-bound": "500 ms",
        "slow-task-detector.execution-time.baseline-ratio": "0.5",
    }
    env = environment(spark, folder, **more)
    rows = env.from_source(Work(folder, splits, naps, race, gate)).set_parallelism(splits)
    if side_effects:
        rows = rows.map_in_arrow(lambda batches: batches, SCHEMA).set_parallelism(splits).side_effects()
    if hold:
        rows = rows.rebalance().map_in_arrow(holding(folder, "read"), SCHEMA).set_parallelism(2)
    out = folder / "out"
    wide = 2 if hold else splits
    if sink == "parquet":
        rows.write_parquet(out).set_parallelism(wide)
    else:
        rows.select(s=field_text()).set_parallelism(wide).write_text(out).set_parallelism(wide)
    began = time.monotonic()
    env.execute("speculating")
    seconds = time.monotonic() - began
    (folder / "ended").touch()
    late.run_all()
    found = story(folder)
    return {
        "seconds": seconds,
        "rows": read_back(out, sink),
        "attempts": found.attempts(),
        "mirrors": found.decisions("speculation"),
        "winners": found.decisions("winner"),
        "blocked": found.decisions("blocklist"),
        "failovers": found.decisions("failover"),
        "hidden": [p.name for p in out.rglob("*") if p.name.startswith(".")],
        "beside": sorted(p.name for p in folder.iterdir() if p.name.startswith(".")),
        "left": left_behind(folder),
    }


def field_text():
    import pyarrow.compute as pc

    return pc.field("v").cast(pa.string())


def read_back(out, sink):
    if sink == "parquet":
        return sorted(pq.read_table(out)["v"].to_pylist())
    files = [p for p in out.rglob("*") if p.is_file() and not p.name.startswith((".", "_"))]
    return sorted(int(line) for p in files for line in p.read_text().splitlines())


# ------------------------------------------------------------------------------------------------------------------


def session():
    conf = {
        "spark.executor.memory": "512m",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.cores.max": "3",
    }
    made = create_session(os.environ["FIRESTEEL_TEST_MASTER"], "cluster cases", conf)
    from pyspark import cloudpickle

    for module in (runtime_support, join_queries_kit):
        cloudpickle.register_pickle_by_value(module)  # the executors do not have it
    made.sparkContext.addPyFile(str(Path(__file__).parents[1] / "far_storage.py"))
    return made


def all_there(spark, count=3):
    while len(executors(spark.sparkContext)) < count:
        time.sleep(0.05)


def no_node_is_blocked(spark):
    """Whatever an earlier case found slow: nodes stay blocked for all jobs of a session."""
    _sessions.pop(spark.sparkContext.applicationId, None)


def main():
    faulthandler.register(signal.SIGUSR1)  # where does it hang?
    answers, sys.stdout = sys.stdout, sys.stderr
    spark = session()
    for line in sys.stdin:
        case, folder, arguments = json.loads(line)
        try:
            all_there(spark)
            no_node_is_blocked(spark)
            answer = globals()[f"case_{case}"](spark, Path(folder), **arguments)
        except BaseException:
            answer = {"raised": traceback.format_exc()}
        print(json.dumps(answer), file=answers, flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
