"""Streaming queries, the rows they read, and what DuckDB says of the same rows.

A file is a batch. File ``k`` holds rows of about 10 s of event time, a little out of order; some of its rows come again in the
next file, and some ids come back four files later. From file 6 on there are rows that are 50 s late, long after whatever they
belong to was closed. The last file holds one row, far ahead, which closes all that is open.
"""

from __future__ import annotations

import datetime as dt
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyspark.sql.functions as F
from pyspark import cloudpickle
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.streaming.state import GroupStateTimeout

from oracle import duck
from stream_sources_kit import register_sources, write_file

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import it

FILES = 11
STEP = 10.0
"""Seconds of event time in a file; the watermark is 5 s behind."""
DELAY = "5 seconds"
BEGIN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
AHEAD = FILES * STEP + 1000.0
ALARM = FILES * STEP + 100.0
SCHEMA = "file int, id long, key int, ts timestamp, value long"
LOG_ROWS = 2400
UTC = {"spark.sql.session.timeZone": "UTC"}
NEW_STATE = {
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
    "spark.sql.streaming.stateStore.encodingFormat": "avro",
}


@dataclass(frozen=True)
class Query:
    """``build``: from a session and the folder of its files to a DataFrame.

    ``sql``: the answer, over ``rows``, ``clicks`` and ``log``. ``latest``: so many first columns name what a row of an updated
    answer is about; 0: each row is for good. ``left``: rows of state that may be there when all is closed; None: not asked.
    """

    build: Callable[[Any, Path], Any]
    sql: str
    latest: int = 0
    left: int | None = None
    conf: dict[str, str] = field(default_factory=dict)


# --- what they read --------------------------------------------------------------------------------------------


def make_rows() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows and clicks; times are seconds since BEGIN."""
    chance = random.Random(7)
    rows: list[dict[str, Any]] = []
    clicks: list[dict[str, Any]] = []

    def add(file: int, ts: float, late: bool = False, like: dict[str, Any] | None = None) -> dict[str, Any]:
        fresh = {"id": len(rows), "key": chance.randrange(7), "value": chance.randrange(100)}
        row = {**(like or fresh), "file": file, "ts": round(ts, 6), "late": late}
        rows.append(row)
        return row

    came: list[list[dict[str, Any]]] = []
    for file in range(FILES - 1):
        start = file * STEP
        came.append([add(file, start + chance.uniform(-3.0 if file else 0.0, 9.0)) for _ in range(30)])
        if file:
            for again in [row for row in came[file - 1] if row["ts"] > start - STEP + 6.0][:5]:
                add(file, again["ts"], like=again)
        if file >= 4:
            for back in came[file - 4][:5]:
                add(file, back["ts"] + 4 * STEP, like=back)
        if file >= 6:
            for number in range(4):
                add(file, start - 50.0 + number, late=True)
        add(file, start + 9.75)
        for row in came[file][::3]:
            clicked = row["ts"] + chance.uniform(0.0, 8.0)
            clicks.append({"file": file + (clicked > start + 9.75), "id": row["id"], "ts": round(clicked, 6)})
        clicks.append({"file": file, "id": -1, "ts": start + 9.75})
    add(FILES - 1, AHEAD)
    clicks.append({"file": FILES - 1, "id": -1, "ts": AHEAD})
    return rows, clicks


ROWS, CLICKS = make_rows()


def write_input(folder: Path, files: Iterator[int] | range) -> None:
    for number in files:
        for name, table in (("clicks", CLICKS), ("rows", ROWS)):
            chosen = [row for row in table if row["file"] == number]
            write_file(folder / name, number, [{**row, "ts": _stamp(row["ts"])} for row in chosen])


def _stamp(seconds: float) -> str:
    return (BEGIN + dt.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def answer(query: Query) -> list[tuple[Any, ...]]:
    """DuckDB's, in order. Times are seconds since BEGIN."""
    with duck() as db:
        db.register("rows", pa.Table.from_pylist(ROWS))
        db.register("clicks", pa.Table.from_pylist(CLICKS))
        db.execute(f"CREATE TEMP VIEW log AS SELECT range AS value FROM range({LOG_ROWS})")
        db.execute(f"CREATE TEMP VIEW good AS SELECT * FROM rows WHERE NOT late AND file < {FILES - 1}")
        return sorted(db.execute(query.sql).fetchall(), key=str)


def given(query: Query, batches: list[tuple[int, list[tuple[Any, ...]]]]) -> list[tuple[Any, ...]]:
    """The stream's, from what its sink was given."""
    rows = [row for _, rows in batches for row in rows]
    if query.latest:
        rows = list({row[: query.latest]: row for row in rows}.values())
    return sorted(rows, key=str)


# --- the queries -----------------------------------------------------------------------------------------------


def _rows(spark: Any, folder: Path, name: str = "rows") -> Any:
    read = spark.readStream.format("json").schema(SCHEMA).option("maxFilesPerTrigger", 1)
    return read.load(str(folder / name)).withColumn("at", F.col("ts"))


def _seconds(column: str) -> Any:
    return (F.col(column).cast("double") - BEGIN.timestamp()).alias(column)


def windows(spark: Any, folder: Path) -> Any:
    rows = _rows(spark, folder).withWatermark("at", DELAY)
    counted = rows.groupBy(F.window("at", "10 seconds").alias("w"), "key").agg(F.count("*"), F.sum("value"))
    return counted.selectExpr("cast(w.start as double) as start", "*").select(
        _seconds("start"), "key", "count(1)", "sum(value)"
    )


def sessions(spark: Any, folder: Path) -> Any:
    rows = _rows(spark, folder).withWatermark("at", DELAY)
    counted = rows.groupBy(F.session_window("at", "2 seconds").alias("w"), "key").agg(F.count("*"), F.sum("value"))
    return counted.selectExpr("cast(w.start as double) as start", "*").select(
        F.round(_seconds("start"), 3), "key", "count(1)", "sum(value)"
    )


def distinct_ids(spark: Any, folder: Path) -> Any:
    return _rows(spark, folder).dropDuplicates(["id"]).select("id")


def distinct_within_watermark(spark: Any, folder: Path) -> Any:
    return _rows(spark, folder).withWatermark("at", DELAY).dropDuplicatesWithinWatermark(["id"]).select("id")


def distinct_then_windows(spark: Any, folder: Path) -> Any:
    once = _rows(spark, folder).withWatermark("at", DELAY).dropDuplicatesWithinWatermark(["id"])
    counted = once.groupBy(F.window("at", "20 seconds").alias("w")).agg(F.count("*"))
    return counted.selectExpr("cast(w.start as double) as start", "*").select(_seconds("start"), "count(1)")


def join(spark: Any, folder: Path) -> Any:
    rows = _rows(spark, folder).withWatermark("at", DELAY).select("id", "at")
    clicks = _rows(spark, folder, "clicks").withWatermark("at", DELAY).selectExpr("id as clicked", "at as when")
    soon = F.expr("id = clicked AND when >= at AND when <= at + interval 10 seconds")
    return rows.join(clicks, soon, "left_outer").select("id", F.round(_seconds("at"), 3), F.round(_seconds("when"), 3))


def pandas_with_state(spark: Any, folder: Path) -> Any:
    def total(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        count, value = state.get if state.exists else (0, 0)
        for frame in frames:
            count, value = count + len(frame), value + int(frame["value"].sum())
        state.update((count, value))
        yield pd.DataFrame({"key": [key[0]], "count": [count], "value": [value]})

    grouped = _rows(spark, folder).groupBy("key")
    row = "key int, count long, value long"
    return grouped.applyInPandasWithState(total, row, "count long, value long", "update", GroupStateTimeout.NoTimeout)


class Totals(StatefulProcessor):
    """Adds up by key, and tells when an alarm goes off that was set with the key's first row."""

    def init(self, handle: Any) -> None:
        self._handle = handle
        self._total = handle.getValueState("total", "count long, value long")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        if not self._total.exists():
            self._handle.registerTimer(int((BEGIN.timestamp() + ALARM) * 1000))
        count, value = self._total.get() if self._total.exists() else (0, 0)
        for frame in rows:
            count, value = count + len(frame), value + int(frame["value"].sum())
        self._total.update((count, value))
        yield pd.DataFrame({"key": [], "count": [], "value": []})

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        count, value = self._total.get()
        self._total.clear()
        yield pd.DataFrame({"key": [key[0]], "count": [count], "value": [value]})

    def close(self) -> None:
        """Nothing is open."""


def transform_with_state(spark: Any, folder: Path) -> Any:
    grouped = _rows(spark, folder).withWatermark("at", DELAY).groupBy("key")
    return grouped.transformWithStateInPandas(Totals(), "key int, count long, value long", "append", "EventTime")


def doubled(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for frame in frames:
        yield frame.assign(value=2 * frame["value"])


def stateless(spark: Any, folder: Path) -> Any:
    return _rows(spark, folder).select("id", "value").mapInPandas(doubled, "id long, value long")


def keyed(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for frame in frames:
        yield frame.assign(key=frame["value"] % 11)


def log_counts(spark: Any, folder: Path) -> Any:
    """Over the Python data source, with a Python function before the grouping."""
    log = register_sources(spark).readStream.format("log").option("rows", LOG_ROWS).option("most", 150).load()
    return log.mapInPandas(keyed, "value long, key long").groupBy("key").agg(F.count("*"), F.sum("value"))


_ONCE = "SELECT * FROM (SELECT *, ts - lag(ts) OVER (PARTITION BY id ORDER BY file) AS since FROM good) WHERE since IS NULL OR since > 20"
QUERIES = {
    "windows": Query(
        windows, "SELECT floor(ts / 10) * 10, key, count(*), sum(value)::BIGINT FROM good GROUP BY 1, 2", left=1
    ),
    "session windows": Query(
        sessions,
        """WITH begun AS (SELECT *, coalesce(ts - lag(ts) OVER of_key >= 2, TRUE) AS new FROM good
                          WINDOW of_key AS (PARTITION BY key ORDER BY ts)),
                numbered AS (SELECT *, sum(new::INT) OVER (PARTITION BY key ORDER BY ts) AS session FROM begun)
           SELECT round(min(ts), 3), key, count(*), sum(value)::BIGINT FROM numbered GROUP BY key, session""",
        left=1,
    ),
    "dedup": Query(distinct_ids, "SELECT DISTINCT id FROM rows"),
    "dedup within the watermark": Query(
        distinct_within_watermark,
        f"SELECT id FROM ({_ONCE}) UNION ALL SELECT id FROM rows WHERE file = {FILES - 1}",
        left=1,
    ),
    "dedup, then windows": Query(
        distinct_then_windows, f"SELECT floor(ts / 20) * 20, count(*) FROM ({_ONCE}) GROUP BY 1", left=2
    ),
    "stream-stream join": Query(
        join,
        """SELECT good.id, round(good.ts, 3), round(clicks.ts, 3) FROM good
           LEFT JOIN clicks ON good.id = clicks.id AND clicks.ts BETWEEN good.ts AND good.ts + 10""",
        left=4,
    ),
    "applyInPandasWithState": Query(
        pandas_with_state, "SELECT key, count(*), sum(value)::BIGINT FROM rows GROUP BY 1", latest=1
    ),
    "transformWithStateInPandas": Query(
        transform_with_state,
        "SELECT key, count(*), sum(value)::BIGINT FROM rows WHERE NOT late GROUP BY 1",
        conf=NEW_STATE,
    ),
    "stateless": Query(stateless, "SELECT id, 2 * value FROM rows"),
    "Python data source": Query(
        log_counts, "SELECT value % 11, count(*), sum(value)::BIGINT FROM log GROUP BY 1", latest=1
    ),
}
