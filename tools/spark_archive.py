"""JVM options with which the Sparks of the tests start in half the time: they live too short for the usual ones to pay.

No second compiler, no threads for garbage, and an archive of Spark's classes as they lie in memory (class data sharing). It
is made once per Java and PySpark by running a few jobs, and lies in the environment. A JVM that cannot use it goes without.

``python tools/spark_archive.py`` makes it, where it is missing.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import MutableMapping
from contextlib import suppress
from pathlib import Path

import pyspark

PLAIN = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData"
PATIENCE_SECONDS = 300


def archive() -> Path:
    """Where the archive of this environment's PySpark on this machine's Java lies, or would lie."""
    home = os.environ.get("JAVA_HOME")
    java = Path(shutil.which("java", path=f"{home}/bin" if home else None) or "java").resolve()
    changed = java.stat().st_mtime_ns if java.exists() else 0
    key = hashlib.sha256(f"{java} {changed} {pyspark.__file__} {pyspark.__version__}".encode()).hexdigest()[:12]
    return Path(sys.prefix) / f"spark-classes-{key}.jsa"


def options() -> str:
    """For any JVM of Spark: driver, executor, master, worker. Its temporary files lie where Python's do."""
    found = archive()
    always = f"{PLAIN} {_quoted(f'-Djava.io.tmpdir={tempfile.gettempdir()}')}"
    return f"{always} {_quoted(f'-XX:SharedArchiveFile={found}')} -Xlog:disable" if found.exists() else always


def _quoted(option: str) -> str:
    """One option, however its path is named: Spark parts a text of options at blanks outside quotes."""
    escaped = option.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def set_options(variables: MutableMapping[str, str]) -> None:
    """Gives them to drivers that are started with these variables, and to their executors."""
    ours = options()
    given = variables.get("SPARK_SUBMIT_OPTS", "")
    if ours not in given:
        variables["SPARK_SUBMIT_OPTS"] = f"{given} {ours}".strip()
    setting = shlex.quote(f"spark.executor.extraJavaOptions={ours}")
    variables.setdefault("PYSPARK_SUBMIT_ARGS", f"--conf {setting} pyspark-shell")


def make() -> bool:
    """Makes the archive, in half a minute, unless it is there. False if that fails: it is only for speed."""
    path = archive()
    if path.exists():
        return True
    print("Archiving Spark's classes, for the Sparks of the tests to start fast (once).", flush=True)
    for outdated in path.parent.glob("spark-classes-*.jsa"):
        outdated.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="firesteel-archive-", ignore_cleanup_errors=True) as folder:
        made = Path(folder) / path.name
        train = {
            **os.environ,
            "SPARK_SUBMIT_OPTS": f"{PLAIN} {_quoted(f'-XX:ArchiveClassesAtExit={made}')} -Xlog:disable",
        }
        with suppress(subprocess.TimeoutExpired, OSError):
            # the JVM writes the archive at its end, which is when nobody holds its output any more
            subprocess.run(
                [sys.executable, __file__, folder],
                check=False,
                env=train,
                cwd=folder,
                capture_output=True,
                timeout=PATIENCE_SECONDS,
            )
        if not made.exists():
            return False
        moving = path.with_suffix(f".{os.getpid()}")
        shutil.move(made, moving)
        moving.replace(path)
    return True


def _train(folder: str) -> None:
    """A little of all that the tests do with Spark, for its classes to be loaded."""
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config(
            "spark.sql.streaming.stateStore.providerClass",
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        )
        .getOrCreate()
    )
    numbers = spark.range(0, 1000, 1, 2).selectExpr("id % 7 AS k", "cast(id AS string) AS s")
    numbers.write.parquet(f"{folder}/in")
    table = spark.read.parquet(f"{folder}/in")
    table.mapInArrow(lambda batches: batches, table.schema).groupBy("k").count().toPandas()
    table.join(table.groupBy("k").count(), "k").orderBy("k", "s").collect()
    spark.sparkContext.parallelize(range(10), 2).map(lambda n: (n % 3, n)).groupByKey().mapValues(len).collect()
    stream = spark.readStream.schema(table.schema).parquet(f"{folder}/in").groupBy("k").count()
    started = (
        stream.writeStream.outputMode("update")
        .option("checkpointLocation", f"{folder}/chk")
        .foreachBatch(lambda batch, _: batch.collect())
        .start()
    )
    started.processAllAvailable()
    started.stop()
    spark.stop()


if __name__ == "__main__":
    if sys.argv[1:]:
        _train(sys.argv[1])
    else:
        raise SystemExit(0 if make() else 1)
