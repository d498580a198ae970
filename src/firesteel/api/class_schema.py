"""Schemas of classes: a TypedDict, a dataclass or a NamedTuple, whose annotated fields are columns.

Types are those that PySpark takes Python's for (``int``: bigint, ``datetime``: timestamp). Columns may be null whatever the annotation says:
``Optional`` is for the type checker. ``Annotated[int, "int NOT NULL"]`` names another type, or refuses nulls, in DDL.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, NotRequired, Required, Union, cast

import pyarrow as pa

from firesteel.errors import UsageError

_PLAIN: dict[Any, pa.DataType] = {
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bool: pa.bool_(),
    bytes: pa.binary(),
    date: pa.date32(),
    datetime: pa.timestamp("us", tz="UTC"),
    time: pa.time64("ns"),
    timedelta: pa.duration("us"),
}
_LISTS = (list, Sequence)
_MAPS = (dict, Mapping)
ParseField = Callable[[str, str], pa.Field]
"""A field of a name and the DDL behind it."""


def is_record(schema: object) -> bool:
    """True for a class whose annotated fields can be columns."""
    if not isinstance(schema, type):
        return False
    is_named_tuple = issubclass(schema, tuple) and bool(getattr(schema, "_fields", ()))
    return dataclasses.is_dataclass(schema) or typing.is_typeddict(schema) or is_named_tuple


def schema_of(record: type, parse: ParseField) -> pa.Schema:
    """The columns of a class. Raises UsageError naming the field that has no column type."""
    return pa.schema(_Fields(parse).of(record))


class _Fields:
    def __init__(self, parse: ParseField) -> None:
        self._parse = parse
        self._open: list[type] = []
        """Classes whose fields are being looked at, each a field of the one before."""

    def of(self, record: type) -> list[pa.Field]:
        if record in self._open:
            raise UsageError(f"The class {record.__name__} has itself among its fields, and no column can hold that.")
        self._open.append(record)
        fields = [self._field(f"{record.__name__}.{name}", name, hint) for name, hint in _hints(record).items()]
        self._open.pop()
        return fields

    def _field(self, where: str, name: str, hint: Any) -> pa.Field:
        """``where``: the field in words, ``Order.price``."""
        hint = _without(hint, Required, NotRequired)
        if typing.get_origin(hint) is Annotated:
            hint, *notes = typing.get_args(hint)
            for note in notes:
                if isinstance(note, pa.DataType):
                    return pa.field(name, note)
                if isinstance(note, str):
                    return self._declared(where, name, note)
        return pa.field(name, self._type(where, hint))

    def _declared(self, where: str, name: str, ddl: str) -> pa.Field:
        try:
            return self._parse(name, ddl)
        except UsageError as error:
            raise UsageError(f"The field {where}: {error.message}", hint=error.hint) from None

    def _type(self, where: str, hint: Any) -> pa.DataType:
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if origin in (Union, types.UnionType):
            kinds = [one for one in arguments if one is not type(None)]
            if len(kinds) == 1:
                return self._field(where, "", kinds[0]).type
        elif origin is Literal:
            kinds = {type(value) for value in arguments}
            if len(kinds) == 1:
                return self._type(where, kinds.pop())
        elif origin in _LISTS:
            return pa.list_(self._field(where, "element", arguments[0]))
        elif origin in _MAPS:
            key, value = (self._field(where, *part) for part in zip(("key", "value"), arguments, strict=True))
            return pa.map_(key.with_nullable(False), value)
        elif is_record(hint):
            return pa.struct(self.of(hint))
        elif hint in _PLAIN:
            return _PLAIN[hint]
        raise UsageError(f"The field {where} of type {_shown(hint)} has no column type.", hint=_help(hint))


def _hints(record: type) -> dict[str, Any]:
    """The fields' annotations, in order."""
    try:
        hints = typing.get_type_hints(record, include_extras=True)
    except NameError as error:
        raise UsageError(
            f"The class {record.__name__} is annotated with '{error.name}', which is no name in its module.",
            hint="Define the classes of a schema at the top of a module.",
        ) from None
    if dataclasses.is_dataclass(record):
        return {field.name: hints[field.name] for field in dataclasses.fields(record)}
    names = cast(Sequence[str], getattr(record, "_fields", tuple(hints)))
    return {name: hints.get(name, Any) for name in names}


def _without(hint: Any, *wrappers: Any) -> Any:
    while typing.get_origin(hint) in wrappers:
        (hint,) = typing.get_args(hint)
    return hint


def _shown(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint).replace("typing.", "")


def _help(hint: Any) -> str:
    if hint is Decimal:
        return 'Say how many digits it has: Annotated[Decimal, "decimal(10, 2)"].'
    if hint in (*_LISTS, tuple, set):
        return "Say of what: list[str]."
    if hint in _MAPS:
        return "Say of what: dict[str, int]."
    return 'Name its type in DDL: Annotated[..., "bigint"]. Python\'s own types, lists, dicts and classes of fields need none.'
