"""A test that hangs ends its process, and tells where it stands: tried with pytest in a process of its own."""

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
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize(
    ("how", "end"),
    [([], "test_it.py"), pytest.param(["-n", "1"], "1 failed, 1 passed", marks=pytest.mark.full)],
    ids=["alone", "in a worker"],
)
def test_a_hang_is_told_in_few_lines(tmp_path, how, end):
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(SUITE)
    root = str(Path(__file__).parents[3])
    environment = {**os.environ, "PYTHONPATH": root, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    command = [sys.executable, "-m", "pytest", "-p", "xdist.plugin", "-p", "no:cacheprovider", *how, "test_it.py"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
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
