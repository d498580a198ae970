"""The file system that a storage location is opened with: pyarrow's own for the URL, or one that the user names."""

from __future__ import annotations

from pathlib import Path
from typing import Any
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
