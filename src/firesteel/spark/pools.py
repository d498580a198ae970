"""Names of FAIR scheduler pools. Spark never forgets a pool, so names are lent out and used again."""

from __future__ import annotations

import heapq
import threading

_lock = threading.Lock()
_free: list[int] = []
_made = 0


def borrow() -> str:
    """A pool that no other batch uses at the moment: what is in it shares the slots fairly with all other pools."""
    global _made  # noqa: PLW0603
    with _lock:
        if _free:
            return f"firesteel-{heapq.heappop(_free)}"
        _made += 1
        return f"firesteel-{_made - 1}"


def give_back(name: str) -> None:
    with _lock:
        heapq.heappush(_free, int(name.rpartition("-")[2]))
