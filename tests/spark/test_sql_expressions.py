"""The allow-list of expressions, held to Spark: every production of the kit's grammar, and random trees."""

from __future__ import annotations

import logging

import pytest

import sql_expressions_kit as kit
from firesteel.sql.expressions.translator import RULES

pytestmark = [pytest.mark.spark, pytest.mark.full]

OTHERWISE = {
    "GetStructField", "KnownFloatingPointNormalized", "KnownNotNull", "KnownNullable", "MakeDecimal",
    "NormalizeNaNAndZero", "ScalarSubquery", "UnscaledValue", "InSet",
}  # fmt: skip
"""Entries that only plans of whole queries hold, which test_sql_takeover runs."""


@pytest.fixture
def settings(spark):
    names = ["spark.sql.ansi.enabled", "spark.sql.session.timeZone", "spark.sql.codegen.wholeStage"]
    before = {name: spark.conf.get(name) for name in names}
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    spark.conf.set("spark.sql.codegen.wholeStage", "false")
    logging.disable(logging.CRITICAL)  # Spark writes a trace for each expression that it refuses
    yield
    logging.disable(logging.NOTSET)
    for name, value in before.items():
        spark.conf.set(name, value)


def test_the_engine_gives_what_spark_gives(spark, tmp_path, settings):
    tally = kit.run(kit.Kit(spark, tmp_path, rows=200), seed=0, rounds=4)
    print(kit.report(tally))
    assert tally.wrong == []
    assert tally.values > 100_000
    assert set(RULES) - set(tally.classes) - OTHERWISE == set()
