"""DuckDB in a worker: which one is taken, and the sentence where none is. How it is sent: ``tests/cluster/test_sql.py``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

import firesteel
from firesteel.engine.package import EnginePackage, load, this_platform

PACKAGE = EnginePackage(duckdb.__version__, this_platform())
MAJOR, MINOR = map(int, duckdb.__version__.split(".")[:2])
LOAD = """
import sys
from firesteel.engine.package import EnginePackage, load, this_platform

try:
    load(eval(sys.argv[1]), 'node-3')
except ImportError as error:
    print(error)
"""


def refusal(package: str) -> str:
    """What a Python without any packages says."""
    source = str(Path(firesteel.__file__).parents[1])
    command = [sys.executable, "-S", "-c", f"import sys; sys.path.append({source!r})\n{LOAD}", package]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("package", [None, PACKAGE, EnginePackage(f"{MAJOR}.{MINOR}.999", this_platform())])
def test_one_that_is_installed_is_taken_whatever_its_last_number(package):
    assert load(package, "node-3") is duckdb


@pytest.mark.parametrize("version", [f"{MAJOR}.{MINOR + 1}.0", f"{MAJOR - 1}.{MINOR}.1"])
def test_another_version_than_the_drivers_is_refused(version):
    with pytest.raises(
        ImportError, match=f"node-3 has DuckDB {duckdb.__version__} and the driver {version}, .* pip install"
    ):
        load(EnginePackage(version, this_platform()), "node-3")


def test_none_is_a_sentence():
    assert "DuckDB is not installed on node-3: " in refusal("EnginePackage('2.0.1', this_platform())")
    assert "cannot be loaded on node-3: " in refusal("None")


def test_one_for_another_platform_is_a_sentence():
    words = refusal("EnginePackage('2.0.1', 'CPython 3.11 on Linux aarch64 with glibc', 'duckdb.zip')")
    assert f"is for CPython 3.11 on Linux aarch64 with glibc, not for {this_platform()}: " in words
    assert words.endswith("run pip install duckdb==2.0.1 on the executors")
