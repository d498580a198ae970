"""An independent answer to compare with: TPC-H data, and DuckDB that queries it.

``tpch(scale)`` makes the tables once (with tpchgen-cli) and keeps them in the project's ``.benchdata`` directory, each
table in three files with small row groups. ``duckdb_answer`` runs SQL over them; ``assert_same_rows`` compares as multisets.
"""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sysconfig
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

BENCHDATA = Path(__file__).resolve().parent.parent / ".benchdata"
TABLES = ("customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier")

TPCH_SQL = {
    "q1": """
        SELECT l_returnflag, l_linestatus, sum(l_quantity) AS sum_qty, sum(l_extendedprice) AS sum_base_price,
               sum(l_extendedprice * (1 - l_discount)) AS sum_disc_price,
               sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS sum_charge,
               avg(l_quantity) AS avg_qty, avg(l_extendedprice) AS avg_price, avg(l_discount) AS avg_disc,
               count(*) AS count_order
        FROM lineitem WHERE l_shipdate <= DATE '1998-09-02' GROUP BY ALL""",
    "q3": """
        SELECT o_orderkey, sum(l_extendedprice * (1 - l_discount)) AS revenue, o_orderdate, o_shippriority
        FROM customer JOIN orders ON c_custkey = o_custkey JOIN lineitem ON l_orderkey = o_orderkey
        WHERE c_mktsegment = 'BUILDING' AND o_orderdate < DATE '1995-03-15' AND l_shipdate > DATE '1995-03-15'
        GROUP BY o_orderkey, o_orderdate, o_shippriority ORDER BY revenue DESC, o_orderdate LIMIT 10""",
    "q5": """
        SELECT n_name, sum(l_extendedprice * (1 - l_discount)) AS revenue
        FROM customer, orders, lineitem, supplier, nation, region
        WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND l_suppkey = s_suppkey AND c_nationkey = s_nationkey
          AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey AND r_name = 'ASIA'
          AND o_orderdate >= DATE '1994-01-01' AND o_orderdate < DATE '1995-01-01'
        GROUP BY n_name""",
    "q13": """
        SELECT c_count, count(*) AS custdist
        FROM (SELECT c_custkey, count(o_orderkey) AS c_count
              FROM customer LEFT JOIN orders ON c_custkey = o_custkey AND o_comment NOT LIKE '%special%requests%'
              GROUP BY c_custkey)
        GROUP BY c_count""",
    "q18": """
        SELECT c_name, o_custkey, o_orderkey AS l_orderkey, o_orderdate, o_totalprice, sum(l_quantity) AS sum_qty
        FROM customer JOIN orders ON c_custkey = o_custkey JOIN lineitem ON l_orderkey = o_orderkey
        WHERE o_orderkey IN (SELECT l_orderkey FROM lineitem GROUP BY l_orderkey HAVING sum(l_quantity) > {quantity})
        GROUP BY ALL ORDER BY o_totalprice DESC, o_orderdate LIMIT 100""",
}


def tpch(scale: float = 0.01, *, parts: int = 3, row_group_bytes: str = "256KB") -> Path:
    """A directory with ``<table>/*.parquet`` of TPC-H at this scale factor, made when it is not there yet."""
    home = BENCHDATA / f"tpch-{scale:g}-{parts}-{row_group_bytes}"
    if home.exists():
        return home
    BENCHDATA.mkdir(exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=BENCHDATA, prefix=".making-"))
    command = Path(sysconfig.get_path("scripts")) / "tpchgen-cli"
    arguments = [
        "parquet",
        "-s",
        f"{scale:g}",
        f"--parts={parts}",
        f"--row-group-bytes={row_group_bytes}",
        "-o",
        str(made),
    ]
    try:
        subprocess.run([str(command), *arguments], check=True, capture_output=True)
        made.chmod(0o755)
        os.rename(made, home)  # noqa: PTH104 (fails when another process was first, which is fine)
    except OSError:
        if not home.exists():
            raise
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return home


@cache
def _database() -> Any:
    import duckdb

    return duckdb.connect(config={"threads": 1})


def duck() -> Any:
    """A connection to this process's DuckDB. With it goes what is registered or temporary in it. Another DuckDB would take 40 ms."""
    return _database().cursor()


def duckdb_answer(sql: str, data: Path | None = None, **tables: Any) -> pa.Table:
    """DuckDB's answer. ``data``: a directory of :func:`tpch`, its tables by name; ``tables``: Arrow tables by name."""
    with duck() as connection:
        for name in TABLES if data is not None else ():
            connection.execute(f"CREATE TEMP VIEW {name} AS SELECT * FROM read_parquet('{data}/{name}/*.parquet')")
        for name, table in tables.items():
            connection.register(name, table)
        return connection.sql(sql).to_arrow_table()


def assert_same_rows(actual: pa.Table, expected: pa.Table, *, rel: float = 1e-9, in_order: bool = False) -> None:
    """The same columns of the same kind, and the same rows as a multiset; floats within ``rel``.

    Kinds, not types: integers of any width are one kind, and so are floats, decimals, strings.
    """
    assert actual.column_names == expected.column_names
    kinds = [(name, _kind(actual[name].type), _kind(expected[name].type)) for name in actual.column_names]
    assert [(name, kind) for name, kind, _ in kinds] == [(name, kind) for name, _, kind in kinds]
    assert actual.num_rows == expected.num_rows
    exact = [i for i, (_, kind, _) in enumerate(kinds) if kind != "float"]
    if not in_order and _same_in_arrow(actual, expected, [kind for _, kind, _ in kinds], rel):
        return
    rows, wanted = _rows(actual), _rows(expected)
    if not in_order:
        rows, wanted = _ordered(rows, exact), _ordered(wanted, exact)
    for row, want in zip(rows, wanted, strict=True):
        assert len(row) == len(want) and all(map(_close, row, want, [rel] * len(row))), f"{row} instead of {want}"


COMMON = {"int": pa.int64(), "float": pa.float64(), "string": pa.large_string()}
"""Types that hold all values of a kind."""


def _same_in_arrow(actual: pa.Table, expected: pa.Table, kinds: list[str], rel: float) -> bool:
    """True: the rows are the same, found without a Python object per value. False says nothing."""
    order = sorted(range(len(kinds)), key=lambda i: kinds[i] == "float")
    names = [f"c{i}" for i in range(len(kinds))]
    pair = []
    try:
        for table in (actual, expected):
            columns = [
                c.cast(COMMON[kind]) if kind in COMMON else c for c, kind in zip(table.columns, kinds, strict=True)
            ]
            pair.append(pa.table(columns, names).sort_by([(names[i], "ascending") for i in order]))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, KeyError):
        return False
    return all(
        _all_close(mine, theirs, rel) if kind == "float" else mine.equals(theirs)
        for mine, theirs, kind in zip(pair[0].columns, pair[1].columns, kinds, strict=True)
    )


def _all_close(mine: pa.ChunkedArray, theirs: pa.ChunkedArray, rel: float) -> bool:
    if not mine.is_null().equals(theirs.is_null()):
        return False
    a, b = (column.drop_null().to_numpy() for column in (mine, theirs))
    with np.errstate(invalid="ignore"):
        near = np.abs(a - b) <= np.maximum(rel * np.maximum(np.abs(a), np.abs(b)), 1e-12)
    return bool(((near & np.isfinite(a) & np.isfinite(b)) | (a == b) | (np.isnan(a) & np.isnan(b))).all())


def _kind(data_type: pa.DataType) -> str:
    types = pa.types
    if types.is_dictionary(data_type):
        return _kind(data_type.value_type)
    checks = {
        "int": types.is_integer, "float": types.is_floating, "decimal": types.is_decimal, "timestamp": types.is_timestamp,
        "date": types.is_date, "time": types.is_time, "struct": types.is_struct, "map": types.is_map,
        "string": lambda t: types.is_string(t) or types.is_large_string(t) or types.is_string_view(t),
        "binary": lambda t: types.is_binary(t) or types.is_large_binary(t) or types.is_fixed_size_binary(t),
        "list": lambda t: types.is_list(t) or types.is_large_list(t) or types.is_fixed_size_list(t),
    }  # fmt: skip
    return next((kind for kind, check in checks.items() if check(data_type)), str(data_type))


def _rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def _ordered(rows: list[tuple[Any, ...]], exact: list[int]) -> list[tuple[Any, ...]]:
    """By the exact columns first: floats that differ in their last digits must not decide which rows are compared."""
    inexact = [i for i in range(len(rows[0]) if rows else 0) if i not in exact]
    return sorted(rows, key=lambda row: [_sortable(row[i]) for i in (*exact, *inexact)])


def _sortable(value: Any) -> tuple[Any, ...]:
    if value is None:
        return (0,)
    if isinstance(value, float):
        return (1, math.isnan(value), 0.0 if math.isnan(value) else value)
    return (1, repr(value)) if isinstance(value, dict | list) else (1, value)


def _close(value: Any, want: Any, rel: float) -> bool:
    if isinstance(value, float) and isinstance(want, float):
        return math.isclose(value, want, rel_tol=rel, abs_tol=1e-12) or (math.isnan(value) and math.isnan(want))
    return bool(value == want)
