"""Arrow to pandas and back by the rules of PySpark's mapInPandas and applyInPandas (4.x), for every Arrow type.

To pandas: dates as ``datetime.date``, decimals as ``Decimal``, zoned timestamps as naive wall-clock time in the column's
zone, structs and maps as ``dict``, arrays as ``numpy.ndarray``, booleans with nulls as objects. Integers with nulls are
float64 where every column of the frame is a plain number, boolean, binary or time (PySpark's numpy path) and pandas'
nullable integers otherwise. Back: against the declared schema, null where pandas has a missing value (NaN too).
"""

from __future__ import annotations

import importlib.util
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from firesteel.errors import UsageError
from firesteel.extras import command
from firesteel.task.functions.user_code import check_names, check_nulls, complaint
from firesteel.task.program import TaskContext

_types = pa.types
_PLAIN = (
    _types.is_null, _types.is_binary, _types.is_large_binary, _types.is_boolean, _types.is_floating, _types.is_integer,
    _types.is_date, _types.is_time, _types.is_timestamp,
)  # fmt: skip


def require_pandas(step: str) -> None:
    """Raises UsageError where pandas is not installed: it comes with an extra, and only steps with frames need it."""
    if importlib.util.find_spec("pandas") is None:
        raise UsageError(
            f"{step} needs pandas, which is not installed.",
            hint=f"Run {command('pandas')}, or use the step's sibling for Arrow.",
        )


def to_dataframe(data: pa.RecordBatch | pa.Table, *, per_column: bool = False) -> Any:
    """A DataFrame of a batch or table. ``per_column``: choose the form of nullable integers column by column."""
    import pandas as pd

    plain_frame = all(_is_plain(field.type) for field in data.schema)
    series = [
        _to_series(column, field, as_float=_is_plain(field.type) if per_column else plain_frame)
        for column, field in zip(data.columns, data.schema, strict=True)
    ]
    if not series:
        return pd.DataFrame(index=range(data.num_rows))
    frame = pd.concat(series, axis=1)
    frame.columns = list(data.schema.names)
    return frame


def looks_the_same_in_parts(table: pa.Table) -> bool:
    """Returns True if rows of the table have the same pandas types when they are converted without the rest.

    Not so where a null decides about the type: of integers, booleans, and inside nested values.
    """
    return not any(
        _types.is_nested(field.type)
        or (
            column.null_count
            and (_types.is_integer(field.type) or _types.is_boolean(field.type) or _types.is_null(field.type))
        )
        for field, column in zip(table.schema, table.columns, strict=True)
    )


def _is_plain(type_: pa.DataType) -> bool:
    return any(is_(type_) for is_ in _PLAIN)


def _to_series(column: Any, field: pa.Field, *, as_float: bool) -> Any:
    import pandas as pd

    type_ = field.type
    if _types.is_timestamp(type_):
        if type_.tz is not None:
            column = pc.local_timestamp(column)
        return column.cast(pa.timestamp("ns")).to_pandas()
    if _types.is_dictionary(type_):
        column = column.cast(type_.value_type)
        return _to_series(column, pa.field(field.name, type_.value_type), as_float=as_float)
    if _types.is_integer(type_) and not as_float and column.null_count:
        return column.to_pandas(types_mapper=pd.ArrowDtype).astype(_nullable_integer(type_))
    if _types.is_nested(type_):
        return _nested_series(column)
    return column.to_pandas(date_as_object=True, coerce_temporal_nanoseconds=True)


def _nested_series(column: Any) -> Any:
    column = _wall_clock(column)
    series = column.to_pandas(
        maps_as_pydicts="lossy", date_as_object=True, coerce_temporal_nanoseconds=True, integer_object_nulls=True
    )
    return series.map(partial(_python_value, type_=column.type)) if _is_converted(column.type) else series


def _is_converted(type_: pa.DataType) -> bool:
    """Returns True if PySpark makes the values of this nested type in Python: timestamps, and arrays of structs or maps."""
    if _types.is_map(type_):
        return _is_converted(type_.key_type) or _is_converted(type_.item_type)
    if _types.is_struct(type_):
        return any(_is_converted(field.type) for field in type_)
    if _is_list(type_):
        return _types.is_struct(type_.value_type) or _types.is_map(type_.value_type) or _is_converted(type_.value_type)
    return _types.is_timestamp(type_)


def _python_value(value: Any, type_: pa.DataType) -> Any:
    import pandas as pd

    if value is None:
        return None
    if _types.is_map(type_):
        return {_python_value(k, type_.key_type): _python_value(v, type_.item_type) for k, v in value.items()}
    if _types.is_struct(type_):
        return {field.name: _python_value(value[field.name], field.type) for field in type_}
    if _is_list(type_) and _is_converted(type_):
        return np.array([_python_value(item, type_.value_type) for item in value])
    return pd.Timestamp(value) if _types.is_timestamp(type_) else value


def _is_list(type_: pa.DataType) -> bool:
    return _types.is_list(type_) or _types.is_large_list(type_) or _types.is_fixed_size_list(type_)


def _nullable_integer(type_: pa.DataType) -> str:
    name = str(type_)
    return f"UInt{name[4:]}" if name.startswith("uint") else f"Int{name[3:]}"


def _wall_clock(column: Any) -> Any:
    """Zoned timestamps inside nested values: the zone is taken away, the wall clock stays."""
    target = _without_zones(column.type)
    if target == column.type:
        return column
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([_wall_clock(chunk) for chunk in column.chunks], target)
    return _rebuilt(column)


def _without_zones(type_: pa.DataType) -> pa.DataType:
    if _types.is_timestamp(type_):
        return pa.timestamp(type_.unit)
    if _types.is_struct(type_):
        return pa.struct([field.with_type(_without_zones(field.type)) for field in type_])
    if _types.is_map(type_):
        return pa.map_(_without_zones(type_.key_type), _without_zones(type_.item_type))
    if _types.is_list(type_):
        return pa.list_(type_.value_field.with_type(_without_zones(type_.value_type)))
    return type_


def _rebuilt(array: Any) -> Any:
    type_, mask = array.type, array.is_null() if array.null_count else None
    if _types.is_timestamp(type_):
        return pc.local_timestamp(array) if type_.tz is not None else array
    if _types.is_struct(type_):
        children = [_rebuilt(child) for child in array.flatten()]
        return pa.StructArray.from_arrays(children, fields=list(_without_zones(type_)), mask=mask)
    if _types.is_map(type_):
        return pa.MapArray.from_arrays(
            _offsets(array), _rebuilt(array.keys), _rebuilt(array.items), type=_without_zones(type_)
        )
    if _types.is_list(type_):
        return pa.ListArray.from_arrays(_offsets(array), _rebuilt(array.values), type=_without_zones(type_))
    return array


def _offsets(array: Any) -> Any:
    """Offsets into ``values`` that carry the nulls (a null offset means a null list)."""
    if not array.null_count:
        return array.offsets
    return pc.if_else(
        pa.concat_arrays([array.is_null(), pa.array([False])]), pa.scalar(None, pa.int32()), array.offsets
    )


def from_dataframe(
    name: str, frame: Any, schema: pa.Schema, ctx: TaskContext, *, truncate: bool
) -> pa.RecordBatch | None:
    """The declared schema's batch of what a pandas function gave back; None for a frame without rows and columns.

    ``truncate``: only the leading columns count, superfluous ones behind are dropped (mapInPandas). Columns are matched
    by name when any name is a string, else by position. Raises UserFunctionError naming the column.
    """
    import pandas as pd

    if not isinstance(frame, pd.DataFrame):
        raise complaint(name, f"gave back a {type(frame).__name__} instead of a pandas.DataFrame", ctx)
    if len(frame.columns) == 0 and (len(frame) == 0 or len(schema) > 0):
        if len(frame) == 0:
            return None
        raise complaint(
            name, f"gave back {len(frame)} rows without columns where {', '.join(schema.names)} are declared", ctx
        )
    names = list(frame.columns)[: len(schema)] if truncate else list(frame.columns)
    if any(isinstance(n, str) for n in frame.columns):
        check_names(name, names, schema, ctx)
        columns = [frame[n] for n in schema.names]
    else:
        if len(names) != len(schema):
            raise complaint(
                name,
                f"gave back {len(names)} columns where {len(schema)} are declared ({', '.join(schema.names)})",
                ctx,
            )
        columns = [frame.iloc[:, i] for i in range(len(schema))]
    arrays = [_to_array(name, column, field, ctx) for column, field in zip(columns, schema, strict=True)]
    for array, field in zip(arrays, schema, strict=True):
        check_nulls(name, array, field, ctx)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _to_array(name: str, series: Any, field: pa.Field, ctx: TaskContext) -> pa.Array:
    import pandas as pd

    if isinstance(series.dtype, pd.CategoricalDtype):
        series = series.astype(series.dtype.categories.dtype)
    try:
        return _converted(series, field.type)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise complaint(
            name,
            f"gave back column '{field.name}' as {series.dtype}, which cannot be converted to the declared {field.type}: {error}",
            ctx,
        ) from None


def _converted(series: Any, type_: pa.DataType) -> pa.Array:
    if _types.is_dictionary(type_):
        return _converted(series, type_.value_type).cast(type_)
    if _types.is_timestamp(type_):
        series = _in_utc(series, type_)
    elif _types.is_nested(type_):
        series = series.map(partial(_nested, type_=type_))
    if isinstance(series.dtype, np.dtype) and series.dtype.kind in "iufb" and not _types.is_boolean(type_):
        series, mask = series.to_numpy(), None  # NaN is null without being told
    else:
        mask = None if hasattr(series.array, "__arrow_array__") else series.isnull()
    try:
        converted = pa.Array.from_pandas(series, mask=mask, type=type_, safe=True)
    except pa.ArrowInvalid:  # only a value that does not fit is cast, a wrong type is refused
        converted = pa.Array.from_pandas(series, mask=mask).cast(type_, safe=True)
    return pa.concat_arrays(converted.chunks) if isinstance(converted, pa.ChunkedArray) else converted


def _in_utc(series: Any, type_: pa.DataType) -> Any:
    import pandas as pd

    if type_.tz is None:
        return series
    if pd.api.types.is_datetime64_dtype(series.dtype):
        return series.dt.tz_localize(type_.tz, ambiguous=False).dt.tz_convert("UTC")
    return series.dt.tz_convert("UTC") if isinstance(series.dtype, pd.DatetimeTZDtype) else series


def _nested(value: Any, type_: pa.DataType) -> Any:
    """A Python value of a nested type in the form pyarrow wants (dict to list of pairs for maps, tuple to dict)."""
    if value is None:
        return None
    if _types.is_map(type_):
        pairs = value.items() if isinstance(value, dict) else value
        return [(_nested(k, type_.key_type), _nested(v, type_.item_type)) for k, v in pairs]
    if _types.is_struct(type_):
        if not isinstance(value, dict):
            value = dict(zip((field.name for field in type_), value, strict=True))
        return {field.name: _nested(value.get(field.name), field.type) for field in type_}
    if _is_list(type_):
        return [_nested(item, type_.value_type) for item in value]
    if _types.is_timestamp(type_) and type_.tz is not None:
        import pandas as pd

        stamp = pd.Timestamp(value)
        return (stamp if stamp.tzinfo else stamp.tz_localize(type_.tz)).to_pydatetime()
    return value
