"""The server over a folder of journals, as ``firesteel ui`` runs it, on a port of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from firesteel.ui.catalog.index import Index
from firesteel.ui.catalog.places import Folder
from firesteel.ui.catalog.source import Source
from firesteel.ui.server.app import application
from firesteel.ui.server.serving import Serving, listen, policy_of, url_of
from firesteel.ui.server.workers import Workers


@contextmanager
def served(folder: Path, token: str = "a token of the tests") -> Iterator[str]:
    """Its address, without a slash at its end."""
    address = "127.0.0.1"
    listener = listen(address, range(1))
    source = Source([Index(Folder(folder))])
    serving = Serving(application(source, policy_of(address, token), Workers()), listener)
    try:
        yield url_of(listener, address).rstrip("/")
    finally:
        serving.close()
