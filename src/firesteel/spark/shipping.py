"""Ships Firesteel's own part to executors that do not have it: the package as a zip, once per Spark context."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
import time
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import firesteel
from firesteel.spark.storage import private_directory

_PACKAGE = Path(firesteel.__file__).parent
_EPOCH = (1980, 1, 1, 0, 0, 0)
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
    files = sorted(p for p in _PACKAGE.rglob("*.py") if "__pycache__" not in p.parts)
    digest = hashlib.blake2b(digest_size=8)
    contents: list[tuple[str, bytes]] = []
    for path in files:
        name = str(Path("firesteel") / path.relative_to(_PACKAGE))
        data = path.read_bytes()
        digest.update(name.encode() + b"\0" + data + b"\0")
        contents.append((name, data))
    target = directory / f"firesteel-{digest.hexdigest()}.zip"
    if target.exists():
        os.utime(target)
        return target
    partial = target.with_suffix(f".{os.getpid()}.part")
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in contents:
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), data, zipfile.ZIP_DEFLATED)
    partial.replace(target)
    return target


def _prune(directory: Path) -> None:
    """Removes what other versions shipped long ago; a driver serves its file for as long as it runs."""
    for path in directory.iterdir():
        with suppress(OSError):
            if path.stat().st_mtime < time.time() - KEPT_SECONDS:
                path.unlink()
