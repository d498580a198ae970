"""Sources, sinks and waits for tests of streams that run.

The Python data source here is a log that grows with the clock, or is whole from the start; it has offsets, can be read again, and is
pickled by value, so that workers need not import it. Its sink writes a line for each commit.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark import cloudpickle
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
    SimpleDataSourceStreamReader,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadMaxRows

PATIENCE_SECONDS = 600.0
"""After which a test that waits gives up: far longer than anything takes on a machine with other work to do. It is never a verdict."""

cloudpickle.register_pickle_by_value(sys.modules[__name__])


def until(true: Callable[[], Any], what: str, seconds: float = PATIENCE_SECONDS) -> Any:
    """Waits for something true and returns it. Raises TimeoutError if it does not come."""
    end = time.monotonic() + seconds
    while not (found := true()):
        if time.monotonic() >= end:
            raise TimeoutError(f"waited {seconds:.0f} s for {what}, and gave up")
        time.sleep(0.01)
    return found


def come_to_rest(stream: Any, sessions: list[Any], seconds: float = PATIENCE_SECONDS) -> None:
    """Returns when the stream, whose queries run in these sessions, has read, committed and given out all that there is.

    Raises what it failed with, and TimeoutError if it goes on for ever.
    """
    ended = threading.Event()

    def finish() -> None:
        while stream.is_active:
            for query in [query for session in list(sessions) for query in session.streams.active]:
                with suppress(Exception):  # it has failed: the stream starts it again, or ends
                    query.processAllAvailable()
                    if query.isActive:
                        ended.set()
                        return
            time.sleep(0.01)  # between two queries there is none
        ended.set()

    threading.Thread(target=finish, daemon=True).start()
    if not ended.wait(seconds):
        raise TimeoutError(f"waited {seconds:.0f} s for a stream to come to rest, and gave up")
    assert stream.is_active or stream.await_termination(), "it has ended"  # a failed one raises


def write_file(folder: Path, number: int, rows: list[dict[str, Any]]) -> None:
    """File ``number`` of a file source, whole at once; files are read in the order of their numbers."""
    folder.mkdir(parents=True, exist_ok=True)
    hidden = folder / f".{number}"
    hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
    os.utime(hidden, (1_700_000_000 + number, 1_700_000_000 + number))
    hidden.rename(folder / f"{number:04d}.json")


def register_sources(session: Any) -> Any:
    """Makes the sources known in a session that was made anew.

    A data source of its parent is unknown there, and to make it known Spark looks into the thread's active session.
    """
    session._jvm.SparkSession.setActiveSession(session._jsparkSession)
    for source in (Log, SimpleLog):
        session.dataSource.register(source)
    return session


class Rows(InputPartition):
    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = end


class Log(DataSource):
    """Rows 0, 1, 2, ... with options ``rows`` (in all), ``most`` (in a batch) and ``slow`` (seconds to tell what there is).

    As a sink: ``path``, a file that gets a line for each commit.
    """

    @classmethod
    def name(cls) -> str:
        return "log"

    def schema(self) -> str:
        return "value long"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return LogReader(self.options)

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamWriter:
        return LogWriter(self.options)


class LogReader(DataSourceStreamReader):
    def __init__(self, options: Any) -> None:
        self._rows = int(options.get("rows", "1000000"))
        self._most = int(options.get("most", "200"))
        self._slow = float(options.get("slow", "0"))

    def initialOffset(self) -> dict:
        return {"at": 0}

    def getDefaultReadLimit(self) -> Any:
        return ReadMaxRows(self._most)

    def latestOffset(self, start: dict, limit: Any) -> dict:
        time.sleep(self._slow)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self._rows
        return {"at": min(self._rows, start["at"] + most)}

    def partitions(self, start: dict, end: dict) -> list[InputPartition]:
        middle = (start["at"] + end["at"]) // 2
        return [Rows(start["at"], middle), Rows(middle, end["at"])]

    def read(self, partition: Any) -> Iterator[tuple]:
        for value in range(partition.start, partition.end):
            yield (value,)


class SimpleLog(DataSource):
    """The same with Spark's simple reader, which reads on the driver."""

    @classmethod
    def name(cls) -> str:
        return "simple_log"

    def schema(self) -> str:
        return "value long"

    def simpleStreamReader(self, schema: Any) -> SimpleDataSourceStreamReader:
        return SimpleLogReader(self.options)


class SimpleLogReader(SimpleDataSourceStreamReader):
    def __init__(self, options: Any) -> None:
        self._rows = int(options.get("rows", "1000000"))
        self._most = int(options.get("most", "200"))

    def initialOffset(self) -> dict:
        return {"at": 0}

    def read(self, start: dict) -> tuple[Iterator[tuple], dict]:
        end = {"at": min(self._rows, start["at"] + self._most)}
        return self.readBetweenOffsets(start, end), end

    def readBetweenOffsets(self, start: dict, end: dict) -> Iterator[tuple]:
        return iter([(value,) for value in range(start["at"], end["at"])])


class Written(WriterCommitMessage):
    def __init__(self, rows: list) -> None:
        self.rows = rows


class LogWriter(DataSourceStreamWriter):
    def __init__(self, options: Any) -> None:
        self._path = options["path"]

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return Written([row[0] for row in iterator])

    def commit(self, messages: list, batchId: int) -> None:
        with Path(self._path).open("a") as out:
            out.write(json.dumps([batchId, [v for message in messages if message for v in message.rows]]) + "\n")

    def abort(self, messages: list, batchId: int) -> None:
        with Path(self._path).open("a") as out:
            out.write(json.dumps([-1, []]) + "\n")
