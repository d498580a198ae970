"""The history server: a process that does nothing else, over places of journals."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress

from firesteel.options import Options
from firesteel.ui.catalog.index import Index, cache_folder
from firesteel.ui.catalog.places import Place
from firesteel.ui.catalog.source import Source
from firesteel.ui.server.beside import Server, say


class History(Server):
    """Serves the journals in these places."""

    def __init__(self, options: Options, places: Sequence[Place]) -> None:
        self._indexes = [Index(place, cache_folder()) for place in places]
        super().__init__(options, Source(self._indexes))

    def close(self) -> None:
        super().close()
        for index in self._indexes:
            index.close()


def serve(options: Options, places: Sequence[Place]) -> None:
    """Says where, and serves until Ctrl-C."""
    history = History(options, places)
    try:
        say(history.line)
        with suppress(KeyboardInterrupt):
            threading.Event().wait()
    finally:
        history.close()
