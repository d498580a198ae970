"""Drivers of the tests that take one job over at once."""

from __future__ import annotations

import threading

from firesteel.errors import UsageError
from firesteel.recovery.takeover import FoundJob, take_over


def contended(found: FoundJob, drivers: int = 8) -> list[int | str]:
    """What each of them got: its epoch, or what it was told. In one process they are all the same driver but for the time."""
    start, outcomes = threading.Barrier(drivers), list[int | str]()

    def contend() -> None:
        start.wait()
        try:
            outcomes.append(take_over(found).epoch)
        except UsageError as error:
            outcomes.append(error.message)

    threads = [threading.Thread(target=contend) for _ in range(drivers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes
