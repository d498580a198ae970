"""SQL in our tasks on a cluster: while an executor dies, while a task is slow, and where executors have no DuckDB."""

from __future__ import annotations

import subprocess

import pyarrow.parquet as pq
import pytest

from bare_python import bare_python
from oracle import assert_same_rows, duckdb_answer, tpch

pytestmark = pytest.mark.cluster


def assert_right(folder, answer):
    assert "Spark computes" not in answer["explain"]
    assert answer["left"] == []
    assert_same_rows(pq.read_table(folder / "out"), duckdb_answer(answer["sql"], tpch(0.01)))
    finished = [(a["vertex"], a["subtask"]) for a in answer["attempts"] if "FINISHED" in a["states"]]
    assert finished


@pytest.mark.full
def test_an_executor_dies(cluster, session, tmp_path):
    session.start("sql", tmp_path, fault="lost")
    session.until(lambda: len(list(tmp_path.glob("at-step-*"))) >= 2)
    host = next(tmp_path.glob("at-step-*")).name.rpartition("-")[2]
    cluster.standalone.kill_executor(host)
    (tmp_path / "go-step").touch()
    answer = session.answer()
    assert_right(tmp_path, answer)
    assert any("FAILED" in a["states"] for a in answer["attempts"])


@pytest.mark.full
def test_a_slow_task_is_mirrored(session, tmp_path):
    answer = session.run("sql", tmp_path, fault="slow")
    assert_right(tmp_path, answer)
    assert any(a["mirror"] and "FINISHED" in a["states"] for a in answer["attempts"])


def test_executors_without_it_get_the_drivers_if_it_fits(cluster, tmp_path):
    python = bare_python(tmp_path, "pyspark", "py4j", "pyarrow", "numpy")
    assert subprocess.run([python, "-c", "import duckdb"], capture_output=True, check=False).returncode == 1
    answer = cluster.driver("engine", tmp_path, PYSPARK_PYTHON=str(python)).answer()
    assert answer["before"] == []
    (archive,) = answer["sent"]
    elsewhere, first, again = answer["elsewhere"], *answer["here"]
    assert elsewhere["rows"] == first["rows"] == again["rows"] == [[k, sum(range(k, 5000, 7))] for k in range(7)]
    assert elsewhere["origins"] == ["None"]
    assert "Spark computes the DataFrame itself now: DuckDB is not installed on 127.0.0." in elsewhere["told"][0]
    assert "for CPython 3.11 on Plan9 mips, not for CPython" in elsewhere["told"][0]
    assert first["told"] == again["told"] == []
    assert first["origins"] == again["origins"] == [archive]
    assert answer["left"] == []
