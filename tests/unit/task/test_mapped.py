"""Objects that workers share: made once, mapped by all, whoever dies, and whatever the disk does."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from firesteel.task import mapped
from firesteel.task.mapped import IDLE_SECONDS, MappedObjects, let_go

processes = multiprocessing.get_context("fork")


@pytest.fixture(autouse=True)
def nothing_is_open():
    let_go()
    yield
    let_go()


def never():
    raise AssertionError("It is there.")


def made_in(directory: Path) -> list[Path]:
    return sorted(directory.iterdir()) if directory.exists() else []


# --- what lies there ---------------------------------------------------------------------------------------------


def test_an_object_is_made_once_and_mapped_by_others(tmp_path):
    directory = tmp_path / "shared"
    numbers = np.arange(1000)
    first = MappedObjects(directory).get_all({"numbers": lambda: {"numbers": numbers, "again": numbers}})["numbers"]
    let_go()
    second = MappedObjects(directory).get_all({"numbers": never})["numbers"]
    for found in (first, second):
        assert (found["numbers"] == numbers).all()
        assert not found["numbers"].flags.owndata and not found["numbers"].flags.writeable
    assert made_in(directory) == [directory / "numbers"]
    assert (directory / "numbers").stat().st_size < 2 * numbers.nbytes, "the same memory twice"


def test_what_a_worker_has_mapped_stays_open_while_it_is_used(tmp_path):
    shared = MappedObjects(tmp_path)
    found = shared.get_all({"a-1": lambda: [1], "b-1": lambda: [2]})
    let_go(but=["a"])
    assert shared.known(["a-1"])["a-1"] is found["a-1"]
    again = shared.known(["b-1"])["b-1"]
    assert again == [2] and again is not found["b-1"]
    let_go()
    (tmp_path / "a-1").unlink()
    assert shared.known(["a-1", "c-1"]) == {}


def test_rows_outlive_their_file(tmp_path):
    table = pa.table({"a": pa.array([f"row {k}" for k in range(5000)])})
    (found,) = MappedObjects(tmp_path).get_all({"t": lambda: table}).values()
    column = found.column("a").chunk(0)
    del found
    let_go()
    (tmp_path / "t").unlink()
    assert column[4999].as_py() == "row 4999"


def test_mapping_copies_nothing(tmp_path):
    table = pa.table({"k": np.arange(1 << 18), "words": pa.array([f"word {k}" for k in range(1 << 18)])})
    MappedObjects(tmp_path).get_all({"side": lambda: table})
    let_go()
    before = pa.total_allocated_bytes()
    (found,) = MappedObjects(tmp_path).known(["side"]).values()
    assert pa.total_allocated_bytes() - before < 10_000
    assert found.equals(table)


TABLES = {
    "dictionary": pa.table({"k": pa.array(["b", "a", None, "b"]).dictionary_encode(), "v": pa.array([1, 2, 3, None])}),
    "nested": pa.table(
        {
            "k": pa.array([1, None, 3]),
            "list": pa.array([[{"x": 1}], None, []], pa.list_(pa.struct({"x": pa.int64()}))),
            "map": pa.array([[("a", 1)], [], None], pa.map_(pa.string(), pa.int8())),
            "fixed": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int16(), 2)),
        }
    ),
    "views": pa.table({"k": pa.array(["one", "a string that is too long to lie inline"], pa.string_view())}),
    "run ends": pa.table({"k": [1, 2, 3], "r": pa.RunEndEncodedArray.from_arrays([2, 3], ["a", "b"])}),
    "no rows": pa.table({"k": pa.array([], pa.string()), "v": pa.array([], pa.dictionary(pa.int8(), pa.string()))}),
    "slices": pa.table({"k": pa.array(range(100)), "b": pa.array([True, None] * 50)}).slice(11, 70),
}


@pytest.mark.parametrize("name", TABLES)
def test_rows_of_any_types_come_back_as_they_were(tmp_path, name):
    table = TABLES[name]
    (found,) = MappedObjects(tmp_path).get_all({name: lambda: table}).values()
    assert found is not table and found.schema.equals(table.schema, check_metadata=True)
    found.validate(full=True)
    assert found.to_pylist() == table.to_pylist()


# --- several workers ---------------------------------------------------------------------------------------------


def noted(log: Path, value):
    with log.open("a") as file:
        file.write(f"{value}\n")
    return value


def race(directory: Path, log: Path, barrier, answers) -> None:
    barrier.wait()
    makers = {name: lambda name=name: noted(log, name) for name in ("a", "b", "c")}
    answers.put(MappedObjects(directory).get_all(makers))


def test_of_processes_that_race_one_makes_each_object(tmp_path):
    directory, log = tmp_path / "shared", tmp_path / "log"
    barrier, answers = processes.Barrier(4), processes.Queue()
    racers = [processes.Process(target=race, args=(directory, log, barrier, answers)) for _ in range(4)]
    for racer in racers:
        racer.start()
    found = [answers.get() for _ in racers]
    for racer in racers:
        racer.join()
    assert found == [{"a": "a", "b": "b", "c": "c"}] * 4
    assert sorted(log.read_text().split()) == ["a", "b", "c"]
    assert [path.name for path in made_in(directory)] == ["a", "b", "c"]


def make_for_ever(directory: Path, begun) -> None:
    def make():
        begun.set()
        signal.pause()

    MappedObjects(directory).get_all({"a": make})


def ask(directory: Path, answers) -> None:
    """Makes what nobody makes, and waits for the rest."""
    answers.put("begins")
    makers = {"a": lambda: "by the second one", "b": lambda: answers.put("has made b")}
    answers.put(MappedObjects(directory).get_all(makers)["a"])


def test_who_waits_for_a_worker_that_dies_makes_the_object(tmp_path):
    begun, answers = processes.Event(), processes.Queue()
    maker = processes.Process(target=make_for_ever, args=(tmp_path, begun))
    maker.start()
    begun.wait()
    waiter = processes.Process(target=ask, args=(tmp_path, answers))
    waiter.start()
    assert [answers.get(), answers.get()] == ["begins", "has made b"]
    maker.kill()
    assert answers.get() == "by the second one"
    for process in (maker, waiter):
        process.join()
    assert [path.name for path in made_in(tmp_path)] == ["a", "b"]


def test_what_a_maker_raises_is_raised_and_leaves_nothing(tmp_path):
    with pytest.raises(ZeroDivisionError):
        MappedObjects(tmp_path).get_all({"a": lambda: 1 // 0})
    assert made_in(tmp_path) == []
    assert MappedObjects(tmp_path).get_all({"a": lambda: 1}) == {"a": 1}


# --- the disk ----------------------------------------------------------------------------------------------------


def test_nothing_is_made_where_the_job_is_over(tmp_path):
    gone = tmp_path / "job.scratch" / "shared"
    assert MappedObjects(gone).get_all({"a": lambda: [1]}) == {"a": [1]}
    assert made_in(tmp_path) == []


def test_where_a_file_stands_in_the_way_each_worker_makes_its_own(tmp_path):
    (tmp_path / "shared").write_text("")
    for _ in range(2):
        assert MappedObjects(tmp_path / "shared").get_all({"a": lambda: [1]}) == {"a": [1]}


def fill(directory: Path, answers) -> None:
    """Files may have 100 KB; a write beyond that fails as it does on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    makers = {"small": lambda: np.arange(1000), "large": lambda: np.arange(100_000)}
    answers.put({name: int(found.sum()) for name, found in MappedObjects(directory).get_all(makers).items()})


def test_what_does_not_fit_on_the_disk_is_made_by_each_worker(tmp_path):
    answers = processes.Queue()
    filling = processes.Process(target=fill, args=(tmp_path, answers))
    filling.start()
    assert answers.get() == {"small": 499_500, "large": 4_999_950_000}
    filling.join()
    assert [path.name for path in made_in(tmp_path)] == ["small"]


@pytest.mark.parametrize("content", [b"", b"no such thing", bytes(100)])
def test_a_file_that_is_of_no_use_is_made_anew(tmp_path, content):
    (tmp_path / "a").write_bytes(content)
    assert MappedObjects(tmp_path).get_all({"a": lambda: [1]}) == {"a": [1]}
    let_go()
    assert MappedObjects(tmp_path).get_all({"a": never}) == {"a": [1]}


def test_files_that_nobody_has_opened_for_long_go_when_another_one_is_made(tmp_path):
    shared = MappedObjects(tmp_path)
    shared.get_all({"old": lambda: [1], "used": lambda: [2]})
    (tmp_path / "half a file").write_bytes(b"1")
    long_ago = time.time() - IDLE_SECONDS - 1
    for path in made_in(tmp_path):
        os.utime(path, (long_ago, long_ago))
    let_go()
    assert shared.known(["used"]) == {"used": [2]}
    shared.get_all({"new": lambda: [3]})
    assert [path.name for path in made_in(tmp_path)] == ["new", "used"]


def test_nothing_is_unpickled_that_another_user_has_laid_there(tmp_path, monkeypatch):
    MappedObjects(tmp_path).get_all({"a": lambda: [1]})
    let_go()
    monkeypatch.setattr(mapped.os, "getuid", lambda: tmp_path.stat().st_uid + 1)
    assert MappedObjects(tmp_path).known(["a"]) == {}
