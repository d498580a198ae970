"""Explanation of a vertex's ranges in a sentence, from the sizes that its decision was taken by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from firesteel.humanize import format_bytes, format_count, plural
from firesteel.scheduler.kernel.records import Decision

EVEN = 1.25
"""Ranges whose largest is at most so many times the average are called even."""


def ranges_text(decision: Decision) -> str:
    """Empty: nothing was cut, or the sizes are not known."""
    result = decision.result
    if not isinstance(result, dict) or "largest" not in result or not decision.inputs.get("sizes"):
        return ""
    parallelism, largest = int(result["parallelism"]), int(result["largest"])
    sizes = _summed(decision.inputs["sizes"], decision.inputs.get("co_partitioned"))
    total = sum(sizes)
    if parallelism < 2 or not total or len(sizes) < 2:
        return ""
    mean, heaviest = total / parallelism, max(sizes)
    pieces = (
        f"{plural(len(sizes), 'subpartition')}, {format_bytes(total / len(sizes))} on average and {format_bytes(heaviest)} at "
        f"most, in {format_count(parallelism)} contiguous ranges"
    )
    times = largest / mean
    if times <= EVEN:
        return f"{pieces}: the largest has {times:.2f} times the average."
    text = f"{pieces}: the largest has {times:.1f} times the average."
    if heaviest * EVEN >= largest:
        share = heaviest / total
        return (
            f"{text} It is one subpartition, with {100 * share:.0f} % of all bytes: a key that has so many rows, or a few of "
            "them. Rows of a key stay together; aggregate before, or add a column to the key."
        )
    if str(decision.inputs.get("cut")) == "by-count":
        return (
            f"{text} By count, each has equally many subpartitions, whatever they weigh; cut=by-bytes evens them out."
        )
    return text


def _summed(sizes: Sequence[Any], together: Sequence[Any] | None) -> list[int]:
    """Bytes per subpartition, of all inputs that are cut together; ``together``: which are (None: not known, all of them)."""
    chosen = sizes if together is None else [each for each, flag in zip(sizes, together, strict=False) if flag]
    lists = [each for each in chosen if isinstance(each, list)]
    length = max(map(len, lists), default=0)
    return [sum(int(each[n]) for each in lists if n < len(each)) for n in range(length)]
