"""A standalone Spark cluster for the tests of a module, and drivers on it that are processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tools.standalone import HOSTS, StandaloneCluster

DRIVER_SECONDS = 240.0


@dataclass
class Cluster:
    """``python``: an interpreter for the workers that has pyarrow and numpy, and cannot import firesteel."""

    standalone: StandaloneCluster
    python: Path
    drivers: list[subprocess.Popen] = field(default_factory=list)

    def driver(self, case: str, folder: Path, **environment: str) -> Driver:
        """Starts ``drivers.py CASE FOLDER`` as a driver of its own; what it prints last is its answer, as JSON."""
        script = Path(__file__).with_name("drivers.py")
        ours = {"PYSPARK_PYTHON": str(self.python), "FIRESTEEL_TEST_MASTER": self.standalone.url, **environment}
        env = self.standalone.environment() | ours
        given = [os.environ["PYTHONPATH"]] if "PYTHONPATH" in os.environ else []
        env["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[1]), *given])
        log = (folder / f"{case}.log").open("w")
        command = [sys.executable, str(script), case, str(folder)]
        self.drivers.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=env))
        return Driver(self.drivers[-1], folder / f"{case}.log")


@dataclass
class Driver:
    process: subprocess.Popen
    log: Path

    def answer(self) -> Any:
        out, _ = self.process.communicate(timeout=DRIVER_SECONDS)
        assert self.process.returncode == 0, self.log.read_text()[-3000:] + out
        return json.loads(out.strip().splitlines()[-1])


@pytest.fixture(scope="module")
def cluster(request, tmp_path_factory):
    """A master, a worker of one slot on each of the module's HOSTS (three if it names none), and drivers, which end with it."""
    folder = tmp_path_factory.mktemp("cluster")
    with StandaloneCluster(folder, getattr(request.module, "HOSTS", HOSTS)) as standalone:
        yield Cluster(standalone, _python_without_firesteel(folder))


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
