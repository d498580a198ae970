"""Errors of Spark's in queries that are taken over: each kind of error at each place of a query, in one row of many, held to Spark.

Where Spark raises, the engine must stop, so that Spark runs the query and raises. Where Spark answers, the engine gives the same rows or
stops. ``python -m tests.spark.test_sql_errors`` tries all pairs of kinds and places.
"""

from __future__ import annotations

import itertools
import random
import re
import sys
import tempfile
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from firesteel import ExecutionEnvironment
from firesteel.api.ddl import dataframe_schema
from firesteel.errors import EngineStop
from firesteel.plan.expr import Unsupported
from firesteel.sql.plans.catalyst import read_plan
from firesteel.sql.takeover import TakenOver, take_over
from sql_queries_kit import differs, quick, rows_in_process
from sql_steps_kit import Steps

pytestmark = pytest.mark.spark

COLUMNS = {
    # name: type, what the last row but one has, what the others have
    "b": (pa.int8(), 127, 3),
    "s": (pa.int16(), 32767, 3),
    "i": (pa.int32(), 2**31 - 1, 3),
    "l": (pa.int64(), 2**63 - 1, 3),
    "b0": (pa.int8(), -128, 3),
    "s0": (pa.int16(), -(2**15), 3),
    "i0": (pa.int32(), -(2**31), 3),
    "l0": (pa.int64(), -(2**63), 3),
    "z": (pa.int32(), 0, 3),
    "m": (pa.int32(), 13, 3),
    "f": (pa.float64(), 1e300, 3.5),
    "t": (pa.string(), "x", "3"),
    "u": (pa.string(), "2024-13-01", "2024-01-04"),
    "d": (pa.decimal128(38, 2), Decimal("9" * 36 + ".99"), Decimal("3.25")),
    "e": (pa.decimal128(10, 2), Decimal("99999999.99"), Decimal("3.25")),
    "a": (pa.list_(pa.int32()), [3], [3, 3, 3]),
}
KINDS = """
b + 1Y; 1Y + b; s + 1S; i + 1; 1 + i; i - -1; -1 - i0 - 1; i0 - 1; l + 1L; 1L + l; l0 - 1L; i + i; l + l; i * 2; 2 * i; s * 2S; b * 2Y; l * 2L
-b0; -s0; -i0; -l0; abs(i0); abs(l0); round(i, -1); round(l, -2); d + d; d * d; d * 1000; d - -d; e / z; d / 0.001
10 / z; 10 % z; 10 div z; pmod(10, z); l0 div (z - 1); i0 % z; f / z
CAST(l AS INT); CAST(i AS TINYINT); CAST(s AS TINYINT); CAST(f AS INT); CAST(f AS BIGINT); CAST(t AS INT); CAST(t AS DECIMAL(6, 2))
CAST(t AS DOUBLE); CAST(e AS DECIMAL(5, 2)); CAST(i AS DECIMAL(5, 0)); CAST(e AS INT) * 100; CAST(d AS BIGINT); month(CAST(u AS DATE))
3 * int(INTERVAL '1' DAY * i > INTERVAL '2' DAY); 3 * int(i * INTERVAL '9' MONTH > INTERVAL '2' MONTH)
3 * int(make_dt_interval(i, 0, 0, 0) > INTERVAL '2' DAY); 3 * int(make_ym_interval(i, 0) > INTERVAL '2' YEAR)
month(make_date(2024, m, 1)); a[m - 1 - 9 * int(m > 12)]; a[z - 1]; element_at(a, m); element_at(a, z); size(sequence(1, 3, z))
"""
PLACES = """
SELECT k FROM e WHERE X > 5; SELECT k FROM e WHERE 5 < X; SELECT k FROM e WHERE X BETWEEN 2 AND 4; SELECT k FROM e WHERE X BETWEEN 5 AND -1
SELECT k FROM e WHERE X = 3; SELECT k FROM e WHERE X <> 3; SELECT k FROM e WHERE X IN (1, 3); SELECT k FROM e WHERE X IS NOT NULL
SELECT k FROM e WHERE X IS NULL; SELECT k FROM e WHERE NOT (X > 5); SELECT k FROM e WHERE X > 5 AND k = 3; SELECT k FROM e WHERE k = 3 AND X > 1
SELECT k FROM e WHERE X > 5 OR k = 3; SELECT k FROM e WHERE X <=> 3; SELECT k FROM e WHERE -(X) < 2; SELECT k FROM e WHERE X + 1 > 4
SELECT k FROM e WHERE 2 * X = 6; SELECT k FROM e WHERE X > 5 AND X < 2; SELECT k FROM e WHERE X > 1 AND g IN (1, 2) AND k < 9
SELECT k, X AS x FROM e; SELECT k, X AS x FROM e ORDER BY k LIMIT 2; SELECT DISTINCT X AS x FROM e; SELECT X > 3 AND k = 3 AS x FROM e
SELECT CASE WHEN X > 5 THEN 1 ELSE 0 END AS x FROM e; SELECT CASE WHEN k = 3 THEN X END AS x FROM e; SELECT coalesce(X, 0) AS x FROM e
SELECT if(X > 3, 1, 1) AS x FROM e; SELECT k FROM e WHERE CASE WHEN k = 3 THEN X > 1 ELSE false END; SELECT k FROM e WHERE coalesce(X > 5, true)
SELECT sum(X) AS x FROM e; SELECT count(X) AS x FROM e; SELECT avg(X) AS x FROM e; SELECT max(X) AS x FROM e; SELECT count(DISTINCT X) AS x FROM e
SELECT g, sum(X) AS x FROM e GROUP BY g; SELECT g, count(X) AS x FROM e GROUP BY g; SELECT X AS x, count(*) AS n FROM e GROUP BY X
SELECT sum(X) FILTER (WHERE k = 3) AS x FROM e; SELECT count(*) FILTER (WHERE X > 1) AS x FROM e; SELECT sum(CASE WHEN X > 1 THEN 1 END) AS x FROM e
SELECT g FROM e GROUP BY g HAVING sum(X) > 1; SELECT g FROM e GROUP BY g HAVING max(X) > 3 AND g = 1; SELECT g, max(10 + X) AS x FROM e GROUP BY g
SELECT g, X AS x FROM (SELECT g, max(b) b, max(s) s, max(i) i, max(l) l, min(b0) b0, min(s0) s0, min(i0) i0, min(l0) l0, min(z) z, max(m) m, max(f) f, max(t) t, max(u) u, max(d) d, max(e) e, max(a) a FROM e GROUP BY g)
SELECT 1 AS one FROM e WHERE X > 0 HAVING 1 < 2; SELECT DISTINCT 1 AS one FROM e WHERE X > 0; SELECT 1 AS one FROM e WHERE X > 0 GROUP BY 'k'
SELECT count(*) AS n FROM (SELECT 1 FROM e WHERE X > 0 HAVING true); SELECT count(*) AS n FROM e WHERE X > 0; SELECT 1 AS n FROM e GROUP BY X
SELECT e.k FROM e JOIN o ON e.k = o.k AND X > o.w; SELECT e.k FROM e JOIN o ON X = o.w; SELECT e.k FROM e LEFT JOIN o ON X = o.w
SELECT e.k, o.w FROM e LEFT JOIN o ON e.k = o.k AND X > o.w; SELECT e.k FROM e JOIN o ON X > o.w; SELECT e.k, o.k FROM e FULL JOIN o ON e.g = o.k AND X > o.w
SELECT e.k FROM e JOIN o ON X <> o.w ORDER BY e.k LIMIT 2; SELECT e.k FROM e LEFT JOIN o ON e.g = o.k AND X > o.w AND o.w > 50; SELECT o.k FROM o LEFT JOIN e ON e.g = o.k AND X > 1 AND e.k > o.w
SELECT k FROM e WHERE EXISTS (SELECT 1 FROM o WHERE o.k = e.g AND X > o.w); SELECT k FROM e WHERE NOT EXISTS (SELECT 1 FROM o WHERE o.k = e.g AND X > o.w)
SELECT k FROM e WHERE X IN (SELECT w FROM o); SELECT k FROM o WHERE w IN (SELECT X FROM e); SELECT q.x FROM (SELECT k, X AS x FROM e) q JOIN o ON q.k = o.k
SELECT q.k FROM (SELECT k FROM e WHERE X > 1) q JOIN o ON q.k = o.k; SELECT q.x FROM (SELECT g, sum(X) AS x FROM e GROUP BY g) q JOIN o ON q.g = o.k
SELECT k FROM e WHERE if(k > 0, NULL, k) > 1 AND X > 5; SELECT k FROM e WHERE (if(k > 0, NULL, k) > 1 AND X > 5) IS NULL; SELECT if(k > 0, NULL, k) > 1 AND X > 3 AS x FROM e
SELECT CASE WHEN if(k > 0, NULL, k) > 1 AND X > 3 THEN 1 END AS x FROM e; SELECT k FROM e WHERE k NOT IN (3, NULL) AND X > 5; SELECT e.k FROM e LEFT JOIN o ON e.g = o.k AND if(o.w > 0, NULL, o.w) > 1 AND X > 1
SELECT k FROM e WHERE k = 3 AND (X > 5 OR X < 4); SELECT k FROM e WHERE (SELECT max(w) FROM o) > X; SELECT k FROM e JOIN (SELECT w FROM o) o ON k = w WHERE X > 1
SELECT k, sum(X) OVER (PARTITION BY g) AS x FROM e; SELECT k, row_number() OVER (PARTITION BY g ORDER BY X, k) AS x FROM e; SELECT max(k) OVER (PARTITION BY X) AS x FROM e
SELECT k FROM (SELECT k, X AS x, row_number() OVER (PARTITION BY g ORDER BY k) AS n FROM e) WHERE n = 1; SELECT k, lag(X) OVER (ORDER BY k) AS x FROM e
SELECT k FROM e ORDER BY X, k; SELECT k FROM e ORDER BY X, k LIMIT 1; SELECT k, explode(array(X)) AS x FROM e; SELECT X AS x, explode(filter(array(k), v -> v > 5)) AS v FROM e
SELECT X AS x FROM e UNION ALL SELECT w FROM o; SELECT k FROM e WHERE X > 1 INTERSECT SELECT k FROM o; SELECT X AS x FROM e EXCEPT SELECT w FROM o
SELECT g, X AS x, count(*) AS n FROM e GROUP BY ROLLUP (g, X); SELECT k FROM (SELECT k, X AS x FROM e ORDER BY k LIMIT 3) WHERE x > 1
"""


def split(text: str) -> list[str]:
    return [part.strip() for line in text.strip().splitlines() for part in line.split(";")]


class Kit:
    """``e``: 40 rows in two files, one of which raises; ``o``: few rows, none of which that one meets by ``k``."""

    def __init__(self, spark, home: Path) -> None:
        self.spark = spark
        self.env = ExecutionEnvironment(spark=spark, options={"firesteel.progress": False})
        self.steps = Steps(home, 0)
        rows = 40
        given = {"k": pa.array(range(1, rows + 1), pa.int32()), "g": pa.array([n % 3 for n in range(rows)], pa.int32())}
        for name, (kind, bad, sound) in COLUMNS.items():
            given[name] = pa.array([bad if n == rows - 2 else sound for n in range(rows)], kind)
        table = pa.table(given)
        self._view("e", [table.slice(0, 20), table.slice(20)])
        self._view("o", [pa.table({"k": pa.array([1, 2, 3], pa.int32()), "w": pa.array([3, 1, 70], pa.int32())})], home)

    def _view(self, name: str, tables: list[pa.Table], home: Path | None = None) -> None:
        folder = Path(tempfile.mkdtemp(dir=self.steps._scratch))
        for i, table in enumerate(tables):
            pq.write_table(table, folder / f"{i}.parquet", row_group_size=10)
        self.spark.read.parquet(str(folder)).createOrReplaceTempView(name)

    def held(self, query: str, told: Counter[str]) -> str:
        """What is wrong; empty: nothing."""
        try:
            frame = self.spark.sql(query)
            taken = take_over(read_plan(frame), dataframe_schema(frame))
            left = taken.left
        except Unsupported:
            told["left to Spark"] += 1
            return ""
        except Exception as error:
            told[f"Spark refuses: {str(error)[:40]}"] += 1
            return ""
        if left:
            told["left to Spark"] += 1
            return ""
        try:
            theirs = frame.toArrow()
        except Exception as error:
            theirs, why = None, str(error).splitlines()[0][:150]
        found = ""
        for how, compute in (("", self._by_steps), ("in process: ", rows_in_process)):
            try:
                ours = compute(taken)
            except EngineStop:
                told[f"{how}{'stopped, Spark raises' if theirs is None else 'stopped, Spark answers'}"] += 1
                continue
            except Unsupported:
                told[f"{how}is for stages"] += 1
                continue
            if theirs is None:
                found += (
                    f"{how}{query}: the engine gives {ours.num_rows} rows: {ours.to_pylist()[:2]}; Spark raises {why}"
                )
                continue
            told[f"{how}answered"] += 1
            difference = differs(ours, theirs, digits=12)  # sums of doubles are told by the order of rows
            found += difference and f"{how}{query}: {difference}"
        return found

    def _by_steps(self, taken: TakenOver) -> pa.Table:
        return self.steps.run(taken.step(""))


def tried(kit: Kit, pairs) -> tuple[list[str], Counter[str]]:
    wrong, told = [], Counter()
    for ansi, some in itertools.groupby(pairs, key=lambda pair: pair[2]):
        kit.spark.conf.set("spark.sql.ansi.enabled", ansi)
        for kind, place, _ in some:
            text = re.sub(r"\bX\b", lambda _, kind=kind: f"({kind})", place)
            found = kit.held(text, told)
            if found:
                wrong.append(f"ansi {ansi}: {found}")
    return wrong, told


def sample(count: int, seed: int):
    """Each kind and each place at least once, in both modes."""
    rng, kinds, places = random.Random(seed), split(KINDS), split(PLACES)
    for ansi in ("true", "false"):
        rng.shuffle(kinds)
        rng.shuffle(places)
        for n in range(count):
            yield kinds[n % len(kinds)], places[n % len(places)], ansi


@pytest.mark.parametrize(
    ("count", "seed"), [(15, 1), pytest.param(300, 2, marks=[pytest.mark.full, pytest.mark.patience(900)])]
)
def test_no_error_of_sparks_is_lost(spark, tmp_path, count, seed):
    with quick(spark):
        wrong, told = tried(Kit(spark, tmp_path), sample(count, seed))
    assert wrong == []
    assert told["stopped, Spark raises"] > count / 4, told


if __name__ == "__main__":
    from pyspark.sql import SparkSession

    session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    with quick(session), tempfile.TemporaryDirectory() as folder:
        kit = Kit(session, Path(folder))
        chosen = [one for one in split(PLACES) if len(sys.argv) < 2 or sys.argv[1] in one]
        pairs = ((kind, place, ansi) for ansi in ("true", "false") for place in chosen for kind in split(KINDS))
        wrong, told = tried(kit, pairs)
        print(*wrong, told, f"{len(wrong)} wrong", sep="\n")
