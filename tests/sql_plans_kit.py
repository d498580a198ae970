"""Plans of a few queries as they are read, kept for each Spark: a new one shows at once what it calls differently.

``python tests/sql_plans_kit.py`` writes those of the Spark that is installed.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark

from firesteel.plan.expr import Expr
from firesteel.sql.plans.catalyst import read_plan
from firesteel.sql.plans.versions import VERSIONS

HOME = Path(__file__).parent / "sql_plans"
SETTINGS = {"spark.sql.ansi.enabled": "true", "spark.sql.session.timeZone": "UTC"}
TABLE = pa.schema(
    [
        ("k", pa.int64()),
        ("i", pa.int32()),
        ("s", pa.string()),
        ("d", pa.decimal128(7, 2)),
        ("f", pa.float64()),
        ("t", pa.date32()),
        ("b", pa.bool_()),
        ("z", pa.timestamp("us", "UTC")),
        ("n", pa.timestamp("us")),
    ]
)
QUERIES = {
    "numbers": "SELECT i + 1 AS a, -k AS b, abs(k) AS c, k % 3 AS e, k DIV 2 AS g, f / 2 AS h, d * d AS l, d - 1 AS m, round(d, 1) AS o, ceil(f) AS p FROM plans",
    "bits": "SELECT i & 3 AS a, k | 1 AS b, ~i AS c, shiftright(i, 2) AS e FROM plans",
    "logic": "SELECT CASE WHEN b THEN s ELSE 'x' END AS a, coalesce(k, 0L) AS c, if(b, 1, 2) AS e, greatest(k, 3L) AS g FROM plans WHERE (k > 1 OR s IS NULL) AND NOT b AND i <=> 3",
    "lists": "SELECT k FROM plans WHERE k IN (1, 2) AND i IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)",
    "casts": "SELECT CAST(k AS STRING) AS a, CAST(f AS INT) AS b, try_cast(s AS DATE) AS c, CAST(d AS DOUBLE) AS e, CAST(z AS DATE) AS g, CAST(s AS DECIMAL(9, 2)) AS h FROM plans",
    "texts": "SELECT substring(s, 2, 3) AS a, upper(trim(s)) AS b, s || '!' AS c, s LIKE 'x%' AS e, replace(s, 'a', 'b') AS g, length(s) AS h, s RLIKE '^a' AS l FROM plans",
    "times": "SELECT year(t) AS a, date_add(t, 3) AS b, hour(z) AS c, date_trunc('DAY', n) AS e, date_format(t, 'yyyy-MM') AS g, n + INTERVAL '2' HOUR AS h, t + INTERVAL '1' MONTH AS l FROM plans",
    "groups": "SELECT k, count(*) AS a, sum(d) AS b, avg(f) AS c, max(s) AS e, count(DISTINCT i) AS g, sum(i) FILTER (WHERE b) AS h, stddev_samp(f) AS l FROM plans GROUP BY k",
    "rollup": "SELECT k, b, avg(d) AS a, grouping(k) AS c FROM plans GROUP BY ROLLUP(k, b)",
    "joins": "SELECT x.k, y.s FROM plans x LEFT JOIN plans y ON x.k = y.k AND x.i < y.i JOIN plans q ON x.f = q.f",
    "subqueries": "SELECT s, (SELECT max(k) FROM plans) AS a, (SELECT min(k) FROM plans) AS c FROM plans x WHERE EXISTS (SELECT 1 FROM plans y WHERE y.k = x.i) AND k NOT IN (SELECT i FROM plans)",
    "windows": "SELECT rank() OVER (PARTITION BY k ORDER BY i DESC) AS a, sum(d) OVER (PARTITION BY k ORDER BY i ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS c FROM plans",
    "order": "SELECT k, s FROM plans ORDER BY k DESC NULLS FIRST, s LIMIT 3",
    "unions": "SELECT k, s FROM plans UNION SELECT i, 'u' FROM plans UNION ALL SELECT * FROM VALUES (1L, 'a'), (2L, NULL)",
}
_LEFT_OUT = {"AttributeReference": ("dataType", "metadata"), "HadoopFsRelation": ("data", "options")}
"""Fields whose values are of a machine, or are written already: only their names are kept."""


def version() -> str:
    """Of the Spark that is installed."""
    return ".".join(pyspark.__version__.split(".")[:2])


def calls_functions() -> bool:
    """Our tasks call the Python functions in this Spark's plans."""
    return version() in VERSIONS and VERSIONS[version()].python_functions


def view(spark, folder: Path) -> None:
    pq.write_table(TABLE.empty_table(), folder / "plans.parquet")
    spark.read.parquet(str(folder)).createOrReplaceTempView("plans")


def plans(spark) -> dict[str, object]:
    return {name: plain(read_plan(spark.sql(text)).root) for name, text in QUERIES.items()}


def plain(root: Expr) -> object:
    """Classes, types and fields; ids counted as they are met. An attribute that was met stands for itself."""
    ids: dict[int, str] = {}
    met: set[str] = set()

    def shown(name: str, value: object) -> object:
        if name in ("exprId", "resultId") and isinstance(value, int):
            return ids.setdefault(value, f"#{len(ids)}")
        if isinstance(value, list):
            found = [shown("", item) for item in value]
            return sorted(found, key=repr) if name == "hset" else found
        return node(value) if isinstance(value, Expr) else value

    def node(one: Expr) -> object:
        left_out = _LEFT_OUT.get(one.cls, ())
        if one.cls == "AttributeReference":
            known = shown("exprId", one["exprId"])
            if known in met:
                return known
            met.add(known)
        fields = {name: "..." if name in left_out else shown(name, value) for name, value in one.fields.items()}
        return {f"{one.cls} {one.type}" if one.type is not None else one.cls: fields}

    return node(root)


def kept(version: str) -> Path:
    return HOME / f"{version}.json"


def text_of(found: dict[str, object]) -> str:
    """A query in a line."""
    lines = [f"{json.dumps(name)}:{json.dumps(plan, separators=(',', ':'))}" for name, plan in found.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> None:
    from firesteel.spark.session.sessions import create_session

    spark = create_session("local[1]", "plans", SETTINGS)
    with tempfile.TemporaryDirectory() as folder:
        view(spark, Path(folder))
        path = kept(version())
        path.parent.mkdir(exist_ok=True)
        path.write_text(text_of(plans(spark)))
    spark.stop()
    sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
