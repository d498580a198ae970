"""The engine of this process, for statements of the driver."""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa

from firesteel.engine.connection import BATCH_ROWS, connect, register, stop_of
from firesteel.engine.convert import carried, conformed, known
from firesteel.engine.file_marks import FileMarks
from firesteel.engine.files import placed
from firesteel.errors import EngineStop, Stop
from firesteel.journal.locks import hold, is_held
from firesteel.run.reading import read
from firesteel.run.statement import Statement

_FOLDERS, _LOCK = "firesteel-engine-", "lock"
_AGAIN = 0.02
"""Seconds between two interruptions of one statement."""


class DriverEngine:
    """One engine for all threads, with a cursor for each statement. An earlier one lives on until its statements have ended.

    ``memory``: bytes that it may hold; ``threads``: for all statements together. What does not fit in memory is spilled into a folder of its own.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection: Any = None
        self._given: tuple[int, int] = (0, 0)
        self._marks = FileMarks(())
        self._folder, self._numbers = "", count()
        os.register_at_fork(after_in_child=self._abandon)

    @contextmanager
    def cursor(self, memory: int, threads: int, files: Collection[str]) -> Generator[Any]:
        """``files``: what its statements read. The engine keeps their footers: after a change of a file there is a new engine.

        Raises EngineStop where there is no engine."""
        with self._lock:
            if self._connection is None or self._given != (memory, threads) or not self._marks.hold(files):
                self._connect(memory, threads, files)
            connection: Any = self._connection
            one = connection.cursor()
        try:
            yield one
        finally:
            one.close()

    def forget(self) -> None:
        """After a defect it may refuse whatever it is asked next."""
        with self._lock:
            self._connection = None

    def _abandon(self) -> None:
        """Makes the engine of a fork a new one. The inherited one has lost its threads: to close it, even at the exit, is a crash."""
        if self._connection is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._connection))
        self._lock, self._connection, self._folder = threading.Lock(), None, ""

    def _connect(self, memory: int, threads: int, files: Collection[str]) -> None:
        if not self._folder:
            self._folder = _new_folder()
        try:
            spilled = f"{self._folder}/{next(self._numbers)}"  # the engine makes it, and so removes it with itself
            self._connection = connect(threads=threads, memory_limit=f"{memory}B", temp_directory=spilled)
        except ImportError as error:
            raise EngineStop(Stop.ENGINE, f"{error}.") from error
        self._given, self._marks = (memory, threads), FileMarks(files)


def _new_folder() -> str:
    """A folder for what spills. It goes with the process; those of processes that were killed go now."""
    for left in Path(tempfile.gettempdir()).glob(f"{_FOLDERS}*"):
        if is_held(left / _LOCK) is False:
            shutil.rmtree(left, ignore_errors=True)
    folder = tempfile.mkdtemp(prefix=_FOLDERS)
    made = f"{folder}/.{_LOCK}"
    hold(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC))
    os.rename(made, f"{folder}/{_LOCK}")  # noqa: PTH104 - a sweep sees no lock that is not held
    atexit.register(_remove, folder, os.getpid())
    return folder


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


ENGINE = DriverEngine()


class Running:
    """A statement that runs in a thread of its own. ``most``: bytes of rows that it may give.

    ``peak``: most bytes that its largest query held, once it has ended.
    """

    def __init__(self, cursor: Any, statement: Statement, threads: int, most: int) -> None:
        self.peak = 0
        self._cursor, self._statement, self._threads, self._most = cursor, statement, threads, most
        self._batches: list[pa.RecordBatch] = []
        self._error: BaseException | None = None
        self._done, self._woken = threading.Event(), threading.Event()
        self._interrupted = False
        self._thread = threading.Thread(target=self._run, name="firesteel-query", daemon=True)

    def wait(
        self, schema: pa.Schema, seconds: float | None = None, on_long: Callable[[], object] | None = None
    ) -> pa.Table:
        """The rows, under the names and types of ``schema``. ``on_long`` is called where they take longer than ``seconds``.

        Raises EngineStop, and TooManyBytes."""
        try:
            self._thread.start()
            if on_long is not None and not self._woken.wait(seconds):
                on_long()
            self._woken.wait()
        except BaseException:  # Ctrl-C
            self.interrupt()
            self._end()
            raise
        self._end()
        if self._error is not None:
            raise self._error
        return pa.Table.from_batches([conformed(batch, schema) for batch in self._batches], schema)

    def interrupt(self) -> None:
        """Ends it, from any thread, with an EngineStop of the kind INTERRUPTED."""
        self._interrupted = True
        self._woken.set()

    def _end(self) -> None:
        """Waits until the thread has ended. Where it was interrupted, asks again: the engine forgets what it is asked between two queries."""
        while self._thread.is_alive() and not self._done.wait(_AGAIN if self._interrupted else None):
            with suppress(Exception):  # it has ended
                self._cursor.interrupt()

    def _run(self) -> None:
        import duckdb

        failed: list[BaseException] = []
        try:
            self._compute(failed)
        except (duckdb.Error, pa.ArrowException, OSError, RuntimeError) as error:
            self._error = failed[0] if failed else stop_of(error)
        except BaseException as error:
            self._error = error
        finally:
            self._done.set()
            self._woken.set()

    def _compute(self, failed: list[BaseException]) -> None:
        given = self._statement
        self._cursor.execute("PRAGMA enable_profiling = 'no_output'")
        inputs: dict[str, Any] = {}
        for name, (source, splits) in given.sources.items():
            taken = carried(placed(source.schema))
            inputs[name] = taken, map(partial(known, to=taken), read(source, splits, self._threads))
        tables = {name: known(table, carried(table.schema)) for name, table in given.tables.items()}
        register(self._cursor, inputs, tables, failed)
        for name, text in given.first.items():
            self._check()
            self._cursor.execute(f"CREATE TEMP TABLE {name} AS {text}")
            self._look()
        self._check()
        nbytes = 0
        reader = self._cursor.sql(given.text).to_arrow_reader(BATCH_ROWS)
        try:
            for batch in reader:
                self._check()
                if batch.num_rows:
                    self._batches.append(batch)
                    nbytes += batch.nbytes
                    if nbytes > self._most:
                        raise TooManyBytes(nbytes)
        finally:
            reader.close()
        self._look()

    def _look(self) -> None:
        told = json.loads(self._cursor.get_profiling_information())
        self.peak = max(self.peak, told["system"]["peak_buffer_memory"])

    def _check(self) -> None:
        if self._interrupted:
            raise EngineStop(Stop.INTERRUPTED, "The query was interrupted.")


class TooManyBytes(Exception):
    """The rows are more than the driver is to take. ``args``: bytes so far."""
