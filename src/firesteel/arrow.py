"""``firesteel.arrow``: columns and constants as Arrow's expressions, with Arrow's meaning. The functions of ``pyarrow.compute`` take them.

``from firesteel import arrow as A``. Every step that takes a Column takes these as well: ``filter(pc.match_like(A.col("word"), "a%"))``.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from firesteel.errors import UsageError

__all__ = ["col", "lit"]


def col(name: str, *nested: str) -> pc.Expression:
    """A column by its name; further names go into structs: ``col("address", "city")``."""
    for part in (name, *nested):
        if not isinstance(part, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"col() wants a column name, not {part!r}.", hint="For a constant write lit(value).")
    return pc.field(name, *nested) if nested else pc.field(name)


def lit(value: Any) -> pc.Expression:
    """A constant: a Python value or a ``pyarrow.Scalar``."""
    if isinstance(value, pc.Expression):
        return value
    try:
        return pc.scalar(value)
    except (pa.ArrowException, OverflowError) as error:
        raise UsageError(f"lit() cannot make a constant of {value!r}: {error}.") from None
