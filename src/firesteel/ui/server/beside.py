"""The server beside the jobs of this process: shows what it is told of, takes a part of a core at most, and fails none of them."""

from __future__ import annotations

import os
import secrets
import stat
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from firesteel.errors import UsageError
from firesteel.journal.places import journal_directories
from firesteel.options import BIND_ADDRESS, BIND_PORT, UI_TOKEN_FILE, Options
from firesteel.options.streams import ports_of
from firesteel.ui.begun import Begun
from firesteel.ui.catalog.following import Tap
from firesteel.ui.catalog.index import Index, cache_folder
from firesteel.ui.catalog.places import Place
from firesteel.ui.catalog.runs import OwnRun, OwnRuns
from firesteel.ui.catalog.source import Source
from firesteel.ui.server.app import application
from firesteel.ui.server.serving import Serving, listen, policy_of, url_of
from firesteel.ui.server.workers import Workers

NAME = "ui-token"
LEAST = 16
"""Characters of a token."""
_MOST = 4096


def token_of(path: Path) -> str:
    """Returns what the file holds; one that is not there is made. Raises UsageError for a file that others can read, or that holds no token."""
    try:
        return _read(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise UsageError(f"The token cannot be read from '{path}': {error.strerror or error}.") from None
    try:
        return _made(path)
    except OSError as error:
        raise UsageError(
            f"The token cannot be written to '{path}': {error.strerror or error}.",
            hint="Set firesteel.ui.token-file to a file that can be written.",
        ) from None


def _read(path: Path) -> str:
    with path.open("rb") as file:
        mode = os.fstat(file.fileno()).st_mode
        written = file.read(_MOST)
    if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise UsageError(f"Others than its owner can read '{path}', which holds the token.", hint=f"chmod 600 {path}")
    token = written.decode("utf-8", "replace").strip()
    if len(token) < LEAST or not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError(
            f"'{path}' holds no token: one line of {LEAST} or more letters and digits.",
            hint="Remove it, and one is made.",
        )
    return token


def _made(path: Path) -> str:
    """At once or not at all: of several servers that begin together one makes it."""
    token = secrets.token_urlsafe(32)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    with open(draft, "x", opener=lambda name, flags: os.open(name, flags, 0o600), encoding="ascii") as file:
        file.write(f"{token}\n")
    try:
        os.link(draft, path)
    except FileExistsError:
        return _read(path)
    except OSError:  # a file system without links
        draft.replace(path)
    finally:
        with suppress(OSError):
            draft.unlink()
    return token


REST = 3.0
"""Its threads rest so many times as long as they work."""


class Server:
    """Serves the jobs of a source at the address in the options, until :meth:`close`.

    ``runs`` is that of ``Serving``, ``rest`` that of ``Workers``. Raises UsageError for options that cannot be used, FiresteelError.
    """

    def __init__(self, options: Options, source: Source, runs: OwnRuns | None = None, rest: float = 0.0) -> None:
        address, path = options[BIND_ADDRESS], token_file(options)
        policy = policy_of(address, token_of(path))
        listener = listen(address, ports_of(options[BIND_PORT]))
        self.url = url_of(listener, address)
        self.line = where(self.url, path, policy.readers_need_token)
        self._serving = Serving(application(source, policy, Workers(rest)), listener, runs)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=listener.close)

    def close(self) -> None:
        self._serving.close()


class Beside(Server):
    """Serves the jobs of this process until the process ends."""

    def __init__(self, options: Options) -> None:
        self._runs = OwnRuns()
        super().__init__(options, Source(own=self._runs), self._runs, REST)
        say(self.line)

    def instrument(self) -> Tap:
        """Takes a job's or stream's records from now on."""
        return Tap()

    def began(self, tap: Tap, begun: Begun) -> None:
        """``tap``: the one that its records go to. Never raises."""
        self._runs.add(OwnRun(begun, tap, time.time()))

    def page_of(self, id: str) -> str:
        """The address of the page of a job or stream of this process; empty: it was not told of it."""
        return f"{self.url}jobs/{quote(id, safe='')}" if any(run.id == id for run in self._runs.all()) else ""


def token_file(options: Options) -> Path:
    chosen = options[UI_TOKEN_FILE]
    if chosen is not None:
        return Path(chosen).expanduser()
    directories = journal_directories(options)
    return next((each for each in directories if os.access(_there(each), os.W_OK)), directories[-1]) / NAME


def _there(directory: Path) -> Path:
    """The directory, or the nearest one above it that exists."""
    return next(each for each in (directory.absolute(), *directory.absolute().parents) if each.exists())


def where(url: str, token: Path, readers_need_token: bool) -> str:
    """The line that says where the page is."""
    needs = "everything needs" if readers_need_token else "changing something needs"
    return f"firesteel: see {url} ({needs} the token in {token})"


def say(line: str) -> None:
    """To stderr, if there is one."""
    if sys.stderr is not None:
        with suppress(OSError, ValueError):
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()


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
