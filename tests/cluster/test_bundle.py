"""``firesteel bundle`` under the real spark-submit: the driver has no Firesteel but the zip, the executors' Python nothing
but pyspark, pyarrow and numpy."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pyspark
import pytest
from tools.standalone import HOSTS

from bare_python import bare_python
from firesteel.cli.bundle import DRIVER, WORKERS, write_bundle

pytestmark = pytest.mark.cluster
SECONDS = 600
SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"
SCRIPT = """
import json
import sys

import pyarrow as pa

import firesteel
from firesteel import ExecutionEnvironment, col

folder = sys.argv[1]
assert ".zip" in firesteel.__file__, firesteel.__file__
env = ExecutionEnvironment.get_or_create(
    options={
        "firesteel.progress": False,
        "firesteel.storage.directory": folder + "/storage",
        "firesteel.journal.directory": folder + "/journal",
        "data-volume-per-task": "1k",
    }
)


def look(batches):
    import importlib.util
    import os
    import sys

    known = ("firesteel", "msgspec", "pandas", "rich", "typer", "yaml", "duckdb")
    for batch in batches:
        there = [name for name in known if importlib.util.find_spec(name) is not None]
        origin = importlib.util.find_spec("firesteel").origin
        host = os.environ.get("SPARK_LOCAL_IP", "")
        n = batch.num_rows
        yield pa.RecordBatch.from_arrays(
            [batch.column(0), batch.column(1), pa.array([json.dumps([there, ".zip" in origin, host])] * n)],
            names=["k", "v", "seen"],
        )


numbers = env.from_collection([(i % 7, i) for i in range(5000)], "k int, v bigint").rebalance()
seen = numbers.map_in_arrow(look, "k int, v bigint, seen string")
sums = seen.key_by("k").aggregate({"total": ("v", "sum"), "n": ("v", "count")})
names = env.from_collection([(k, f"name {k}") for k in range(7)], "k int, name string")
joined = sums.key_by("k").join(names.key_by("k")).filter(col("n") > 0)
joined.write_parquet(folder + "/out")
env.execute("bundled")
rows = joined.collect()
print(json.dumps({
    "rows": sorted([row["k"], row["total"], row["name"]] for row in rows),
    "seen": sorted({row["seen"] for row in seen.select("seen").distinct().collect()}),
    "master": env.spark.sparkContext.master,
}))
env.spark.stop()
"""


@pytest.mark.full
@pytest.mark.parametrize("master", ["local[2]", "cluster"])
def test_a_script_runs_with_the_zip_alone(cluster, tmp_path, master):
    size = write_bundle(tmp_path / "firesteel.zip")
    assert 100_000 < size < 4_000_000
    (tmp_path / "script.py").write_text(SCRIPT)
    env = {
        **{k: v for k, v in cluster.standalone.environment().items() if k != "PYTHONPATH"},
        "PYSPARK_DRIVER_PYTHON": str(bare_python(tmp_path, "py4j", *DRIVER)),
        "PYSPARK_PYTHON": str(bare_python(tmp_path, "pyspark", "py4j", *WORKERS)),
        "SPARK_HOME": str(SUBMIT.parents[1]),
    }
    url = cluster.standalone.url if master == "cluster" else master
    command = [SUBMIT, "--master", url, "--py-files", "firesteel.zip", "script.py", str(tmp_path)]
    done = subprocess.run(
        list(map(str, command)), cwd=tmp_path, env=env, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:] + done.stdout
    answer = json.loads(done.stdout.strip().splitlines()[-1])
    assert answer["master"] == url
    assert answer["rows"] == [[k, sum(range(k, 5000, 7)), f"name {k}"] for k in range(7)]
    seen = [json.loads(text) for text in answer["seen"]]
    driver_too = [] if master == "cluster" else ["msgspec"]  # local workers inherit the driver's path
    assert all(there == ["firesteel", *driver_too, "duckdb"] and zipped for there, zipped, _ in seen), seen
    if master == "cluster":
        assert {host for _, _, host in seen} <= set(HOSTS)
    assert list((tmp_path / "out").glob("*.parquet"))
    assert [p for p in (tmp_path / "storage").rglob("*") if p.is_file()] == []


def test_a_driver_without_msgspec_is_told_so(tmp_path):
    write_bundle(tmp_path / "firesteel.zip")
    python = bare_python(tmp_path, *WORKERS)
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path / "firesteel.zip")}
    code = "from firesteel import ExecutionEnvironment"
    done = subprocess.run([str(python), "-c", code], capture_output=True, text=True, env=env, check=False)
    assert "the driver's Python needs msgspec" in done.stderr.splitlines()[-1]
