"""Steps that look at a stream as a whole: samples and summaries."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Any

from firesteel.api.steps import step_at
from firesteel.api.stream_base import StreamBase
from firesteel.errors import UsageError
from firesteel.graph.stream_graph import ChainedStep
from firesteel.operators.describe import (
    STATISTICS,
    Describe,
    DescribePart,
    described,
    is_number,
    output_schema,
    partial_schema,
)
from firesteel.operators.relational import check_columns
from firesteel.operators.sampling import Sample

if TYPE_CHECKING:
    from firesteel.api.data_stream import DataStream


class Statistics(StreamBase):
    """Samples and summaries."""

    if TYPE_CHECKING:

        def global_(self) -> DataStream: ...

    def sample(self, fraction: float, seed: int | None = None, with_replacement: bool = False) -> DataStream:
        """About ``fraction`` of the rows, drawn at random, each on its own; ``with_replacement``: a row may come several times.

        A subtask that runs again, or is mirrored, draws the same rows. So does another run with the same ``seed`` (a whole
        number; None: a new one for this stream) as long as every subtask reads the same rows in the same order: right
        behind a source, that is the same files with the same options. Where the subtasks' ranges or number change, other
        rows are drawn. Behind an exchange rows may come in another order when a subtask runs again; whoever has read
        from it then runs again too.
        """
        with step_at("sample") as place:
            self._refuse_sides("sample")
            draw = Sample(
                f"sample({fraction})", _fraction(fraction, with_replacement), _seed(seed), bool(with_replacement)
            )
            work = ChainedStep(draw, {name: name for name in self.schema.names})
            return self._then(draw.name, work, self.schema, place)

    def describe(self, *columns: str) -> DataStream:
        """PySpark's: rows ``count``, ``mean``, ``stddev``, ``min`` and ``max`` of these columns, as text, under ``summary``.

        Without columns: of all numbers and strings. Nulls do not count; NaN is the largest number; ``stddev`` is the
        sample's. Of other values than numbers there is no mean.
        """
        with step_at("describe") as place:
            return self._described("describe", columns, STATISTICS, place)

    def summary(self, *statistics: str) -> DataStream:
        """As :meth:`describe` of all numbers and strings, with these of its rows only, in this order (none: all)."""
        with step_at("summary") as place:
            unknown = next((name for name in statistics if name not in STATISTICS), None)
            if unknown is not None:
                raise UsageError(
                    f"summary has no '{unknown}'.",
                    hint=f"There are {', '.join(STATISTICS)}. Percentiles need a sort: use to_dataframe().summary().",
                )
            return self._described("summary", (), statistics or STATISTICS, place)

    def _described(self, kind: str, columns: Any, statistics: tuple[str, ...], place: str) -> DataStream:
        self._refuse_sides(kind)
        names = tuple(columns) or tuple(name for name in self.schema.names if _by_default(self, name))
        check_columns(self.schema, names, kind)
        if not names:
            raise UsageError(
                "There is no column of numbers or strings to describe.", hint='Name others: describe("day").'
            )
        if "summary" in names:
            raise UsageError(f"{kind} names its first column 'summary', as one of yours is.", hint="Rename yours.")
        types = tuple(described(self.schema, name) for name in names)
        wrong = next((name for name, type_ in zip(names, types, strict=True) if type_ is None), None)
        if wrong is not None:
            raise UsageError(f"Column '{wrong}' is {self.schema.field(wrong).type}, whose values have no order.")
        schema = partial_schema(self.schema, names)
        part = DescribePart(f"local {kind}", names, types, schema)  # type: ignore[arg-type]
        local = self._then(f"local {kind}", ChainedStep(part), schema, place)
        whole = Describe(kind, names, types, tuple(statistics))  # type: ignore[arg-type]
        return local.global_()._then(kind, ChainedStep(whole), output_schema(names), place)


def _by_default(stream: StreamBase, name: str) -> bool:
    type_ = described(stream.schema, name)
    return type_ is not None and (is_number(type_) or str(type_) in ("string", "large_string"))


def _fraction(fraction: Any, replacement: bool) -> float:
    is_one = isinstance(fraction, int | float) and not isinstance(fraction, bool) and math.isfinite(fraction)
    if not is_one or fraction < 0 or (fraction > 1 and not replacement):
        most = "" if replacement else " and at most 1"
        raise UsageError(
            f"The fraction of a sample is a number of at least 0{most}, not {fraction!r}.",
            hint="Write sample(0.1, seed=1).",
        )
    return float(fraction)


def _seed(seed: Any) -> int:
    if seed is None:
        return random.getrandbits(63)
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise UsageError(f"The seed of a sample is a whole number, not {seed!r}.")
    return seed % (1 << 64)
