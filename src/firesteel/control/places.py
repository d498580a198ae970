"""Places of a stream's socket and entry: beside its checkpoint, else in a private directory of this user.

What lies beside a checkpoint ``a/chk`` is in ``a/.chk.firesteel``; the dot keeps Spark and Hadoop from reading it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import posixpath
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

RUNTIME_VARIABLE = "FIRESTEEL_RUNTIME_DIRECTORY"
"""Environment variable: the only private directory that is used. Unset: those of the system and the user."""
LONGEST_SOCKET = 100
"""Bytes of a socket's path that every Unix takes (macOS: 104, Linux: 108, both with a closing zero)."""
SOCKET, ENTRY = "control.sock", "stream.json"


def local_path(checkpoint: str) -> Path | None:
    """The directory of a checkpoint on this machine, links resolved; None: it lies elsewhere (``hdfs://``, ``s3a://``)."""
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):", checkpoint)
    if scheme is None:
        return Path(os.path.realpath(checkpoint))
    if scheme[1].lower() != "file":
        return None
    return Path(os.path.realpath(re.sub(r"^/+", "/", checkpoint[scheme.end() :])))


def canonical(checkpoint: str) -> str:
    """One text for one checkpoint, however it was written."""
    path = local_path(checkpoint)
    if path is not None:
        return str(path)
    scheme, _, rest = checkpoint.partition(":")
    authority, slash, inside = rest[2:].partition("/") if rest.startswith("//") else ("", "/", rest)
    user, at, host = authority.rpartition("@")
    inside = posixpath.normpath(f"/{inside}").lstrip("/") if slash else ""
    return f"{scheme.lower()}://{user}{at}{host.lower()}/{inside}".rstrip("/")


def key_of(checkpoint: str) -> str:
    return hashlib.sha256(canonical(checkpoint).encode()).hexdigest()[:16]


def beside(checkpoint: str) -> Path | None:
    """The directory beside a checkpoint on this machine; None: it is elsewhere, or the root."""
    path = local_path(checkpoint)
    return None if path is None or not path.name else path.with_name(f".{path.name}.firesteel")


def runtime_directories() -> list[Path]:
    """Private directories of this user, the preferred first; they need not exist.

    All are searched, for who starts a stream (cron, a service) may have other variables than who asks for it.
    """
    if chosen := os.environ.get(RUNTIME_VARIABLE):
        return [Path(chosen).absolute()]
    user = os.getuid()
    systems = [os.environ.get("XDG_RUNTIME_DIR"), f"/run/user/{user}"]
    places = [Path(name) / "firesteel" for name in systems if name and Path(name).is_dir()]
    places += [Path(name) / f"firesteel-run-{user}" for name in (tempfile.gettempdir(), "/tmp")]
    return list(dict.fromkeys(places))


def claims_directory() -> Path:
    """Returns the directory in which checkpoints that lie elsewhere are claimed.

    It must not depend on the environment: a service has another one.
    """
    return Path(f"/tmp/firesteel-run-{os.getuid()}")


def make_private(directory: Path) -> Path:
    """Makes the directory, or takes one that is ours, for this user only. Raises OSError if it is not to be had so."""
    directory.mkdir(mode=0o700, exist_ok=True)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise PermissionError(f"'{directory}' belongs to another user, or is not a directory")
    if stat.S_IMODE(found.st_mode) != 0o700:
        directory.chmod(0o700)
    return directory


def first_private(directories: list[Path]) -> Path:
    """The first that can be had. Raises the last OSError if there is none."""
    problem: OSError = FileNotFoundError("there is no directory to use")
    for directory in directories:
        try:
            made = make_private(directory)
            if os.access(made, os.W_OK | os.X_OK):
                return made
            problem = PermissionError(f"'{made}' cannot be written")
        except OSError as error:
            problem = error
    raise problem


def make_homes(checkpoint: str) -> Iterator[Path]:
    """Private directories that can be had for this checkpoint's socket and entry, the preferred first.

    Raises the OSError of the last if there is none; a caller that is content with an earlier one does not hear of it.
    """
    near = beside(checkpoint)
    if near is not None:
        with suppress(OSError):  # a checkpoint may be ours and the directory around it not
            near.parent.mkdir(parents=True, exist_ok=True)
            yield first_private([near])
    yield make_private(first_private(runtime_directories()) / key_of(checkpoint))


def homes_of(checkpoint: str) -> list[Path]:
    """Returns the directories that :func:`make_homes` may have made, in this process or another."""
    near = beside(checkpoint)
    return [*([near] if near else []), *(place / key_of(checkpoint) for place in runtime_directories())]


def socket_of(home: Path, checkpoint: str) -> Path:
    """In ``home``, or, where that path is too long for a socket, in a short private directory. Raises OSError."""
    path = home / SOCKET
    if fits(path):
        return path
    name = f"{key_of(checkpoint)}.sock"
    short = [place for place in runtime_directories() if fits(place / name)]
    if not short:
        raise OSError(errno.ENAMETOOLONG, f"its path would be longer than {LONGEST_SOCKET} bytes, wherever it lies")
    return first_private(short) / name


def fits(path: Path) -> bool:
    return len(os.fsencode(path)) <= LONGEST_SOCKET
