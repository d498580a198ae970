"""The identity of what a job vertex does, the same in every run and process: its programs' code and parameters.

Code counts by its instructions, names and constants, not by its lines or file; a function takes along its defaults, the variables it
closes over, and the functions, classes and plain values of the same module that it names. What a source reads and where a sink writes
is no part of it: the same step on tomorrow's files is the same step. Libraries count by name.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import sys
import types
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from firesteel.task.program import SinkOutput, SourceHead, VertexProgram

_MOST_VALUES = 5_000
"""Values looked at; what is beyond does not count."""
_MOST_ITEMS = 64
"""Of one container, beside its length."""
_DEEPEST = 12
_PLAIN = (bool, int, float, complex, str, type(None), type(Ellipsis))


def step_identity(place: str, program: VertexProgram, slot: object = None) -> str:
    """Returns the identity of the step with this program. ``place``: the uid that the user gave it, else its number in the job. ``slot``: the
    resources of its slot. Empty: an object of the user's could not be looked at."""
    try:
        walk = _Walk()
        walk.take((place, slot))
        for part in _parts(program):
            walk.take(part)
        return walk.digest.hexdigest()[:16]
    except Exception:  # attributes of the user's objects may be anything
        return ""


def _parts(program: VertexProgram) -> Iterable[Any]:
    head = program.head
    yield _named(type(head.source)) if isinstance(head, SourceHead) else head
    yield from program.operators
    yield from (str(schema) for schema in program.gate_schemas)
    for output in program.outputs:
        if isinstance(output, SinkOutput):
            yield _named(type(output.sink))
        else:
            yield (output.keys, str(output.schema), output.combiner)


class _Walk:
    """Feeds the values that are taken, and those they hold, to a digest."""

    def __init__(self) -> None:
        self.digest = hashlib.sha1(usedforsecurity=False)
        self._left = _MOST_VALUES
        self._open: set[int] = set()
        """Ids of the values that are being looked at: one of them within itself is a circle."""

    def take(self, value: Any) -> None:
        self._left -= 1
        if self._left < 0 or len(self._open) > _DEEPEST or id(value) in self._open:
            self._say("...")
        elif isinstance(value, _PLAIN):
            self._say(type(value).__name__, repr(value))
        elif isinstance(value, bytes | bytearray):
            self._say("bytes", hashlib.sha1(value, usedforsecurity=False).hexdigest())
        else:
            self._open.add(id(value))
            self._look_into(value)
            self._open.discard(id(value))

    def _say(self, *words: str) -> None:
        for word in words:
            self.digest.update(f"{len(word)}:{word}".encode(errors="backslashreplace"))

    def _look_into(self, value: Any) -> None:
        match value:
            case list() | tuple():
                self._items(type(value).__name__, value)
            case Mapping():
                self._items("mapping", [item for pair in value.items() for item in pair])
            case set() | frozenset():
                self._set(value)
            case functools.partial():
                self._items("partial", (value.func, value.args, value.keywords))
            case types.CodeType():
                self._code(value)
            case types.FunctionType():
                self._function(value)
            case types.MethodType():
                self._items("method", (value.__func__, value.__self__))
            case type():
                self._class(value)
            case types.ModuleType():
                self._say("module", value.__name__)
            case pa.DataType() | pa.Schema() | pa.Field() | pc.Expression():
                self._say(type(value).__name__, str(value))
            case _:
                self._object(value)

    def _items(self, kind: str, items: Iterable[Any]) -> None:
        found = list(items)
        self._say(kind, str(len(found)))
        for item in found[:_MOST_ITEMS]:
            self.take(item)

    def _set(self, value: Iterable[Any]) -> None:
        """In no order of its own: by what each item's digest is."""
        digests: list[str] = []
        for item in value:
            alone = _Walk()
            alone.take(item)
            digests.append(alone.digest.hexdigest())
        self._say("set", *sorted(digests))

    def _code(self, code: types.CodeType) -> None:
        self._say("code", code.co_name, *code.co_names, str(code.co_flags))
        self.take(code.co_code)
        self._items("constants", code.co_consts)

    def _function(self, function: types.FunctionType) -> None:
        if not _is_users(function.__module__):
            self._say("function", _named(function))
            return
        self._say("function", function.__name__)
        self.take(function.__code__)
        self._items("defaults", (function.__defaults__, function.__kwdefaults__))
        self._items("closure", [_contents(cell) for cell in function.__closure__ or ()])
        for name in sorted(_names_in(function.__code__)):
            if name in function.__globals__:
                self._say(name)
                self._named_by(function.__globals__[name], function.__module__)

    def _named_by(self, value: Any, module: str) -> None:
        """A global that code names: with its inside where it is of the same module, else by name."""
        if isinstance(value, _PLAIN):
            self.take(value)
        elif isinstance(value, types.FunctionType | type):
            if value.__module__ == module:
                self.take(value)
            else:
                self._say(_named(value))
        else:
            self._say(_named(type(value)))

    def _class(self, value: type) -> None:
        self._say("class", _named(value))
        if _is_users(value.__module__):
            for name, member in sorted(vars(value).items()):
                if isinstance(member, types.FunctionType):
                    self._say(name)
                    self.take(member)

    def _object(self, value: Any) -> None:
        name = getattr(value, "__name__", "")  # of a function that is not Python's
        self._say("object", name if isinstance(name, str) else "")
        self.take(type(value))
        if isinstance(value, np.ndarray | pa.Table | pa.RecordBatch):
            self._say(str(value.shape))
        if dataclasses.is_dataclass(value):
            fields = {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
        else:
            fields = getattr(value, "__dict__", {})
        for name, held in fields.items():
            self._say(str(name))
            self.take(held)


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not bound yet
        return None


def _names_in(code: types.CodeType) -> set[str]:
    """Names of globals in a function's code and in the functions within it."""
    inner = [_names_in(constant) for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return set(code.co_names).union(*inner)


def _named(value: Any) -> str:
    return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', '')}"


@functools.lru_cache(maxsize=256)
def _is_users(module: str | None) -> bool:
    """Is it neither the standard library's, nor installed, nor ours?"""
    top = (module or "__main__").partition(".")[0]
    if top == "firesteel" or (top in sys.stdlib_module_names and top != "__main__"):
        return False
    file = inspect.getattr_static(sys.modules.get(module or ""), "__file__", None) or ""
    return "site-packages" not in file and "dist-packages" not in file
