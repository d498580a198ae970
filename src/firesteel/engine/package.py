"""DuckDB's Python package in a worker: what is installed there, else what the driver has sent. Stdlib only at import."""

from __future__ import annotations

import platform
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from firesteel.humanize import minor_version


@dataclass(frozen=True, slots=True)
class EnginePackage:
    """The driver's. ``platform``: what its native library is made for; ``archive``: the name under which Spark has unpacked it on
    executors, empty where it was not sent."""

    version: str
    platform: str
    archive: str = ""


def this_platform() -> str:
    """Names what native libraries of this Python are made for, as ``CPython 3.11 on Linux x86_64 with glibc``."""
    python = f"{platform.python_implementation()} {minor_version(platform.python_version())}"
    library = platform.libc_ver()[0]
    return f"{python} on {platform.system()} {platform.machine()}{library and f' with {library}'}"


def load(package: EnginePackage | None, host: str) -> Any:
    """The module ``duckdb``. ``package``: None where this process runs the driver's interpreter, with its packages; ``host``: for messages.

    Raises ImportError with a sentence where it cannot be had, and where it is another version than the driver's: its answers may differ.
    """
    if package is not None and find_spec("duckdb") is None:
        sys.path.append(_unpacked(package, host))  # the last: nothing that is installed is hidden
    try:
        import duckdb
    except ImportError as error:
        raise ImportError(f"DuckDB cannot be loaded on {host}: {error}") from error
    if package is not None and minor_version(duckdb.__version__) != minor_version(package.version):
        raise ImportError(
            f"{host} has DuckDB {duckdb.__version__} and the driver {package.version}, whose answers may differ: "
            f"{_advice(package)}, or uninstall it there, so that the driver's is sent"
        )
    return duckdb


def _unpacked(package: EnginePackage, host: str) -> str:
    """Returns where Spark has unpacked the driver's package on this executor."""
    if not package.archive:
        raise ImportError(f"DuckDB is not installed on {host}: {_advice(package)}")
    if this_platform() != package.platform:
        raise ImportError(
            f"DuckDB is not installed on {host}, and the driver's is for {package.platform}, not for {this_platform()}: "
            f"{_advice(package)}"
        )
    from pyspark import SparkFiles

    return SparkFiles.get(package.archive)


def _advice(package: EnginePackage) -> str:
    return f"run pip install duckdb=={package.version} on the executors"
