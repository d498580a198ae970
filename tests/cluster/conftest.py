"""Standalone Spark clusters, one of each shape for the whole run, and drivers on them that are processes of their own."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import pytest
from tools.spark_archive import set_options
from tools.standalone import HOSTS, Size, StandaloneCluster

from firesteel.journal.file import AnyJournalRecord, read
from firesteel.scheduler.kernel.records import Decision, StateChange

DRIVER_SECONDS = 600.0
STORY_LINES = 100
PATIENCE_SECONDS = 600.0
HERE = Path(__file__).parent


@dataclass
class Cluster:
    """``python``: an interpreter for the workers that has pyarrow and numpy, and cannot import firesteel."""

    standalone: StandaloneCluster
    python: Path
    _session: Session | None = None

    def driver(self, case: str, folder: Path, script: str = "drivers.py", **environment: str) -> Driver:
        """Starts ``drivers.py CASE FOLDER`` as a driver of its own; what it prints last is its answer, as JSON."""
        log = folder / f"{case}.log"
        return Driver(self._start(script, log, case, str(folder), **environment), log)

    def session(self) -> Session:
        """A driver that runs one case of ``cases.py`` after another on the same Spark session; the one that is there, if it waits
        for a case."""
        if self._session is None or not self._session.is_idle():
            self.end_session()
            log = self.standalone.folder / "session.log"
            self._session = Session(self._start("cases.py", log), log)
            self._session.run("warm", Path(tempfile.mkdtemp(dir=self.standalone.folder)))
        return self._session

    def end_session(self) -> None:
        if self._session is not None:
            self._session.end()
            self._session = None

    def mend(self) -> None:
        """All workers are there again, whatever a test has done to them."""
        self.standalone.start_workers()

    def _start(self, script: str, log: Path, *arguments: str, **environment: str) -> subprocess.Popen:
        ours = {"PYSPARK_PYTHON": str(self.python), "FIRESTEEL_TEST_MASTER": self.standalone.url, **environment}
        env = self.standalone.environment() | ours
        given = [os.environ["PYTHONPATH"]] if "PYTHONPATH" in os.environ else []
        env["PYTHONPATH"] = os.pathsep.join([str(HERE.parent), *given])
        command = [sys.executable, str(HERE / script), *arguments]
        with log.open("w") as out:
            return subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=out, text=True, env=env
            )


@dataclass
class Driver:
    process: subprocess.Popen
    log: Path

    def answer(self) -> Any:
        out, _ = self.process.communicate(timeout=DRIVER_SECONDS)
        assert self.process.returncode == 0, self.log.read_text()[-3000:] + out
        return json.loads(out.strip().splitlines()[-1])


@dataclass
class Session:
    process: subprocess.Popen
    log: Path
    _lines: queue.SimpleQueue = field(default_factory=queue.SimpleQueue)
    _asked: int = 0
    _folder: Path | None = None

    def __post_init__(self) -> None:
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def start(self, case: str, folder: Path, **arguments: Any) -> None:
        """Begins a case in ``cases.py``, which gets the folder and these arguments."""
        self._asked += 1
        self._folder = folder
        self.process.stdin.write(json.dumps([case, str(folder), arguments]) + "\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        """What the case returned. Fails with what it raised, or when it takes too long."""
        try:
            line = self._lines.get(timeout=DRIVER_SECONDS)
        except queue.Empty:
            self._fail("no answer")
        assert line, self.log.read_text()[-3000:]
        self._asked -= 1
        answer = json.loads(line)
        assert "raised" not in answer, answer["raised"]
        return answer

    def is_idle(self) -> bool:
        """False while a case runs that no test waits for any more, and when the driver has ended."""
        return self._asked == 0 and self.process.poll() is None

    def end(self) -> None:
        """Returns when its executors' slots are free."""
        self.process.stdin.close()
        if not self.is_idle():
            self.process.kill()
        self.process.wait()

    def run(self, case: str, folder: Path, **arguments: Any) -> Any:
        self.start(case, folder, **arguments)
        return self.answer()

    def until(self, condition: Callable[[], Any], seconds: float = PATIENCE_SECONDS) -> Any:
        """Waits for something true, as long as the case goes on; returns it."""
        end = time.monotonic() + seconds
        while not (found := condition()):
            assert self._lines.empty(), f"the case ended before: {self._lines.get()}"
            if time.monotonic() > end:
                self._fail("waited in vain")
            time.sleep(0.02)
        return found

    def changes(self) -> list[StateChange]:
        """Of the jobs of the case, as their journals tell while they run."""
        return [record for record in _records(self._folder) if isinstance(record, StateChange)]

    def _fail(self, what: str) -> NoReturn:
        """With what the case's journals tell, and the driver's log, into which it writes where its threads are."""
        self.process.send_signal(signal.SIGUSR1)
        time.sleep(0.5)
        told = "\n".join(_story(self._folder)[-STORY_LINES:])
        raise AssertionError(f"{what}:\n{told}\n{self.log.read_text()[-6000:]}")


def _records(folder: Path) -> list[AnyJournalRecord]:
    paths = [*folder.glob("journal/*.jsonl"), *folder.glob("*/journal/*.jsonl")]
    return [record for path in sorted(paths) for record in read(path)]


def _story(folder: Path) -> list[str]:
    """What happened to executions and what was decided, in the jobs of a case, a line each."""
    lines = []
    for record in _records(folder):
        if isinstance(record, StateChange):
            nodes = [record.hosts[node] if node >= 0 else "?" for node in record.nodes]
            who = f"{record.vertex}: attempts {record.attempts} of subtasks {record.subtasks}"
            lines.append(f"{record.at:9.3f} {record.state:10} {who} {nodes or ''} {record.cause}")
        elif isinstance(record, Decision):
            lines.append(f"{record.at:9.3f} {record.what:10} {record.reason}")
    return lines


@pytest.hookimpl(trylast=True)  # once the folder for temporary files is known
def pytest_configure():
    set_options(os.environ)


def pytest_collection_modifyitems(items):
    """Those on one session follow one another: a driver of its own ends it."""
    places = [n for n, item in enumerate(items) if item.path.parent == HERE]
    ours = sorted((items[n] for n in places), key=lambda item: "session" not in item.fixturenames)
    for n, item in zip(places, ours, strict=True):
        items[n] = item


@pytest.fixture(scope="module", autouse=True)  # not of the folder: files of others may come between
def nothing_kept():
    """Jobs that fail leave nothing, unless a test wants it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FIRESTEEL_RESULTS_RETAIN_ON_FAILURE", "0")
        yield


@pytest.fixture(scope="session")
def clusters(tmp_path_factory) -> Iterator[Callable[[Mapping[str, Size]], Cluster]]:
    """The cluster of workers of these sizes, or of one slot each on three hosts; with the run they all end."""
    made: dict[str, Cluster] = {}
    with ExitStack() as stack:

        def of(sizes: Mapping[str, Size]) -> Cluster:
            shape = repr(sizes)
            if shape not in made:
                folder = tmp_path_factory.mktemp("cluster")
                standalone = stack.enter_context(StandaloneCluster(folder, tuple(sizes) or HOSTS, sizes=sizes))
                made[shape] = Cluster(standalone, _python_without_firesteel(folder))
                stack.callback(made[shape].end_session)
            return made[shape]

        yield of


@pytest.fixture
def cluster(request, clusters) -> Iterator[Cluster]:
    """The cluster of the module's SIZES; whole again after each test. One without ``session`` has all slots for its drivers."""
    found = clusters(getattr(request.module, "SIZES", {}))
    if "session" not in request.fixturenames:
        found.end_session()
    yield found
    found.mend()


@pytest.fixture
def session(cluster) -> Session:
    return cluster.session()


def _python_without_firesteel(folder: Path) -> Path:
    """Without ``site`` no .pth file is read, so a development install is not seen. The other packages are, where they are: elsewhere, each
    run would compile them anew."""
    packages = sysconfig.get_paths()["purelib"]
    wrapper = folder / "python-without-firesteel"
    wrapper.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec "{sys.executable}" -S "$@"\n')
    wrapper.chmod(0o755)
    found = subprocess.run(
        [str(wrapper), "-c", "import pyarrow, numpy\nimport firesteel"],
        check=False,
        capture_output=True,
        text=True,
        cwd=folder,
        env={"PATH": os.environ["PATH"]},
    )
    assert "No module named 'firesteel'" in found.stderr, found.stderr
    return wrapper
