"""Joins of plain streams, as methods; the work is in ``steps/combining/joins.py``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from firesteel.api.steps.combining import joins
from firesteel.api.steps.pipeline import Pipeline

if TYPE_CHECKING:
    from firesteel.api.data_stream import DataStream


class Joinable:
    """A stream that can be joined with another one."""

    _pipeline: Pipeline

    def _after(self, pipeline: Pipeline) -> DataStream:
        """The stream of a pipeline that begins with this one's."""
        raise NotImplementedError

    def join(
        self,
        other: DataStream,
        on: Any = None,
        how: str = "inner",
        *,
        left_on: Any = None,
        right_on: Any = None,
        suffix: str = "_right",
        broadcast: Literal["left", "right", "never"] | None = None,
    ) -> DataStream:
        """Rows of both streams with equal keys, as PySpark's ``join`` with names. Null keys match nothing.

        ``on``: a column, a list of columns, or where the names differ a list of pairs, ``[("id", "user_id")]`` (or ``left_on=``
        and ``right_on=``). A triple is a condition that is no equality: ``["k", ("time", ">=", "start"), ("time", "<", "end")]``, the left
        stream's column first. ``how``: inner, left, right, full, semi, anti (Spark's spellings too).

        All left columns, then the right ones without the right keys: a key comes once, under the left name, and holds the
        right side's where there is no left row. A right column whose name the left side has gets ``suffix``; where
        that is taken as well, ``suffix`` and a number from 2 on. ``broadcast``: as in :meth:`KeyedStream.join`. With conditions
        and no equal columns the right side is read whole by every subtask, into its memory (inner, left, semi, anti).
        """
        return self._after(joins.join(self._pipeline, other, on, how, left_on, right_on, suffix, broadcast))

    def join_asof(
        self,
        other: DataStream,
        on: str | tuple[str, str],
        by: Any = None,
        *,
        direction: Literal["backward", "forward", "nearest"] = "backward",
        tolerance: Any = None,
        exact: bool = True,
        how: str = "left",
        suffix: str = "_right",
    ) -> DataStream:
        """Beside each row the one of ``other`` whose time comes nearest before (``backward``), behind (``forward``) or on either side.

        ``on``: the column of the time, or one on each side: timestamps, dates, durations or numbers. ``by``: columns that
        must be equal, as ``on`` of :meth:`join`. ``tolerance``: the largest distance (a timedelta; of numbers a number). ``exact=False``: an equal
        time does not count. ``how``: left (a row without a partner has nulls) or inner.

        Of equal times on the right, the same row is taken on every run; of a time before and one behind that are equally near, the
        one before. Columns as in :meth:`join`; a time of one name comes once, the left one. Without ``by`` the right side is read whole
        by every subtask, into its memory.
        """
        return self._after(joins.join_asof(self._pipeline, other, on, by, direction, tolerance, exact, how, suffix))

    def cross_join(self, other: DataStream, *, suffix: str = "_right") -> DataStream:
        """Every row with every row of ``other``, which every subtask reads whole into its memory: the smaller side is the right one."""
        return self._after(joins.cross_join(self._pipeline, other, suffix))

    crossJoin = cross_join  # noqa: N815
