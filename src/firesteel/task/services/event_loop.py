"""The event loop of a worker: one thread, made when first needed, that stays for the tasks to come.

What a user's object opened on it (a session with its connections) can be used by the next task in the same worker.
"""

from __future__ import annotations

import asyncio
import os
import threading

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_owner = 0
"""The process that the loop's thread runs in: a forked one has none."""


def worker_loop() -> asyncio.AbstractEventLoop:
    """The running loop of this process."""
    global _loop, _owner
    with _lock:
        if _loop is None or _owner != os.getpid():
            _loop, _owner = asyncio.new_event_loop(), os.getpid()
            threading.Thread(target=_loop.run_forever, name="firesteel-event-loop", daemon=True).start()
        return _loop


def give_up(loop: asyncio.AbstractEventLoop) -> None:
    """Something holds the loop up and does not let go: what comes next gets another one."""
    global _loop  # noqa: PLW0603
    with _lock:
        if _loop is loop:
            _loop = None
