"""Steps of a stream that make rows of rows, and those that group them in several ways at once. The work is in ``steps``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from firesteel.api.keyed_stream import GroupedStream
from firesteel.api.steps import reshaping
from firesteel.api.steps.aggregates import grouping_sets
from firesteel.api.steps.pipeline import Pipeline

if TYPE_CHECKING:
    from firesteel.api.data_stream import DataStream


class Reshaping:
    """A part of :class:`DataStream`."""

    _pipeline: Pipeline

    def _after(self, pipeline: Pipeline) -> DataStream:
        raise NotImplementedError

    def explode(self, column: str, into: Any = None) -> DataStream:
        """A row for each element of a list, beside the other columns: ``explode("tags", into="tag")``; of a map for each entry, as
        columns ``key`` and ``value``, or two that ``into`` names.

        A null or empty list gives no row. Without ``into`` the element has the column's name.
        """
        return self._after(reshaping.explode(self._pipeline, column, into, position=False, outer=False))

    def explode_outer(self, column: str, into: Any = None) -> DataStream:
        """As :meth:`explode`; a null or empty list gives one row, with null for the element."""
        return self._after(reshaping.explode(self._pipeline, column, into, position=False, outer=True))

    def posexplode(self, column: str, into: Any = None) -> DataStream:
        """As :meth:`explode`, with the place of the element from 0 on, as ``pos``, before it."""
        return self._after(reshaping.explode(self._pipeline, column, into, position=True, outer=False))

    def posexplode_outer(self, column: str, into: Any = None) -> DataStream:
        """As :meth:`posexplode`; a null or empty list gives one row, with nulls."""
        return self._after(reshaping.explode(self._pipeline, column, into, position=True, outer=True))

    def unpivot(self, ids: Any, values: Any = None, variable: str = "variable", value: str = "value") -> DataStream:
        """A row for each of the columns ``values`` (None: all but ``ids``): ``ids``, the column's name as ``variable``, what it holds as ``value``.

        The columns must be of one type.
        """
        return self._after(reshaping.unpivot(self._pipeline, ids, values, variable, value))

    melt = unpivot

    def rollup(self, *columns: str, grouping_id: str | None = None) -> GroupedStream:
        """Aggregates by all of these columns, by all but the last, and so on, and of all rows: ``rollup("a", "b").aggregate({"n": "sum"})``.

        Columns that a row is not grouped by are null. ``grouping_id``: the name of a column for PySpark's ``grouping_id()``, a number in
        which the first column is the highest bit, 1 where the row is not grouped by it: it tells these nulls from those of
        the rows. Every row is counted as often as there are groupings; no rows give none.
        """
        return GroupedStream(self._after, grouping_sets.rollup(self._pipeline, columns, grouping_id))

    def cube(self, *columns: str, grouping_id: str | None = None) -> GroupedStream:
        """Aggregates by every subset of these columns. See :meth:`rollup`."""
        return GroupedStream(self._after, grouping_sets.cube(self._pipeline, columns, grouping_id))

    def grouping_sets(self, *sets: Any, grouping_id: str | None = None) -> GroupedStream:
        """Aggregates by each of these sets of columns: ``grouping_sets(("a", "b"), "b", ())``. See :meth:`rollup`."""
        return GroupedStream(self._after, grouping_sets.grouping_sets(self._pipeline, sets, grouping_id))
