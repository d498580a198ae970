"""The plans of TPC-H and TPC-DS as the newest Spark gives them, for tests without a JVM.

``python tests/read_plans_kit.py`` writes them again with the Spark that is installed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from firesteel.plan.expr import Expr, walk
from firesteel.plan.relation import schema_of
from firesteel.plan.types import carried
from firesteel.sql.plans.catalyst import Catalyst
from firesteel.sql.plans.versions import VERSIONS

KEPT = Path(__file__).with_name("read_plans.json.zst")
VERSION = "4.3"
HOME = "/FIRESTEEL_HOME"
"""In the texts, the folder of the tables."""


def texts() -> dict[str, str]:
    """By name (``h1`` to ``h22`` of TPC-H, ``ds1`` to ``ds99`` of TPC-DS), what the reader gave."""
    with pa.CompressedInputStream(pa.OSFile(str(KEPT)), "zstd") as kept:
        return json.loads(kept.read())


def catalyst(text: str, home: Path) -> Catalyst:
    """The plan over the tables in ``home``, each a folder with one file."""
    found = json.loads(text)
    for folders in found["files"].values():
        for folder in folders:
            path = Path(folder["files"][0][2].replace(HOME, str(home), 1))
            folder["files"] = [["file", None, str(one), one.stat().st_size] for one in sorted(path.parent.iterdir())]
    return Catalyst.of_text(json.dumps(found), None, VERSIONS[VERSION], None)


def scans(text: str) -> dict[str, pa.Schema]:
    """The tables that a plan reads, with all their columns."""
    read = Catalyst.of_text(text, None, VERSIONS[VERSION], None)
    found: dict[str, pa.Schema] = {}
    for node in walk(read.root):
        files = node.fields.get("relation")
        if isinstance(files, Expr) and files.cls == "HadoopFsRelation":
            path = read._files[node.handle][0]["files"][0][2]
            found[Path(path).parent.name] = schema_of({one["name"]: carried(one.type) for one in node["output"]})
    return found


def few_rows(schema: pa.Schema, count: int = 40) -> pa.Table:
    """Keys from 1 to a few, so that joins find rows; every seventh value is null."""
    numbers = pa.array([None if n % 7 == 6 else str(n % 5 + 1) for n in range(count)])
    days = pa.array([None if n % 7 == 6 else n % 5 + 1 for n in range(count)], pa.int32())
    columns = [(days if pa.types.is_date(field.type) else numbers).cast(field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def write(home: Path, tables: Iterable[tuple[str, pa.Table]]) -> None:
    for name, table in tables:
        (home / name).mkdir(exist_ok=True)
        pq.write_table(table, home / name / "0.parquet")


def main() -> None:
    from firesteel.spark.session.sessions import create_session
    from firesteel.sql.plans import catalyst as plans
    from oracle import tpch
    from sql_plans_kit import SETTINGS
    from tpcds_kit import tpcds

    spark = create_session("local[2]", "plans", SETTINGS)
    assert spark.version.startswith(VERSION), spark.version
    read: list[str] = []
    of_text = plans.Catalyst.of_text
    plans.Catalyst.of_text = classmethod(lambda _cls, text, *rest: read.append(text) or of_text(text, *rest))  # pyright: ignore
    lines = Path(__file__).with_name("tpch.sql").read_text().splitlines()[1:]
    home, queries = tpcds(0.1)
    suites = {
        "h": (tpch(0.01), {n: line.rstrip(";") for n, line in enumerate(lines, 1)}),
        "ds": (home, {n: theirs for n, (_, theirs) in queries.items()}),
    }
    kept: dict[str, str] = {}
    for suite, (folder, asked) in suites.items():
        for each in folder.iterdir():
            if each.is_dir():
                spark.read.parquet(str(each)).createOrReplaceTempView(each.name)
        for number, text in asked.items():
            plans.read_plan(spark.sql(text))
            kept[f"{suite}{number}"] = read[-1].replace(str(folder), HOME)
    with pa.CompressedOutputStream(pa.OSFile(str(KEPT), "wb"), "zstd") as out:
        out.write(json.dumps(kept).encode())
    spark.stop()
    sys.stdout.write(f"{KEPT}: {KEPT.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
