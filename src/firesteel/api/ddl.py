"""Schemas as users write them: a DDL string, a ``pyarrow.Schema``, a PySpark ``StructType`` or a class, all to Arrow.

The DDL is Spark's (``"word string, n bigint NOT NULL"``); it is parsed here, so that building a pipeline needs no JVM.
Types are those that ``mapInArrow`` would give: timestamps in microseconds, ``timestamp`` zoned in UTC.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from typing import Annotated, Any, Literal, NotRequired, Required, Union, cast

import pyarrow as pa

from firesteel.errors import UsageError
from firesteel.humanize import check_once

_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)*`)|('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|(\w+)|([<>(),:]))", re.UNICODE)

_PRIMITIVES: dict[str, Callable[[], Any]] = {
    **dict.fromkeys(("tinyint", "byte"), pa.int8),
    **dict.fromkeys(("smallint", "short"), pa.int16),
    **dict.fromkeys(("int", "integer"), pa.int32),
    **dict.fromkeys(("bigint", "long"), pa.int64),
    **dict.fromkeys(("float", "real"), pa.float32),
    "double": pa.float64,
    "string": pa.string,
    "binary": pa.binary,
    "boolean": pa.bool_,
    "date": pa.date32,
    **dict.fromkeys(("timestamp", "timestamp_ltz"), partial(pa.timestamp, "us", tz="UTC")),
    "timestamp_ntz": partial(pa.timestamp, "us"),
    "void": pa.null,
}
_DECIMALS = ("decimal", "dec", "numeric")
_TYPES = [*_PRIMITIVES, *_DECIMALS, "varchar", "char", "array", "map", "struct", "interval", "time"]
_INTERVAL_UNITS = ("day", "hour", "minute", "second")


def to_schema(schema: Any) -> pa.Schema:
    """The Arrow schema of a DDL string, a ``pyarrow.Schema``, a PySpark ``StructType``, or a class with annotated fields (a TypedDict, a
    dataclass, a NamedTuple). Raises UsageError."""
    if isinstance(schema, pa.Schema):
        parsed = schema
    elif isinstance(schema, str):
        parsed = parse_ddl(schema)
    elif type(schema).__module__.partition(".")[0] == "pyspark" and type(schema).__name__ == "StructType":
        parsed = _from_struct_type(schema)
    elif is_record(schema):
        parsed = schema_of(schema, _parse_field)
    else:
        raise UsageError(
            "A schema is a DDL string, a pyarrow.Schema, a PySpark StructType or a TypedDict, dataclass or NamedTuple, "
            f"not {f'the class {schema.__name__}' if isinstance(schema, type) else type(schema).__name__}.",
            hint='Write, for example, "word string, n bigint".',
        )
    _check_names(parsed)
    return parsed


def parse_ddl(text: str) -> pa.Schema:
    """The Arrow schema of Spark's DDL, e.g. ``"a int, b array<struct<x: double>> NOT NULL COMMENT 'y'"``."""
    return _Parser(text).schema()


def _parse_field(name: str, ddl: str) -> pa.Field:
    parsed = _Parser(f"value {ddl}").schema()
    if len(parsed) != 1:
        raise UsageError(f"'{ddl}' is not one type.", hint='Write, for example, "decimal(10, 2) NOT NULL".')
    return parsed.field(0).with_name(name)


def check_spark_types(schema: pa.Schema, what: str) -> None:
    """Raises UsageError for a column that Spark has no type for. ``what``: who wants it."""
    from firesteel.spark.session.versions import spark_schema

    for field in schema:
        try:
            spark_schema(pa.schema([field]))
        except Exception:
            raise UsageError(
                f"{what}: Spark has no type for column '{field.name}' of type {field.type}.",
                hint="Cast it to another type or drop it.",
            ) from None


def dataframe_schema(dataframe: Any) -> pa.Schema:
    """The Arrow schema of a Spark DataFrame's rows, as Spark hands them over. Raises UsageError."""
    kind = type(dataframe)
    if kind.__module__.startswith("pyspark.sql.connect"):
        raise UsageError(
            "This is a DataFrame of Spark Connect, which has no access to Spark's scheduler.",
            hint="Use a classic session: SparkSession.builder.master(...).getOrCreate().",
        )
    if kind.__module__.partition(".")[0] != "pyspark" or not hasattr(dataframe, "sparkSession"):
        raise UsageError(
            f"from_dataframe wants a Spark DataFrame, not {kind.__name__}.", hint="See from_pandas and from_arrow."
        )
    schema = rows_schema(dataframe.schema, str(dataframe.sparkSession.conf.get("spark.sql.session.timeZone")))
    _check_names(schema)
    return schema


def rows_schema(struct: Any, zone: str) -> pa.Schema:
    """The Arrow schema in which Spark hands over rows of a PySpark ``StructType``, in a session of this time zone. Raises UsageError."""
    from firesteel.spark.session.versions import arrow_schema

    try:
        return arrow_schema(struct, zone)
    except UsageError:  # of this Python, not of a column
        raise
    except Exception as error:
        for field in struct.fields if len(struct.fields) > 1 else ():
            rows_schema(type(struct)([field]), zone)
        kinds = ", ".join(f"{one.name} ({one.dataType.simpleString()})" for one in struct.fields)
        raise UsageError(f"Arrow cannot carry the column {kinds}.") from error


def _check_names(schema: pa.Schema) -> None:
    check_once(
        schema.names, lambda twice: f"A schema names the column '{twice}' twice.", "Give each column its own name."
    )
    if not schema.names:
        raise UsageError("A schema needs at least one column.")


def _from_struct_type(schema: Any) -> pa.Schema:
    from firesteel.spark.session.versions import arrow_schema

    return arrow_schema(schema, "UTC")


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[str] = []
        at = 0
        while text[at:].strip():
            match = _TOKEN.match(text, at)
            if match is None:
                raise self.error(f"cannot read {text[at:].strip()[:20]!r}")
            self.tokens.append(match.group(0).strip())
            at = match.end()
        self.at = 0

    def error(self, what: str) -> UsageError:
        return UsageError(f"In the schema {self.text!r}: {what}.", hint='Write, for example, "word string, n bigint".')

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def next(self) -> str:
        token = self.peek()
        self.at += 1
        return token

    def take(self, *words: str) -> bool:
        """Steps over these words if they come next (letters of any case)."""
        if [t.lower() for t in self.tokens[self.at : self.at + len(words)]] != list(words):
            return False
        self.at += len(words)
        return True

    def expect(self, word: str) -> None:
        if not self.take(word):
            raise self.error(f"expected '{word}' but found {self._found()}")

    def _found(self) -> str:
        return f"'{self.peek()}'" if self.peek() else "the end"

    def schema(self) -> pa.Schema:
        if not self.tokens:
            raise self.error("there is no column")
        whole = [t.lower() for t in self.tokens[:2]] == ["struct", "<"]
        fields = list(self.type()) if whole else self.fields(end="")
        if self.peek():
            raise self.error(f"expected ',' but found {self._found()}")
        return pa.schema(fields)

    def fields(self, end: str) -> list[pa.Field]:
        fields: list[pa.Field] = []
        while self.peek() != end:
            if fields:
                self.expect(",")
            fields.append(self.field())
        return fields

    def field(self) -> pa.Field:
        name = self.next()
        if name.startswith("`"):
            name = name[1:-1].replace("``", "`")
        elif not re.fullmatch(r"\w+", name):
            raise self.error(f"expected a column name but found {f'{name!r}' if name else 'the end'}")
        self.take(":")
        if self.peek() in ("", ",", ">"):
            raise self.error(f"column '{name}' has no type")
        kind = self.type()
        nullable = not self.take("not", "null")
        if self.take("comment"):
            if not self.next().startswith(("'", '"')):
                raise self.error("COMMENT wants a text in quotes")
            while self.peek().startswith(("'", '"')):  # 'it''s': SQL's quote in a quote
                self.next()
        return pa.field(name, kind, nullable=nullable)

    def type(self) -> pa.DataType:
        word = self.next()
        name = word.lower()
        if name in _PRIMITIVES:
            return _PRIMITIVES[name]()
        if name in _DECIMALS:
            return self._decimal()
        special = {
            "varchar": self._text, "char": self._text, "character": self._text, "array": self._array, "map": self._map,
            "struct": self._struct, "interval": self._interval, "time": self._time,
        }.get(name)  # fmt: skip
        if special is None:
            close = difflib.get_close_matches(name, _TYPES, n=1)
            guess = f"did you mean '{close[0]}'?" if close else f"There are {', '.join(_TYPES)}."
            raise UsageError(
                f"In the schema {self.text!r}: there is no type '{word}'.", hint=guess[0].upper() + guess[1:]
            )
        return special()

    def _numbers(self) -> list[int]:
        if not self.take("("):
            return []
        numbers: list[int] = []
        while True:
            token = self.next()
            if not token.isdigit():
                raise self.error(f"expected a number but found '{token}'")
            numbers.append(int(token))
            if self.take(")"):
                return numbers
            self.expect(",")

    def _decimal(self) -> pa.DataType:
        precision, scale = (*self._numbers(), 10, 0)[:2] if self.peek() != "(" else (*self._numbers(), 0)[:2]
        if not 1 <= precision <= 38 or scale > precision:
            raise self.error(f"decimal({precision},{scale}) needs 1 to 38 digits and no more behind the point")
        return pa.decimal128(precision, scale)

    def _text(self) -> pa.DataType:
        self._numbers()
        return pa.string()

    def _array(self) -> pa.DataType:
        self.expect("<")
        element = self.type()
        self.expect(">")
        return pa.list_(pa.field("element", element))

    def _map(self) -> pa.DataType:
        self.expect("<")
        key = self.type()
        self.expect(",")
        value = self.type()
        self.expect(">")
        return pa.map_(pa.field("key", key, nullable=False), pa.field("value", value))

    def _struct(self) -> pa.DataType:
        self.expect("<")
        fields = self.fields(end=">")
        self.expect(">")
        return pa.struct(fields)

    def _interval(self) -> pa.DataType:
        first = self.next().lower()
        last = self.next().lower() if self.take("to") else first
        if first not in _INTERVAL_UNITS or last not in _INTERVAL_UNITS:
            raise self.error("only INTERVAL DAY TO SECOND (and parts of it) has an Arrow type that Spark reads")
        return pa.duration("us")

    def _time(self) -> pa.DataType:
        self._numbers()
        return pa.time64("ns")


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
