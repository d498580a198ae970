"""The history server: a process that does nothing else, over places of journals."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress

from firesteel.options import BIND_ADDRESS, BIND_PORT, Options
from firesteel.options.ui import ports_of
from firesteel.ui.catalog.index import Index, cache_folder
from firesteel.ui.catalog.jobs import Catalog
from firesteel.ui.catalog.places import Place
from firesteel.ui.catalog.source import Source
from firesteel.ui.server.app import application
from firesteel.ui.server.beside import say, token_file, where
from firesteel.ui.server.serving import Serving, listen, policy_of, url_of
from firesteel.ui.server.tokens import token_of
from firesteel.ui.server.workers import Workers


class History:
    """A server of these places, until :meth:`close`. Raises UsageError, FiresteelError."""

    def __init__(self, options: Options, places: Sequence[Place]) -> None:
        address = options[BIND_ADDRESS]
        path = token_file(options)
        policy = policy_of(address, token_of(path))
        listener = listen(address, ports_of(options[BIND_PORT]))
        self.url = url_of(listener, address)
        self.line = where(self.url, path, policy.readers_need_token)
        self._indexes = [Index(place, cache_folder()) for place in places]
        app = application(Source(Catalog(self._indexes)), policy, Workers())
        self._serving = Serving(app, listener)

    def close(self) -> None:
        self._serving.close()
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
