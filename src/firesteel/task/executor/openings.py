"""Notes that a user's function opens something while it runs. The results of such a function are not kept for other jobs.

This is the second net under ``firesteel.compile.identity.pure``. It sees only what raises an audit event.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

from firesteel.model.reports import Opening

if TYPE_CHECKING:
    from firesteel.task.executor.information import VertexInformation

_OS = ("listdir", "scandir", "system", "exec", "spawn", "posix_spawn", "fork", "forkpty")
_SOCKET = ("bind", "connect", "getaddrinfo", "gethostbyaddr", "gethostbyname", "gethostname", "sendmsg", "sendto")
_EVENTS = frozenset(
    ("open", "ctypes.dlopen", "sqlite3.connect", "subprocess.Popen", *(f"os.{one}" for one in _OS), *(f"socket.{one}" for one in _SOCKET))
)  # fmt: skip
"""``shutil``, ``glob``, ``urllib`` and the like raise one of these, too."""
_HARMLESS = ("importlib", "_frozen_importlib", "zipimport", "linecache", "zoneinfo", "pytz")
"""Modules that open files of Python and of time zones."""
_CONNECTORS = ("firesteel.task.runner", "firesteel.connectors.", "firesteel.results.")
"""They call a user's sources, sinks and file systems, which may open files."""
_INSTALLED = ("/site-packages/", "/dist-packages/")
_opened: dict[int, Opening] = {}
"""By the hash of its program, what a step has opened in this process: it may have kept what it read."""
_now: tuple[list[Opening], tuple[str, ...]] | None = None
"""The list to fill and the names that the user says are pure. None: nothing is watched."""
_has_hook = False


@dataclass(frozen=True, slots=True)
class Watch:
    """``pure``: names of modules and functions that the user says are pure. ``vertices``: those whose results may be kept."""

    pure: tuple[str, ...]
    vertices: frozenset[int]


@contextmanager
def watched(watch: Watch | None, vertices: list[VertexInformation]) -> Generator[list[Opening]]:
    """Yields a list that gets one item, ``Opening("opened '/a'", "parse")``, if a user's function opens something.

    ``vertices``: those of the task. The results of several that run together are never kept.
    """
    global _has_hook, _now  # noqa: PLW0603
    found: list[Opening] = []
    if watch is None or len(vertices) > 1 or vertices[0].vertex not in watch.vertices:
        yield found
        return
    program = hash(vertices[0].program)
    if program in _opened:
        found.append(_opened[program])
        yield found
        return
    if not _has_hook:
        _has_hook = True
        sys.addaudithook(_hook)
    _now = found, watch.pure
    try:
        yield found
    finally:
        _now = None
        if found:
            _opened[program] = found[0]


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    """The first thing that is opened is enough. What an audit hook raises would end the function."""
    global _now  # noqa: PLW0603
    if _now is None or event not in _EVENTS:
        return
    with suppress(Exception):
        found, pure = _now
        if event == "open" and _is_harmless(arguments[0]):
            return
        function = _opener(sys._getframe().f_back, pure)
        if function is not None:
            what = f"opened {os.fsdecode(arguments[0])!r}" if event == "open" else f"called {event}"
            found.append(Opening(what, function))
            _now = None


def _is_harmless(path: Any) -> bool:
    """It is a descriptor that is open, or a file of time zones, which C opens."""
    if isinstance(path, int):
        return True
    zones: tuple[str, ...] = getattr(sys.modules.get("zoneinfo"), "TZPATH", ())
    return os.fsdecode(path).startswith((os.devnull, *(f"{folder}/" for folder in zones)))


def _opener(frame: FrameType | None, pure: tuple[str, ...]) -> str | None:
    """The user's function that the frame belongs to, or that called the library of the frame; None: it is Firesteel or harmless."""
    function: str | None = None
    while frame is not None:
        module, code = str(frame.f_globals.get("__name__")), frame.f_code
        top = module.partition(".")[0]
        if top in _HARMLESS:
            return None
        if top == "firesteel":
            return None if module.startswith(_CONNECTORS) else function
        if function is None:
            if any(f"{module}.{code.co_qualname}.".startswith(f"{name}.") for one in pure for name in _names(one)):
                return None
            if not _is_library(top, code.co_filename):
                function = code.co_qualname
        frame = frame.f_back
    return function


def _is_library(top: str, file: str) -> bool:
    return top in sys.stdlib_module_names or top in ("pyspark", "py4j") or any(part in file for part in _INSTALLED)


def _names(name: str) -> list[str]:
    """The name and those by which a function or a class and its bases are defined: ``pyarrow.parquet.core.write_table``."""
    module, _, last = name.rpartition(".")
    held: Any = getattr(sys.modules.get(module), "__dict__", {}).get(last)
    defined = held.__mro__[:-1] if isinstance(held, type) else [held]
    return [name, *(f"{one.__module__}.{one.__qualname__}" for one in defined if hasattr(one, "__qualname__"))]
