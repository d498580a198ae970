"""Starts Spark's JVM so that nothing of it stays behind when the start fails or the user gives it up.

PySpark holds the process it started only once the JVM has answered, and takes over Ctrl-C on the main thread while it sets
up its context: an interrupt in between leaves a JVM that nobody ends, or lands in the middle of a call into it. So the
process is noted as it is made, and the start itself runs on a thread that no signal reaches.
"""

from __future__ import annotations

import importlib
import logging
import os
import re
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Any

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
