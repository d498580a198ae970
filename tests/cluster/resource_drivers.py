"""Drivers whose jobs have groups with resources, each in a process of its own: ``resource_drivers.py CASE FOLDER``.

Tasks write down where they ran, from when until when, and with which addresses.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
from cases import story

from firesteel import ExecutionEnvironment, SlotSharingGroup, Split
from firesteel.errors import FiresteelError
from firesteel.journal.file import read
from firesteel.scheduler.kernel.records import Decision
from firesteel.spark.placement.status_store import SparkStatus
from firesteel.spark.session.preflight import executors
from firesteel.spark.session.sessions import create_session
from firesteel.spark.storage.cleaning import late
from intervals_kit import SCHEMA, busy, intervals

ROWS = 1_000


class Numbers:
    """``splits`` splits of 1,000 numbers each, numbered on. Ships by value."""

    name, schema = "numbers", SCHEMA
    supports_concurrent_execution_attempts = True

    def __init__(self, splits):
        self.splits = splits

    def list_splits(self, data_volume):
        return [Split(k, 8 * ROWS, f"split {k}") for k in range(self.splits)]

    def read(self, split, ctx):
        yield pa.record_batch([pa.array(range(split * ROWS, (split + 1) * ROWS))], schema=SCHEMA)


def session(**more):
    conf = {
        "spark.executor.memory": "512m",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
    }
    made = create_session(os.environ["FIRESTEEL_TEST_MASTER"], "resources", conf | more)
    from pyspark import cloudpickle

    import intervals_kit

    for module in (intervals_kit, sys.modules[Numbers.__module__]):
        cloudpickle.register_pickle_by_value(module)
    return made


def run(spark, folder, name, group, subtasks, at_once, *, patience=600.0, step=None, meet=None, **more):
    """A job whose second step (``step``, else one that waits for ``at_once``) has this group: whether its answer is right, what
    its tasks wrote down, its decisions. ``meet``: the folder in which its tasks wait for each other; None: its own."""
    own = folder / name
    own.mkdir()
    meet = meet or own
    given = {
        "firesteel.storage.directory": str(own / "storage"),
        "firesteel.journal.directory": str(own / "journal"),
        "firesteel.progress": "false",
        "restart-strategy.fixed-delay.delay": "10 ms",
        **{key.replace("__", "."): value for key, value in more.items()},
    }
    env = ExecutionEnvironment(spark=spark, options=given)
    numbers = env.from_source(Numbers(subtasks)).set_parallelism(subtasks).rebalance()
    squares = numbers.map_in_arrow(step or busy(meet, at_once, patience=patience), SCHEMA).slot_sharing_group(group)
    began, error, right = time.monotonic(), "", False
    try:
        found = squares.set_parallelism(subtasks).to_arrow()
        right = sorted(found["v"].to_pylist()) == [v * v for v in range(subtasks * ROWS)]
    except FiresteelError as raised:
        error = str(raised)
    late.run_all()
    journals = list((own / "journal").glob("*.jsonl"))  # none of a job that was refused
    decided = [r for journal in journals for r in read(journal) if isinstance(r, Decision)]
    return {
        "right": right,
        "error": error,
        "seconds": time.monotonic() - began,
        "intervals": intervals(meet),
        "waited": [d.reason for d in decided if d.rule == "slots of other jobs" and d.result == "waits"],
        "slots": [str(d.result) for d in decided if d.what == "slots"],
    }


def case_local(folder):
    """Four cores and two GPUs on a local master."""
    script = folder / "gpu.sh"
    script.write_text("""echo '{"name": "gpu", "addresses": ["0", "1"]}'""")
    script.chmod(0o755)
    key = "spark.driver.resource.gpu"
    spark = create_session("local[4]", "resources", {f"{key}.amount": "2", f"{key}.discoveryScript": str(script)})
    heavy = SlotSharingGroup("heavy", cpu_cores=2, task_heap_memory="100 MiB")
    gpu = SlotSharingGroup("gpu", cpu_cores=1, task_heap_memory="100 MiB", external_resources={"gpu": 1.0})
    hungry = SlotSharingGroup("hungry", cpu_cores=1, task_heap_memory="600 MiB")
    return {
        "heavy": run(spark, folder, "heavy", heavy, 4, 2),
        "gpu": run(spark, folder, "gpu", gpu, 4, 2),
        "hungry": run(spark, folder, "hungry", hungry, 4, 2, firesteel__executor__memory="1400 MiB"),
        "together": together(spark, folder, "together", gpu, 4, 1),
        "one each": together(spark, folder, "one each", gpu, 1, 2),
        "memory": together(spark, folder, "memory", hungry, 3, 1, firesteel__executor__memory="1400 MiB"),
        "dataframe": of_a_dataframe(spark, folder, heavy),
    }


def together(spark, folder, name, group, subtasks, at_once, **more):
    """What the tasks of two jobs wrote down that were submitted at once: ``at_once`` of them, of both jobs, wait for each other."""
    told, meet = [], folder / name
    meet.mkdir()
    jobs = [
        threading.Thread(
            target=lambda job=job: told.append(
                run(spark, folder, f"{name} {job}", group, subtasks, at_once, meet=meet, **more)
            )
        )
        for job in ("first", "second")
    ]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    errors = "".join(one["error"] for one in told)
    return {
        "right": all(one["right"] for one in told),
        "error": errors,
        "intervals": intervals(meet),
        "waited": [reason for one in told for reason in one["waited"]],
    }


def of_a_dataframe(spark, folder, group):
    """What each task of a DataFrame step was given: threads of a library and of OpenMP, cores, rows."""
    schema = pa.schema(
        [("threads", pa.string()), ("openmp", pa.string()), ("cores", pa.float64()), ("rows", pa.int64())]
    )

    def look(batches):
        import os

        from firesteel import task_resources

        rows, names = sum(batch.num_rows for batch in batches), ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
        told = [*(os.environ[name] for name in names), task_resources().cpu_cores, rows]
        yield pa.record_batch([pa.array([one]) for one in told], schema=schema)

    given = {"storage": "storage", "journal": "journal"}
    options = {f"firesteel.{key}.directory": str(folder / "df" / name) for key, name in given.items()}
    plain = {"firesteel.progress": "false", "firesteel.sql.dataframes": "spark"}
    env = ExecutionEnvironment(spark=spark, options={**options, **plain})
    read_by_spark = env.from_dataframe(spark.range(0, 1_000, 1, 4)).slot_sharing_group(group)
    return read_by_spark.map_in_arrow(look, schema).to_arrow().to_pylist()


def case_static(folder):
    """Executors that are there: 4, 2 and 1 cores."""
    spark = session()
    while len(executors(spark.sparkContext)) < 3:
        time.sleep(0.05)
    heavy = SlotSharingGroup("heavy", cpu_cores=2, task_heap_memory="100 MiB")
    hungry = SlotSharingGroup("hungry", cpu_cores=1, task_heap_memory="600 MiB")
    huge = SlotSharingGroup("huge", cpu_cores=5, task_heap_memory="100 MiB")
    lacking = SlotSharingGroup("lacking", cpu_cores=1, task_heap_memory="1 MiB", external_resources={"gpu": 1.0})
    memory = {"firesteel__executor__memory": "1 GiB"}
    return {
        "heavy": run(spark, folder, "heavy", heavy, 6, 3, **memory),
        "hungry": run(spark, folder, "hungry", hungry, 6, 3, **memory),
        "huge": run(spark, folder, "huge", huge, 1, 1, **memory),
        "lacking": run(spark, folder, "lacking", lacking, 1, 1, **memory),
        "killed": run(spark, folder, "killed", heavy, 3, 3, patience=3.0, **memory),
    }


def working(folder, naps):
    """A step that squares ``v`` in so many naps of a millisecond: what stops a process makes them long. Says where it begins."""
    where = str(folder)

    def square(batches):
        import json
        import os
        import time
        import uuid
        from pathlib import Path

        import pyarrow.compute as pc
        from pyspark import TaskContext

        place, own, host = Path(where), uuid.uuid4().hex, os.environ.get("SPARK_LOCAL_IP", "")
        began = time.time()
        (place / f"began-{own}-{host}").touch()
        for batch in batches:
            for _ in range(naps):
                time.sleep(0.001)
            yield pa.record_batch([pc.multiply(batch.column("v"), batch.column("v"))], schema=batch.schema)
        told = {"host": host, "cpus": TaskContext.get().cpus(), "began": began, "ended": time.time()}
        (place / f"ran-{own}").write_text(json.dumps(told))

    return square


def case_speculating(folder):
    """Eight subtasks of a group of two cores, with speculation; what became of every attempt at them."""
    spark = session()
    while len(executors(spark.sparkContext)) < 3:
        time.sleep(0.05)
    options = {
        "jobmanager.adaptive-batch-scheduler.speculative.enabled": "true",
        "slow-task-detector.check-interval": "200 ms",
        "slow-task-detector.execution-time.baseline-lower-bound": "500 ms",
        "slow-task-detector.execution-time.baseline-ratio": "0.5",
        "firesteel.executor.memory": "1 GiB",
    }
    heavy = SlotSharingGroup("heavy", cpu_cores=2, task_heap_memory="100 MiB")
    told = run(spark, folder, "heavy", heavy, 8, 3, step=working(folder, 800), **options)
    records = story(folder / "heavy")
    return {
        **told,
        "intervals": intervals(folder),
        "attempts": [a for a in records.attempts() if a["vertex"] == 1],
        "blocked": [d["result"] for d in records.decisions("blocklist")],
    }


def case_dynamic(folder):
    """Executors that Spark makes for a group, and lets go."""
    spark = session(
        **{
            "spark.executor.cores": "1",
            "spark.dynamicAllocation.enabled": "true",
            "spark.dynamicAllocation.shuffleTracking.enabled": "true",
            "spark.dynamicAllocation.executorIdleTimeout": "1s",
        }
    )
    status = SparkStatus(spark.sparkContext)
    seen: dict[str, int] = {}
    ended = threading.Event()

    def watch():
        while not ended.wait(0.2):
            seen.update({executor: info.profile_id for executor, info in status.executors().items()})

    threading.Thread(target=watch, daemon=True).start()
    gpu = SlotSharingGroup("gpu", cpu_cores=1, task_heap_memory="100 MiB", external_resources={"gpu": 1.0})
    told = run(spark, folder, "gpu", gpu, 4, 2)
    until = time.monotonic() + 600.0
    while left := [info for info in status.executors().values() if info.profile_id]:
        if time.monotonic() > until:
            break
        time.sleep(0.1)
    ended.set()
    return {"gpu": told, "made": sum(bool(profile) for profile in seen.values()), "left": len(left)}


if __name__ == "__main__":
    print(json.dumps(globals()[f"case_{sys.argv[1]}"](Path(sys.argv[2]))))
