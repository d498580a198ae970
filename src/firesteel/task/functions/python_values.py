"""Python values as an Arrow array that has lost nothing of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import fields
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

_FINE = ("us", "ns")


def exact_array(values: Sequence[Any], type_: pa.DataType) -> Any:
    """``pa.array``, which alone would cut fractions and times of day off, make infinity of what is too large for a float,
    and leave out what a struct has no field for. Raises what pyarrow raises; ValueError for what would be lost."""
    if pa.types.is_nested(type_):
        try:
            _check_all(values, type_)
        except _HasRecords:
            values = [_without_records(value, type_) for value in values]
            _check_all(values, type_)
        return pa.array(values, type_)
    _check_plain(values, type_)
    array = pa.array(values, type_)
    if _is_small_float(type_) and np.isinf(array.to_numpy(zero_copy_only=False)).any():
        for value in values:
            _check_small(value, type_)
    return array


def record_fields(value: Any) -> dict[str, Any] | None:
    """The fields of an instance of a dataclass or a NamedTuple; None: it is none."""
    names: Any = getattr(type(value), "__dataclass_fields__", None)
    if names is not None:
        return {field.name: getattr(value, field.name) for field in fields(value)}
    names = getattr(type(value), "_fields", None)
    return dict(zip(names, value, strict=True)) if names and isinstance(value, tuple) else None


class _HasRecords(Exception):
    """Raised by instances of classes in the place of structs, which pyarrow does not know."""


def _without_records(value: Any, type_: pa.DataType) -> Any:
    """The same in dicts."""
    types = pa.types
    if value is None or not types.is_nested(type_):
        return value
    if types.is_struct(type_):
        found = value if isinstance(value, dict) else record_fields(value)
        if found is None:
            return value
        kinds = {field.name: field.type for field in type_}
        return {key: _without_records(inner, kinds.get(key, pa.null())) for key, inner in found.items()}
    if types.is_map(type_):
        pairs = value.items() if isinstance(value, dict) else value
        return [(_without_records(k, type_.key_type), _without_records(v, type_.item_type)) for k, v in pairs]
    return [_without_records(inner, type_.value_type) for inner in value]


def _check_plain(values: Iterable[Any], type_: pa.DataType) -> None:
    if (pa.types.is_integer(type_) or pa.types.is_temporal(type_)) and not _exact(type_).issuperset(map(type, values)):
        for value in values:
            _check(value, type_)


def _exact(type_: pa.DataType) -> set[type]:
    """Python's types of which nothing can be lost in this one."""
    exact: set[type] = {int, type(None)}
    if pa.types.is_date(type_):
        exact.add(date)
    elif pa.types.is_temporal(type_) and not pa.types.is_interval(type_) and type_.unit in _FINE:
        exact.update((datetime, time, timedelta))
    return exact


def _check(value: Any, type_: pa.DataType) -> None:
    if isinstance(value, float | np.floating):
        lost = not float(value).is_integer()
    elif isinstance(value, Decimal):
        lost = not value.is_finite() or value != value.to_integral_value()
    else:
        if isinstance(value, datetime) and pa.types.is_date(type_) and value.time() != time.min:
            raise ValueError(f"{value} has a time of day, which {type_} has not")
        finest = {"s": 1_000_000, "ms": 1_000}.get(getattr(type_, "unit", ""), 1)
        parts = value.microseconds if isinstance(value, timedelta) else getattr(value, "microsecond", 0)
        if isinstance(parts, int) and parts % finest and not pa.types.is_date(type_):
            raise ValueError(f"{value} is finer than {type_}")
        return
    if lost:
        raise ValueError(f"{value!r} is not a whole number, which {type_} needs")


def _is_small_float(type_: pa.DataType) -> bool:
    return pa.types.is_float32(type_) or pa.types.is_float16(type_)


def _check_small(value: Any, type_: pa.DataType) -> None:
    if isinstance(value, float | np.floating) and math.isfinite(value):
        with np.errstate(over="ignore"):
            if np.isinf(type_.to_pandas_dtype()(value)):
                raise ValueError(f"{value!r} is too large for {type_}")


def _check_nested(value: Any, type_: pa.DataType) -> None:
    if value is None:
        return
    types = pa.types
    if types.is_struct(type_) and isinstance(value, dict):
        unknown = [str(key) for key in value if type_.get_field_index(key) < 0]
        if unknown:
            raise ValueError(f"it has no field {', '.join(unknown)}")
        for key, inner in value.items():
            _check_all((inner,), type_.field(key).type)
    elif types.is_struct(type_) and record_fields(value) is not None:
        raise _HasRecords
    elif types.is_map(type_):
        pairs = list(value.items() if isinstance(value, dict) else value)
        _check_all([key for key, _ in pairs], type_.key_type)
        _check_all([inner for _, inner in pairs], type_.item_type)
    elif not types.is_struct(type_) and not types.is_union(type_):
        _check_all(value, type_.value_type)


def _check_all(values: Iterable[Any], type_: pa.DataType) -> None:
    if pa.types.is_nested(type_):
        for value in values:
            _check_nested(value, type_)
    elif _is_small_float(type_):
        for value in values:
            _check_small(value, type_)
    else:
        _check_plain(values, type_)
