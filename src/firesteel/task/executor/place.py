"""Place of a Python worker: its executor and host, as Spark itself names them. Stdlib only, for executors.

A worker's environment does not say it: it is read from the command line of the executor's JVM, two processes above
(standalone, YARN, Kubernetes).
"""

from __future__ import annotations

import functools
import os
import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

LEVELS = 4
"""Number of processes upwards among which the executor is looked for."""
_IN_URL = re.compile(r"[?&]executorId=([^&]+)")


@dataclass(frozen=True, slots=True)
class Place:
    """``executor``: its id, empty if not known. ``label``: what the chosen environment variable says, empty if nothing."""

    executor: str
    host: str
    label: str = ""

    @property
    def encoded(self) -> str:
        """As messages carry it."""
        return f"{self.executor}\n{self.host}\n{self.label}"

    @classmethod
    def decode(cls, text: str) -> Place:
        executor, _, rest = text.partition("\n") if "\n" in text else ("", "", text)
        host, _, label = rest.partition("\n")
        return cls(executor, host, label)

    @property
    def signs(self) -> tuple[str, str]:
        """By which the driver means this place, see ``NodeNames.signs``."""
        return f"executor {self.executor}", f"label {self.label}"


@functools.cache
def here(variable: str | None = None) -> Place:
    """This process' place. ``variable``: the environment variable that names the node. Looked up once per process."""
    label = os.environ.get(variable, "") if variable else ""
    for arguments in _ancestors():
        if "--executor-id" in arguments and "--hostname" in arguments:
            return Place(_after(arguments, "--executor-id"), _after(arguments, "--hostname"), label)
        if "org.apache.spark.deploy.SparkSubmit" in arguments:  # a local master: the driver is the executor
            return Place("driver", _host(), label)
    named = _IN_URL.search(os.environ.get("SPARK_LOG_URL_STDERR", ""))
    return Place(os.environ.get("SPARK_EXECUTOR_ID") or (named[1] if named else ""), _host(), label)


def _host() -> str:
    return os.environ.get("SPARK_LOCAL_IP") or socket.gethostname()


def _after(arguments: list[str], name: str) -> str:
    return (arguments[arguments.index(name) + 1 :] or [""])[0]


def _ancestors() -> Iterator[list[str]]:
    """The command lines of the processes above this one, the nearest first; none where there is no /proc."""
    process = os.getppid()
    with suppress(OSError, ValueError, IndexError):
        for _ in range(LEVELS):
            yield Path(f"/proc/{process}/cmdline").read_bytes().decode(errors="replace").split("\0")
            process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
