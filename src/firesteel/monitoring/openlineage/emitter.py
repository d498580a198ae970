"""Sends events where OpenLineage's own configuration says, from a thread of its own: a receiver that is slow, or gone, costs no job anything."""

from __future__ import annotations

import logging
import threading
from functools import cache
from queue import Full, Queue

from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import RunEvent

from firesteel.errors import UsageError
from firesteel.monitoring.background import at_exit

MOST_WAITING = 1_000
"""Events that wait at most; further ones are dropped and counted."""
_log = logging.getLogger("firesteel.monitoring")


class Emitter:
    def __init__(self, client: OpenLineageClient, *, most: int = MOST_WAITING) -> None:
        self.dropped = 0
        """Events that found no place, or could not be sent."""
        self._client = client
        self._waiting: Queue[RunEvent | threading.Event] = Queue(most)
        self._has_failed = False
        threading.Thread(target=self._work, name="firesteel-lineage", daemon=True).start()

    def emit(self, event: RunEvent) -> None:
        """Returns at once."""
        try:
            self._waiting.put_nowait(event)
        except Full:
            self._lost("too many of its events wait to be sent")

    def flush(self, seconds: float) -> bool:
        """Waits until what waits has been sent, or has failed, at most so long. True: it has."""
        done = threading.Event()
        try:
            self._waiting.put(done, timeout=seconds)
        except Full:
            return False
        return done.wait(seconds)

    def _work(self) -> None:
        while True:
            item = self._waiting.get()
            if isinstance(item, threading.Event):
                item.set()
                continue
            try:
                self._client.emit(item)
            except Exception as error:
                said = (str(error).strip() or type(error).__name__).splitlines()[0]
                self._lost(said[:300])

    def _lost(self, why: str) -> None:
        self.dropped += 1
        if not self._has_failed:
            self._has_failed = True
            _log.warning(
                "Lineage cannot be sent by OpenLineage: %s. Jobs go on; what cannot be sent is dropped, and not told of again.",
                why,
            )


@cache
def process_emitter() -> Emitter:
    """The one of the process. Raises UsageError where OpenLineage's configuration is wrong."""
    try:
        client = OpenLineageClient()
    except Exception as error:
        raise UsageError(
            f"OpenLineage's own configuration cannot be used: {type(error).__name__}: {error}.",
            hint="Look at OPENLINEAGE_CONFIG, openlineage.yml and the variables OPENLINEAGE_...",
        ) from error
    emitter = Emitter(client)
    at_exit(emitter.flush)
    return emitter
