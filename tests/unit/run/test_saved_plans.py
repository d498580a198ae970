"""The plans of TPC-H and TPC-DS as relations and statements, without a JVM."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pyarrow as pa
import pytest

import read_plans_kit as kit
from firesteel.api.ddl import rows_schema
from firesteel.run.engine import DriverEngine, Running
from firesteel.run.statement import statement_of
from firesteel.sql.reader import Reader
from oracle import assert_same_rows, duckdb_answer, tpch

texts = cache(kit.texts)
TPCDS = [pytest.param(f"ds{n}", marks=() if n % 3 == 2 else pytest.mark.full) for n in range(1, 100)]
TPCH = (Path(__file__).parents[2] / "tpch.sql").read_text().splitlines()[1:]


@pytest.fixture(scope="module")
def engine():
    return DriverEngine()


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """All tables, with few rows."""
    home = tmp_path_factory.mktemp("few")
    tables = {name: schema for text in texts().values() for name, schema in kit.scans(text).items()}
    kit.write(home, [(name, kit.few_rows(schema)) for name, schema in tables.items()])
    return home


def answer(engine, name, home) -> pa.Table:
    plan = kit.catalyst(texts()[name], home)
    reader = Reader(plan, lambda relation: None)
    relation = reader.relation(plan.root)
    assert reader.left == []
    one = statement_of(relation, [column.id for column in plan.output_of(plan.root)])
    schema = pa.schema([pa.field(f"{i}", kind) for i, kind in enumerate(types(plan))])
    with engine.cursor(256 << 20, 2, one.files) as cursor:
        return Running(cursor, one, 2, 1 << 30).wait(schema).rename_columns(plan.names)


def types(plan):
    from pyspark.sql.types import StructType

    return rows_schema(StructType.fromJson(plan.schema), "UTC").types


@pytest.mark.parametrize("name", TPCDS)
def test_a_plan_runs_on_few_rows(engine, few, name):
    """The engine takes the text, and gives columns of the types that Spark gives."""
    answer(engine, name, few)


@pytest.mark.parametrize("number", range(1, 23))
def test_a_plan_of_tpch_gives_the_answer_of_duckdb(engine, number):
    home = tpch(0.01)
    expected = with_floats(duckdb_answer(TPCH[number - 1].rstrip(";"), home))
    found = with_floats(answer(engine, f"h{number}", home)).rename_columns(expected.column_names)
    assert_same_rows(found, expected, rel=1e-5)  # Spark's averages of decimals have six digits


def with_floats(table):
    """Every number as a double: DuckDB has doubles where Spark has decimals."""
    numbers = (pa.types.is_integer, pa.types.is_decimal)
    kinds = [pa.float64() if any(is_one(kind) for is_one in numbers) else kind for kind in table.schema.types]
    return table.cast(pa.schema(list(zip(table.column_names, kinds, strict=True))))
