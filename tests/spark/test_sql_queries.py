"""Random queries, held to Spark: as steps in this process and as jobs under several options."""

from __future__ import annotations

import pytest

import sql_queries_kit as kit

pytestmark = pytest.mark.spark


@pytest.fixture
def quick(spark):
    with kit.quick(spark):
        yield spark


def held(spark, directory, seed: int, queries: int, jobs_every: int) -> kit.Tally:
    tally = kit.run(kit.Kit(spark, directory, seed), seed, queries, jobs_every=jobs_every)
    print(kit.report(tally))
    assert tally.wrong == [], "\n".join(tally.wrong)
    return tally


def test_a_few_queries_give_what_spark_gives(quick, tmp_path):
    assert held(quick, tmp_path, seed=5, queries=8, jobs_every=0).whole >= 4


@pytest.mark.full
@pytest.mark.parametrize("seed", range(len(kit.OPTIONS)))
def test_queries_give_what_spark_gives(quick, tmp_path, seed):
    tally = held(quick, tmp_path, seed, queries=60, jobs_every=3)
    answered = tally.queries - tally.failed - tally.left["it reads nothing"]
    assert answered >= 40
    assert tally.whole > 0.75 * answered
    assert tally.in_jobs > 5
