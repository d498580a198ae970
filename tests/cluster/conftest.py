"""A standalone Spark cluster for the tests of a module, and drivers on it that are processes of their own."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import pytest
from tools.spark_archive import set_options
from tools.standalone import HOSTS, StandaloneCluster

set_options(os.environ)

DRIVER_SECONDS = 600.0
PATIENCE_SECONDS = 120.0


@dataclass
class Cluster:
    """``python``: an interpreter for the workers that has pyarrow and numpy, and cannot import firesteel."""

    standalone: StandaloneCluster
    python: Path
    drivers: list[subprocess.Popen] = field(default_factory=list)

    def driver(self, case: str, folder: Path, script: str = "drivers.py", **environment: str) -> Driver:
        """Starts ``drivers.py CASE FOLDER`` as a driver of its own; what it prints last is its answer, as JSON."""
        log = folder / f"{case}.log"
        return Driver(self._start(script, log, case, str(folder), **environment), log)

    def session(self) -> Session:
        """A driver that runs one case of ``cases.py`` after another on the same Spark session."""
        log = self.standalone.folder / "session.log"
        return Session(self._start("cases.py", log), log)

    def _start(self, script: str, log: Path, *arguments: str, **environment: str) -> subprocess.Popen:
        ours = {"PYSPARK_PYTHON": str(self.python), "FIRESTEEL_TEST_MASTER": self.standalone.url, **environment}
        env = self.standalone.environment() | ours
        given = [os.environ["PYTHONPATH"]] if "PYTHONPATH" in os.environ else []
        env["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[1]), *given])
        command = [sys.executable, str(Path(__file__).with_name(script)), *arguments]
        with log.open("w") as out:
            started = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=out, text=True, env=env
            )
        self.drivers.append(started)
        return started


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

    def __post_init__(self) -> None:
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def start(self, case: str, folder: Path, **arguments: Any) -> None:
        """Begins a case in ``cases.py``, which gets the folder and these arguments."""
        self.process.stdin.write(json.dumps([case, str(folder), arguments]) + "\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        """What the case returned. Fails with what it raised, or when it takes too long."""
        try:
            line = self._lines.get(timeout=DRIVER_SECONDS)
        except queue.Empty:
            self._fail("no answer")
        assert line, self.log.read_text()[-3000:]
        answer = json.loads(line)
        assert "raised" not in answer, answer["raised"]
        return answer

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

    def _fail(self, what: str) -> NoReturn:
        """With the driver's log, into which it writes where its threads are."""
        self.process.send_signal(signal.SIGUSR1)
        time.sleep(0.5)
        raise AssertionError(f"{what}: {self.log.read_text()[-6000:]}")


@pytest.fixture(scope="module")
def session(cluster):
    made = cluster.session()
    made.run("nothing", cluster.standalone.folder)
    yield made
    made.process.stdin.close()


@pytest.fixture(scope="module")
def cluster(request, tmp_path_factory):
    """A master, a worker of one slot (or of the module's SIZES) on each of the module's HOSTS (three if it names none), and
    drivers, which end with it."""
    folder = tmp_path_factory.mktemp("cluster")
    hosts, sizes = getattr(request.module, "HOSTS", HOSTS), getattr(request.module, "SIZES", None)
    with StandaloneCluster(folder, hosts, sizes=sizes) as standalone:
        yield Cluster(standalone, _python_without_firesteel(folder))


def _python_without_firesteel(folder: Path) -> Path:
    """Without ``site`` no .pth file is read, so a development install is not seen; the other packages are, by links."""
    packages = folder / "packages-without-firesteel"
    packages.mkdir()
    for found in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if not found.name.startswith("firesteel"):
            (packages / found.name).symlink_to(found)
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
