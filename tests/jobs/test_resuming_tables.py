"""Jobs that write tables, whose driver is killed about its transaction: the next one commits the same files, once."""

from __future__ import annotations

import pytest
from deltalake import DeltaTable

from dying_kit import begun, ended

SCRIPT = """
import os, sys
from pathlib import Path

from dying_kit import dies_as_it_writes, dies_at
from firesteel import ExecutionEnvironment
from plane.session import Session

FOLDER, KIND = Path(sys.argv[1]), sys.argv[2]


if os.environ.get("DIES", "").endswith("transaction"):
    from firesteel.connectors.tables.delta import DeltaSink
    from firesteel.connectors.tables.iceberg import IcebergSink

    dies_at(DeltaSink if KIND == "delta" else IcebergSink, "_log", os.environ["DIES"].split()[0], lambda *given: True)
else:
    dies_as_it_writes()


def began(batches):
    with open(FOLDER / "began", "a") as file:
        file.write("x")
    yield from batches


if __name__ == "__main__":
    options = {
        "firesteel.progress": False,
        "firesteel.journal.directory": str(FOLDER / "journal"),
        "firesteel.storage.directory": str(FOLDER / "storage"),
    }
    env = ExecutionEnvironment(spark=Session(slots=1), options=options)
    rows = env.from_collection([(k, k % 3) for k in range(30)], "x bigint, k bigint")
    rows = rows.key_by("k").aggregate({"x": "sum"}).map_in_arrow(began, "k bigint, x bigint")
    mode = os.environ["MODE"]
    if KIND == "delta":
        rows.write_delta(FOLDER / "table", mode=mode)
    else:
        rows.write_iceberg("shop.sums", {"type": "sql", "uri": f"sqlite:///{FOLDER}/catalog.db", "warehouse": f"file://{FOLDER}"}, mode=mode)
    env.execute("sums")
"""
ONCE = [(0, 135), (1, 145), (2, 155)]


def run(folder, kind, *flags, **environment):
    script = folder / "job.py"
    script.write_text(SCRIPT)
    return ended(begun(script, folder, kind, flags=flags, **{"MODE": "append", **environment}))


def rows(folder, kind):
    if kind == "delta":
        found = DeltaTable(folder / "table").to_pyarrow_table()
    else:
        from pyiceberg.catalog import load_catalog

        catalog = load_catalog(
            "default", type="sql", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}"
        )
        found = catalog.load_table("shop.sums").scan().to_arrow()
        catalog.engine.dispose()
    return sorted(zip(found["k"].to_pylist(), found["x"].to_pylist(), strict=True))


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "mode", "dies"),
    [
        ("delta", "append", "after transaction"),
        ("delta", "append", "before transaction"),
        ("delta", "error", "after transaction"),
        ("delta", "error", "before published 1"),
        ("delta", "append", "before publishing 1"),
        ("delta", "overwrite", "after published 1"),
        ("iceberg", "append", "before transaction"),
        ("iceberg", "error", "after transaction"),
        ("iceberg", "overwrite", "before published 1"),
    ],
)
def test_a_killed_driver(tmp_path, kind, mode, dies):
    if kind == "iceberg":
        from pyiceberg.catalog import load_catalog

        catalog = load_catalog(
            "default", type="sql", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}"
        )
        catalog.create_namespace("shop")
        catalog.engine.dispose()
    if mode != "error":
        assert run(tmp_path, kind, MODE="append").returncode == 0
        (tmp_path / "began").unlink()
    killed = run(tmp_path, kind, MODE=mode, DIES=dies)
    assert killed.returncode == -9, killed.stderr
    executions = (tmp_path / "began").stat().st_size
    end = run(tmp_path, kind, "--resume", MODE=mode)
    assert end.returncode == 0, end.stderr
    assert rows(tmp_path, kind) == sorted(ONCE * (2 if mode == "append" else 1))
    assert (tmp_path / "began").stat().st_size == executions, "nothing that had finished ran again"
    assert [path for path in (tmp_path / "storage").rglob("*") if path.is_file()] == []
    assert list(tmp_path.rglob(".*.firesteel-*")) == []
