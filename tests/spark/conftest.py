"""Fixtures for tests on a real Spark."""

from __future__ import annotations

import os

import pytest
from tools.spark_archive import set_options

import no_script  # noqa: F401
from firesteel import ExecutionEnvironment
from s3_server import s3, server  # noqa: F401 (fixtures)


@pytest.hookimpl(trylast=True)  # once the folder for temporary files is known
def pytest_configure():
    set_options(os.environ)


@pytest.fixture(scope="module", autouse=True)  # not of the folder: files of others may come between
def nothing_kept():
    """Jobs that fail leave nothing, unless a test wants it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FIRESTEEL_RESULTS_RETAIN_ON_FAILURE", "0")
        yield


@pytest.fixture
def env(spark, tmp_path):
    options = {
        "firesteel.progress": False,
        "firesteel.journal.directory": str(tmp_path / "journal"),
        "firesteel.storage.directory": str(tmp_path / "storage"),
    }
    yield ExecutionEnvironment(spark=spark, options=options)
    assert [p for p in (tmp_path / "storage").rglob("*") if p.is_file()] == []
