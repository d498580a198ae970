"""A real server on a free port of loopback, and raw requests to it."""

from __future__ import annotations

import socket
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from firesteel.ui.catalog.index import Index
from firesteel.ui.catalog.places import Folder
from firesteel.ui.catalog.runs import OwnRuns
from firesteel.ui.catalog.source import Source
from firesteel.ui.server.app import application
from firesteel.ui.server.guard import Policy
from firesteel.ui.server.serving import Limits, Serving, listen, policy_of, url_of
from firesteel.ui.server.workers import Workers

TOKEN = "a-token-of-the-tests-1234"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@dataclass(frozen=True)
class Served:
    url: str
    port: int

    @contextmanager
    def client(self, **options: object) -> Generator[httpx.Client]:
        with httpx.Client(base_url=self.url, timeout=60.0, verify=False, trust_env=False, **options) as client:
            yield client

    def raw(self, request: bytes) -> bytes:
        """The whole answer to bytes that need be no request."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=60.0) as connection:
            connection.sendall(request)
            return b"".join(chunks(connection))


def chunks(connection: socket.socket) -> Iterator[bytes]:
    """Until the other end closes."""
    try:
        while chunk := connection.recv(1 << 16):
            yield chunk
    except ConnectionResetError:
        return


@contextmanager
def served(
    folders: Sequence[Path] = (),
    own: OwnRuns | None = None,
    *,
    policy: Policy | None = None,
    limits: Limits | None = None,
    cache: Path | None = None,
) -> Generator[Served]:
    """A server of these folders, and of these runs, until the end."""
    listener = listen("127.0.0.1", range(1))
    source = Source([Index(Folder(folder), cache) for folder in folders], own)
    app = application(source, policy or policy_of("127.0.0.1", TOKEN), Workers())
    serving = Serving(app, listener, own, limits or Limits())
    try:
        yield Served(url_of(listener, "127.0.0.1"), listener.getsockname()[1])
    finally:
        serving.close()


def elsewhere() -> Policy:
    """As if it were served at all addresses of this machine."""
    return policy_of("0.0.0.0", TOKEN)
