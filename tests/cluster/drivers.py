"""Drivers of the cluster's tests, each in a process of its own: ``drivers.py CASE FOLDER`` prints its answer as JSON."""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import warnings
from pathlib import Path

import mirrors_kit
import no_script  # noqa: F401
from firesteel import ExecutionEnvironment
from firesteel.errors import UsageError
from firesteel.options import Options
from firesteel.spark.driver.runtime import submit
from firesteel.spark.session import shipping
from firesteel.spark.session.preflight import executors
from firesteel.spark.session.sessions import create_session
from firesteel.spark.storage.cleaning import late
from oracle import tpch
from runtime_support import Numbers, RecordingSink, collected, left_behind, options, two_steps
from tpch_kit import QUANTITY, SMALL, example


def session(more=()):
    conf = {
        "spark.executor.memory": "512m",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.cores.max": "3",
        **dict(more),
    }
    return create_session(os.environ["FIRESTEEL_TEST_MASTER"], "cluster test", conf)


def all_there(spark):
    """On all three nodes."""
    while len(executors(spark.sparkContext)) < 3:
        time.sleep(0.05)


def waits(folder: Path):
    """A source whose splits say that they run, and wait for the file ``go``. Defined inside, so that it ships by value."""

    class Waits:
        def read(self, split, ctx):
            import time
            from pathlib import Path

            import numpy as np
            import pyarrow as pa

            (Path(where) / f"running-{split}-{ctx.token}-{os.environ.get('SPARK_LOCAL_IP')}").touch()
            while not (Path(where) / "go").exists():
                time.sleep(0.01)
            v = np.arange(split * 10, split * 10 + 10, dtype=np.int64)
            yield pa.RecordBatch.from_arrays([pa.array(v % 7), pa.array(v)], names=["k", "v"])

    where = str(folder)
    return Waits()


def by_value(cls):
    """The test's own modules are not on the executors: pickle their classes by value."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[cls.__module__])


def case_plain(folder: Path):
    """Whole jobs, and everything that is refused, on one session."""
    spark = session()
    context = spark.sparkContext
    all_there(spark)
    answers: dict[str, object] = {}
    answers["storage unset"] = refused(lambda: submit(two_steps(), spark, Options({})))
    answers["s3a"] = refused(lambda: submit(two_steps(), spark, Options({"firesteel.storage.directory": "s3a://b/c"})))
    stranger = module_in(folder / "elsewhere", "stranger", "def same(batches): yield from batches")
    answers["module"] = refused(lambda: submit(two_steps(fn=stranger.same), spark, options(folder)))
    answers["beside"] = beside(spark, folder)
    sink = RecordingSink()
    outcome = submit(two_steps(splits=6, rows=20, sink=sink), spark, options(folder)).result()
    answers["error"] = str(outcome.error)
    answers["values"] = sorted(collected(outcome)["v"].to_pylist())
    outcome.close()
    answers["commits"] = len(sink.calls[-1][1])
    answers["executors"] = executors(context)
    probes = len(context.statusTracker().getJobIdsForGroup(None))
    each_a_job = options(folder, **{"firesteel__standing-tasks": False})
    submit(two_steps(splits=1, rows=20), spark, each_a_job).result().close()
    answers["jobs of a second run"] = len(context.statusTracker().getJobIdsForGroup(None)) - probes
    answers["left"] = left_behind(folder)
    spark.stop()
    os.environ["PYSPARK_PYTHON"] = "/no/such/python"
    answers["worker python"] = refused(lambda: submit(two_steps(source=waits(folder)), session(), options(folder)))
    return answers


def module_in(folder: Path, name: str, text: str):
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.py").write_text(text)
    sys.path.append(str(folder))
    return importlib.import_module(name)


def beside(spark, folder: Path):
    """Answers of a module beside the script, before and after it was changed."""
    text = "def tenfold(row):\n    from factors import factor\n    return {'n': row.n * factor}"
    (folder / "script").mkdir()
    (folder / "script" / "factors.py").write_text("factor = 10")
    before = Path.cwd()
    os.chdir(folder / "script")
    prices = module_in(folder / "script", "prices", text)
    stream = ExecutionEnvironment(spark, options(folder)).from_collection([{"n": 1}]).map(prices.tenfold, "n bigint")
    found = stream.collect()
    (folder / "script" / "factors.py").write_text("factor = 11")
    found += stream.collect()
    os.chdir(before)
    return [row["n"] for row in found]


def case_blobs(folder: Path):
    """Gates as blobs: each consumer says where it runs and which file holds the blob on its executor's disk."""
    spark = session()
    all_there(spark)
    by_value(Numbers)
    given = options(folder).with_values(
        {
            "firesteel.deployment.offload-threshold": "1 b",
            "firesteel.standing-tasks": False,  # whose first ones may take all of it, on some of the hosts
        }
    )
    outcome = submit(two_steps(splits=4, rows=20, fn=blob_files(), parallelism=11), spark, given).result()
    rows = collected(outcome).to_pylist() if outcome.error is None else []
    outcome.close()
    late.run_all()
    offloads = [d.result for d in outcome.decisions if d.what == "offload"]
    return {"error": str(outcome.error), "rows": rows, "offloads": len(offloads), "left": left_behind(folder)}


def blob_files():
    """One row a subtask: k is the last number of the host's address, v the blob's inode. Ships by value."""

    def look(batches):
        import os
        from pathlib import Path

        import pyarrow as pa

        list(batches)
        local = os.environ["SPARK_LOCAL_DIRS"].split(",", maxsplit=1)[0]
        (blob,) = Path(local).glob("firesteel-blobs/*/*")
        host = int(os.environ["SPARK_LOCAL_IP"].rpartition(".")[2])
        yield pa.RecordBatch.from_arrays([pa.array([host]), pa.array([blob.stat().st_ino])], names=["k", "v"])

    return look


def case_placing(folder: Path):
    """A job of many short tasks, all of which are slow on one host; what its records say of mirrors and placement."""
    spark = session({"spark.scheduler.mode": os.environ["FIRESTEEL_TEST_MODE"]})
    by_value(mirrors_kit.SomeSlow)
    by_value(Numbers)
    all_there(spark)
    told = mirrors_kit.run_with_a_slow_one(spark, folder, 100, os.environ["FIRESTEEL_TEST_SLOW"])
    late.run_all()
    return {**told, "left": [name for name in left_behind(folder) if name.endswith(".fsr")]}


def case_tpch(folder: Path):
    """Q1 into files, Q3 and Q18 to the driver; in each one, tasks that read lineitem wait while an executor is killed."""
    import pyarrow.feather as feather

    given = {
        **SMALL,
        "firesteel.storage.directory": str(folder / "storage"),
        "firesteel.journal.directory": str(folder / "journal"),
        "firesteel.progress": "false",
    }
    env = ExecutionEnvironment(spark=session(), options=given)
    data = tpch(0.01)
    example.q1(Gated(env, data, folder, "q1")).write_parquet(folder / "q1")
    env.execute("q1")
    feather.write_feather(example.q3(Gated(env, data, folder, "q3")).to_arrow(), folder / "q3.arrow")
    feather.write_feather(example.q18(Gated(env, data, folder, "q18"), QUANTITY).to_arrow(), folder / "q18.arrow")
    late.run_all()
    return {"left": left_behind(folder), "files": sorted(p.name for p in folder.iterdir() if p.name.startswith(".q1"))}


def case_engine(folder: Path):
    """On executors without DuckDB: a job without fragments, a query of a driver that seems to be of another platform, and it as it is, twice."""
    spark = session()
    context = spark.sparkContext
    all_there(spark)
    given = {
        "firesteel.storage.directory": str(folder / "storage"),
        "firesteel.journal.directory": str(folder / "journal"),
    }
    env = ExecutionEnvironment(spark=spark, options={**given, "firesteel.progress": "false"})
    env.from_collection([(1,)], "n int").to_arrow()
    answers: dict[str, object] = {"before": list(context.listArchives)}
    real, shipping.this_platform = shipping.this_platform, lambda: "CPython 3.11 on Plan9 mips"
    answers["elsewhere"] = sums(env)
    shipping.this_platform = real
    answers["here"] = [sums(env), sums(env)]
    answers["sent"] = [Path(path).name for path in context.listArchives]
    late.run_all()
    answers["left"] = left_behind(folder)
    return answers


def sums(env):
    """A query's rows, with the folder from which each task's worker has DuckDB, and the warnings."""

    def look(batches):
        import sys
        from pathlib import Path

        import pyarrow as pa

        for batch in batches:
            module = sys.modules.get("duckdb")
            origin = str(module and Path(module.__file__).parents[1].name)
            yield batch.append_column("origin", pa.array([origin] * batch.num_rows))

    frame = env.spark.sql("SELECT id % 7 AS k, sum(id) AS s FROM range(0, 5000, 1, 6) GROUP BY 1")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", UserWarning)
        rows = env.from_dataframe(frame).map_in_arrow(look, "k bigint, s bigint, origin string").to_arrow().to_pylist()
    return {
        "rows": sorted([row["k"], row["s"]] for row in rows),
        "origins": sorted({row["origin"] for row in rows}),
        "told": [str(one.message) for one in told],
    }


class Gated(example.Tables):
    """The tables; each task that reads ``lineitem`` says where it runs and waits for the file ``go-QUERY``."""

    def __init__(self, env, data, folder, query):
        super().__init__(env, data)
        self._folder, self._query = str(folder), query

    @property
    def lineitem(self):
        where, query = self._folder, self._query

        def wait(batches):
            import os
            import time
            import uuid
            from pathlib import Path

            (Path(where) / f"at-{query}-{uuid.uuid4().hex}-{os.environ.get('SPARK_LOCAL_IP')}").touch()
            while not (Path(where) / f"go-{query}").exists():
                time.sleep(0.01)
            yield from batches

        stream = self.__getattr__("lineitem")
        return stream.map_in_arrow(wait, stream.schema)


def refused(action) -> str:
    try:
        action()
    except UsageError as error:
        return str(error)
    return "it was accepted"


if __name__ == "__main__":
    print(json.dumps(globals()[f"case_{sys.argv[1]}"](Path(sys.argv[2]))))
