"""Ranges that subtasks read, in bytes: cut again from the sizes in the decision, which gives what it gave then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firesteel.errors import FiresteelError
from firesteel.report.explain import ranges_text
from firesteel.scheduler.kernel.records import Decision
from firesteel.scheduler.parallelism import VertexPlan, decide_vertex
from firesteel.scheduler.parallelism.replay import TAPERED, recalled
from firesteel.ui.views.structs import Bar, Histogram

BARS = 24
_SAME = ("parallelism", "largest", "smallest")


def range_bytes(decision: Decision | None) -> NDArray[np.int64] | None:
    """Bytes per subtask, broadcasts left out. None: the sizes are not known, or this version would cut them otherwise."""
    if decision is None or decision.what != "parallelism" or not isinstance(decision.result, dict):
        return None
    try:
        found = recalled(decision.inputs)
        if found is None:
            return None
        inputs, bounds = found
        fixed = replace(bounds, fixed=int(decision.result["parallelism"]))
        plans = (decide_vertex(inputs, each) for each in (bounds, fixed))
        return next((own for plan in plans if (own := _own(plan, decision)) is not None), None)
    except (FiresteelError, LookupError, TypeError, ValueError):  # a journal that says it otherwise
        return None


def _own(plan: VertexPlan, decision: Decision) -> NDArray[np.int64] | None:
    """None: it is not the decision that was taken."""
    told: dict[str, Any] = decision.result
    if plan.input_bytes is None or any(plan.result.get(name) != told.get(name) for name in _SAME):
        return None
    return plan.input_bytes - np.int64(plan.facts.broadcast)


def skew(decision: Decision | None) -> float | None:
    """The largest range as a multiple of the average one. None: not known, there is one range only, or they differ on purpose."""
    if decision is None or decision.rule == TAPERED or not isinstance(decision.result, dict):
        return None
    result: dict[str, Any] = decision.result
    parallelism, largest = result.get("parallelism"), result.get("largest")
    total = _total(decision)
    if not isinstance(parallelism, int) or not isinstance(largest, int) or parallelism < 2 or not total:
        return None
    return largest * parallelism / total


def _total(decision: Decision) -> int:
    told = decision.inputs.get("non_broadcast")
    return told if isinstance(told, int) else 0


def ranges(decision: Decision | None) -> Histogram | None:
    """Histogram of the ranges of a vertex, with a sentence on them. None: not known."""
    sizes = range_bytes(decision)
    return None if decision is None or sizes is None else histogram(sizes, ranges_text(decision))


def histogram(
    values: NDArray[Any] | Sequence[float], text: str = "", places: NDArray[Any] | None = None
) -> Histogram | None:
    """``places``: the subtask of each value; None: they are in order. NaN is left out; None where nothing is left."""
    column = np.asarray(values, np.float64)
    known = np.flatnonzero(~np.isnan(column))
    if not len(known):
        return None
    column = column[known]
    low, high = float(column.min()), float(column.max())
    bars = [Bar(low=low, high=high, count=len(column))]
    if high > low:
        counts, edges = np.histogram(column, bins=min(BARS, max(4, len(column))))
        bars = [
            Bar(low=float(a), high=float(b), count=int(n))
            for a, b, n in zip(edges[:-1], edges[1:], counts, strict=True)
        ]
    top = int(known[int(column.argmax())])
    return Histogram(
        bars=bars,
        count=len(column),
        smallest=low,
        median=float(np.median(column)),
        mean=float(column.mean()),
        largest=high,
        largest_at=top if places is None else int(places[top]),
        text=text,
    )
