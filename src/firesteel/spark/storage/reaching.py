"""The first look at a place of results on an object store, so that a wrong name, endpoint or key is a sentence, and told soon."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from firesteel.connectors.files.object_stores import bucket_of, first_line, refusal, require_bucket, why
from firesteel.errors import UsageError
from firesteel.masking import mask_text
from firesteel.options import STORAGE_DIR
from firesteel.results.storage.retry import retried
from firesteel.results.storage.store import StorageError

_ANOTHER = f"Set {STORAGE_DIR.key} to another place."
_reached: set[str] = set()


def require_store(fs: Any, path: str, root: str) -> None:
    """Raises UsageError where the object store of ``root`` cannot be reached, refuses the credentials or has no such bucket. Of each place it is asked once in a process, and not again
    after an error that is known: its client has tried several times by then, and nothing has been computed yet. Nothing is asked where ``root`` is a directory."""
    if "://" not in root or root in _reached:
        return
    label = f"{root.partition('://')[0]}://{path}"  # pyarrow's path begins with the bucket, also where the URL does not

    def ask() -> Any:
        try:
            return fs.get_file_info(path).type
        except (OSError, pa.ArrowException) as error:
            if refusal(label, error) is None:  # it may pass
                raise
            raise _refused(root, *why(label, error, _ANOTHER)) from error

    try:
        is_there = retried(ask) is not pafs.FileType.NotFound
    except (OSError, pa.ArrowException) as error:
        raise _refused(root, first_line(error), _ANOTHER) from error
    if not is_there:
        try:
            require_bucket(fs, label)
        except UsageError as error:
            raise _refused(root, f"there is no bucket '{bucket_of(label)}'", error.hint) from None
    _reached.add(root)


def _refused(root: str, why_not: str, hint: str | None) -> UsageError:
    return UsageError(f"Results between steps cannot lie at {mask_text(root)}: {why_not}.", hint=hint)


@contextmanager
def told_of(root: str) -> Generator[None]:
    """Tells an OSError that an object store has given as a StorageError; one of a file system stays as it is."""
    try:
        yield
    except OSError as error:
        if root.partition("://")[0] in (root, "file"):
            raise
        said, hint = why(_plain(root), error, _ANOTHER)
        message = f"The storage for intermediate results at {mask_text(root)} cannot be read: {said}."
        raise StorageError(message, hint=hint, errno=error.errno) from error


def _plain(root: str) -> str:
    """The URL without credentials and settings; of Azure's that name the container before the account, with the container in the account's place."""
    scheme, _, rest = root.partition("://")
    authority, slash, path = rest.partition("?")[0].partition("/")
    before, _, host = authority.rpartition("@")
    container = before.partition(":")[0] if scheme == "abfs" and ".dfs." in host else ""
    return f"{scheme}://{container or host}{slash}{path}"
