"""A test that hangs ends its process and tells where it stands, and the run goes on: tried with pytest in processes of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

CONFTEST = """
from tests import hanging

def pytest_configure(config):
    config.addinivalue_line("markers", "patience(seconds)")
    config.pluginmanager.register(hanging.HangWatch())
"""
SUITE = """
import subprocess, sys, threading, pytest

def wait_for_nothing():
    threading.Event().wait()

@pytest.mark.patience(5.0)
def test_that_hangs():
    threading.Thread(target=wait_for_nothing, name="of ours", daemon=True).start()
    threading.Thread(target=threading.Event().wait, name="of others", daemon=True).start()
    program = "import time; print(); time.sleep(600)  # a child"
    child = subprocess.Popen([sys.executable, "-u", "-c", program], stdout=subprocess.PIPE)
    child.stdout.read(1)
    wait_for_nothing()

def test_after_it():
    pass
"""


def is_over(pid):
    """A killed process ends when the machine comes to it."""
    try:
        process = psutil.Process(pid)
        return process.status() == psutil.STATUS_ZOMBIE or process.wait(60) is None
    except psutil.NoSuchProcess:
        return True


def in_own_process(folder, *arguments):
    root = str(Path(__file__).parents[3])
    environment = {**os.environ, "PYTHONPATH": root, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    command = [sys.executable, "-m", "pytest", "-p", "xdist.plugin", "-p", "no:cacheprovider", *arguments, "."]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.parametrize(
    ("how", "end"),
    [([], "test_it.py"), pytest.param(["-n", "1"], "1 failed, 1 passed", marks=pytest.mark.full)],
    ids=["alone", "in a worker"],
)
def test_a_hang_is_told_in_few_lines(tmp_path, how, end):
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(SUITE)
    done = in_own_process(tmp_path, *how)
    assert done.returncode == 1
    assert end in done.stdout
    told = done.stderr[done.stderr.index("HANGS") :].splitlines()
    assert told[0] == "HANGS: test_it.py::test_that_hangs has taken 5 s, so this process ends."
    child = re.match(r"Process (\d+): .*# a child", told[1])
    assert child and is_over(int(child[1]))
    main, ours = told.index("The main thread, its latest call last:"), told.index("Thread of ours:")
    assert "test_that_hangs: wait_for_nothing()" in told[main + 1]
    assert "wait_for_nothing: threading.Event().wait()" in told[main + 2]
    assert any("wait_for_nothing: threading.Event().wait()" in line for line in told[ours:])
    assert "of others" not in done.stderr and len(told) < 30


LANES = """
from tests.lanes import Lanes

def pytest_xdist_make_scheduler(config, log):
    return Lanes(config, log)
"""
DIES = "import os\n\ndef test_0():\n    os._exit(1)\n"
PASSES = "\ndef test_{}():\n    pass\n"


@pytest.mark.parametrize(
    ("workers", "files"),
    [
        (2, (3, 5, 0, 1, 4)),
        *(pytest.param(*given, marks=pytest.mark.full) for given in [(1, (2, 0)), (2, (0, 1, 0, 2))]),
    ],
)
def test_a_run_ends_although_workers_die(tmp_path, workers, files):
    """``files``: of each, how many tests pass after a first one that ends its worker; an odd number has no such test."""
    (tmp_path / "conftest.py").write_text(LANES)
    for number, passing in enumerate(files):
        tests = "".join(PASSES.format(i) for i in range(1, passing + 1))
        (tmp_path / f"test_{number}.py").write_text((DIES if passing % 2 == 0 else "") + tests)
    done = in_own_process(tmp_path, "-n", str(workers), "--dist", "loadfile")
    died = sum(passing % 2 == 0 for passing in files)
    assert f"{died} failed, {sum(files)} passed" in done.stdout
