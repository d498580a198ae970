"""Ships Firesteel's own part to executors that do not have it: the package as a zip, once per Spark context."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from firesteel.package_files import contents, write_zip
from firesteel.spark.storage.directories import private_directory

KEPT_SECONDS = 30 * 86400
_shipped: dict[str, str] = {}
"""Spark application to the name of what was shipped to it."""
_shipping = threading.Lock()
"""Jobs may begin at the same time."""


def ship(context: Any) -> str:
    """Adds the package to the context's Python files; a second call for the same context does nothing. The zip's name."""
    with _shipping:
        application = context.applicationId
        if application not in _shipped:
            _shipped[application] = _add(context).name
        return _shipped[application]


def _add(context: Any) -> Path:
    directory = private_directory() / "ship"
    directory.mkdir(mode=0o700, exist_ok=True)
    path = build_zip(directory)
    _prune(directory)
    search_path = list(sys.path)
    try:
        context.addPyFile(str(path))
    finally:
        sys.path[:] = search_path  # Spark puts the zip before everything else, on the driver too
    return path


def build_zip(directory: Path) -> Path:
    """The package's Python files, sorted and without times: the same content has the same bytes and the same name.

    One that is there already is used again.
    """
    files = contents()
    digest = hashlib.blake2b(digest_size=8)
    for name, data in files:
        digest.update(name.encode() + b"\0" + data + b"\0")
    target = directory / f"firesteel-{digest.hexdigest()}.zip"
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
