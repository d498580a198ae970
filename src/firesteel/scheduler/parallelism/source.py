"""The parallelism of a source, and the splits that each of its subtasks reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from firesteel.model.arrays import compact
from firesteel.model.job_graph import SourceInfo
from firesteel.scheduler.kernel.commands import Splits
from firesteel.scheduler.kernel.decisions import SourceSized, SplitShares
from firesteel.scheduler.parallelism.bounds import decided_as_before
from firesteel.scheduler.parallelism.line import Line, check_sizes
from firesteel.scheduler.parallelism.model import MAX_NUMBERS_RECORDED, Bounds, Longs, Plan
from firesteel.scheduler.parallelism.replay import TAPERED, cost_told
from firesteel.scheduler.parallelism.waves import (
    MOST_RECKONED,
    TASK_DURATION,
    Waves,
    by_duration,
    hashed,
    most_bytes,
    whole_waves,
)

LEAST_BYTES_PER_SLOT = 1 << 20
"""Less than this is not worth a subtask, however many slots are free."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SourcePlan(Plan):
    """``splits``: those of each subtask are contiguous. ``assignment``: the fields of a ``records.Decision`` "split assignment"."""

    input_bytes: Longs
    splits: Splits
    assignment: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Choice:
    parallelism: int
    rule: str
    bounds: list[str]
    cuts: Longs | None = None
    """Splits of each subtask; None: runs whose largest is as small as can be."""


def decide_source(info: SourceInfo, bounds: Bounds, default_source_parallelism: int | None = None) -> SourcePlan:
    """A source's parallelism: by its nature, else set, else inferred, else the default (FLIP-187).

    ``bounds.fixed`` is what the user (or a forward group) set. Inferred is what the source itself answered, else its
    bytes over the data volume, but no fewer than ``bounds.slots`` (the bytes of a source say little about what the
    steps behind it cost) if each has a MiB to read, and at most one subtask per split; by the time that subtasks take, where earlier
    runs have measured it (``task_duration``). More than one wave of subtasks are whole waves, of which the later ones are smaller where
    that ends sooner (``waves``). Upper bound: ``default_source_parallelism``, which
    unset means the maximum, the step's own maximum, and ``bounds.slots_maximum``. Splits whose sizes are all 0 are unknown: the upper bound.
    The minimum parallelism is for decided vertices, not for sources. Splits are shared out in order, as runs whose
    largest is as small as can be, unless later waves are smaller.
    """
    check_sizes(info.split_bytes)
    before = decided_as_before(bounds, lambda free: decide_source(info, free, default_source_parallelism))
    if before is not None:
        return before
    line = Line(info.split_bytes)
    choice = _choose(info, line, bounds, default_source_parallelism)
    n = choice.parallelism
    cuts = line.cut(n) if choice.cuts is None else choice.cuts
    sizes = compact(np.diff(line.prefix[cuts]))
    read = {"splits": line.size, "bytes": line.total, "largest_split": line.largest, "data_volume": bounds.data_volume}
    per_subtask = np.diff(cuts)
    shares = SplitShares(**read, parallelism=n, fewest=int(per_subtask.min()), most=int(per_subtask.max()))
    assignment = {
        "inputs": shares,
        "rule": "contiguous, smaller wave by wave" if choice.rule == TAPERED else "contiguous, by bytes",
        "result": {**_few_cuts(cuts), "largest": int(sizes.max()), "smallest": int(sizes.min())},
    }
    numbers = np.arange(line.size + 1, dtype=np.int32)
    splits = Splits(numbers if np.array_equal(cuts, numbers) else cuts.astype(np.int32), numbers[:-1])
    facts = SourceSized(
        **read,
        inferred=info.inferred_parallelism,
        default_source_parallelism=default_source_parallelism,
        slots=bounds.slots,
        hashed=hashed(bounds),
        **cost_told(bounds),
    )
    return SourcePlan(
        parallelism=n,
        facts=facts,
        rule=choice.rule,
        bounds=choice.bounds,
        result=n,
        input_bytes=sizes,
        splits=splits,
        assignment=assignment,
    )


def _few_cuts(cuts: Longs) -> dict[str, Any]:
    """Subtask k reads the splits cuts[k] .. cuts[k + 1]; left out of the record where there are very many."""
    return {"cuts": cuts.tolist()} if len(cuts) <= MAX_NUMBERS_RECORDED else {}


def _choose(info: SourceInfo, line: Line, bounds: Bounds, default: int | None) -> _Choice:
    if info.fixed_parallelism is not None:
        n = max(1, info.fixed_parallelism)
        asked = bounds.fixed not in (None, n)
        words = [f"the source itself, which fixes {n} where {bounds.fixed} was set"] if asked else []
        return _Choice(n, "given by the source", words)
    if bounds.fixed is not None:
        return _Choice(bounds.fixed, bounds.fixed_rule, [])
    if not line.size:
        return _Choice(1, "no splits", [])
    upper, upper_words = _upper_bound(bounds, default)
    inferred = info.inferred_parallelism
    if inferred is not None and inferred > 0:
        words = [upper_words] if inferred > upper else []
        return _Choice(min(inferred, upper), "inferred by the source", words)
    if not line.total:
        words = ["the number of splits"] if line.size < upper else [upper_words]
        return _Choice(min(upper, line.size), "default", words)
    return _by_bytes(line, bounds, upper, upper_words)


def _by_bytes(line: Line, bounds: Bounds, upper: int, upper_words: str) -> _Choice:
    by_bytes, waves = -(-line.total // bounds.data_volume), Waves.of(bounds)
    filled = today = max(by_bytes, min(bounds.slots, line.size, -(-line.total // LEAST_BYTES_PER_SLOT)))
    if bounds.least_volume and filled > bounds.slots > 1:
        today = max(filled, min(whole_waves(filled, bounds.slots), line.total // waves.worth, line.size, upper))
    least = min(by_bytes, line.size)
    fewest = -(-line.total // most_bytes(bounds))
    wanted = by_duration(bounds, line.total, least=least, today=today, fewest=lambda: fewest)
    words = ["the number of splits"] if line.size < min(wanted, upper) else [upper_words] if wanted > upper else []
    n, cuts = min(wanted, line.size, upper), None
    if bounds.cost is not None and wanted != today:
        return _Choice(n, TASK_DURATION, words)
    if bounds.least_volume and not words and bounds.slots > 1 and filled <= MOST_RECKONED:
        limit = bounds.data_volume if bounds.tapers else 0
        cuts, tapers = waves.best(line, line.cut(filled), (n,), (by_bytes, upper), limit)
        n = len(cuts) - 1
        if tapers:
            return _Choice(n, TAPERED, [], cuts)
    return _Choice(n, "inferred from bytes", words, cuts)


def _upper_bound(bounds: Bounds, default: int | None) -> tuple[int, str]:
    upper, words = bounds.maximum, f"{bounds.maximum_key} {bounds.maximum}"
    if default is not None:
        upper, words = default, f"default-source-parallelism {default}"
    own = bounds.lower_maximum
    return own if own is not None and own[0] < upper else (upper, words)
