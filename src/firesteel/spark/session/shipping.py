"""Ships to executors what they do not have: Firesteel's own part as a zip, and DuckDB as an archive, once per Spark context each."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from firesteel.connectors.merging import operators as merging
from firesteel.engine.package import EnginePackage, this_platform
from firesteel.errors import UsageError
from firesteel.package_files import contents, write_zip
from firesteel.spark.storage.directories import private_directory
from firesteel.task.operators import fragments, groups, join

KEPT_SECONDS = 30 * 86400
_OF_ENGINE = tuple(module.__name__.encode() for module in (fragments, groups, join, merging))
"""One of them stands in the program of a vertex that needs DuckDB."""
_shipped: dict[tuple[str, str], str] = {}
"""(Spark application, package) to the name of what was shipped to it."""
_shipping = threading.Lock()
"""Jobs may begin at the same time."""


def ship(context: Any) -> str:
    """Adds the package to the context's Python files; a second call for the same context does nothing. The zip's name."""
    return _once(context, "firesteel", contents, context.addPyFile)


def engine_of(context: Any, programs: Iterable[bytes], *, there: bool) -> EnginePackage | None:
    """The driver's DuckDB, for programs with fragments; None: there are none. It is sent unless it is ``there``, on all executors.

    Its native library cannot be loaded from a zip, so Spark unpacks it on each executor, for all of its workers, and removes it with the
    executor.
    """
    if not any(name in program for program in programs for name in _OF_ENGINE):
        return None
    try:
        engine = distribution("duckdb")
    except PackageNotFoundError:
        raise UsageError("The driver's Python needs duckdb.", hint="Install it: pip install 'duckdb>=2,<3'.") from None
    archive = "" if there else _once(context, f"duckdb-{engine.version}", lambda: _files_of(engine), context.addArchive)
    return EnginePackage(engine.version, this_platform(), archive)


def _files_of(package: Distribution) -> list[tuple[str, bytes]]:
    """(path, bytes) of what its installation put beside other packages."""
    own = [path for path in package.files or () if ".." not in path.parts and "__pycache__" not in path.parts]
    return sorted((path.as_posix(), path.read_binary()) for path in own)


def _once(context: Any, package: str, read: Callable[[], list[tuple[str, bytes]]], add: Callable[[str], None]) -> str:
    """The name of the package's zip, which was given to ``add`` once for this context."""
    with _shipping:
        key = context.applicationId, package
        if key not in _shipped:
            _shipped[key] = _add(package, read(), add)
        return _shipped[key]


def _add(package: str, files: list[tuple[str, bytes]], add: Callable[[str], None]) -> str:
    directory = private_directory() / "ship"
    directory.mkdir(mode=0o700, exist_ok=True)
    path = build_zip(directory, package, files)
    _prune(directory)
    search_path = list(sys.path)
    try:
        add(str(path))
    finally:
        sys.path[:] = search_path  # Spark puts Python files before everything else, on the driver too
    return path.name


def build_zip(directory: Path, package: str, files: list[tuple[str, bytes]]) -> Path:
    """The package's files, without times: the same content has the same bytes and the same name.

    One that is there already is used again.
    """
    digest = hashlib.blake2b(digest_size=8)
    for name, data in files:
        digest.update(name.encode() + b"\0" + data + b"\0")
    target = directory / f"{package}-{digest.hexdigest()}.zip"
    if target.exists():
        os.utime(target)
        return target
    partial = target.with_suffix(f".{os.getpid()}.part")
    write_zip(files, partial)
    partial.replace(target)
    return target


def _prune(directory: Path) -> None:
    """Removes what other versions shipped long ago; a driver serves its file for as long as it runs."""
    for path in directory.iterdir():
        with suppress(OSError):
            if path.stat().st_mtime < time.time() - KEPT_SECONDS:
                path.unlink()
