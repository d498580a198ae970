"""The steps that a PySpark user looks for, on a real Spark; where PySpark has the same step, its answers are compared."""

from __future__ import annotations

import pytest

from firesteel import Row
from firesteel.errors import JobExecutionError

pytestmark = pytest.mark.spark


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
        JobExecutionError, match=r"map\(<lambda>\).*'a b b' \(a str\) for column 'n', which is no int64"
    ):
        lines.map(lambda row: row.line, "n bigint").collect()
