"""Locks that tell whether somebody still writes a journal: the system takes them back when the process dies, however it dies."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # no such locks on this system
    fcntl = None


def hold(descriptor: int) -> None:
    """The writer's: for as long as the file is open. Nothing happens where files cannot be locked."""
    if fcntl is not None:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_held(path: Path) -> bool | None:
    """None: it cannot be known. Readers do not disturb each other, nor the writer, who locks before it writes anything."""
    if fcntl is None:
        return None
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return False
