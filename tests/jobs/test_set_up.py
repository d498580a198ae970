"""Functions with a set-up: once per worker and step, kept across subtasks and jobs, closed, told in explain."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import firesteel
from firesteel.errors import JobExecutionError, UsageError


class Scorer:
    """Notes what happens to it in a file: ``word``, and the number of its process."""

    def __init__(self, notes: Path, add: int = 1, *, fails: str = "") -> None:
        self.notes, self.add, self.fails = notes, add, fails

    def note(self, word: str) -> None:
        with self.notes.open("a") as file:
            file.write(f"{word} {os.getpid()}\n")

    def setup(self) -> None:
        self.note("setup")
        if self.fails == "setup":
            raise ValueError("no model")
        if self.fails == "file":
            (self.notes / "model.bin").read_bytes()
        self.weights = np.full(1 << 20, self.add)

    def __call__(self, batches):
        for batch in batches:
            if self.fails == "call":
                raise ValueError("bad row")
            yield pa.record_batch({"n": [n.as_py() + int(self.weights[0]) for n in batch["n"]]})

    def close(self) -> None:
        self.note("close")
        if self.fails == "close":
            raise ValueError("still busy")


class Frames(Scorer):
    def __call__(self, frames):
        for frame in frames:
            yield frame + int(self.weights[0])


class Rows(Scorer):
    def __call__(self, row):
        return row.n + int(self.weights[0])


class Many(Rows):
    def __call__(self, row):
        return [super().__call__(row)] * 2


class Odd(Rows):
    def __call__(self, row):
        return (row.n + int(self.weights[0])) % 2


class Groups(Scorer):
    def __call__(self, key, table):
        return pa.table({"n": [key[0].as_py() * 100 + table.num_rows + int(self.weights[0])]})


class GroupFrames(Scorer):
    def __call__(self, frame):
        return frame.head(1) + int(self.weights[0])


class Pairs(Scorer):
    def __call__(self, left, right):
        return pa.table({"n": [left.num_rows * 10 + right.num_rows + int(self.weights[0])]})


class Doubling:
    """A class to be called without arguments: ``__init__`` is its set-up."""

    def __init__(self, by: int = 2) -> None:
        self.by = by

    def __call__(self, batches):
        for batch in batches:
            yield pa.record_batch({"n": [self.by * n.as_py() for n in batch["n"]]})


class Wants:
    def __init__(self, path):
        self.path = path

    def __call__(self, batches):
        return batches


@pytest.fixture
def notes(tmp_path):
    return tmp_path / "notes"


def noted(notes, word):
    """How often the word was noted, by process."""
    lines = notes.read_text().split("\n") if notes.exists() else []
    return Counter(line.split()[1] for line in lines if line.startswith(word))


def numbers(env, n=40, parts=8):
    rows = pa.table({"n": pa.array(range(n), pa.int64())})
    return env.from_collection(rows.to_pylist()).repartition(parts)


def ns(stream):
    return sorted(row["n"] for row in stream.collect())


def test_set_up_once_per_worker_across_subtasks_and_jobs(env, notes):
    for _ in range(2):  # two jobs, each of which gives an equal one
        assert ns(numbers(env).map_in_arrow(Scorer(notes), "n bigint")) == list(range(1, 41))
    before = noted(notes, "setup")
    assert set(before.values()) == {1}
    ns(numbers(env).map_in_arrow(Scorer(notes, add=5), "n bigint"))
    more = noted(notes, "setup") - before
    assert more and set(more.values()) == {1}, "another object, whoever had the first one"


@pytest.mark.parametrize(
    ("step", "wanted"),
    [
        (lambda s, notes: s.map_in_pandas(Frames(notes), "n bigint"), list(range(1, 7))),
        (lambda s, notes: s.map(Rows(notes), "n bigint"), list(range(1, 7))),
        (lambda s, notes: s.flat_map(Many(notes), "n bigint"), sorted([*range(1, 7)] * 2)),
        (lambda s, notes: s.filter(Odd(notes)), [0, 2, 4]),
        (lambda s, notes: s.key_by("n").apply_in_arrow(Groups(notes), "n bigint"), [n * 100 + 2 for n in range(6)]),
        (lambda s, notes: s.key_by("n").apply_in_pandas(GroupFrames(notes), "n bigint"), list(range(1, 7))),
        (
            lambda s, notes: (
                s.key_by("n").cogroup(s.filter(lambda r: r.n < 3).key_by("n")).apply_in_arrow(Pairs(notes), "n bigint")
            ),
            [11, 11, 11, 12, 12, 12],
        ),
    ],
)
def test_all_that_take_functions(env, notes, step, wanted):
    assert ns(step(numbers(env, 6, 3), notes)) == wanted
    assert set(noted(notes, "setup").values()) == {1}


def test_a_class_is_called_without_arguments(env):
    assert ns(numbers(env, 3, 1).map_in_arrow(Doubling, "n bigint")) == [0, 2, 4]
    assert [r["s"] for r in numbers(env, 2, 1).map(lambda row: str(row.n), "s string").collect()] == ["0", "1"]
    with pytest.raises(UsageError, match="Wants is a class, which each worker calls without arguments"):
        numbers(env).map_in_arrow(Wants, "n bigint")


def test_two_steps_of_a_task_have_one_each(env, notes):
    twice = numbers(env, 6, 1).map_in_arrow(Scorer(notes), "n bigint").map_in_arrow(Scorer(notes), "n bigint")
    assert ns(twice) == list(range(2, 8))
    assert set(noted(notes, "setup").values()) == {2}
    assert ns(twice) == list(range(2, 8))
    assert set(noted(notes, "setup").values()) == {2}


def test_an_error_in_the_set_up_is_the_users(env, notes):
    with pytest.raises(
        JobExecutionError, match=r"The set-up of step 'map_in_arrow\(Scorer\)' raised ValueError: no model"
    ):
        numbers(env).map_in_arrow(Scorer(notes, fails="setup"), "n bigint").collect()
    assert not noted(notes, "close")  # it was never ready


def test_a_file_that_is_nowhere_is_not_looked_for_again(env, notes):
    missing = Scorer(notes.with_name("nowhere") / "notes", fails="file")
    missing.note = lambda word: Scorer.note(Scorer(notes), word)
    with pytest.raises(JobExecutionError, match="raised FileNotFoundError") as caught:
        numbers(env, 2, 1).map_in_arrow(missing, "n bigint").collect()
    assert "on every node" in str(caught.value.hint)
    assert sum(noted(notes, "setup").values()) == 1


def test_one_that_has_raised_is_closed(env, notes):
    with pytest.raises(JobExecutionError, match="bad row"):
        numbers(env, 2, 1).map_in_arrow(Scorer(notes, fails="call"), "n bigint").collect()
    assert noted(notes, "close") == noted(notes, "setup")


def test_others_go_beyond_the_bound(session, tmp_path, notes):
    options = {
        "firesteel.progress": False,
        "firesteel.journal.directory": str(tmp_path / "journal"),
        "firesteel.storage.directory": str(tmp_path / "storage"),
        "firesteel.memory.kept-functions": "1 MiB",
    }
    env = firesteel.ExecutionEnvironment(spark=session, options=options)
    for add in (101, 102, 101):
        ns(numbers(env, 40, 8).map_in_arrow(Scorer(notes, add), "n bigint"))
    assert sum(noted(notes, "close").values()) >= 2
    assert max(noted(notes, "setup").values()) >= 2


def test_explain_tells_of_errors_in_close_which_fail_no_job(session, tmp_path, notes):
    options = {
        "firesteel.progress": False,
        "firesteel.journal.directory": str(tmp_path / "journal"),
        "firesteel.storage.directory": str(tmp_path / "storage"),
        "firesteel.memory.kept-functions": "0",
    }
    env = firesteel.ExecutionEnvironment(spark=session, options=options)
    for add in (201, 202):
        stream = numbers(env, 40, 8).map_in_arrow(Scorer(notes, add, fails="close"), "n bigint")
        stream.write_parquet(tmp_path / f"out-{add}")
        result = env.execute("closing")
    told = result.explain()
    assert "close() of the function of map_in_arrow(Scorer) raised" in told
    assert "ValueError: still busy (told by the worker of subtask" in told


def test_explain_tells_of_set_ups(env, notes):
    numbers(env).map_in_arrow(Scorer(notes, 7), "n bigint").write_parquet(notes.parent / "out")
    result = env.execute("scores")
    told = result.explain()
    times = sum(noted(notes, "setup").values())
    assert f"the function of map_in_arrow(Scorer) {times} time" in told
    assert "which its cost leaves out; a worker keeps" in told


def test_reduce_takes_none(env, notes):
    with pytest.raises(UsageError, match="reduce takes no function with a set-up"):
        numbers(env).reduce(Scorer(notes))


def lengths(batches):
    for batch in batches:
        yield (
            pa.record_batch({"n": [len(batch)]})
            if isinstance(batch, pa.RecordBatch)
            else batch.head(1) * 0 + len(batch)
        )


@pytest.mark.parametrize(
    ("size", "wanted"), [(None, [12]), (5, [2, 5, 5]), ("32 B", [4, 4, 4]), ("1 MiB", [12]), (1, [1] * 12)]
)
def test_batches_of_a_size(env, size, wanted):
    rows = numbers(env, 12, 1)
    assert ns(rows.map_in_arrow(lengths, "n bigint", batch_size=size)) == wanted
    assert ns(rows.map_in_pandas(lengths, "n bigint", batch_size=size)) == wanted


@pytest.mark.parametrize("size", [0, -1, 1.5, True, "many", "0 MiB", []])
def test_sizes_that_are_none(env, size):
    with pytest.raises(UsageError, match="is no size of a batch"):
        numbers(env).map_in_arrow(lengths, "n bigint", batch_size=size)


def table_of(notes: Path, n: int) -> np.ndarray:
    with notes.open("a") as file:
        file.write(f"made {os.getpid()}\n")
    return np.arange(n)


class Looks(Scorer):
    """Its array is the executor's."""

    def setup(self) -> None:
        self.note("setup")
        self.weights = firesteel.shared(table_of, self.notes, 1000)

    def __call__(self, batches):
        for batch in batches:
            yield pa.record_batch({"n": self.weights[batch["n"].to_numpy()]})


def test_workers_share_what_one_of_them_made(env, notes):
    assert ns(numbers(env).map_in_arrow(Looks(notes), "n bigint")) == list(range(40))
    assert sum(noted(notes, "made").values()) == 1
    add = numbers(env).map(lambda row: int(firesteel.shared(table_of, notes, 50)[row.n]), "n bigint")
    assert ns(add) == list(range(40))
    assert sum(noted(notes, "made").values()) == 2


def fails_at_30(batches):
    for batch in batches:
        if 30 in batch["n"].to_pylist():
            raise ValueError("thirty")
        yield batch


def takes_one(batches):
    yield next(batches)


@pytest.mark.parametrize("prefetch", [1, 3])
def test_batches_read_ahead(env, tmp_path, prefetch):
    rows = numbers(env, 40, 2).map_in_arrow(lambda batches: batches, "n bigint", batch_size=3)
    doubled = rows.map_in_arrow(Doubling, "n bigint", batch_size=4, prefetch=prefetch)
    assert ns(doubled) == [2 * n for n in range(40)]
    assert doubled.key_by("n").count().count() == 40
    framed = rows.map_in_pandas(lambda frames: (frame + 1 for frame in frames), "n bigint", prefetch=prefetch)
    framed.write_parquet(tmp_path / "out")
    env.execute("written behind")
    assert ns(env.read_parquet(tmp_path / "out")) == list(range(1, 41))
    assert len(ns(rows.map_in_arrow(takes_one, "n bigint", batch_size=1, prefetch=prefetch))) == 2


def test_errors_pass_through_what_is_read_ahead(env):
    rows = numbers(env, 40, 1)
    same = lambda batches: batches  # noqa: E731
    for stream in (
        rows.map_in_arrow(fails_at_30, "n bigint", batch_size=3).map_in_arrow(same, "n bigint", prefetch=2),
        rows.map_in_arrow(fails_at_30, "n bigint", batch_size=3, prefetch=2),
    ):
        with pytest.raises(
            JobExecutionError, match=r"The function of step 'map_in_arrow\(fails_at_30\)' raised ValueError: thirty"
        ):
            stream.collect()
    with pytest.raises(UsageError, match="prefetch must be a whole number of at least 0"):
        rows.map_in_arrow(same, "n bigint", prefetch=-1)
