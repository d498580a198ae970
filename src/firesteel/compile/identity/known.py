"""Common knowledge of a job's fingerprints: modules and their sources, digests of data, numbers of namespaces."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from firesteel.compile.identity.modules import Modules
from firesteel.compile.identity.sources import Source, source_of
from firesteel.compile.identity.values import Encode, data_digest


class Known:
    """Files and data as they are when they are first asked for."""

    def __init__(self, pure: Collection[str] = ()) -> None:
        """``pure``: names of modules and functions of libraries that the user says are pure."""
        self.pure = pure
        self.modules = Modules()
        self._sources: dict[str, Source | None] = {}
        self._data: dict[int, tuple[Any, bytes]] = {}
        self._namespaces: dict[str, list[dict[str, Any]]] = {}

    def source(self, module: str) -> Source | None:
        """Of a module of the user's; None: it has none that can be read."""
        if module not in self._sources:
            file = self.modules.file(module)
            try:
                self._sources[module] = (
                    None if file is None or not file.is_python else source_of(file, self.modules.users)
                )
            except (SyntaxError, ValueError, RecursionError):  # importing it fails, too
                self._sources[module] = None
        return self._sources[module]

    def data(self, value: Any, encode: Encode) -> bytes | None:
        """A digest of data; None: it is none."""
        known = self._data.get(id(value))
        if known is not None:
            return known[1]
        found = data_digest(value, encode)
        if found is not None:
            self._data[id(value)] = value, found
        return found

    def namespace(self, names: dict[str, Any]) -> str:
        """A name for a module's globals; two modules of one name get two."""
        name = str(names.get("__name__"))
        those = self._namespaces.setdefault(name, [])
        if not any(one is names for one in those):
            those.append(names)
        number = next(i for i, one in enumerate(those) if one is names)
        return f"{name}#{number}" if number else name
