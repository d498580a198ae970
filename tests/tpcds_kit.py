"""TPC-DS: tables and queries, made once by DuckDB's generator and kept in ``.benchdata``.

The generator is an extension of DuckDB 1.5 that PyPI has; it runs in an environment of its own, made by uv from the versions named here, which
takes the network the first time. ``python tests/tpcds_kit.py FOLDER SCALE`` is what runs there.

The queries' usual constants are for scale 1 and above. Below it those in ``tpcds_small.toml`` take their place, with which each query finds rows at 0.1.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

BENCHDATA = Path(__file__).resolve().parent.parent / ".benchdata"
NEEDS = ("duckdb==1.5.5", "duckdb-extension-tpcds==1.5.5", "sqlglot==30.30.0")
QUERIES = "queries.json"
SMALL = Path(__file__).with_name("tpcds_small.toml")


class NotToBeHad(Exception):
    """The packages cannot be fetched."""


def tpcds(scale: float) -> tuple[Path, dict[int, tuple[str, str]]]:
    """A folder with a folder of Parquet for each table, and the 99 queries in DuckDB's and in Spark's SQL. Raises NotToBeHad."""
    home = BENCHDATA / f"tpcds-{scale:g}"
    if not home.exists():
        BENCHDATA.mkdir(exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=BENCHDATA, prefix=".making-"))
        own = Path(sys.executable).with_name("uv")
        uv = own if own.exists() else BENCHDATA.with_name(".venv") / "bin" / "uv"  # in an environment of the matrix
        needs = [word for need in NEEDS for word in ("--with", need)]
        command = [str(uv), "run", "--no-project", *needs, "python", __file__, str(made), f"{scale:g}"]
        found = subprocess.run(command, check=False, capture_output=True, text=True)
        if found.returncode:
            shutil.rmtree(made, ignore_errors=True)
            raise NotToBeHad(found.stderr.strip().splitlines()[-1] if found.stderr.strip() else "uv failed")
        try:
            os.rename(made, home)  # noqa: PTH104 - fails where another process was first, which is fine
        except OSError:
            shutil.rmtree(made)
    constants = tomllib.loads(SMALL.read_text()) if scale < 1 else {}
    queries = json.loads((home / QUERIES).read_text())
    return home, {
        int(number): (_replaced(ours, constants.get(number, {})), _replaced(theirs, constants.get(number, {})))
        for number, (ours, theirs) in queries.items()
    }


def _replaced(text: str, constants: dict[str, str]) -> str:
    """The query with other constants, wherever they stand as words of their own; case and blanks do not count."""
    for old, new in constants.items():
        words = r"\s*".join(map(re.escape, old.split()))
        text, found = re.subn(rf"(?<!\w){words}(?!\w)", lambda _, new=new: new, text, flags=re.IGNORECASE)
        assert found, f"{old} is not in {text}"
    return text


def _make(home: Path, scale: str) -> None:
    import duckdb
    import duckdb_extension_tpcds
    import sqlglot

    package = Path(duckdb_extension_tpcds.__file__).parent
    extension = next(package.rglob("tpcds.duckdb_extension"))
    con = duckdb.connect(str(home / "made.db"), config={"allow_unsigned_extensions": "true", "memory_limit": "6GB"})
    con.execute(f"LOAD '{extension}'")
    con.execute(f"CALL dsdgen(sf={scale})")
    for (table,) in con.execute("SELECT table_name FROM information_schema.tables").fetchall():
        (home / table).mkdir()
        con.execute(f"COPY {table} TO '{home / table / '0.parquet'}' (FORMAT parquet, ROW_GROUP_SIZE 122880)")
    texts = con.execute("SELECT query_nr, query FROM tpcds_queries()").fetchall()
    queries = {number: (text, sqlglot.transpile(text, read="duckdb", write="spark")[0]) for number, text in texts}
    (home / QUERIES).write_text(json.dumps(queries))
    con.close()
    (home / "made.db").unlink()
    home.chmod(0o755)


if __name__ == "__main__":
    _make(Path(sys.argv[1]), sys.argv[2])
