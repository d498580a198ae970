"""Wrong use that is told before anything runs: outputs in one another, steps that a keyed stream lacks; journal names."""

from __future__ import annotations

import pytest

from firesteel import ExecutionEnvironment
from firesteel.compile.compiler import compile_job
from firesteel.errors import UsageError
from firesteel.journal.places import slug
from firesteel.options import Options


@pytest.mark.parametrize("inner", ["out", "out/inner"])
def test_outputs_in_one_another_are_refused(tmp_path, inner):
    rows = ExecutionEnvironment().from_collection([{"k": 1}])
    ends = [rows.write_parquet(tmp_path / path)._node for path in ("out", "beside", inner)]
    with pytest.raises(UsageError, match=r"The outputs of .* and .*"):
        compile_job(ends, Options({}), "job")


def test_a_keyed_stream_says_what_may_follow():
    keyed = ExecutionEnvironment().from_collection([{"k": 1}]).key_by("k")
    for name in ("map_in_arrow", "collect"):
        with pytest.raises(UsageError, match=f"no {name}.*before key_by"):
            getattr(keyed, name)
    assert not hasattr(keyed, "nonsense")


def test_a_journals_name_keeps_the_letters():
    assert slug("grüße") == "grusse"
    assert slug("データ") == "job"
