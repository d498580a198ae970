"""Fixtures for all tests. The Spark session is made once, and only if a test asks for it."""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import signal
import sys
import tempfile
import time

import pytest
from hypothesis import settings
from tests import effort, hanging

UNTIL = "FIRESTEEL_TESTS_UNTIL"
"""Environment variable: the time behind which no test begins, for workers that take the place of others, too."""
LEFT_OUT = "left out: it would have begun behind --minutes"

for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    # ignored by a shell's "&" or nohup, which the programs under test would inherit
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, usual)


def pytest_addoption(parser):
    parser.addoption("--all", action="store_true", help="also the tests marked `full`: everything, on real Spark")
    parser.addoption("--minutes", type=float, help="no test begins later than that; those left out are told as skipped")


def pytest_configure(config):
    """All that the tests and their children leave behind goes with the run. pytest's own folders stay where they were: what
    lies in them needs short paths (sockets), and is looked at after a failure."""
    if config.getoption("--all"):
        effort.with_all()
    else:
        os.fsync = os.fdatasync = lost_with_the_power
    settings.register_profile("ours", deadline=None, max_examples=effort.examples(100))  # a busy machine is no failure
    settings.load_profile("ours")
    config.pluginmanager.register(hanging.HangWatch())
    if hasattr(config, "workerinput"):
        return
    if (minutes := config.getoption("--minutes")) is not None:
        os.environ[UNTIL] = str(time.time() + 60 * minutes)
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    os.environ["TMPDIR"] = tempfile.tempdir = made = tempfile.mkdtemp(prefix="fs-")
    atexit.register(_remove, made, os.getpid())  # behind all that is registered later, such as multiprocessing's


def lost_with_the_power(_descriptor):
    """In the place of a sync, each of which a disk takes milliseconds for: what a process has written outlives it without one, and
    no test takes the power away."""


def _remove(made, owner):
    if os.getpid() == owner:  # no process that a test has forked
        shutil.rmtree(made, ignore_errors=True)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    if config.getvalue("dist") != "loadfile":
        return None
    from tests.lanes import Lanes

    return Lanes(config, log)


def pytest_collection_modifyitems(config, items):
    """Without ``--all``, tests marked ``full`` are left out, unless they were asked for by name."""
    if config.getoption("--all") or any("::" in argument for argument in config.args):
        return
    left_out = [item for item in items if item.get_closest_marker("full")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("full")]


def pytest_runtest_setup(item):
    if time.time() > float(os.environ.get(UNTIL, "inf")):
        pytest.skip(LEFT_OUT)


def pytest_terminal_summary(terminalreporter):
    left = sum(LEFT_OUT in str(report.longrepr) for report in terminalreporter.stats.get("skipped", ()))
    if left:
        terminalreporter.write_line(f"{left} tests were left out, as they would have begun too late.")


def pytest_collection_finish():
    """Thousands of collected tests are no garbage; looking through them again and again took a tenth of the time."""
    gc.freeze()


@pytest.fixture(autouse=True)
def main_module():
    """A script that runs in the tests' process stays its ``__main__`` no longer than the test."""
    before = sys.modules["__main__"]
    yield
    sys.modules["__main__"] = before


@pytest.fixture(scope="session")
def spark():
    """An embedded Spark on two slots, as Firesteel makes it; Spark's own exchanges have 4 partitions, not 200."""
    from firesteel.spark.session.sessions import create_session
    from older_spark import DEFAULTS

    session = create_session("local[2]", "firesteel tests", {"spark.sql.shuffle.partitions": "4", **DEFAULTS})
    yield session
    session.stop()
