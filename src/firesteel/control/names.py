"""Names of streams: a small register of this user's streams, one file each, that mends itself."""

from __future__ import annotations

import difflib
import os
import socket
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from firesteel.control.places import (
    ENTRY,
    beside,
    canonical,
    homes_of,
    key_of,
    local_path,
    make_private,
    runtime_directories,
)
from firesteel.errors import UsageError

MAX_ENDED = 32
"""Streams that are over are known by name for so many newer ones."""


class StreamEntry(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    checkpoint: str
    socket: str
    pid: int
    host: str
    started: float
    """Seconds since 1970."""
    journal: str = ""
    """Its file; empty: there is none."""
    ended: float | None = None
    """None: it runs, or its process was killed."""


_decoder = msgspec.json.Decoder(StreamEntry)


def write_entry(entry: StreamEntry, home: Path) -> None:
    """Into the stream's own directory, and into the register as far as that can be had. Raises OSError for the first."""
    _write(home / ENTRY, entry)
    for place in runtime_directories():
        with suppress(OSError):
            _write(make_private(make_private(place) / "streams") / f"{key_of(entry.checkpoint)}.json", entry)
            return


def _write(path: Path, entry: StreamEntry) -> None:
    """At once or not at all, for its owner only."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with open(draft, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(msgspec.json.encode(entry))
    draft.replace(path)


def read_entry(path: Path) -> StreamEntry | None:
    """None: there is none, or it is not ours or not to be read."""
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_uid != os.geteuid():
                return None
            return _decoder.decode(file.read(1 << 16))
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def reread(entry: StreamEntry) -> StreamEntry:
    """As it stands beside its checkpoint now."""
    found = (read_entry(home / ENTRY) for home in homes_of(entry.checkpoint))
    return next((each for each in found if each is not None and each.pid == entry.pid), entry)


def is_live(entry: StreamEntry) -> bool:
    """Returns True if somebody listens at its socket, on this machine."""
    if entry.ended is not None or not entry.socket:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(entry.socket)
        except TimeoutError:
            return True  # it listens, and is slow
        except OSError:
            return False
    return True


class NoStream(UsageError):
    """Nothing is known by this name."""


class Known(NamedTuple):
    entry: StreamEntry
    live: bool


def known_streams() -> list[Known]:
    """All of the register, the newest first. The oldest that do not run are dropped from it."""
    kept: list[Known] = []
    over = 0
    for entry, path in sorted(_registered(), key=lambda item: (-item[0].started, item[0].checkpoint)):
        live = is_live(entry)
        over += not live
        if live or (over <= MAX_ENDED and entry.journal and Path(entry.journal).is_file()):
            kept.append(Known(entry, live))
        else:
            with suppress(OSError):
                path.unlink()
    return kept


def _registered() -> Iterable[tuple[StreamEntry, Path]]:
    """The newest entry of each checkpoint, and its file."""
    found: dict[str, tuple[StreamEntry, Path]] = {}
    for place in runtime_directories():
        for path in sorted((place / "streams").glob("*.json")):
            entry = read_entry(path)
            if entry is None:
                continue
            key = key_of(entry.checkpoint)
            if key not in found or found[key][0].started < entry.started:
                found[key] = (entry, path)
    return found.values()


def default_name(checkpoint: str) -> str:
    """Of a stream that was given none: the last two parts of its checkpoint's path, more where another stream of this user
    is called so."""
    place = canonical(checkpoint)
    taken = {entry.name for entry, _ in _registered() if canonical(entry.checkpoint) != place}
    parts = [part for part in place.partition("://")[2 if "://" in place else 0].split("/") if part]
    tails = ("/".join(parts[-length:]) for length in range(min(2, len(parts)), len(parts) + 1))
    return next((tail for tail in tails if tail and tail not in taken), place)


def find_stream(name: str) -> StreamEntry:
    """A stream by its checkpoint, or by its name, of which the last parts will do (``chk`` of ``words/chk``).

    A path that is there, here or on another storage, means the stream of that checkpoint and no other. Raises NoStream if
    there is none, and UsageError for a name that several have, running or over.
    """
    known = known_streams()
    if is_place(name):
        there = [each.entry for each in known if canonical(name) == canonical(each.entry.checkpoint)]
        there = there or [entry for home in homes_of(name) if (entry := read_entry(home / ENTRY))]
        if there:
            return there[0]
        raise NoStream(f"No stream of yours is known on the checkpoint '{name}'.", hint=_elsewhere(name, known))
    fits = [each for each in known if canonical(name) == canonical(each.entry.checkpoint)]
    fits = fits or [each for each in known if name == each.entry.name]
    fits = fits or [each for each in known if name and each.entry.name.endswith(f"/{name}")]
    if len(fits) > 1:
        states = (f"'{entry.checkpoint}' ({'runs' if live else 'over'})" for entry, live in fits)
        raise UsageError(f"'{name}' matches {len(fits)} streams.", hint=f"Give its checkpoint: {', '.join(states)}.")
    if fits:
        return fits[0].entry
    raise NoStream(f"There is no stream '{name}'.", hint=_which_there_are(name, known))


def is_place(name: str) -> bool:
    """Returns True for a URL, and for a path that begins like one or exists; False for a mere name."""
    path = local_path(name)
    if path is None:
        return "/" in name
    if name.startswith(("/", "./", "../", "file:")) or name in ("", ".", ".."):
        return True
    near = beside(name)
    return os.path.lexists(path) or (near is not None and (near / ENTRY).exists())


def _elsewhere(name: str, known: list[Known]) -> str:
    """The streams that this would have named, had there not been that path."""
    last = canonical(name).rpartition("/")[2]
    alike = [entry.checkpoint for entry, _ in known if last in entry.name.split("/") or name == entry.name]
    if not alike:
        return "'firesteel stream list --all' shows those that are."
    places = ", ".join(f"'{place}'" for place in alike)
    return f"Of that name there is one elsewhere; say it by its checkpoint: {places}."


def _which_there_are(name: str, known: list[Known]) -> str:
    running = sorted({each.entry.name for each in known if each.live})
    close = difflib.get_close_matches(name, running, n=1, cutoff=0.6)
    if close:
        return f"Did you mean '{close[0]}'?"
    if running:
        return f"There are: {', '.join(running)}; or give the directory of a checkpoint."
    return "No stream of yours runs on this machine; give the directory of a checkpoint for one that is over."
