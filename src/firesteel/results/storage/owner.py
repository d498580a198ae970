"""Owner marks: which process made something, so that a later one finds what dead ones left behind."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Any

ENDED = "ended"
"""The entry of a mark by which its process says that it is done with what it has made."""


class Owner(Enum):
    """Of what a process left somewhere, as far as its mark tells."""

    DEAD = "its process is gone"
    ALIVE = "it still runs, or is just ending"
    ELSEWHERE = "of another machine"
    UNKNOWN = "its owner is not known yet"
    KEPT = "its job has ended, and it is kept for a resume, or for other jobs"


def owner_of(mark: Mapping[str, Any]) -> Owner:
    """DEAD for certain only. Raises ValueError for something that is not a mark."""
    if is_dead(mark):
        return Owner.DEAD
    return Owner.ALIVE if mark.get("host") == _host() else Owner.ELSEWHERE


def myself() -> dict[str, Any]:
    """This process as a mark, plain JSON data: ``host``, ``pid`` and when it ``started``."""
    return {"host": _host(), "pid": os.getpid(), "started": process_start(os.getpid())}


def is_dead(owner: Mapping[str, Any]) -> bool:
    """True for certain only: its process says that it is done with it, or it was made on this very machine, since it was booted, by a process
    that is no more.

    Raises ValueError for something that is not a mark.
    """
    if not isinstance(owner.get("pid"), int):
        raise ValueError(f"not an owner's mark: {owner!r}")
    if owner.get(ENDED):
        return True
    if owner.get("host") != _host():
        return False
    started = process_start(owner["pid"])
    return started is None or started != owner.get("started")  # else the number went to another process meanwhile


def says_dead(mark: Mapping[str, Any]) -> bool:
    """As ``is_dead``; False for something that is not a mark."""
    with suppress(ValueError):
        return is_dead(mark)
    return False


def process_start(pid: int) -> str | None:
    """Start time of a living process as the kernel counts it ("" where it does not tell); None: there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        if Path("/proc/self/stat").exists():
            return None
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return None
        except PermissionError:
            return ""
        return ""
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] == "Z" else fields[19]


def _host() -> str:
    """Returns a name of the scope of process numbers: this boot of the machine, in a container its own numbering."""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{socket.gethostname()} {boot} {os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115 (not a path)
    return socket.gethostname()
