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
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import duckdb
import pytest

DRIVER = Path(__file__).with_name("stream_crash_driver.py")
PATIENCE = 600
QUICK_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""A JVM that lives for seconds: let it start quickly."""
CHANGELOG = {"spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true"}
STATE_V2 = {"spark.sql.streaming.stateStore.checkpointFormatVersion": "2", **CHANGELOG}
FINISHED, ROLLED_BACK, REPLAYED = "it was finished", "it was rolled back", "it is replayed"


def wait_for(condition, what, pause=0.02):
    """Waits until it holds, and gives back what it gave."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        found = condition()
        if found:
            return found
        time.sleep(pause)
    raise TimeoutError(f"waited {PATIENCE} s for {what}, and gave up")


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
    def driver(self, *, hang=-1, deadly=""):
        """A driver process; it and its JVM are killed at the end, whatever they do."""
        spec = {"kind": self.kind, "settings": self.settings, "hang": hang, "deadly": deadly}
        spec |= {name: str(self.folder / name) for name in ("checkpoint", "source", "sink", "journal")}
        process = subprocess.Popen(
            [sys.executable, str(DRIVER), json.dumps(spec)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "JAVA_TOOL_OPTIONS": QUICK_JAVA},
        )
        driver = Driver(process)
        try:
            yield driver
        finally:
            driver.kill()

    def catch_up(self):
        """Waits until all that was fed is in the sink, and right."""
        expected = self.expected()
        wait_for(lambda: self.answer() == expected, "the right answer", pause=0.1)

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
    """What it tells is read by a thread of its own, and kept in ``lines``."""

    def __init__(self, process):
        self.process = process
        self.lines = []
        self.jvm = 0
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self.jvm = self.told("started")["jvm"]

    def _read(self):
        for line in self.process.stdout:
            if line.startswith("{"):
                self.lines.append(json.loads(line))

    def told(self, what, **values):
        """The first line that tells this, with these values."""

        def found():
            lines = [x for x in self.lines if x["what"] == what and values.items() <= x.items()]
            assert lines or self.reader.is_alive(), f"it ended, and had not told '{what}' {values}: {self.lines}"
            return lines and lines[0]

        return wait_for(found, f"'{what}' {values}")

    def recovered(self):
        return [x["sentence"] for x in self.lines if x["what"] == "recovered"]

    def rescale(self, to):
        self.process.stdin.write(f"{to}\n")
        self.process.stdin.flush()

    def freeze(self):
        for pid in (self.jvm, self.process.pid):
            os.kill(pid, signal.SIGSTOP)

    def kill(self):
        for pid in (self.jvm, self.process.pid):
            if pid:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self.reader.join()
        self.process.stdin.close()
        self.process.stdout.close()


def goes_on(stream, driver, recovered, partitions):
    """The driver's start did what was to do with the checkpoint, and the stream goes on, with this many partitions."""
    stream.feed()
    stream.catch_up()
    driver.told("batch", partitions=partitions)
    assert len(driver.recovered()) == (recovered != ""), driver.lines
    assert all(recovered in sentence for sentence in driver.recovered())


def killed_before(step, stream, to, recovered, partitions):
    """A driver that is killed as this step of a rescale begins."""
    with stream.driver(deadly=step) as driver:
        goes_on(stream, driver, recovered, partitions)
        driver.rescale(to)
        driver.process.wait(PATIENCE)
        assert driver.lines[-1] == {"what": "step", "step": step}


def killed_in_repartition(condition, stream, to, recovered, partitions):
    """A driver that is killed as soon as ``condition(stream, batch)`` holds in its repartition."""
    with stream.driver() as driver:
        goes_on(stream, driver, recovered, partitions)
        driver.rescale(to)
        driver.told("step", step="repartition")
        batch = stream.last("commits") + 1
        wait_for(lambda: condition(stream, batch), "the moment to kill", pause=0.002)
        driver.freeze()
        assert stream.last("commits") == batch - 1, "killed too late: the repartition was over"
        assert stream.last("offsets") == batch


def planned(stream, batch):
    return (stream.checkpoint / "offsets" / str(batch)).exists()


def partly_written(stream, batch):
    return stream.version(batch + 1)


def some_stores_written(stream, batch):
    return len({path.parent.name for path in stream.version(batch + 1)}) > 1


@pytest.mark.full
def test_a_driver_killed_at_each_step_of_a_rescale(tmp_path):
    stream = Stream(tmp_path, "sums", CHANGELOG)
    killed_before("stop", stream, 5, "", 2)
    killed_before("repartition", stream, 5, "", 2)
    killed_in_repartition(planned, stream, 12, "", 2)
    killed_in_repartition(partly_written, stream, 3, FINISHED, 12)
    killed_before("start", stream, 9, FINISHED, 3)

    # As if killed when all was written and the commit was not: as the one before has left it, without its last file.
    for name in (f".{stream.last('commits')}.crc", f"{stream.last('commits')}"):
        (stream.checkpoint / "commits" / name).unlink()
    killed_in_repartition(partly_written, stream, 20, FINISHED, 9)

    # Something is in the way of one partition: it cannot be finished.
    batch = stream.last("offsets")
    in_the_way = stream.block(partition=19)
    with stream.driver(hang=batch + 1) as driver:
        stream.feed()
        sentence = driver.told("recovered")["sentence"]
        assert ROLLED_BACK in sentence
        assert "from 9 to 20" in sentence
        assert [p for p in stream.version(batch + 1) if int(p.relative_to(stream.checkpoint).parts[2]) > 8] == []
        driver.told("in the batch")
    in_the_way.unlink()

    # Killed in that batch, which is replayed.
    with stream.driver() as driver:
        goes_on(stream, driver, REPLAYED, 9)
        driver.rescale(4)
        assert driver.told("rescaled", to=4)["rows"] == 0
        stream.feed()
        stream.catch_up()
        driver.told("batch", partitions=4)


@pytest.mark.full
def test_a_driver_killed_while_the_state_of_a_join_is_rewritten(tmp_path):
    """Four stores to rewrite, and a state whose files have names of their own in each attempt (format 2)."""
    stream = Stream(tmp_path, "joined", STATE_V2)
    killed_in_repartition(some_stores_written, stream, 5, "", 2)
    with stream.driver() as driver:
        goes_on(stream, driver, FINISHED, 5)
        driver.rescale(3)
        driver.told("rescaled", to=3)
        goes_on(stream, driver, FINISHED, 3)
