"""Spark and folders whose names mean something in a URL, a shell or a glob."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from tools import spark_archive

from odd_paths_kit import ODD, TABLE, WANTED, environment_in, rows

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(params=ODD)
def folder(request, tmp_path):
    place = tmp_path / request.param
    place.mkdir()
    return place


@pytest.fixture
def there(spark, folder):
    return environment_in(spark, folder)


@pytest.mark.full
def test_spark_writes_and_reads(there, folder):
    there.from_arrow(TABLE).write_with_spark("json", str(folder / "spark"))
    there.execute("odd")
    assert rows(there.read_json(folder / "spark")) == WANTED
    if ":" not in folder.name:  # which Hadoop's globs cannot have
        escaped = "".join("\\" + c if c in r"[]{}*?\\" else c for c in str(folder / "spark"))
        assert rows(there.read_with_spark("json", escaped)) == WANTED


def test_values_of_partitions_are_named_as_spark_names_them(env, spark, tmp_path):
    names = pa.table({"n": range(len(ODD) * 2), "p": [name for name in ODD for _ in "ab"]})
    wanted = sorted(zip(*names.to_pydict().values(), strict=True))
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    env.from_arrow(names).write_parquet(ours, partition_by="p")
    env.execute("odd")
    assert sorted(map(tuple, spark.read.parquet(str(ours)).select("n", "p").collect())) == wanted
    spark.createDataFrame(wanted, "n long, p string").write.partitionBy("p").parquet(str(theirs))
    assert rows(env.read_parquet(theirs).select("n", "p")) == wanted
    assert {path.name for path in ours.glob("p=*")} == {path.name for path in theirs.glob("p=*")}


@pytest.mark.full
@pytest.mark.parametrize("folder", ODD[:2], indirect=True)  # a colon parts the places of PYTHONPATH
def test_the_package_itself_may_lie_there(folder):
    """Spark is given files of the package: the pools, and how to log."""
    (folder / "src").symlink_to(ROOT / "src")
    (folder / "words.txt").write_text("a\nb\na\n")
    script = folder / "the job.py"
    script.write_text(
        "import firesteel\n"
        "env = firesteel.ExecutionEnvironment.get_or_create()\n"
        "words = env.read_text('words.txt').key_by('value').aggregate({'n': ('value', 'count')})\n"
        "print(sorted(tuple(row.values()) for row in words.collect()), firesteel.__file__)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-m", "firesteel", "run", "--master", "local[1]", script.name],
        env={**os.environ, "PYTHONPATH": str(folder / "src")},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert f"[('a', 2), ('b', 1)] {folder}" in ended.stdout
    assert list((folder / ".firesteel" / "journal").glob("*.jsonl"))


@pytest.mark.full
@pytest.mark.parametrize("folder", ODD[:2], indirect=True)  # Spark doubles what lies beyond 16 bits
def test_options_with_such_a_path_reach_driver_and_executors_whole(spark, folder, monkeypatch):
    """The archive of classes lies in the clone's environment; the words are parted by Spark itself."""
    archive = folder / "classes.jsa"
    archive.touch()
    monkeypatch.setattr(spark_archive, "archive", lambda: archive)
    variables = {}
    spark_archive.set_options(variables)
    wanted = f"-XX:SharedArchiveFile={archive}"
    home = Path(pyspark.__file__).parent
    java = Path(spark._jvm.System.getProperty("java.home")) / "bin" / "java"
    launcher = [
        "-cp",
        f"{home}/jars/*",
        "org.apache.spark.launcher.Main",
        "org.apache.spark.deploy.SparkSubmit",
        "--version",
    ]
    shown = subprocess.run(
        [java, *launcher],
        env={**os.environ, **variables, "SPARK_HOME": str(home), "SPARK_SCALA_VERSION": "2.13"},
        capture_output=True,
        check=True,
    )
    assert wanted in shown.stdout.decode().split("\0")
    _, setting, _ = shlex.split(variables["PYSPARK_SUBMIT_ARGS"])
    executor = spark._jvm.org.apache.spark.util.Utils.splitCommandString(setting.partition("=")[2])
    assert executor.contains(wanted)
