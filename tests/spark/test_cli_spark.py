"""The demo's pipeline on a small tree, and whole scripts under ``firesteel run``, each in a process of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from firesteel import ExecutionEnvironment
from firesteel.cli.demos import skew as demo_skew
from firesteel.cli.demos import sort as demo_sort
from firesteel.cli.demos import tpch as demo_tpch
from firesteel.cli.demos import words as demo
from firesteel.journal.file import read

pytestmark = pytest.mark.spark
ROOT = Path(__file__).resolve().parents[2]

SOURCES = {
    "alpha/__init__.py": "import os\nos.getcwd(); name = os.sep\n",
    "alpha/beta.py": "from os import path as name\n\n# name, name: 12abc _x\nif name:\n    name = None\n",
    "gamma.py": "café = name + 1\n",
    "delta.txt": "name name name\n",
}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "firesteel", *arguments]


def firesteel(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        cwd=folder,
        check=False,
        timeout=6000,
    )


def script(folder: Path, text: str) -> str:
    (folder / "job.py").write_text(textwrap.dedent(text))
    return "job.py"


@pytest.mark.full
@pytest.mark.parametrize("options", [{}, {"data-volume-per-task": "1k", "cut": "by-count"}])
def test_the_demo_counts_identifiers_by_module(spark, tmp_path, options):
    root = tmp_path / "lib" / "python3.12"
    for name, text in SOURCES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    given = {"firesteel.progress": False, "firesteel.journal.directory": str(tmp_path / "j"), **options}
    env = ExecutionEnvironment(spark=spark, options=given)
    for _ in range(2):  # the second run writes over the first
        demo.pipeline(env, [root], tmp_path / "out")
        env.execute("demo")
    found = {row["identifier"]: row for row in pq.read_table(tmp_path / "out" / "identifiers").to_pylist()}
    assert found["name"] == {"identifier": "name", "total": 7, "modules": 3, "top_module": "alpha.beta", "top_uses": 5}
    assert found["os"] == {"identifier": "os", "total": 4, "modules": 2, "top_module": "alpha", "top_uses": 3}
    assert set(found) == {"os", "getcwd", "name", "sep", "path", "_x", "caf"}
    modules = {row["module"]: row for row in pq.read_table(tmp_path / "out" / "modules").to_pylist()}
    assert modules["gamma"] == {"module": "gamma", "identifiers": 2, "uses": 2}
    assert set(modules) == {"alpha", "alpha.beta", "gamma"}


@pytest.mark.full
def test_the_demo_of_skew_tells_how_far_each_identifier_is_spread(spark, tmp_path):
    rows = [("x", "m1", 3), ("x", "m2", 9), ("y", "m1", 4)]
    counts = pa.table({name: [row[n] for row in rows] for n, name in enumerate(("identifier", "module", "n"))})
    pq.write_table(counts, tmp_path / "counts.parquet")
    given = {"firesteel.progress": False, "firesteel.journal.directory": str(tmp_path / "j")}
    results = {}
    for cut in ("by-bytes", "by-count"):
        env = ExecutionEnvironment(spark=spark, options={**given, "cut": cut})
        demo_skew.pipeline(env, tmp_path / "counts.parquet", tmp_path / cut)
        results[cut] = env.execute(cut)
        found = {row.pop("identifier"): row for row in pq.read_table(tmp_path / cut).to_pylist()}
        assert found == {"x": {"modules": 2, "at_most": 0.75}, "y": {"modules": 1, "at_most": 1.0}}
    header, *lines = demo_skew.compared(results).splitlines()
    assert header.split()[:2] == ["cut", "subtasks"] and [line.split()[0] for line in lines] == list(results)


@pytest.mark.full
def test_the_demo_of_sorting_writes_files_that_follow_one_another(spark, tmp_path):
    rows = [("a", "m", 3), ("b", "m", 9), ("a", "k", 3), ("c", "m", 1)] * 500
    counts = pa.table({name: [row[n] for row in rows] for n, name in enumerate(("identifier", "module", "n"))})
    env = ExecutionEnvironment(
        spark=spark,
        options={
            "firesteel.progress": False,
            "firesteel.journal.directory": str(tmp_path / "j"),
            "data-volume-per-task": "8k",
        },
    )
    demo_sort.ordered(env.from_arrow(counts)).write_parquet(str(tmp_path / "sorted"))
    env.execute("sort")
    files = sorted((tmp_path / "sorted").glob("*.parquet"))
    assert len(files) > 1
    found = [row for file in files for row in pq.read_table(file).to_pylist()]
    assert found == sorted(counts.to_pylist(), key=lambda row: (-row["n"], row["identifier"], row["module"]))
    first, *_, last = demo_sort.files_text(tmp_path / "sorted").splitlines()
    assert " 9 x b ... " in first and last.endswith("... 1 x c")


@pytest.mark.full
def test_the_demo_of_tpch_gives_the_answer_of_duckdb(spark, tmp_path):
    demo_tpch.generate(tmp_path / "data", "0.01")
    env = ExecutionEnvironment(
        spark=spark,
        options={"firesteel.progress": False, "firesteel.journal.directory": str(tmp_path / "j")},
    )
    tables = {name: env.read_parquet(str(tmp_path / "data" / f"{name}.parquet")) for name in demo_tpch.TABLES}
    found = demo_tpch.query(tables).to_arrow().to_pylist()
    duck = duckdb.connect()
    for name in demo_tpch.TABLES:
        duck.execute(f"create view {name} as select * from '{tmp_path}/data/{name}.parquet'")
    wanted = duck.execute(
        """select l_orderkey, sum(l_extendedprice * (1 - l_discount)) as revenue, o_orderdate, o_shippriority
        from customer, orders, lineitem
        where c_mktsegment = 'BUILDING' and c_custkey = o_custkey and l_orderkey = o_orderkey
          and o_orderdate < date '1995-03-15' and l_shipdate > date '1995-03-15'
        group by all order by revenue desc, o_orderdate limit 10"""
    ).fetchall()
    assert len(found) == 10
    assert sorted((row["l_orderkey"], row["revenue"]) for row in found) == sorted(row[:2] for row in wanted)


def test_the_readmes_example_runs_and_its_journal_explains_it(tmp_path):
    (tmp_path / "src" / "deep").mkdir(parents=True)
    (tmp_path / "src" / "deep" / "a.py").write_text("one two two\nthree three three\n")
    shown = firesteel(
        tmp_path, "run", str(ROOT / "examples" / "word_count.py"), "-O", "max-parallelism=3", "--master", "local[1]"
    )
    assert shown.returncode == 0, shown.stderr
    assert "[1] finished in" in shown.stderr, "progress, in lines"
    counts = {row["word"]: row["n"] for row in pq.read_table(tmp_path / "out" / "words").to_pylist()}
    assert counts == Counter(["one", "two", "two", "three", "three", "three"])
    assert (tmp_path / "out" / "words" / "_SUCCESS").exists()
    explained = firesteel(tmp_path, "explain", "last")
    assert explained.stdout == shown.stdout
    assert re.match(
        r"word count \(job \w+\): FINISHED after .* s\.\n    options      .*max-parallelism = 3", explained.stdout
    )


@pytest.mark.full
def test_a_run_in_json_and_what_history_says_of_it(tmp_path):
    name = script(
        tmp_path,
        """
        from firesteel import ExecutionEnvironment

        env = ExecutionEnvironment.get_or_create(options={"firesteel.progress": False})
        rows = env.from_collection([1, 2, 3]).rebalance().map_in_arrow(iter, "value bigint").set_parallelism(2)
        rows.write_parquet("out")
        env.execute("small job")
        print("mine")
        """,
    )
    shown = firesteel(tmp_path, "run", "--json", name, "--master", "local[2]")
    assert (shown.returncode, shown.stdout) == (0, "mine\n"), shown.stderr
    told = [json.loads(line) for line in shown.stderr.splitlines()]
    events = [event["event"] for event in told]
    assert events[0] == "job" and events[-2:] == ["result", "exit"]
    assert [event["parallelism"] for event in told if event["event"] == "decided"] == [1, 2]
    assert [event["rows"] for event in told if event["event"] == "finished"] == [3, 3]
    assert {name: told[-2][name] for name in ("status", "subtasks", "failures")} == {
        "status": "FINISHED",
        "subtasks": 3,
        "failures": 0,
    }
    listed = firesteel(tmp_path, "history", "--json", "--status", "finished")
    (job,) = map(json.loads, listed.stdout.splitlines())
    assert (job["job"], job["name"], job["rows_in"], job["rows_out"]) == (told[0]["job"], "small job", 3, 3)


@pytest.mark.full
def test_a_failing_function_shows_the_users_frames_and_nothing_of_ours(tmp_path):
    name = script(
        tmp_path,
        """
        from firesteel import ExecutionEnvironment

        def invert(x):
            return 1 / x

        def step(batches):
            for batch in batches:
                invert(0)
                yield batch

        env = ExecutionEnvironment.get_or_create()
        env.from_collection([1, 2]).map_in_arrow(step, "value bigint").write_parquet("out")
        env.execute("bad")
        """,
    )
    shown = firesteel(tmp_path, "run", name, "-O", "restart-strategy.type=none", "--quiet", "--master", "local[1]")
    assert (shown.returncode, shown.stdout) == (1, "")
    assert [line for line in shown.stderr.splitlines() if "File" in line] == [
        f'  File "{tmp_path / "job.py"}", line 9, in step',
        f'  File "{tmp_path / "job.py"}", line 5, in invert',
    ]
    assert "ZeroDivisionError: division by zero\nfiresteel: The job 'bad' failed in 'from_collection" in shown.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.full
@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_cancels_the_job_and_exits_with_130(tmp_path, times):
    name = script(
        tmp_path,
        """
        import pathlib, threading
        from firesteel import ExecutionEnvironment

        def step(batches):
            for batch in batches:
                pathlib.Path("started").touch()
                threading.Event().wait(600)
                yield batch

        env = ExecutionEnvironment.get_or_create()
        for name in ("slow", "next"):
            try:
                env.from_collection([1, 2]).map_in_arrow(step, "value bigint").write_parquet("out")
                env.execute(name)
            except Exception as error:
                print("goes on after", error)
        """,
    )
    with subprocess.Popen(
        command("run", name, "--master", "local[1]"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        cwd=tmp_path,
    ) as running:
        assert running.stderr is not None
        lines = []
        for line in running.stderr:  # until the job has begun
            lines.append(line)
            if "source subtask" in line:
                break
        os.kill(running.pid, signal.SIGINT)
        for line in running.stderr:  # until it is known that the job was interrupted
            lines.append(line)
            if times == 1 or "interrupted" in line:
                break
        if times == 2:
            os.kill(running.pid, signal.SIGINT)
        out, rest = running.communicate(timeout=600)
    err = "".join(lines) + rest
    ended_by_the_signal = times == 2 and running.returncode == -signal.SIGINT  # a shell shows 130 for it, too
    assert running.returncode == 130 or ended_by_the_signal, (running.returncode, err)
    assert "Traceback" not in err
    assert "cancel" in err
    assert out == ""
    assert not (tmp_path / "out").exists()
    if times == 2:
        return
    (journal,) = (tmp_path / ".firesteel" / "journal").glob("*.jsonl")
    assert json.loads(journal.read_text().splitlines()[-1])["status"] == "CANCELED"
    assert read(journal)


def test_wrong_use_in_a_script_is_found_before_spark_starts(tmp_path):
    name = script(
        tmp_path,
        """
        from firesteel import ExecutionEnvironment
        env = ExecutionEnvironment.get_or_create(options={"firesteel.progress": False})
        env.read_text("missing/*.txt").write_text("out")
        """,
    )
    shown = firesteel(tmp_path, "run", name)
    assert (shown.returncode, shown.stdout) == (2, "")
    assert "missing/*.txt" in shown.stderr
    assert "job.py:4" in shown.stderr
    assert len(shown.stderr.splitlines()) == 1
