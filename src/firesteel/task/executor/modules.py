"""The user's own modules on executors: their sources come with the job, and take the place of what a worker has imported before.

A worker lives longer than a job. Its modules stay, with all that they hold, for as long as jobs come with the same sources; once one has
changed, all of them are forgotten, and imported anew. A job finds its own alone: those of others are put aside meanwhile.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType


@dataclass(frozen=True, slots=True)
class ModuleSource:
    """``name``: with all its dots. ``path``: on the driver, where messages place its lines."""

    name: str
    path: str
    source: bytes
    is_package: bool = False


class _Sources(MetaPathFinder, InspectLoader):
    """Imports modules from sources in memory."""

    def __init__(self) -> None:
        self.known: dict[str, ModuleSource] = {}
        self.current: dict[str, ModuleSource] = {}
        """Of the known ones, the job's."""
        self.aside: dict[str, ModuleType] = {}
        """Imported ones of other jobs."""
        self.last: Sequence[ModuleSource] | None = None

    def become(self, wanted: dict[str, ModuleSource]) -> None:
        if any(self.known.get(name, module) != module for name, module in wanted.items()):
            for name in self.known:
                sys.modules.pop(name, None)
            self.known.clear()
            self.aside.clear()
            self.current = {}
        for name in (self.current.keys() - wanted.keys()) & sys.modules.keys():
            self.aside[name] = sys.modules.pop(name)
        for name in wanted.keys() - self.current.keys():
            sys.modules.pop(name, None)  # from a file of another day, or of a job without one beside its script
            if name in self.aside:
                sys.modules[name] = self.aside.pop(name)
        self.known.update(wanted)
        self.current = wanted

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        module = self.current.get(fullname)
        if module is None:
            return None
        folder = [str(Path(module.path).parent)] if module.is_package else None
        return spec_from_file_location(fullname, module.path, loader=self, submodule_search_locations=folder)

    def get_source(self, fullname: str) -> str:
        """Of the lines that tracebacks show."""
        from importlib.util import decode_source

        return decode_source(self.known[fullname].source)

    def exec_module(self, module: ModuleType) -> None:
        ours = self.known[module.__name__]
        exec(compile(ours.source, ours.path, "exec", dont_inherit=True), module.__dict__)


_sources = _Sources()


def take_in(modules: Sequence[ModuleSource]) -> None:
    """From now on these are imported from their sources here."""
    if modules is _sources.last:
        return
    _sources.last = modules
    _sources.become({module.name: module for module in modules})
    if _sources not in sys.meta_path:
        sys.meta_path.insert(0, _sources)
