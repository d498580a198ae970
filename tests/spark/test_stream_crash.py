"""Drivers of streams that are killed, JVM and all, at each step of a rescale: the next start finishes or takes back what was begun.

Each chain of crashes works on one checkpoint, and each process starts where the one before was killed. The sink keeps one file for each
batch; what it holds at the end is compared with DuckDB over all files that were read.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import duckdb

DRIVER = Path(__file__).with_name("stream_crash_driver.py")
PATIENCE = 120
QUICK_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""A JVM that lives for seconds: let it start quickly."""
CHANGELOG = {"spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true"}
STATE_V2 = {"spark.sql.streaming.stateStore.checkpointFormatVersion": "2", **CHANGELOG}
FINISHED, ROLLED_BACK, PENDING, CLEAN = "finished", "rolled back", "pending", "clean"


def wait_for(condition, what):
    """Waits until it holds, and gives back what it gave."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        found = condition()
        if found:
            return found
        time.sleep(0.001)
    raise AssertionError(f"waited in vain for {what}")


class Stream:
    """A checkpoint, its source and its sink. ``kind`` and ``settings``: as the driver takes them."""

    def __init__(self, folder, kind, settings):
        self.folder, self.kind, self.settings = folder, kind, settings
        self.checkpoint, self.source, self.sink = folder / "checkpoint", folder / "source", folder / "sink"
        self.files = 0
        self.sink.mkdir()
        for side in ("left", "right"):
            (self.source / side).mkdir(parents=True)

    def feed(self, files=2):
        """Some more files, with keys that came before and new ones."""
        for _ in range(files):
            self.files += 1
            for side in ("left", "right"):
                rows = [{"k": (7 * i + self.files) % (20 + 3 * self.files), "v": i + self.files} for i in range(40)]
                part = self.source / side / f".{self.files}"
                part.write_text("\n".join(map(json.dumps, rows)))
                part.rename(self.source / side / f"{self.files:03}.json")

    @contextmanager
    def driver(self, to=0, hang=-1):
        """A driver process; it and its JVM are killed at the end, whatever they do."""
        spec = {"kind": self.kind, "settings": self.settings, "to": to, "hang": hang}
        spec |= {"checkpoint": str(self.checkpoint), "source": str(self.source), "sink": str(self.sink)}
        process = subprocess.Popen(
            [sys.executable, str(DRIVER), json.dumps(spec)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "JAVA_TOOL_OPTIONS": QUICK_JAVA},
        )
        driver = Driver(process)
        try:
            yield driver
        finally:
            driver.kill()

    def last(self, log):
        return max((int(p.name) for p in (self.checkpoint / log).glob("[0-9]*")), default=-1)

    def version(self, version):
        """Files of this version of the state, except checksums of Hadoop's own."""
        found = self.checkpoint.glob(f"state/*/[0-9]*/**/{version}[._]*")
        return [p for p in found if p.is_file()]

    def block(self, partition):
        """Puts a file where the state of a partition is to go: it cannot be written. Returns the file."""
        path = self.checkpoint / "state" / "0" / str(partition)
        shutil.rmtree(path, ignore_errors=True)
        path.write_text("not a directory")
        return path

    def answer(self):
        """What the sink was told, as a downstream table has it."""
        rows, latest = [], {}
        for path in sorted(self.sink.glob("[0-9]*.json"), key=lambda p: int(p.stem)):
            for row in json.loads(path.read_text()):
                rows.append(tuple(row.values()))
                latest[row["k"]] = row["v"]
        return sorted(latest.items()) if self.kind == "sums" else sorted(rows)

    def expected(self):
        left, right = (f"read_json('{self.source}/{side}/*.json')" for side in ("left", "right"))
        sql = {
            "sums": f"select k, sum(v)::bigint from {left} group by k order by k",
            "joined": f"select l.k, l.v, r.v from {left} l join {right} r on l.k = r.k order by all",
        }
        return duckdb.sql(sql[self.kind]).fetchall()


class Driver:
    def __init__(self, process):
        self.process = process
        self.jvm = 0
        self.jvm = self.told("started")["jvm"]

    def told(self, what):
        """The next line that tells this; earlier ones of another kind are passed over."""
        for line in self.process.stdout:
            if line.startswith("{"):
                found = json.loads(line)
                if found["what"] == what:
                    return found
        raise AssertionError(f"the driver ended and had not told '{what}': {self.process.wait()}")

    def freeze(self):
        for pid in (self.jvm, self.process.pid):
            os.kill(pid, signal.SIGSTOP)

    def kill(self):
        for pid in (self.jvm, self.process.pid):
            if pid:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()


def crash_in_repartition(stream, to, condition, *, after=CLEAN, partitions=None):
    """One driver, killed in its repartition as soon as ``condition(stream, batch)`` holds. ``after``: what its start had to do."""
    stream.feed()
    with stream.driver(to=to) as driver:
        check_start(driver, after, partitions)
        driver.told("repartitioning")
        batch = stream.last("commits") + 1
        wait_for(lambda: condition(stream, batch), "the moment to kill")
        driver.freeze()
        assert stream.last("commits") == batch - 1, "killed too late: the repartition was over"
        assert stream.last("offsets") == batch


def check_start(driver, after, partitions):
    recovered = driver.told("recovered")
    assert recovered["outcome"] == after, recovered
    assert (after == CLEAN) == (recovered["sentence"] == "")
    if after == PENDING:
        assert driver.told("replayed")["rows"] > 0
    ran = driver.told("ran")
    if partitions is not None:
        assert ran["partitions"] and set(ran["partitions"]) == {partitions}
    return recovered


def planned(stream, batch):
    return (stream.checkpoint / "offsets" / str(batch)).exists()


def partly_written(stream, batch):
    return stream.version(batch + 1)


def some_stores_written(stream, batch):
    return len({path.parent.name for path in stream.version(batch + 1)}) > 1


def test_a_driver_killed_anywhere_in_a_rescale(tmp_path):
    stream = Stream(tmp_path, "sums", CHANGELOG)
    crash_in_repartition(stream, 12, planned)
    crash_in_repartition(stream, 3, partly_written, after=FINISHED, partitions=12)

    # Everything written, and the commit not: killed after the call, and its last file taken away.
    stream.feed()
    with stream.driver(to=9) as driver:
        check_start(driver, FINISHED, 3)
        batch = driver.told("repartitioned")["batch"]
    for name in (f".{batch}.crc", f"{batch}"):
        (stream.checkpoint / "commits" / name).unlink()

    # A directory that cannot be written: it cannot be finished.
    crash_in_repartition(stream, 20, partly_written, after=FINISHED, partitions=9)
    batch = stream.last("offsets")
    in_the_way = stream.block(partition=19)
    stream.feed()
    with stream.driver(hang=batch + 1) as driver:
        recovered = driver.told("recovered")
        assert recovered["outcome"] == ROLLED_BACK, recovered
        assert "from 9 to 20" in recovered["sentence"]
        driver.told("in the batch")
        assert [p for p in stream.version(batch + 1) if int(p.relative_to(stream.checkpoint).parts[2]) > 8] == []
    in_the_way.unlink()

    # Killed in a batch, which is replayed before the state is repartitioned again.
    stream.feed()
    with stream.driver(to=4) as driver:
        check_start(driver, PENDING, 9)
        driver.told("repartitioned")
    stream.feed()
    with stream.driver() as driver:
        check_start(driver, CLEAN, 4)
    assert stream.answer() == stream.expected()


def test_a_driver_killed_while_the_state_of_a_join_is_rewritten(tmp_path):
    """Four stores to rewrite, and a state whose files have names of their own in each attempt (format 2)."""
    stream = Stream(tmp_path, "joined", STATE_V2)
    crash_in_repartition(stream, 5, some_stores_written)
    stream.feed()
    with stream.driver(to=3) as driver:
        check_start(driver, FINISHED, 5)
        driver.told("repartitioned")
    stream.feed()
    with stream.driver() as driver:
        check_start(driver, CLEAN, 3)
    assert stream.answer() == stream.expected()
