"""Types that the rows of a table may have, and the very types that its files get."""

from __future__ import annotations

import pyarrow as pa

from firesteel.errors import UsageError
from firesteel.humanize import named_twice

_LEAVES = {
    *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    *(pa.string(), pa.binary(), pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")),
}
_AS = {
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
}


def table_schema(schema: pa.Schema, what: str) -> pa.Schema:
    """The schema without metadata, all nullable, dictionaries and large types as plain ones.

    Raises UsageError for types that tables do not have: unsigned numbers would come out as others, times finer than microseconds lose digits.
    """
    twice = named_twice(schema.names)
    if twice is not None:
        raise UsageError(f"{what}: there are two columns '{twice}'.", hint="Rename one with select.")
    if not len(schema):
        raise UsageError(f"{what}: the stream has no columns.")
    return pa.schema([pa.field(field.name, _type(field.type, field.name, what)) for field in schema])


def _type(kind: pa.DataType, name: str, what: str) -> pa.DataType:
    types = pa.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    kind = _AS.get(kind, kind)
    if kind in _LEAVES or types.is_decimal128(kind):
        return kind
    if types.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        return pa.struct([pa.field(field.name, _type(field.type, name, what)) for field in fields])
    if types.is_map(kind):
        return pa.map_(_type(kind.key_type, name, what), _type(kind.item_type, name, what))
    if types.is_list(kind) or types.is_large_list(kind):
        return pa.list_(_type(kind.value_type, name, what))
    raise UsageError(
        f"{what}: column '{name}' has the type {kind}, for which tables have none.",
        hint='Cast it: to a signed type, timestamp("us") with UTC or no zone, date32, string ...',
    )
