"""SQL in our tasks on a cluster: while an executor dies, while a task is slow, and where executors have no DuckDB.

Against DuckDB, and queries of TPC-DS against Spark.
"""

from __future__ import annotations

import subprocess

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bare_python import bare_python
from oracle import assert_same_rows, duckdb_answer, tpch
from tpcds_kit import NotToBeHad, tpcds

pytestmark = pytest.mark.cluster

DOZEN = (3, 5, 7, 8, 16, 27, 38, 44, 51, 65, 87, 97)
"""Of TPC-DS: unions, intersections, differences, rollups, ranks, running sums, EXISTS and NOT EXISTS, full joins, scalar subqueries."""
LOST, SLOW = 7, 65
SKEWED = {
    **{
        how: f"SELECT s.k, s.v, o.w FROM s {how.upper()} JOIN o ON s.k = o.k"
        for how in ("inner", "left", "right", "full")
    },
    **{how: f"SELECT s.k, s.v FROM s {how.upper()} JOIN o ON s.k = o.k" for how in ("semi", "anti")},
    "more than keys": "SELECT s.k, s.v, o.w FROM s LEFT JOIN o ON s.k = o.k AND s.v % 100 < o.w",
    "groups": "SELECT k, count(*) AS c, CAST(sum(v) AS BIGINT) AS v, min(v) AS a, max(t) AS b, count(DISTINCT v % 1000) AS d FROM s GROUP BY k",
    "groups of a join": "SELECT s.k, count(*) AS c, CAST(sum(v + w) AS BIGINT) AS v FROM s JOIN o ON s.k = o.k GROUP BY s.k",
    "rollup": "SELECT k, t, count(*) AS c FROM s GROUP BY ROLLUP (k, t)",
    "distinct": "SELECT DISTINCT k, t FROM s",
    "both": "SELECT k FROM s INTERSECT SELECT k FROM o",
    "ranks": "SELECT k, v, row_number() OVER (PARTITION BY k ORDER BY v) AS r, rank() OVER (PARTITION BY k ORDER BY t DESC) AS t FROM s",
    "running": """SELECT k, v, CAST(sum(v) OVER (PARTITION BY k ORDER BY v) AS BIGINT) AS a, count(*) OVER (PARTITION BY k) AS b,
        lag(v, 2) OVER (PARTITION BY k ORDER BY v) AS l, max(v) OVER (PARTITION BY k ORDER BY v ROWS BETWEEN 3 PRECEDING AND 1 FOLLOWING) AS m FROM s""",
}


def assert_right(folder, answer):
    assert "Spark computes" not in answer["explain"]
    assert answer["left"] == []
    assert_same_rows(pq.read_table(folder / "out"), duckdb_answer(answer["sql"], tpch(0.01)))
    finished = [(a["vertex"], a["subtask"]) for a in answer["attempts"] if "FINISHED" in a["states"]]
    assert finished


def hold_until_one_is_lost(cluster, session, folder):
    """Kills the executor of a task that holds. The others go on when the job knows it: a mirror would end before."""
    session.until(lambda: len(list(folder.glob("at-step-*"))) >= 2)
    host = next(folder.glob("at-step-*")).name.rpartition("-")[2]
    cluster.standalone.kill_executor(host)
    session.until(lambda: any(record.state == "FAILED" for record in session.changes()))
    (folder / "go-step").touch()


@pytest.mark.full
def test_an_executor_dies(cluster, session, tmp_path):
    session.start("sql", tmp_path, fault="lost")
    hold_until_one_is_lost(cluster, session, tmp_path)
    answer = session.answer()
    assert_right(tmp_path, answer)
    assert any("FAILED" in a["states"] for a in answer["attempts"])


@pytest.mark.full
def test_a_slow_task_is_mirrored(session, tmp_path):
    answer = session.run("sql", tmp_path, fault="slow")
    assert_right(tmp_path, answer)
    assert any(a["mirror"] and "FINISHED" in a["states"] for a in answer["attempts"])


@pytest.mark.full
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


@pytest.mark.full
def test_tpcds_while_an_executor_dies_and_a_task_is_slow(cluster, session, tmp_path):
    try:
        tpcds(0.1)
    except NotToBeHad as reason:
        pytest.skip(f"TPC-DS cannot be made here: {reason}")
    session.start("tpcds", tmp_path, numbers=DOZEN, lost=LOST, slow=SLOW)
    hold_until_one_is_lost(cluster, session, tmp_path)
    answer = session.answer()
    assert answer["left"] == []
    for number in DOZEN:
        assert "Spark computes" not in answer["explained"][str(number)]
        ours, theirs = (
            pq.read_table(tmp_path / str(number) / "out"),
            pq.read_table(tmp_path / f"spark-{number}.parquet"),
        )
        assert ours.schema.types == theirs.schema.types
        assert ours.num_rows > 0
        assert_same_rows(ours, theirs)
    assert any("FAILED" in a["states"] for a in answer["attempts"][str(LOST)])
    assert any(a["mirror"] and "FINISHED" in a["states"] for a in answer["attempts"][str(SLOW)])


@pytest.fixture(scope="module")
def skewed():
    """Nine of ten rows of ``s`` have one key, which ``o`` has twice. Values of ``v`` are all different."""
    rng = np.random.default_rng(21)
    keys = np.where(rng.random(20_000) < 0.9, 7, rng.integers(0, 1_000, 20_000))
    s = pa.table(
        {
            "k": pa.array(keys, mask=rng.random(len(keys)) < 0.01),
            "v": rng.permutation(len(keys)),
            "t": [f"t{n}" for n in rng.integers(0, 5, len(keys))],
        }
    )
    o = pa.table({"k": [7, 7, None, *range(200, 1_200, 2)], "w": np.arange(503)})
    return {"s": s, "o": o}


@pytest.mark.full
@pytest.mark.parametrize("adaptive", ["true", "false"], ids=["adaptive", "hashed"])
def test_one_key_has_most_rows(session, tmp_path, skewed, adaptive):
    for name, table in skewed.items():
        (tmp_path / "tables" / name).mkdir(parents=True)
        for i in range(3):
            part = table.slice(i * len(table) // 3, (i + 1) * len(table) // 3 - i * len(table) // 3)
            pq.write_table(part, tmp_path / "tables" / name / f"{i}.parquet", row_group_size=2_000)
    answer = session.run("skewed", tmp_path, queries=SKEWED, adaptive=adaptive)
    assert answer["left"] == []
    for name, query in SKEWED.items():
        assert "Spark computes" not in answer["explained"][name]
        assert_same_rows(
            pq.read_table(tmp_path / name),
            duckdb_answer(query, **skewed),
        )
    if adaptive == "false":
        assert answer["divided"]
