"""The file system that a storage location is opened with: pyarrow's own for the URL, or one that the user names; how many requests it has at once, and which are repeated."""

from __future__ import annotations

import errno
import random
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.fs as pafs

from firesteel.errors import UsageError

OPTION = "firesteel.storage.filesystem"
_HOW = (
    f"{OPTION} is 'module:function'; the function is given the storage's absolute path and returns a FileSystem of pyarrow "
    "or of fsspec, which is asked for such paths."
)


def open_location(url: str, function: str | None = None) -> tuple[Any, str]:
    """(file system, path in it) of a directory path or URL. ``function``: "module:function" that makes the file system.

    Raises UsageError for a location that cannot be opened so.
    """
    if function is not None:
        path = path_of(url)
        return _made_by(function, path), path
    if "://" not in url and not url.startswith("file:"):
        return pafs.LocalFileSystem(), str(Path(url).absolute())
    try:
        fs, path = pafs.FileSystem.from_uri(url)
    except (pa.ArrowException, ValueError, OSError) as error:
        raise UsageError(
            f"Intermediate results cannot lie at {shown(url)}: {first_line(error)}.",
            hint="Give a directory, or a URL that pyarrow.fs opens (file:, s3:, gs:, abfs:, hdfs:).",
        ) from error
    return fs, path.rstrip("/")


def shown(root: str) -> str:
    """A root or a place in it as people may see it: without the keys that a URL may have in it."""
    if "://" not in root:
        return root
    from firesteel.masking import mask_text  # only for errors: executors need it for nothing else

    return mask_text(root)


def inside(url: str, name: str) -> str:
    """The place under ``name`` in the place ``url``: after its path a URL may say how the store is reached, and that stays behind the name."""
    path, mark, how = url.partition("?") if "://" in url else (url, "", "")
    return f"{path.rstrip('/')}/{name}{mark}{how}"


def path_of(url: str) -> str:
    """The path that a user's file system is asked for: of a URL what follows the scheme, of a directory all of it."""
    parts = urlsplit(url)
    if parts.scheme in ("", "file"):
        return str(Path(unquote(parts.path) if parts.scheme else url).absolute())
    return f"{parts.netloc}{unquote(parts.path)}".rstrip("/")


def _made_by(function: str, path: str) -> Any:
    from firesteel.option_functions import load_function  # few name a function

    make = load_function(OPTION, function, _HOW)
    try:
        made: Any = make.function(path)
    except (Exception, SystemExit) as error:
        said = f"{type(error).__name__}: {first_line(error)}"
        raise UsageError(
            f"{OPTION} = '{function}' did not return a file system for {path} ({said}).", hint=_HOW
        ) from error
    if isinstance(made, pafs.FileSystem):
        return made
    if hasattr(made, "protocol") and hasattr(made, "open") and hasattr(made, "info"):  # as fsspec has them
        return pafs.PyFileSystem(pafs.FSSpecHandler(made))
    raise UsageError(f"{OPTION} = '{function}' returned {type(made).__name__}, which is not a file system.", hint=_HOW)


def first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


_T = TypeVar("_T")
_R = TypeVar("_R")


def mapped(function: Callable[[_T], _R], items: Iterable[_T], at_once: int) -> list[_R]:
    """Returns ``function`` of each item, of ``at_once`` of them at the same time. One after another where there are no threads to be had, as at the end
    of the process: some may be asked for twice then. Raises what the first of them raises."""
    wanted = list(items)
    if min(at_once, len(wanted)) <= 1:
        return [function(item) for item in wanted]
    with ThreadPoolExecutor(min(at_once, len(wanted))) as pool:
        try:
            found = pool.map(function, wanted)
        except RuntimeError:  # raised where an item is handed over; what the function raises comes later
            found = map(function, wanted)
        return list(found)


PAUSES = (0.1, 0.4, 1.6)
"""Seconds before each further try, give or take half of it: tasks that failed together do not come back together."""
_PASSING = {
    getattr(errno, name)
    for name in (
        *("EAGAIN", "EBUSY", "EINTR", "EIO", "EREMOTEIO", "ESTALE", "ETIMEDOUT", "EPIPE", "EMFILE", "ENFILE"),
        *("ECONNABORTED", "ECONNREFUSED", "ECONNRESET", "EHOSTDOWN", "EHOSTUNREACH", "ENETDOWN", "ENETUNREACH"),
    )
    if hasattr(errno, name)
}


def passes(error: OSError) -> bool:
    """Returns True if the error may be gone a second later, as also one without a number: clients of object stores often give none."""
    if isinstance(error, FileNotFoundError):
        return False
    return error.errno is None or error.errno in _PASSING


def retried(
    ask: Callable[[], _T], again: Callable[[], _T] | None = None, noted: Callable[[], None] | None = None
) -> _T:
    """Returns what ``ask`` returns; after an error that may pass, what ``again`` (None: ``ask``) returns, up to three times more.

    ``noted`` is called before each further try. Raises the last error; one that does not pass at once.
    """
    for pause in PAUSES:
        try:
            return ask()
        except OSError as error:
            if not passes(error):
                raise
        if noted is not None:
            noted()
        rest(pause)
        ask = again or ask
    return ask()


def rest(pause: float) -> None:
    time.sleep(pause * random.uniform(0.5, 1.5))
