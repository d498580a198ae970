"""SQL in our tasks on a cluster, against DuckDB, while an executor dies and while a task is slow."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from oracle import assert_same_rows, duckdb_answer, tpch

pytestmark = [pytest.mark.cluster, pytest.mark.full]


def assert_right(folder, answer):
    assert "Spark computes" not in answer["explain"]
    assert answer["left"] == []
    assert_same_rows(pq.read_table(folder / "out"), duckdb_answer(answer["sql"], tpch(0.01)))
    finished = [(a["vertex"], a["subtask"]) for a in answer["attempts"] if "FINISHED" in a["states"]]
    assert finished


def test_an_executor_dies(cluster, session, tmp_path):
    session.start("sql", tmp_path, fault="lost")
    session.until(lambda: len(list(tmp_path.glob("at-step-*"))) >= 2)
    host = next(tmp_path.glob("at-step-*")).name.rpartition("-")[2]
    cluster.standalone.kill_executor(host)
    (tmp_path / "go-step").touch()
    answer = session.answer()
    assert_right(tmp_path, answer)
    assert any("FAILED" in a["states"] for a in answer["attempts"])


def test_a_slow_task_is_mirrored(session, tmp_path):
    answer = session.run("sql", tmp_path, fault="slow")
    assert_right(tmp_path, answer)
    assert any(a["mirror"] and "FINISHED" in a["states"] for a in answer["attempts"])
