"""Groups that functions cannot do, in whole jobs: left out, counted, or handed to a second stream."""

from __future__ import annotations

import pyarrow as pa
import pytest

from firesteel.errors import JobExecutionError, UsageError


def orders(env, count=700, keys=14, subtasks=3):
    numbers = pa.array(range(count), pa.int64())
    table = pa.table({"k": pa.array([n % keys for n in range(count)], pa.int64()), "n": numbers})
    return env.from_arrow(table).repartition(subtasks)


def bad(key):
    if key % 7 == 3:
        raise ValueError(f"no {key}")


def summed(table):
    key = table["k"][0].as_py()
    bad(key)
    return pa.table({"k": [key], "n": [sum(table["n"].to_pylist())]})


def summed_frame(key, frame):
    bad(key[0])
    return frame.groupby("k", as_index=False)["n"].sum()


def added(one, other):
    bad(one.k)
    return one.k, one.n + other.n


def both(left, right):
    key = (left["k"] if left.num_rows else right["key"])[0].as_py()
    bad(key)
    return pa.table({"k": [key], "n": [left.num_rows - right.num_rows]})


def steps(env, **errors):
    """Of each kind of step on groups, all by ``k``."""
    keyed = orders(env).key_by("k")
    small = env.from_arrow(pa.table({"key": pa.array([2, 3, 99], pa.int64())})).key_by("key")
    return {
        "arrow": keyed.apply_in_arrow(summed, "k bigint, n bigint", **errors),
        "pandas": keyed.apply_in_pandas(summed_frame, "k bigint, n bigint", **errors),
        "reduce": keyed.reduce(added, **errors),
        "cogroup": keyed.cogroup(small).apply_in_arrow(both, "k bigint, n bigint", **errors),
    }


KINDS = ("arrow", "pandas", "reduce", "cogroup")
SUMS = {k: sum(range(k, 700, 14)) for k in range(14) if k % 7 != 3}


@pytest.mark.parametrize("kind", KINDS)
def test_one_job_has_the_groups_and_the_errors(env, tmp_path, kind):
    stream = steps(env, on_error="route")[kind].name("fold")
    stream.write_parquet(tmp_path / "good")
    failed = stream.errors
    if kind == "cogroup":
        sides = failed.to_arrow().to_pylist()
        assert [row["right"] for row in sides if row["left"] is None] == [{"key": 3}]
        failed = failed.filter(lambda row: row.left is not None).map(
            lambda row: (row.left["k"], row.left["n"], row.error), "k bigint, n bigint, error string"
        )
    failed.write_parquet(tmp_path / "bad")
    result = env.execute("groups")
    good = {row["k"]: row["n"] for row in env.read_parquet(tmp_path / "good").collect()}
    if kind == "cogroup":
        assert good == {k: 50 - (k == 2) for k in SUMS} | {99: -1}
    else:
        assert good == SUMS
    rows = env.read_parquet(tmp_path / "bad").collect()
    assert sorted(row["n"] for row in rows) == [n for n in range(700) if n % 7 == 3]
    assert all(row["error"] == f"ValueError: no {row['k']}" for row in rows)
    explained = result.explain()
    assert f"fold failed for 2 groups, {101 if kind == 'cogroup' else 100} rows in all." in explained
    assert "rows of Row(k=" in explained


def test_the_first_error_ends_the_job_without(env):
    for kind, stream in steps(env).items():
        with pytest.raises(JobExecutionError, match=r"ValueError: no (3|10)"):
            stream.collect()
        assert steps(env, on_error="skip")[kind].count() == 12 + (kind == "cogroup")


def test_the_whole_job_may_have_so_many_errors(env):
    keyed = orders(env).key_by("k")
    assert keyed.apply_in_arrow(summed, "k bigint, n bigint", on_error="skip", max_errors=2).count() == 12
    with pytest.raises(JobExecutionError, match=r"failed for (more than 1 group|2 groups).*max_errors"):
        keyed.apply_in_arrow(summed, "k bigint, n bigint", on_error="skip", max_errors=1).count()


def test_steps_by_the_same_key_follow(env):
    """A step whose errors are read keeps its task to itself; others are in one with what follows by the key."""
    reduced = orders(env).key_by("k").reduce(added, on_error="route")
    again = reduced.key_by("k").aggregate(n=("n", "sum"))
    lost = reduced.errors.key_by("k").count()
    total = again.union(lost.select("k", n="count"))
    assert {row["k"]: row["n"] for row in total.collect()} == SUMS | {3: 50, 10: 50}
    assert {row["k"]: row["n"] for row in again.collect()} == SUMS
    behind = (
        orders(env)
        .key_by("k")
        .aggregate(n=("n", "sum"))
        .key_by("k")
        .apply_in_arrow(summed, "k bigint, n bigint", on_error="route")
    )
    assert (behind.count(), behind.errors.count()) == (12, 2)
    nothing = orders(env, 0).key_by("k").reduce(added, on_error="route")
    assert (nothing.count(), nothing.errors.count()) == (0, 0)


def test_errors_of_groups_survive_a_restart_once(env, tmp_path):
    marker = tmp_path / "failed-once"

    def fails_once(table):
        if table["k"][0].as_py() == 5 and not marker.exists():
            marker.touch()
            raise SystemExit("the worker is unwell")
        return summed(table)

    stream = orders(env).key_by("k").apply_in_arrow(fails_once, "k bigint, n bigint", on_error="route").name("once")
    stream.write_parquet(tmp_path / "good")
    stream.errors.write_parquet(tmp_path / "bad")
    result = env.execute("restarted")
    assert marker.exists()
    assert (env.read_parquet(tmp_path / "good").count(), env.read_parquet(tmp_path / "bad").count()) == (12, 100)
    assert "once failed for 2 groups, 100 rows in all." in result.explain()


def test_what_is_refused(env):
    keyed = orders(env).key_by("k")
    for step in (
        lambda **errors: keyed.reduce(added, **errors),
        lambda **errors: keyed.apply_in_arrow(summed, "k bigint, n bigint", **errors),
        lambda **errors: keyed.apply_in_pandas(summed_frame, "k bigint, n bigint", **errors),
        lambda **errors: keyed.cogroup(keyed).apply_in_arrow(both, "k bigint, n bigint", **errors),
    ):
        with pytest.raises(UsageError, match="a group that fails has no row of its own to make null"):
            step(on_error="null")
        with pytest.raises(UsageError, match='max_errors=3 needs on_error="skip" or "route"'):
            step(max_errors=3)
        with pytest.raises(UsageError, match="routes no rows"):
            _ = step(on_error="skip").errors
        routed = step(on_error="route")
        bad_rows = routed.errors
        routed.cache()
        with pytest.raises(UsageError, match="cannot be read while its rows are cached"):
            bad_rows.count()
        routed.uncache()
    with pytest.raises(UsageError, match="adds a column 'error'"):
        orders(env).rename({"n": "error"}).key_by("k").reduce(added, on_error="route")
