"""A standalone Spark cluster on this machine: a master and two workers on loopback addresses of their own."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import sysconfig
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pyspark
import pytest

HOSTS = ("127.0.0.2", "127.0.0.3")
START_SECONDS = 120.0
DRIVER_SECONDS = 240.0


@dataclass
class Cluster:
    """``python``: an interpreter for the workers that has pyarrow and numpy, and cannot import firesteel."""

    master: str
    folder: Path
    python: Path
    workers: dict[str, subprocess.Popen] = field(default_factory=dict)
    drivers: list[subprocess.Popen] = field(default_factory=list)

    def driver(self, case: str, folder: Path, **environment: str) -> Driver:
        """Starts ``drivers.py CASE FOLDER`` as a driver of its own; what it prints last is its answer, as JSON."""
        script = Path(__file__).with_name("drivers.py")
        env = {**os.environ, "PYSPARK_PYTHON": str(self.python), "FIRESTEEL_TEST_MASTER": self.master, **environment}
        env["PYTHONPATH"] = str(Path(__file__).parents[1])
        log = (folder / f"{case}.log").open("w")
        command = [sys.executable, str(script), case, str(folder)]
        self.drivers.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=env))
        return Driver(self.drivers[-1], folder / f"{case}.log")

    def kill_executor(self, host: str) -> None:
        """SIGKILL for the executor on this host and its Python workers; the worker lives on and starts another."""
        victims = psutil.Process(self.workers[host].pid).children(recursive=True)
        assert victims, f"no executor on {host}"
        for process in victims:
            process.kill()


@dataclass
class Driver:
    process: subprocess.Popen
    log: Path

    def answer(self) -> Any:
        out, _ = self.process.communicate(timeout=DRIVER_SECONDS)
        assert self.process.returncode == 0, self.log.read_text()[-3000:] + out
        return json.loads(out.strip().splitlines()[-1])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cluster")
    python = _python_without_firesteel(folder)
    port = _free_port()
    processes = [_start(folder, "master", "127.0.0.1", "master.Master", "--port", str(port), "--webui-port", "0")]
    made = Cluster(f"spark://127.0.0.1:{port}", folder, python)
    try:
        _await_line(folder / "master.log", "New state: ALIVE")
        for host in HOSTS:
            arguments = (
                "--cores",
                "1",
                "--memory",
                "1g",
                "--webui-port",
                "0",
                "--work-dir",
                str(folder / host),
                made.master,
            )
            made.workers[host] = _start(folder, host, host, "worker.Worker", *arguments)
        processes += made.workers.values()
        for host in HOSTS:
            _await_line(folder / f"{host}.log", "Successfully registered with master")
        yield made
    finally:
        for process in [*made.drivers, *reversed(processes)]:
            if process.poll() is not None:
                continue
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
            process.kill()
            process.wait()


def _start(folder: Path, name: str, host: str, main: str, *arguments: str) -> subprocess.Popen:
    home = Path(pyspark.__file__).parent
    log = (folder / f"{name}.log").open("w")
    log4j = folder / "log4j2.properties"
    log4j.write_text(
        "rootLogger.level=info\nrootLogger.appenderRef.e.ref=e\nappender.e.type=Console\nappender.e.name=e\n"
        "appender.e.target=SYSTEM_ERR\nappender.e.layout.type=PatternLayout\nappender.e.layout.pattern=%m%n\n"
    )
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    env |= {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": host,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": f"-Dlog4j2.configurationFile={log4j.as_uri()}",
    }
    command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{main}", "--host", host, *arguments]
    return subprocess.Popen(command, stdout=log, stderr=log, env=env, cwd=folder)


def _await_line(log: Path, text: str) -> None:
    until = time.monotonic() + START_SECONDS
    while not re.search(text, log.read_text()):
        assert time.monotonic() < until, f"{log.name} never said '{text}': {log.read_text()[-2000:]}"
        time.sleep(0.05)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _python_without_firesteel(folder: Path) -> Path:
    """Without ``site`` no .pth file is read, so a development install is not seen; the other packages are, by path."""
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
