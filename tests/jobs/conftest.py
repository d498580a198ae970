"""Whole jobs run on the plane without a JVM; with ``--all`` on Spark as well."""

from __future__ import annotations

import os
import time

import pytest
from pyspark import SparkContext

import no_script  # noqa: F401
from firesteel import ExecutionEnvironment
from runtime_support import files_in
from s3_server import s3, server  # noqa: F401 (fixtures)


def pytest_generate_tests(metafunc):
    if "session" in metafunc.fixturenames:
        on = ["plane"]
        if metafunc.config.getoption("--all"):
            on.append(pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.full]))
        metafunc.parametrize("session", on, indirect=True, scope="session")


@pytest.fixture(scope="module", autouse=True)  # not of the folder: files of others may come between
def nothing_kept():
    """Jobs that fail leave nothing, unless a test wants it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FIRESTEEL_RESULTS_RETAIN_ON_FAILURE", "0")
        yield


@pytest.fixture(scope="session")
def session(request):
    """A session with two slots."""
    if request.param == "spark":
        from tools.spark_archive import set_options

        set_options(os.environ)
        yield request.getfixturevalue("spark")
        return
    from plane.session import Session

    made = Session(slots=2)
    yield made
    made.stop()
    assert SparkContext._gateway is None or request.config.getoption("--all"), "a job without Spark has started a JVM"


@pytest.fixture
def env(session, tmp_path):
    options = {
        "firesteel.progress": False,
        "firesteel.journal.directory": str(tmp_path / "journal"),
        "firesteel.storage.directory": str(tmp_path / "storage"),
        "restart-strategy.fixed-delay.delay": "10 ms",
    }
    yield ExecutionEnvironment(spark=session, options=options)
    patience = time.monotonic() + 20
    while (left := files_in(tmp_path / "storage")) and time.monotonic() < patience:
        time.sleep(0.01)  # rows that a job read go after it, by another thread
    assert left == []
