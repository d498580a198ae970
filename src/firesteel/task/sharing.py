"""Objects of the user's that the Python workers of an executor share: ``firesteel.shared(make, *args)``."""

from __future__ import annotations

import functools
import hashlib
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from firesteel.errors import UsageError, error_words
from firesteel.task.mapped import MappedObjects, PrivateObjects

T = TypeVar("T")

IDLE_SECONDS = 3600.0
"""Files that no task has opened for so long go when another one is made."""
_objects: MappedObjects | PrivateObjects = PrivateObjects()
"""The executor's, while a task runs."""


def begin(objects: MappedObjects) -> None:
    """From now on a task runs whose functions share these."""
    global _objects  # noqa: PLW0603
    _objects = objects


def end() -> None:
    global _objects  # noqa: PLW0603
    _objects = PrivateObjects()


def shared(make: Callable[..., T], *args: Any) -> T:
    """Returns ``make(*args)``, made by one Python worker of an executor and mapped into the memory of all.

    For functions of steps and their ``setup()``. Memory is shared of Arrow tables and batches, of numpy arrays (also in dicts, lists,
    objects), and of bytes, which come as a ``memoryview``; whatever else is in the object each worker has for itself. All of it is
    to be read only: arrays cannot be written. Equal calls have the same object: ``make`` by its name or code, and ``args``,
    which are small and can be pickled. It lies in a file on the executor's local disk until the session ends; where the disk is
    full, and outside of a task, the caller gets an object of its own. While one worker makes it, the others wait.

    Raises what ``make`` raises, and UsageError for what cannot be pickled.
    """
    if not callable(make):
        raise UsageError(
            f"firesteel.shared wants a function that makes the object, not an object of type {type(make).__name__}.",
            hint='Write firesteel.shared(load, "model.bin"): one worker calls load("model.bin"), and all have what it returns.',
        )
    name = _name(make, args)
    made: list[Any] = []

    def once() -> Any:
        value: Any = make(*args)
        made.append(value)
        return pickle.PickleBuffer(value) if isinstance(value, bytes | bytearray | memoryview) else value

    try:
        value = _objects.get_all({name: once})[name]
    except (TypeError, AttributeError, pickle.PicklingError, pickle.PickleError) as error:
        if not made:
            raise
        raise UsageError(
            f"firesteel.shared cannot share what {_called(make)} made, a {type(made[0]).__name__}: {error_words(error)}.",
            hint="Tables of Arrow, arrays of numpy, bytes and what is made of these can be shared; make the rest in setup().",
        ) from error
    return cast(T, memoryview(value).toreadonly()) if isinstance(value, pickle.PickleBuffer | memoryview) else value


def _name(make: Any, args: tuple[Any, ...]) -> str:
    from pyspark import cloudpickle

    try:
        told = cloudpickle.dumps((make, args, _version(make)))
    except Exception as error:
        raise UsageError(
            f"firesteel.shared cannot tell what {_called(make)} is called with: {error_words(error)}.",
            hint="Give it a function and arguments that can be pickled, such as the path of a file.",
        ) from error
    return f"user-{hashlib.blake2b(told, digest_size=16).hexdigest()}"


def _version(make: Any) -> tuple[int, int]:
    """Of the file that a function was imported from: in its pickle there is only its name."""
    while isinstance(make, functools.partial):
        make = cast(Any, make).func
    file = getattr(sys.modules.get(getattr(make, "__module__", None) or ""), "__file__", None)
    try:
        found = Path(file).stat() if file else None
    except OSError:
        found = None
    return (0, 0) if found is None else (found.st_mtime_ns, found.st_size)


def _called(make: Any) -> str:
    return getattr(make, "__name__", type(make).__name__)
