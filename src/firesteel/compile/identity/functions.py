"""Functions and classes that go by value: those of the script, and those made within functions.

A function counts by its code, its defaults, its closure, and the globals that it reads. A class counts by its bases, functions and attributes.
"""

from __future__ import annotations

import builtins
import dataclasses
import enum
import functools
import sys
import types
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from firesteel.compile.identity import named
from firesteel.compile.identity.code import CodeFacts, code_facts
from firesteel.compile.identity.facts import digest, of_names
from firesteel.compile.identity.values import shown

if TYPE_CHECKING:
    from firesteel.compile.identity.walk import Walk

_SAID_ELSEWHERE = (types.FunctionType, types.BuiltinFunctionType, types.ModuleType, type)
"""Values with facts of their own."""
_DISPATCH: types.CodeType = vars(functools)["singledispatch"](abs).__code__
"""Of functions that ``functools.singledispatch`` makes."""


def importable(value: Any) -> tuple[str, str] | None:
    """The module and name by which workers import a function or class; None: it is shipped by value."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module == "__main__" or named.is_by_value(module):
        return None
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return (module, name) if found is value else None


def of_function(walk: Walk, function: types.FunctionType) -> bytes:
    where = importable(function)
    if where is not None:
        return named.reference(walk, *where)
    if function.__code__ is _DISPATCH:
        registry: Any = getattr(function, "registry", {})
        return b"d" + walk.sequence(b"dispatch", (function.__name__, registry))
    names = function.__globals__
    if names.get(function.__qualname__) is function:
        key = ("function", walk.known.namespace(names), function.__qualname__)
        return walk.item(key, partial(_by_value, walk, function))
    return b"d" + _by_value(walk, function)


def _by_value(walk: Walk, function: types.FunctionType) -> bytes:
    name = function.__qualname__.rpartition("<locals>.")[2]
    facts = code_facts(function.__code__)
    with walk.within(name):
        walk.note(f"code of {name}", facts.digest)
        parts = [
            facts.digest,
            function.__name__.encode(),
            function.__qualname__.encode(),
            walk.encoded(function.__doc__),
        ]
        parts += [_part(walk, f"default of {one} in {name}", value) for one, value in _defaults(function)]
        parts += [_held(walk, f"captured {one} of {name}", one, value, facts) for one, value in _captured(function)]
        parts += [_global(walk, function, read, path, name) for read, path in sorted(facts.reads)]
        named.code(walk, facts, str(function.__globals__.get("__package__") or ""))
        parts += [walk.by_name(b"annotations", _annotations(function)), walk.by_name(b"attributes", vars(function))]
    return digest(*parts)


def _part(walk: Walk, name: str, value: Any) -> bytes:
    found = digest(walk.encoded(value))
    if not isinstance(value, _SAID_ELSEWHERE):
        walk.note(name, found, shown(value))
    return digest(of_names(name), found)


def _held(walk: Walk, fact: str, variable: str, value: Any, facts: CodeFacts) -> bytes:
    """Of a captured module only what the function reads."""
    if not isinstance(value, types.ModuleType):
        return _part(walk, fact, value)
    paths = sorted(path for read, path in facts.free if read == variable) or [()]
    return digest(of_names(fact), *(named.of_module(walk, value, path) for path in paths))


def _defaults(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    code, given = function.__code__, function.__defaults__ or ()
    first = code.co_argcount - len(given)
    yield from zip(code.co_varnames[first : code.co_argcount], given, strict=True)
    yield from sorted((function.__kwdefaults__ or {}).items())


def _captured(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not bound yet
            yield name, types.CellType()


def _global(walk: Walk, function: types.FunctionType, name: str, path: tuple[str, ...], reader: str) -> bytes:
    names = function.__globals__
    if _is_of_dataclasses(function, name):
        return of_names("builtin", name)
    if name not in names:
        if hasattr(builtins, name):
            walk.uses("builtins", (name,))
        return of_names("builtin", name)
    value = names[name]
    if isinstance(value, types.ModuleType):
        return digest(of_names(name), named.of_module(walk, value, path))
    key = ("global", walk.known.namespace(names), name)
    return digest(of_names(name), walk.item(key, partial(_value_of_global, walk, name, value, reader)))


def _is_of_dataclasses(function: types.FunctionType, name: str) -> bool:
    """Returns whether a function reads this name as those that any dataclass has do: to be a key, and not to show itself within itself."""
    if name == "hash":
        return function.__name__ == "__hash__"
    return name in ("id", "get_ident", "_thread") and function.__globals__.get("__name__") in ("dataclasses", "reprlib")


def _value_of_global(walk: Walk, name: str, value: Any, reader: str) -> bytes:
    with walk.within(reader):
        return _part(walk, f"global {name}", value)


def _annotations(function: types.FunctionType) -> dict[str, Any]:
    try:
        return dict(function.__annotations__)
    except Exception:  # from Python 3.14 on they are evaluated now
        return {}


_DERIVED = frozenset(
    [
        "__dict__",
        "__weakref__",
        "__module__",
        "__qualname__",
        "__firstlineno__",
        "__static_attributes__",
        "__annotate_func__",
        "__annotations_cache__",
        "_abc_impl",
        "__abstractmethods__",
        "__dataclass_fields__",
        "__dataclass_params__",
        "__classcell__",
        "__slotnames__",
    ]
)
"""Attributes that follow from the others, or say nothing of what the class does."""


def of_class(walk: Walk, value: type) -> bytes:
    where = importable(value)
    if where is not None:
        return named.reference(walk, *where)
    module = sys.modules.get(value.__module__)
    if module is not None and vars(module).get(value.__qualname__) is value:
        key = ("class", walk.known.namespace(vars(module)), value.__qualname__)
        return walk.item(key, partial(_class_by_value, walk, value))
    return b"d" + _class_by_value(walk, value)


def _class_by_value(walk: Walk, value: type) -> bytes:
    name = value.__qualname__.rpartition("<locals>.")[2]
    with walk.within(name):
        kinds = (type(value),) if type(value) is not type else ()
        parts = [name.encode(), walk.sequence(b"class", (*kinds, *value.__bases__))]
        parts += [_member(walk, f"{name}.{one}", held) for one, held in sorted(_members(value).items())]
        parts.append(walk.by_name(b"annotations", _class_annotations(value)))
        if dataclasses.is_dataclass(value):
            parts.append(walk.sequence(b"fields", map(_field, dataclasses.fields(value))))
    return digest(*parts)


def _member(walk: Walk, name: str, value: Any) -> bytes:
    found = digest(name.encode(), walk.encoded(value))
    if not isinstance(value, types.FunctionType | staticmethod | classmethod | property | type):
        walk.note(f"attribute {name}", found, shown(value))
    return found


def _members(value: type) -> dict[str, Any]:
    members = {name: held for name, held in vars(value).items() if name not in _DERIVED}
    if dataclasses.is_dataclass(value) and (value.__doc__ or "").startswith(f"{value.__name__}("):
        del members["__doc__"]  # made of the fields, with addresses of their defaults
    if not issubclass(value, enum.Enum):
        return members
    own = {name: held for name, held in members.items() if not _is_of_enum(name, held)}
    return own | {name: one.value for name, one in value.__members__.items()}


def _is_of_enum(name: str, held: Any) -> bool:
    """It is the machinery of ``enum``, not what the user wrote."""
    if not (name.startswith("_") and name.endswith("_")):
        return False
    is_function = isinstance(held, types.FunctionType | staticmethod | classmethod)
    return not is_function or importable(getattr(held, "__func__", held)) is not None


def _class_annotations(value: type) -> dict[str, Any]:
    try:
        return dict(vars(value).get("__annotations__", {}))
    except Exception:  # those of other versions of Python are evaluated now
        return {}


def _field(field: Any) -> tuple[Any, ...]:
    """All that a dataclass knows of a field besides its type."""
    default, factory = (
        None if one is dataclasses.MISSING else (one,) for one in (field.default, field.default_factory)
    )
    return field.name, default, factory, field.init, field.repr, field.compare, field.kw_only, dict(field.metadata)
