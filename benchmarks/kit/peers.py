"""Peers in environments of their own: Sail and Daft, installed from the package index once, under ``.benchdata/peers``.

Their contenders run in that Python, so this module loads nothing of the project's own environment.
"""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    "sail": ("pysail==0.7.2", "pyspark-client>=4.1,<4.2", "psutil"),
    "daft": ("daft==0.7.26", "psutil"),
}


_servers: list[Any] = []
"""A server of Sail ends when nothing refers to it."""


class PeerMissing(Exception):
    """A peer cannot be installed here; the message says why."""


def python_of(peer: str) -> str:
    """The Python of its environment, which is made if no earlier run has made it. Raises PeerMissing."""
    home = ROOT / ".benchdata" / "peers" / peer
    made, python = home / "packages.json", home / "bin" / "python"
    wanted = json.dumps(PACKAGES[peer])
    if not made.exists() or made.read_text() != wanted:
        uv = Path(sys.executable).with_name("uv")
        shutil.rmtree(home, ignore_errors=True)
        _call(peer, [uv, "venv", "--quiet", "--python", sys.executable, home])
        _call(peer, [uv, "pip", "install", "--quiet", "--python", python, *PACKAGES[peer]])
        made.write_text(wanted)
    return str(python)


def _call(peer: str, command: list[str | Path]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", "") or str(error)
        raise PeerMissing(f"{peer} cannot be installed: {said.strip().splitlines()[-1]}") from error


# --- contenders: each runs in the peer's Python -----------------------------------------------------------------------


def sail(tables: dict[str, str]) -> Any:
    """PySpark's session on a Sail server of this process, with a view for each of these Parquet files or folders."""
    from pysail.spark import SparkConnectServer
    from pyspark.sql import SparkSession

    server = SparkConnectServer("127.0.0.1", 0)
    server.start(background=True)
    _servers.append(server)
    builder: Any = SparkSession.builder
    spark = builder.remote(f"sc://127.0.0.1:{server.listening_address[1]}").getOrCreate()
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    for name, place in tables.items():
        spark.read.parquet(place).createOrReplaceTempView(name)
    return spark


def sail_queries(tables: dict[str, str], queries: list[list[Any]], far: bool = False) -> Callable[[], list[Any]]:
    """``far``: the tables lie in the store of ``benchmarks.kit.far``, and its requests count."""
    from benchmarks.kit.asking import asks
    from benchmarks.kit.far import counted

    spark = sail(tables)

    def ask(text: str) -> Any:
        return spark.sql(text).toArrow()

    return asks(queries, counted(ask) if far else lambda text: (ask(text), math.nan))


def sail_function(path: str, columns: list[str]) -> Callable[[], list[float]]:
    """The work of ``cases.pyspark("groupby")``: the same PySpark calls and the same function."""
    from benchmarks.kit.functions import revenue

    spark = sail({})

    def run() -> list[float]:
        from pyspark.sql import functions as F

        mapped = spark.read.parquet(path).select(*columns).mapInArrow(revenue, "k bigint, v double")
        sums = mapped.groupBy("k").agg(F.sum("v").alias("s"), F.count("v").alias("n"))
        row = sums.agg(F.count(F.lit(1)), F.sum("s")).first()
        return [row[0], row[1]]

    return run


def daft_function(path: str, columns: list[str]) -> Callable[[], list[float]]:
    """The same work in Daft's words: a batch function on Arrow arrays, then sums by key."""
    import daft
    import pyarrow as pa
    from daft import col

    from benchmarks.kit.functions import worth

    @daft.func.batch(return_dtype=daft.DataType.float64())
    def value(price: Any, discount: Any) -> Any:
        return daft.Series.from_arrow(worth(price.to_arrow(), discount.to_arrow()))

    def run() -> list[float]:
        lines = daft.read_parquet(path).select(*columns)
        key, price, discount = (col(name) for name in columns)
        mapped = lines.select(key.cast(daft.DataType.int64()).alias("k"), value(price, discount).alias("v"))
        sums = mapped.groupby("k").agg(col("v").sum().alias("s"), col("v").count().alias("n"))
        table: pa.Table = sums.agg(col("k").count().alias("rows"), col("s").sum().alias("total")).to_arrow()
        return [table["rows"][0].as_py(), table["total"][0].as_py()]

    return run
