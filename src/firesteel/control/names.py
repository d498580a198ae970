"""Which stream a name means: a small register of this user's streams, one file each, that mends itself."""

from __future__ import annotations

import difflib
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from firesteel.control.places import ENTRY, canonical, homes_of, key_of, make_private, runtime_directories
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
    """Whether somebody listens at its socket, on this machine."""
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


class Known(NamedTuple):
    entry: StreamEntry
    live: bool


def known_streams() -> list[Known]:
    """All of the register, the newest first. The oldest that do not run are dropped from it."""
    found: dict[str, tuple[StreamEntry, Path]] = {}
    for place in runtime_directories():
        for path in sorted((place / "streams").glob("*.json")):
            entry = read_entry(path)
            if entry is None:
                continue
            key = key_of(entry.checkpoint)
            if key not in found or found[key][0].started < entry.started:
                found[key] = (entry, path)
    kept: list[Known] = []
    over = 0
    for entry, path in sorted(found.values(), key=lambda item: (-item[0].started, item[0].checkpoint)):
        live = is_live(entry)
        over += not live
        if live or (over <= MAX_ENDED and entry.journal and Path(entry.journal).is_file()):
            kept.append(Known(entry, live))
        else:
            with suppress(OSError):
                path.unlink()
    return kept


def find_stream(name: str) -> StreamEntry:
    """A stream by name, or by its checkpoint; one that runs before those that are over, then the newest.

    Raises UsageError if there is none, or several that run fit.
    """
    known = known_streams()
    named = [each for each in known if name == each.entry.name]
    there = [each for each in known if canonical(name) == canonical(each.entry.checkpoint)]
    # one that is over and has the name must not hide one that runs on the checkpoint
    fits = next((each for each in (named, there) if any(one.live for one in each)), named or there)
    live = [each.entry for each in fits if each.live]
    if len(live) > 1:
        places = ", ".join(f"'{entry.checkpoint}'" for entry in live)
        raise UsageError(f"Several streams are called '{name}'.", hint=f"Say it by its checkpoint: {places}.")
    found = live or [each.entry for each in fits] or [e for home in homes_of(name) if (e := read_entry(home / ENTRY))]
    if found:
        return found[0]
    raise UsageError(f"There is no stream '{name}'.", hint=_which_there_are(name, known))


def _which_there_are(name: str, known: list[Known]) -> str:
    running = sorted({each.entry.name for each in known if each.live})
    close = difflib.get_close_matches(name, running, n=1, cutoff=0.6)
    if close:
        return f"Did you mean '{close[0]}'?"
    if running:
        return f"There are: {', '.join(running)}; or give the directory of a checkpoint."
    return "No stream of yours runs on this machine; give the directory of a checkpoint for one that is over."
