"""The layout of files to write, as all ``write_*`` methods take it: stated once, for them, the type checker and ``help``."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, ParamSpec, TypedDict, TypeVar

from firesteel.api.steps.partitioning import gathered
from firesteel.api.steps.pipeline import Pipeline
from firesteel.errors import UsageError
from firesteel.options import parse_size
from firesteel.task.passing import Encodes

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Layout:
    """Folder, mode, partitions and size of the files to write, as the user gave them: the same for all formats."""

    path: Any
    mode: str = "error"
    partition_by: Any = ()
    file_size: Any = None
    max_file_size: Any = None
    filesystem: Any = None

    def checked(self) -> dict[str, Any]:
        """Arguments for a sink of files. Raises UsageError."""
        return {**self.checked_for_table(), "filesystem": self.filesystem}

    def checked_for_table(self) -> dict[str, Any]:
        """Arguments for a sink of a table. Raises UsageError."""
        columns: tuple[Any, ...] = (
            (self.partition_by,) if isinstance(self.partition_by, str) else tuple(self.partition_by or ())
        )
        wrong = next((name for name in columns if not isinstance(name, str)), None)
        if wrong is not None:
            raise UsageError(f"partition_by wants names of columns, not {wrong!r}.")
        most, even = _size("max_file_size", self.max_file_size), _size("file_size", self.file_size)
        if most is not None and even is not None and even > most:
            raise UsageError(f"file_size={self.file_size!r} is more than max_file_size={self.max_file_size!r}.")
        return {"mode": self.mode, "partition_by": columns, "max_file_size": most, "file_size": even}

    def evenly(self, pipeline: Pipeline, columns: Sequence[str], sink: Encodes, kind: str) -> Pipeline:
        """The rows gathered, once more, so that subtasks write files of ``file_size``. Raises UsageError."""
        size = _size("file_size", self.file_size)
        return pipeline if size is None else gathered(pipeline, columns, size, sink, kind)


class TableOptions(TypedDict, total=False):
    """The keywords of methods that write tables, with the defaults of :class:`Layout`."""

    mode: str
    partition_by: Any
    file_size: Any
    max_file_size: Any


class FileOptions(TableOptions, total=False):
    """The keywords of methods that write files."""

    filesystem: Any


def laid_out(options: type[TableOptions]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """For a method with ``**layout: Unpack[options]``: its signature names these keywords, for ``help`` and notebooks, and it takes no
    others (TypeError)."""
    keywords = [
        inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=one.type)
        for one in fields(Layout)
        if one.name in options.__optional_keys__
    ]

    def decorate(method: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(method)
        *own, _ = signature.parameters.values()
        signature = signature.replace(parameters=[*own, *keywords])

        @functools.wraps(method)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                signature.bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{method.__name__}() {error}") from None
            return method(*args, **kwargs)

        checked.__signature__ = signature  # pyright: ignore[reportAttributeAccessIssue]
        return checked

    return decorate


def _size(what: str, given: Any) -> int | None:
    """Raises UsageError."""
    try:
        size = None if given is None else parse_size(given)
    except ValueError as error:
        raise UsageError(f"{what}={given!r} must be {error}.") from None
    if size is not None and size < 1:
        raise UsageError(f"{what}={given!r} must be at least 1 byte.")
    return size
