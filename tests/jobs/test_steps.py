"""The steps that a PySpark user looks for."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from firesteel import Row
from firesteel.errors import JobExecutionError


def by(key, found):
    return sorted(found, key=lambda row: str(row[key]))


def test_functions_on_rows(env):
    lines = env.from_collection([{"line": "a b b"}, {"line": ""}, {"line": "b c"}])
    words = lines.flat_map(lambda row: row.line.split(), "word string").map(
        lambda row: (row.word, 1), "word string, n bigint"
    )
    counts = words.filter(lambda row: row.word != "c").key_by("word").reduce(lambda a, b: Row(word=a.word, n=a.n + b.n))
    assert by("word", counts.collect()) == [{"word": "a", "n": 1}, {"word": "b", "n": 3}]
    longest = words.rebalance().reduce(lambda a, b: a if (a.n, a.word) >= (b.n, b.word) else b)
    assert longest.collect() == [{"word": "c", "n": 1}]
    assert words.filter(lambda row: False).reduce(lambda a, b: a).collect() == []
    small = env.from_collection([{"x": 5}])
    assert lines.with_broadcast(small=small).map(lambda row, small: small["x"][0].as_py(), "n bigint").take(1) == [
        {"n": 5}
    ]
    with pytest.raises(
        JobExecutionError, match=r"map\(<lambda>\).*'a b b' \(a str\) for column 'n', which is not of type int64"
    ):
        lines.map(lambda row: row.line, "n bigint").collect()


def test_repartition_coalesce_and_sample(env, tmp_path):
    stream = env.from_arrow(pa.table({"n": pa.array(range(20_000)), "k": [i % 5 for i in range(20_000)]}))
    stream.repartition(3).write_parquet(tmp_path / "even")
    stream.repartition(4, "k").write_parquet(tmp_path / "by_k")
    stream.repartition(4).coalesce(1).write_parquet(tmp_path / "one")
    env.execute("how rows lie")
    even = [pq.read_table(p) for p in (tmp_path / "even").glob("*.parquet")]
    assert len(even) == 3
    assert sum(t.num_rows for t in even) == 20_000
    by_k = [set(pq.read_table(p)["k"].to_pylist()) for p in (tmp_path / "by_k").glob("*.parquet")]
    assert sorted(k for keys in by_k for k in keys) == [0, 1, 2, 3, 4]
    assert len(list((tmp_path / "one").glob("*.parquet"))) == 1
    drawn = stream.sample(0.1, seed=3).to_arrow()
    assert 1700 < drawn.num_rows < 2300
    assert drawn == stream.sample(0.1, seed=3).to_arrow()
    assert stream.sample(0.5, seed=3).key_by("k").count().to_arrow().num_rows == 5


def test_small_actions(env):
    stream = env.from_collection([{"n": 1}])
    assert (stream.first(), stream.is_empty(), stream.isEmpty()) == ({"n": 1}, False, False)
    none = stream.filter(lambda row: row.n > 1)
    assert (none.first(), none.is_empty()) == (None, True)
