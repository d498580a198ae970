"""Statements on the engine of the driver's process."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from firesteel.connectors.base import Split
from firesteel.errors import EngineStop, Stop, UsageError
from firesteel.run.engine import DriverEngine, Running, TooManyBytes
from firesteel.run.statement import Statement

MEMORY = 128 << 20
NUMBERS = pa.schema([("n", pa.int64())])
FOREVER = "SELECT count(*) AS n FROM range(100000000) a JOIN range(100000000) b ON a.range * b.range % 7 = 3"


@pytest.fixture(scope="module")
def engine():
    return DriverEngine()


def ran(engine, text, schema=NUMBERS, *, first=None, tables=None, files=(), most=1 << 40, memory=MEMORY):
    with engine.cursor(memory, 2, files) as cursor:
        return Running(cursor, statement(text, first, tables), 2, most).wait(schema)


def statement(text, first=None, tables=None, sources=None):
    return Statement(text, first or {}, tables or {}, sources or {}, frozenset(), 0)


def test_first_queries_are_tables_of_the_statement_alone(engine):
    first = {"a": "SELECT 3 AS n", "b": "SELECT n + 4 AS n FROM a"}
    assert ran(engine, "SELECT n * 2 FROM b", first=first).to_pylist() == [{"n": 14}]
    with pytest.raises(EngineStop, match="a does not exist"):
        ran(engine, "SELECT n FROM a")


def test_an_error_of_a_first_query_is_not_lost_where_its_rows_are_not_needed(engine):
    first = {"a": "SELECT CAST(s AS INTEGER) AS n, k FROM (VALUES ('x', 1), ('2', 2)) v(s, k)"}
    with pytest.raises(EngineStop) as caught:
        ran(engine, "SELECT CAST(n AS BIGINT) FROM a WHERE k = 2", first=first)
    assert caught.value.kind is Stop.VALUE


def test_an_interrupt_ends_a_statement_and_no_other_one(engine):
    ends = []
    with engine.cursor(MEMORY, 2, ()) as one, engine.cursor(MEMORY, 2, ()) as other:
        endless, short = (
            Running(at, statement(text), 2, 1 << 40) for at, text in ((one, FOREVER), (other, "SELECT 5"))
        )

        def wait():
            try:
                endless.wait(NUMBERS)
            except EngineStop as stop:
                ends.append(stop.kind)

        waiting = threading.Thread(target=wait)
        waiting.start()
        endless.interrupt()
        waiting.join()
        assert short.wait(NUMBERS).to_pylist() == [{"n": 5}]
    assert ends == [Stop.INTERRUPTED]


class InterruptedAtOnce:
    """A cursor whose statement is interrupted right before the engine begins with it."""

    def __init__(self, cursor):
        self._cursor, self.running = cursor, None

    def __getattr__(self, name):
        return getattr(self._cursor, name)

    def sql(self, text):
        self.running.interrupt()
        return self._cursor.sql(text)


def test_an_interrupt_is_not_lost_where_the_engine_begins(engine):
    with engine.cursor(MEMORY, 2, ()) as cursor:
        at = InterruptedAtOnce(cursor)
        at.running = Running(at, statement(FOREVER), 2, 1 << 40)
        with pytest.raises(EngineStop) as caught:
            at.running.wait(NUMBERS)
    assert caught.value.kind is Stop.INTERRUPTED


def test_what_takes_long_is_told_of_once(engine):
    told = []
    with engine.cursor(MEMORY, 2, ()) as cursor:
        running = Running(cursor, statement(FOREVER), 2, 1 << 40)
        with pytest.raises(EngineStop) as caught:
            running.wait(NUMBERS, 0.0, lambda: (told.append("long"), running.interrupt()))
    assert told == ["long"] and caught.value.kind is Stop.INTERRUPTED
    assert ran(engine, "SELECT 5").to_pylist() == [{"n": 5}]


def test_rows_beyond_the_limit_end_it(engine):
    with pytest.raises(TooManyBytes):
        ran(engine, "SELECT range FROM range(10000000)", most=1 << 20)


def test_what_does_not_fit_in_memory_is_spilled_three_times():
    engine = DriverEngine()
    text = "SELECT n FROM (SELECT range AS n, repeat('x', 60) || range AS s FROM range(700000)) ORDER BY s DESC LIMIT 1 OFFSET 699990"
    for _ in range(3):
        assert ran(engine, text, memory=32 << 20).num_rows == 1
    folder = Path(engine._folder)
    assert any(path.is_dir() for path in folder.iterdir())
    engine.forget()
    assert not any(path.is_dir() for path in folder.iterdir())


def test_a_file_that_is_written_again_is_read_again(engine, tmp_path):
    path = str(tmp_path / "a.parquet")
    for number in range(3):
        pq.write_table(pa.table({"n": [number]}), path)
        text = f"SELECT n FROM read_parquet('{path}')"
        assert ran(engine, text, files=(path,)).to_pylist() == [{"n": number}]


def test_a_fork_has_an_engine_of_its_own_and_ends(tmp_path):
    script = (
        "import os, pathlib, sys, pyarrow as pa\n"
        "from firesteel.run.engine import ENGINE, Running\n"
        "from firesteel.run.statement import Statement\n"
        "def ran():\n"
        f"    with ENGINE.cursor({MEMORY}, 2, ()) as cursor:\n"
        "        one = Statement('SELECT count(*) FROM range(1000000)', {}, {}, {}, frozenset(), 0)\n"
        "        return str(Running(cursor, one, 2, 1 << 40).wait(pa.schema([('n', pa.int64())])).to_pylist())\n"
        "ran()\n"
        "fork = os.fork()\n"
        "if not fork:\n"
        "    pathlib.Path('rows').write_text(ran())\n"
        "    sys.exit(0)\n"
        "assert os.waitpid(fork, 0)[1] == 0\n"
        "assert ran() == pathlib.Path('rows').read_text() == \"[{'n': 1000000}]\"\n"
    )
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True, timeout=60)


def test_many_threads_ask_at_once(engine):
    with ThreadPoolExecutor(8) as pool:
        found = pool.map(
            lambda n: ran(engine, f"SELECT sum(range)::BIGINT AS n FROM range({n})").to_pylist(), range(2, 40)
        )
    assert [one[0]["n"] for one in found] == [n * (n - 1) // 2 for n in range(2, 40)]


def test_a_time_at_the_end_of_its_type_is_sparks(engine):
    last = pa.table({"d": pa.array([2**31 - 1], pa.int32()).cast(pa.date32())})
    with pytest.raises(EngineStop, match="end of its type"):
        ran(engine, "SELECT 1 FROM v", tables={"v": last})


class Numbers:
    """A split for each number of ``splits``; a text is the message of an error that its split raises."""

    name, schema = "numbers", NUMBERS
    supports_concurrent_execution_attempts = True

    def __init__(self, *splits):
        self._splits = splits

    def list_splits(self, data_volume):
        return [Split(one, 8, str(one)) for one in self._splits]

    def read(self, split, ctx):
        if isinstance(split, str):
            raise UsageError(split)
        yield pa.record_batch({"n": [split]}, schema=NUMBERS)


def of_source(engine, source, text):
    sources = {"v": (source, source.list_splits(1))}
    with engine.cursor(MEMORY, 2, ()) as cursor:
        return Running(cursor, statement(text, sources=sources), 2, 1 << 40).wait(NUMBERS)


def test_rows_of_a_source_come_in_the_order_of_its_splits(engine):
    assert of_source(engine, Numbers(*range(50)), "SELECT c0 FROM v").column(0).to_pylist() == list(range(50))


def test_an_error_of_a_source_is_told_as_it_is(engine):
    with pytest.raises(UsageError, match="the file is broken"):
        of_source(engine, Numbers(1, "the file is broken", 2), "SELECT c0 FROM v")


def test_what_a_killed_process_has_spilled_is_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dies = (
        "import os; from firesteel.run.engine import DriverEngine\n"
        f"with DriverEngine().cursor({MEMORY}, 1, ()) as one: os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", dies], check=False, env=os.environ | {"TMPDIR": str(tmp_path)})
    (left,) = tmp_path.iterdir()
    with DriverEngine().cursor(MEMORY, 1, ()), DriverEngine().cursor(MEMORY, 1, ()):
        found = set(tmp_path.iterdir())
    assert left not in found
    assert len(found) == 2
