"""Pipelines over given rows, or over the first rows of their sources, computed here: what streams and environments ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import pyarrow as pa

from firesteel.compile.compiler import compile_job
from firesteel.compile.exchanges import BLOCKING
from firesteel.compile.stream_graph import CollectStep, StreamNode
from firesteel.errors import UsageError
from firesteel.local.graph import refuse_spark, with_first_rows, with_rows
from firesteel.local.job import run
from firesteel.options import BATCH_SHUFFLE_MODE, Options


def test_with(end: StreamNode, options: Options, rows: Any, named: Mapping[str, Any]) -> pa.Table:
    """The rows that reach the end, over these in the place of its sources'. ``rows``: those of the only source that is not named, or a
    mapping of names to rows; None: there are only ``named`` ones. Raises UsageError, and what a user's function raises."""
    return _computed([with_rows(end, _by_name(rows, named))], options)[0]


def _by_name(rows: Any, named: Mapping[str, Any]) -> Mapping[str, Any]:
    if rows is None:
        return named
    if not isinstance(rows, Mapping):
        return {"": rows, **named}
    given = cast(Mapping[Any, Any], rows)
    odd = next((name for name in given if not isinstance(name, str)), None)
    if odd is not None:
        raise UsageError(
            f"Rows are given by the names of sources, not by {odd!r}.", hint="Write test_with(orders=[{...}, {...}])."
        )
    return {**given, **named}


def run_locally(ends: Sequence[StreamNode], options: Options, rows: int | None) -> list[pa.Table]:
    """The rows that reach each end, over so many rows of each source (None: all). Sinks are not written. Raises as :func:`test_with`."""
    if rows is not None and (isinstance(rows, bool) or not isinstance(rows, int) or rows < 0):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"run_locally() wants a number of rows of each source, or None, not {rows!r}.")
    return _computed(with_first_rows(ends, rows), options)


@dataclass(frozen=True, slots=True)
class LocalMode:
    """Of environments whose every job is computed here, over the first ``rows`` of each source (None: all)."""

    rows: int | None

    def tables(self, ends: Sequence[StreamNode], options: Options) -> list[pa.Table]:
        """The rows that reach each end."""
        return run_locally(ends, options, self.rows)


def names(ends: Sequence[StreamNode]) -> list[str]:
    """The names of the ends; the second one of a name is "name (2)"."""
    counts: dict[str, int] = {}
    found: list[str] = []
    for end in ends:
        count = counts[end.name] = counts.get(end.name, 0) + 1
        found.append(end.name if count == 1 else f"{end.name} ({count})")
    return found


def _computed(ends: Sequence[StreamNode], options: Options) -> list[pa.Table]:
    refuse_spark(ends)
    collecting = [replace(end, work=CollectStep(number)) for number, end in enumerate(ends)]
    blocking = options.merged(Options({BATCH_SHUFFLE_MODE.key: BLOCKING}))
    found = run(compile_job(collecting, blocking, "local run"), blocking)
    return [found[number] for number in range(len(collecting))]
