"""Classes that go by value: those of the script, and those made within functions. Their bases, functions and attributes."""

from __future__ import annotations

import dataclasses
import enum
import sys
import types
from functools import partial
from typing import TYPE_CHECKING, Any

from firesteel.compile.identity import named
from firesteel.compile.identity.digests import digest
from firesteel.compile.identity.functions import importable
from firesteel.compile.identity.values import shown

if TYPE_CHECKING:
    from firesteel.compile.identity.walk import Walk

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
        return walk.item(key, partial(_by_value, walk, value))
    return b"d" + _by_value(walk, value)


def _by_value(walk: Walk, value: type) -> bytes:
    name = value.__qualname__.rpartition("<locals>.")[2]
    with walk.within(name):
        kinds = (type(value),) if type(value) is not type else ()
        parts = [name.encode(), walk.sequence(b"class", (*kinds, *value.__bases__))]
        parts += [_member(walk, f"{name}.{one}", held) for one, held in sorted(_members(value).items())]
        parts.append(walk.by_name(b"annotations", _annotations(value)))
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


def _annotations(value: type) -> dict[str, Any]:
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
