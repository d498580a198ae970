"""The 99 queries of TPC-DS and the 22 of TPC-H, computed by our own tasks and by Spark: the same rows and types, however the jobs run.

Of TPC-DS also DuckDB alone: the same values, though it has doubles where Spark has decimals.
"""

from __future__ import annotations

import math
import warnings
from functools import cache
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import firesteel
from firesteel import ExecutionEnvironment
from firesteel.compile import nodes
from firesteel.journal.file import read
from firesteel.scheduler.joins import deferrals
from firesteel.scheduler.kernel.records import Decision
from oracle import tpch
from sql_plans_kit import version
from tpcds_kit import NotToBeHad, tpcds

pytestmark = [pytest.mark.spark, pytest.mark.full]

TPCH = (Path(__file__).parents[1] / "tpch.sql").read_text().splitlines()[1:]
VARIANTS = {
    "little": {
        "firesteel.decider.target-task-duration": "0 s",
        "data-volume-per-task": "1 MiB",
        "firesteel.decider.least-volume-per-slot": "0",
        "firesteel.memory.per-task": "1 MiB",
    },
    "broadcast": {},
    "hashed": {"firesteel.join.adaptive": "false"},
    "filtered": {"firesteel.join.runtime-filter.min-probe-data-size": "1 b"},
}
"""Options of the jobs: little data and memory for each task; all joins asked to be broadcast; none that is; filters of any source."""
RARE = {8, 16, 17, 35, 44, 51, 77, 87}
"""Queries of TPC-DS with what few have: full, outer, semi, anti and existence joins, joins without equal keys, limits of ranks."""
THIRDS = [(variant, n) for i, variant in enumerate(VARIANTS) for n in range(1, 100) if n % 3 == i % 3 or n in RARE]


class Suite:
    """Queries, over tables that are views of a session of their own. ``answer``: Spark's, computed once."""

    def __init__(self, spark, home, queries):
        self.spark, self.queries = spark.newSession(), queries
        if version() == "3.5":  # as it is there where nothing is said
            self.spark.conf.set("spark.sql.ansi.enabled", "false")
        for folder in home.iterdir():
            if folder.is_dir():
                self.spark.read.parquet(str(folder)).createOrReplaceTempView(folder.name)
        self.answer = cache(lambda number: self.spark.sql(queries[number]).toArrow())

    def hold(self, number, tmp_path, **options):
        """Compares our answer with Spark's; returns what was decided on the way."""
        places = {f"firesteel.{what}.directory": str(tmp_path / what) for what in ("journal", "storage")}
        env = ExecutionEnvironment(spark=self.spark, options={"firesteel.progress": False, **places, **options})
        stream = env.from_dataframe(self.spark.sql(self.queries[number]))
        assert "Spark computes" not in stream.explain()
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # so that Spark does not compute it
            ours = stream.to_arrow()
        assert_same(ours, self.answer(number))
        assert [p for p in (tmp_path / "storage").rglob("*") if p.is_file()] == []
        (journal,) = (tmp_path / "journal").glob("*.jsonl")
        return [record for record in read(journal) if isinstance(record, Decision)]


@pytest.fixture(scope="module")
def suites(spark):
    """By name; made when it is asked for."""

    @cache
    def suite(name):
        if name == "tpch":
            return Suite(spark, tpch(0.01), {n: text.rstrip(";") for n, text in enumerate(TPCH, 1)})
        home, known = tpcds_or_skip()
        return Suite(spark, home, {n: text for n, (_, text) in known.items()})

    return suite


def tpcds_or_skip():
    try:
        return tpcds(0.1)
    except NotToBeHad as reason:
        pytest.skip(f"TPC-DS cannot be made here: {reason}")


def near(a, b, off=1e-9):
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=off, abs_tol=off) or (math.isnan(a) and math.isnan(b))
    return a == b


def rows_of(table):
    """Sorted, doubles last, for their last digits may differ."""
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)

    def key(row):
        exact = tuple((value is None, repr(value)) for value in row if not isinstance(value, float))
        return exact, tuple(f"{value:.6g}" for value in row if isinstance(value, float))

    return sorted(rows, key=key)


def assert_same(ours, theirs):
    assert ours.schema.names == theirs.schema.names
    assert ours.schema.types == theirs.schema.types
    assert ours.num_rows == theirs.num_rows
    for mine, its in zip(rows_of(ours), rows_of(theirs), strict=True):
        assert all(map(near, mine, its)), (mine, its)


def with_floats(table):
    """The table, with every number as a double."""
    types = [
        pa.float64() if pa.types.is_integer(kind) or pa.types.is_decimal(kind) else kind for kind in table.schema.types
    ]
    return table.rename_columns([str(i) for i in range(table.num_columns)]).cast(
        pa.schema([(str(i), kind) for i, kind in enumerate(types)])
    )


@pytest.fixture(scope="module")
def duckdbs():
    """DuckDB's own answers, by number."""
    home, known = tpcds_or_skip()
    with duckdb.connect(config={"threads": 1}) as con:
        for folder in home.iterdir():
            if folder.is_dir():
                con.execute(f"CREATE VIEW {folder.name} AS SELECT * FROM read_parquet('{folder}/*.parquet')")
        yield lambda number: con.sql(known[number][0]).to_arrow_table()


@pytest.mark.parametrize("number", range(1, 100))
def test_a_query_of_tpcds(suites, duckdbs, tmp_path, number):
    found = suites("tpcds")
    found.hold(number, tmp_path)
    sparks, ducks = (rows_of(with_floats(table)) for table in (found.answer(number), duckdbs(number)))
    assert any(any(row) for row in sparks), "there is no row, or one of zeros"
    for row, duck in zip(sparks, ducks, strict=True):
        assert all(near(a, b, 1e-6) for a, b in zip(row, duck, strict=True)), (row, duck)


@pytest.mark.parametrize(
    ("suite", "number"), [*(("tpch", n) for n in range(1, 23)), *(("tpcds", n) for n in range(1, 100))]
)
def test_a_query_in_process(suites, tmp_path, suite, number):
    found = suites(suite)
    options = {"firesteel.progress": False, "firesteel.journal.directory": str(tmp_path)}
    answer = found.answer(number)
    with firesteel.accelerate(found.spark, options) as acceleration:
        ours = found.spark.sql(found.queries[number]).toArrow()
    assert_same(ours, answer)
    (query,) = acceleration.queries
    assert query.left == ()
    decisions = firesteel.History(query.job, options).decisions.to_pylist()
    assert [one["rule"] for one in decisions if one["what"] == "runner"] == ["bytes"]


@pytest.fixture
def patient(monkeypatch):
    """However long the smaller side of a join takes, the other one waits: what is decided does not depend on the machine."""
    monkeypatch.setattr(deferrals, "WAIT_SHARE", 1e9)


@pytest.fixture
def hints(monkeypatch, request):
    """In the variant "broadcast" each join asks for it, of a side of which it may be."""
    plain, sides = nodes.join, {"right": "left", "full": None}

    def join(left, right, how, **more):
        return plain(left, right, how, broadcast=sides.get(how, "right"), **more)

    if request.node.callspec.params["variant"] == "broadcast":
        monkeypatch.setattr(nodes, "join", join)


def assert_decided(variant, decisions, large):
    """As the variant says. ``large``: the query reads so much that little data for each are several tasks."""
    joins = [d for d in decisions if d.what == "join"]
    if variant == "hashed":
        assert joins == []
    if variant == "broadcast":
        assert {d.rule for d in joins} <= {"hint"}
        assert not joins or any(d.result.startswith("broadcast") for d in joins)
    if variant == "little" and large:
        tasks = [d.result for d in decisions if d.what == "source parallelism"]
        assert max(tasks + [d.result["parallelism"] for d in decisions if d.what == "parallelism"]) > 2


@pytest.mark.parametrize(("variant", "number"), THIRDS)
def test_tpcds_under(suites, tmp_path, patient, hints, variant, number):
    suite = suites("tpcds")
    decisions = suite.hold(number, tmp_path, **VARIANTS[variant])
    assert_decided(variant, decisions, "store_sales" in suite.queries[number])


@pytest.mark.parametrize("number", range(1, 23))
@pytest.mark.parametrize("variant", VARIANTS)
def test_tpch_under(suites, tmp_path, patient, hints, variant, number):
    """A hundredth of the tables: many tasks by less data for each."""
    less = {"data-volume-per-task": "16 KiB"} if variant == "little" else {}
    assert_decided(variant, suites("tpch").hold(number, tmp_path, **{**VARIANTS[variant], **less}), True)
