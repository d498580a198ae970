"""Joins of every kind on a cluster, against DuckDB: broadcast as decided, broadcast as asked for, and hash; with and without a key
that holds 60 % of the rows; while producers fail and executors die. Speculation is on, and a slow task gets a mirror.

A covering design, not the full product. Each job joins by one strategy under one fault, and has all six kinds of join with and without
the heavy key; so strategy x fault x kind x key is complete for what happens to a whole job: a producer of each small side that fails, and
nothing at all. An executor that dies takes tasks of one query along, the first of the job: over the jobs each kind is that one.
"""

from __future__ import annotations

from functools import cache

import pyarrow.parquet as pq
import pytest

from firesteel.journal.file import read
from firesteel.scheduler.kernel.records import JobPlanned
from join_queries_kit import SQL, Query
from oracle import assert_same_rows, duckdb_answer

pytestmark = [pytest.mark.cluster, pytest.mark.full]
ALL = [Query(how, heavy) for how in SQL for heavy in (False, True)]
STRATEGIES = ("decided", "hint", "never")
HALF_READ = [("decided", ALL[1]), ("hint", ALL[2]), ("never", ALL[5])]
"""The query of which an executor dies while it reads a split of the large side."""
LOST = [("decided", ALL[8]), ("hint", ALL[11]), ("never", ALL[6]), ("never", ALL[3])]
"""The query whose rows are lost with an executor, when some of its tasks have read them."""
QUICK = [ALL[5], ALL[6]]


@cache
def answer_of(query: Query):
    return duckdb_answer(SQL[query.how], **query.tables())


def from_first(query: Query) -> list[Query]:
    return [query, *(other for other in ALL if other != query)]


def at(folder, name):
    """The hosts where tasks hold, one entry for each task."""
    return sorted(path.name.rpartition("-")[2] for path in folder.glob(f"at-{name}-*"))


def objects_of(folder, query: Query):
    """All that is stored of what the sides of a query wrote."""
    (journal,) = (folder / "journal").glob("*.jsonl")
    plan = next(record for record in read(journal) if isinstance(record, JobPlanned))
    ours = [dataset["id"] for dataset in plan.datasets if query.name in plan.vertices[dataset["producer"]]["name"]]
    return [path for n in ours for path in (folder / "storage").glob(f"firesteel-job-*/d{n}-p*")]


def assert_right(folder, answer, queries, strategy, *, mirrored=True, made_again=False):
    """``made_again``: what had finished may have run again."""
    for query in queries:
        assert_same_rows(pq.read_table(folder / query.name), answer_of(query))
    assert answer["left"] == answer["hidden"] == []
    rule = {"decided": "bytes", "hint": "hint"}
    wanted = [
        (f"broadcast {query.small}", rule[strategy]) for query in queries if query.how != "full" and strategy in rule
    ]
    assert sorted((result, rule) for _, result, rule in answer["decisions"]) == sorted(wanted)
    finished = [(a["vertex"], a["subtask"]) for a in answer["attempts"] if "FINISHED" in a["states"]]
    assert made_again or len(finished) == len(set(finished)), "two attempts of one subtask were admitted"
    if mirrored:
        assert any(a["mirror"] and "FINISHED" in a["states"] for a in answer["attempts"])


def arguments(queries, strategy, *, fails=False, hold="", slow=True):
    return {
        "queries": [list(query) for query in queries],
        "strategy": strategy,
        "fails": fails,
        "hold": hold,
        "slow": slow,
    }


@pytest.mark.parametrize("fails", [False, True], ids=["undisturbed", "small sides fail"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_joins(session, tmp_path, strategy, fails):
    answer = session.run("joined", tmp_path, **arguments(ALL, strategy, fails=fails))
    assert_right(tmp_path, answer, ALL, strategy)
    assert len(list(tmp_path.glob("failed-*"))) == len(answer["failovers"]) == len(ALL) * fails


def lose(cluster, session, folder, queries, strategy, slow=True):
    """Some tasks of the first query have read the small side; it is deleted then, and whoever made it is gone."""
    session.start("joined", folder, **arguments(queries, strategy, hold="joined", slow=slow))
    session.until(lambda: len(at(folder, "half")) >= 2)
    for path in objects_of(folder, queries[0]):
        path.unlink()
    cluster.standalone.kill_executor(at(folder, "half")[0])
    (folder / "go-half").touch()
    answer = session.answer()
    assert_right(folder, answer, queries, strategy, mirrored=slow, made_again=True)
    assert answer["failovers"]  # an executor keeps a side that it has read: only one that has not misses it


@pytest.mark.parametrize(("strategy", "query"), HALF_READ)
def test_an_executor_dies_while_a_split_is_half_read(cluster, session, tmp_path, strategy, query):
    queries = from_first(query)
    session.start("joined", tmp_path, **arguments(queries, strategy, hold="large"))
    session.until(lambda: len(at(tmp_path, "half")) >= 2)
    cluster.standalone.kill_executor(at(tmp_path, "half")[0])
    (tmp_path / "go-half").touch()
    answer = session.answer()
    assert_right(tmp_path, answer, queries, strategy)
    lost = [a for a in answer["attempts"] if "FAILED" in a["states"]]
    assert lost and all(a["cause"].startswith(("The executor", "An executor")) for a in lost)


@pytest.mark.parametrize(("strategy", "query"), LOST)
def test_sides_are_lost_with_an_executor(cluster, session, tmp_path, strategy, query):
    lose(cluster, session, tmp_path, from_first(query), strategy)


def test_a_side_is_lost_that_some_tasks_have_read(cluster, session, tmp_path):
    lose(cluster, session, tmp_path, QUICK, "decided", slow=False)
