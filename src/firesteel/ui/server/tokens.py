"""The token without which nothing can be changed: in a file that only its owner can read, made where there is none."""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from firesteel.errors import UsageError

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
