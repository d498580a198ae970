"""Looks round on an executor before the job. Stdlib only at import: what is missing is what it is to find out."""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from firesteel.task.executor.place import Place, here

PROBE_SECONDS = 0.02
"""A probe takes at least this long, so that one free slot does not take them all."""
EXECUTOR_MEMORY_VARIABLE = "FIRESTEEL_EXECUTOR_MEMORY"
"""An executor's environment variable: what all its slots together may take, as ``8g``."""


@dataclass(frozen=True)
class Findings:
    """``missing``: modules that are not there. ``problem``: why the storage cannot be used from here. ``said_memory``:
    what the environment says that slots may take, empty if nothing."""

    host: str
    executor: str
    python: str
    versions: dict[str, str | None] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    problem: str | None = None
    memory: int = 0
    place: Place | None = None
    said_memory: str = ""
    has_engine: bool = False
    """DuckDB is installed."""


class Probe:
    """Runs as a Spark task; ``name`` is the file that the driver has put into the storage."""

    def __init__(
        self,
        modules: tuple[str, ...],
        root: str,
        name: str,
        filesystem: str | None = None,
        node_variable: str | None = None,
    ) -> None:
        self.modules = modules
        self.root = root
        self.name = name
        self.filesystem = filesystem
        self.node_variable = node_variable

    def __call__(self, numbers: Iterator[int]) -> Iterator[Findings]:
        import time

        until = time.monotonic() + PROBE_SECONDS
        for number in numbers:
            yield self.look(number)
        time.sleep(max(0.0, until - time.monotonic()))

    def look(self, number: int) -> Findings:
        versions = {name: _version(name) for name in ("pyarrow", "numpy")}
        missing = tuple(m for m in self.modules if not _importable(m))
        problem = _storage_problem(self.root, self.name, number, self.filesystem) if versions["pyarrow"] else None
        executor = os.environ.get("SPARK_LOCAL_DIRS", "")
        memory = 0
        if versions["pyarrow"] and versions["numpy"]:
            from firesteel.spark.session.task_memory import machine_memory

            memory = machine_memory()
        place = here(self.node_variable)
        python, said = platform.python_version(), os.environ.get(EXECUTOR_MEMORY_VARIABLE, "")
        engine = _importable("duckdb")
        return Findings(place.host, executor, python, versions, missing, problem, memory, place, said, engine)


def _version(name: str) -> str | None:
    try:
        return str(importlib.import_module(name).__version__)
    except ImportError:
        return None


def _importable(module: str) -> bool:
    if module in sys.modules:
        return True
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError, AttributeError):
        return False


def _storage_problem(root: str, name: str, number: int, filesystem: str | None) -> str | None:
    """Sees the driver's file, and can write and remove one of its own."""
    import pyarrow.fs as pafs

    from firesteel.results.storage.filesystem import retried

    fs: Any
    path = ""

    def look() -> Any:
        return fs.get_file_info(f"{path}/{name}")

    def write(own: str) -> None:
        with fs.open_output_stream(own) as stream:
            stream.write(b"firesteel")

    def remove(own: str) -> None:
        fs.delete_file(own)

    try:
        if filesystem is not None:
            from firesteel.results.storage.filesystem import open_location

            fs, path = open_location(root, filesystem)
        else:
            fs, path = (pafs.LocalFileSystem(), root) if "://" not in root else pafs.FileSystem.from_uri(root)
        path = path.rstrip("/")
        if retried(look).type == pafs.FileType.NotFound:
            return "does not see there what the driver has written"
        own = f"{path}/{name}-{number}-{os.getpid()}"
        retried(lambda: write(own))
        retried(lambda: remove(own))
    except Exception as error:
        return f"cannot use it ({type(error).__name__}: {str(error).splitlines()[0]})"
    return None
