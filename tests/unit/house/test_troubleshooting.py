"""The headings of docs/troubleshooting.md are the sentences that are really said: each is provoked here, and no other is there."""

from __future__ import annotations

import errno
import platform
import re
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.journal_samples import word_count

from firesteel import ExecutionEnvironment, SlotSharingGroup, col
from firesteel.errors import FiresteelError
from firesteel.journal.file import read
from firesteel.journal.lookup import find
from firesteel.options import Options
from firesteel.options.files import read_options
from firesteel.report.explain import explain
from firesteel.results.storage.store import storage_error
from firesteel.spark.driver.serialise import serialise_programs
from firesteel.spark.driver.spark_errors import read_task_error
from firesteel.spark.session.preflight import check
from firesteel.spark.session.probe import Findings
from firesteel.spark.session.sessions import check_session
from firesteel.spark.session.versions import check_spark, check_streaming
from firesteel.spark.storage.directories import storage_root

PAGE = Path(__file__).resolve().parents[3] / "docs" / "troubleshooting.md"
HEADINGS = re.findall(r"^### (.+)$", PAGE.read_text(), re.M)
PLACE = re.compile(r"^In step '[^']*'(?: at [^ ]+:\d+)?: ")
"""What stands before a sentence about a step: it differs from script to script."""

DIED = "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)."

Trigger = Callable[[], object]


def env(**options: object) -> ExecutionEnvironment:
    return ExecutionEnvironment(options={key.replace("_", "-"): value for key, value in options.items()})


def words(environment: ExecutionEnvironment | None = None):
    return (environment or env()).from_arrow(pa.table({"word": ["a"], "n": [1]}))


def finding(**other: object) -> Findings:
    given = {"host": "node-3", "executor": "1", "python": platform.python_version()}
    return Findings(**{**given, "versions": {"pyarrow": pa.__version__, "numpy": np.__version__}, **other})


def unserialisable() -> object:
    environment, lock = env(), threading.Lock()

    def count(batches):
        with lock:
            yield from batches

    words(environment).map_in_arrow(count, "word string, n bigint").write_parquet("out")
    return serialise_programs(environment.compile())


def mixed_files(merge_schema: bool = False) -> object:
    Path("in").mkdir()
    pq.write_table(pa.table({"n": [1]}), "in/a.parquet")
    pq.write_table(pa.table({"n": ["x"]}), "in/b.parquet")
    return env().read_parquet("in", merge_schema=merge_schema)


def unmergeable_files() -> object:
    return mixed_files(merge_schema=True)


def broken_file() -> object:
    Path("sales.parquet").write_bytes(b"PAR1 and no more")
    return env().read_parquet("sales.parquet")


def output_exists() -> object:
    Path("out").mkdir()
    Path("out/part-0.parquet").write_bytes(b"")
    environment = env()
    words(environment).write_parquet("out")
    return environment.compile()


def not_a_journal() -> object:
    Path("notes.jsonl").write_text("hello\nworld\n")
    return read("notes.jsonl")


def connect_session() -> object:
    kind = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})
    return check_session(kind())


def copying_session() -> object:
    stopped = SimpleNamespace(isStopped=lambda: False)
    context = SimpleNamespace(
        _jsc=SimpleNamespace(sc=lambda: stopped), version="4.0.0", _conf={"spark.speculation": "true"}
    )
    return check_session(type("SparkSession", (), {"__module__": "pyspark.sql", "sparkContext": context})())


def yaml(text: str) -> object:
    Path("options.yaml").write_text(text)
    return read_options("options.yaml")


TRIGGERS: list[Trigger] = [
    lambda: env().read_parquet("orders/*.parquet"),
    lambda: env().read_text("missing.txt"),
    mixed_files,
    unmergeable_files,
    broken_file,
    output_exists,
    lambda: words().filter(col("wrod") != ""),
    lambda: words().filter(col("n")),
    lambda: words().key_by("word").aggregate({"n": "max_by"}),
    lambda: words().key_by("word").join(words(env()).key_by("word")),
    lambda: words().map_in_arrow(lambda batches: batches, "word text"),
    lambda: env().execute(),
    unserialisable,
    lambda: env(max_paralelism=16),
    lambda: env(data_volume_per_task="64 MX"),
    lambda: env(min_parallelism=0),
    lambda: yaml("max-parallelism: 16\nmax-parallelism: 32\n"),
    lambda: SlotSharingGroup("train", task_heap_memory="2 GiB"),
    lambda: check_spark("3.4.1"),
    lambda: check_streaming("3.5.6"),
    connect_session,
    copying_session,
    lambda: storage_root(Options({}), shared=True),
    lambda: check([finding(python="3.9.18")], "/shared"),
    lambda: check([finding(versions={"numpy": "2.4.0"})], "/shared"),
    lambda: check([finding(missing=("mylib",))], "/shared"),
    lambda: check([finding(problem="cannot see it")], "/shared"),
    lambda: (_ for _ in ()).throw(storage_error(OSError(errno.ENOSPC, "full"), "/shared", "does not take x")),
    lambda: (_ for _ in ()).throw(FiresteelError(read_task_error(DIED, "node-1").sentence)),
    lambda: find("3f2a", Options({"firesteel.journal.directory": "nowhere"})),
    not_a_journal,
    lambda: explain(word_count(), "3"),
]


def sentence(trigger: Trigger, folder: Path) -> str:
    """As on a machine where the driver works in /data, with what differs from script to script made equal."""
    with pytest.raises(FiresteelError) as raised:
        trigger()
    said = PLACE.sub("", raised.value.message.split("\n", 1)[0]).replace(str(folder), "/data")
    return re.sub(r"\w+\.py:\d+", "job.py:12", said)


@pytest.fixture
def machine(monkeypatch):
    monkeypatch.setattr("platform.python_version", lambda: "3.12.4")
    monkeypatch.setattr("socket.gethostname", lambda: "node-1")


@pytest.mark.usefixtures("machine")
def test_the_headings_are_the_sentences(tmp_path, monkeypatch):
    said = []
    for number, trigger in enumerate(TRIGGERS):
        folder = tmp_path / str(number)
        folder.mkdir()
        monkeypatch.chdir(folder)
        said.append(sentence(trigger, folder))
    assert sorted(HEADINGS) == sorted(said)
