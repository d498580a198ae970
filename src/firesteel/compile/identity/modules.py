"""Modules: the user's own, found as files without importing them, and libraries, known by their versions.

Library is what is installed, of the standard library, or ours. All else is the user's, and may change between two runs.
"""

from __future__ import annotations

import importlib.machinery
import importlib.metadata
import importlib.util
import os
import platform
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from firesteel.errors import OURS

_SPARK = ("pyspark", "py4j")
"""Wherever they lie: Spark's folder may be on the path."""
_INSTALLED = ("site-packages", "dist-packages")


@dataclass(frozen=True, slots=True)
class ModuleFile:
    """``source``: of a module that is no Python source (an extension), its bytes. ``is_package``: its modules lie below it."""

    name: str
    source: bytes
    is_package: bool
    is_python: bool = True

    @property
    def package(self) -> str:
        """The package that its relative imports begin at."""
        return self.name if self.is_package else self.name.rpartition(".")[0]


class Modules:
    """Modules as they are now: each is looked for, and read, once."""

    def __init__(self) -> None:
        self._files: dict[str, ModuleFile | None] = {}
        self._places: dict[str, Path | None] = {}

    def users(self, name: str) -> bool:
        """Returns whether it is the user's own."""
        top = name.partition(".")[0]
        if top not in self._places:
            self._places[top] = _place(top)
        return self._places[top] is not None

    def file(self, name: str) -> ModuleFile | None:
        """The file of a module of the user's; None: there is none, or it cannot be read."""
        if name not in self._files:
            self._files[name] = self._read(name) if self.users(name) else None
        return self._files[name]

    def _read(self, name: str) -> ModuleFile | None:
        top, *parts = name.split(".")
        place = self._places[top]
        assert place is not None, "the user's own has a place"
        if parts and place.is_dir():
            place = place.joinpath(*parts)
        elif parts:
            return None
        with suppress(OSError):
            for path, is_package in _candidates(place):
                if path.is_file():
                    return ModuleFile(name, path.read_bytes(), is_package, path.suffix == ".py")
            if place.is_dir():  # a package without __init__.py
                return ModuleFile(name, b"", True)
        return _zipped(name)


def _candidates(place: Path) -> Iterator[tuple[Path, bool]]:
    if place.suffix == ".py" or place.suffix in (".so", ".pyd"):
        yield place, False
        return
    yield place / "__init__.py", True
    yield place.with_name(f"{place.name}.py"), False
    yield from ((place.with_name(place.name + end), False) for end in importlib.machinery.EXTENSION_SUFFIXES)


def _zipped(name: str) -> ModuleFile | None:
    """From an archive on the path, once it was imported."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    source = getattr(getattr(spec, "loader", None), "get_source", None)
    with suppress(ImportError, OSError, UnicodeError):
        text = None if source is None else source(name)
        if text is not None:
            return ModuleFile(name, text.encode(), getattr(spec, "submodule_search_locations", None) is not None)
    return None


def _place(top: str) -> Path | None:
    """The file, or a package's folder, of a top-level module of the user's; None: it is a library, or there is no such module."""
    if top in ("__main__", "firesteel", *_SPARK):
        return None
    module = sys.modules.get(top)
    names: dict[str, Any] = {} if module is None else vars(module)  # it may make others when it is asked
    spec = names.get("__spec__")
    if module is None:
        try:
            spec = importlib.util.find_spec(top)
        except Exception:  # finders of others may do anything
            return None
        if spec is None:
            return None
    folders = list(names.get("__path__") or getattr(spec, "submodule_search_locations", None) or ())
    file = names.get("__file__") or getattr(spec, "origin", None)
    found = folders[0] if folders else file
    if not isinstance(found, str):
        return None if module is None else Path(f"<{top}>")  # made at run time: the user's, and of no file
    path = Path(found)
    if top in sys.stdlib_module_names and not path.exists():  # built-in, frozen, or in an archive with Python
        return None
    return None if is_installed(path) or is_installed(path.resolve()) else path


def is_installed(path: Path) -> bool:
    """True if it lies with Python, among installed packages, or with us."""
    text = f"{path}/"
    return any(f"/{name}/" in text for name in _INSTALLED) or text.startswith(_installed_under())


@cache
def _installed_under() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    return (*(f"{paths[kind]}/" for kind in ("stdlib", "platstdlib", "purelib", "platlib")), OURS)


def python_version() -> str:
    """Of the interpreter, by which bytecode and the standard library are the same."""
    return f"{platform.python_implementation()} {'.'.join(map(str, sys.version_info[:2]))}"


def local_time() -> str:
    """The time zone that ``datetime.timestamp`` and ``time.mktime`` take."""
    return f"{os.environ.get('TZ', '')} {os.path.realpath('/etc/localtime')} {' '.join(time.tzname)}"


@cache
def library_version(top: str) -> str | None:
    """Of an installed library, by its top-level module; empty: it is part of Python; None: nobody says."""
    if top in sys.stdlib_module_names or top in sys.builtin_module_names or top == "builtins":
        return ""
    told = vars(sys.modules[top]).get("__version__") if top in sys.modules else None
    if isinstance(told, str) and told:
        return told
    with suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(top)
    with suppress(Exception):  # finders of others may do anything
        if top not in sys.modules and importlib.util.find_spec(top) is None:
            return "not installed"
    names = sorted(set(importlib.metadata.packages_distributions().get(top, ())))
    return " ".join(f"{name} {importlib.metadata.version(name)}" for name in names) or None
