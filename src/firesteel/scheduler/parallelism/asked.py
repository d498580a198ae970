"""Options of a decision that somebody asks for by name: ``firesteel decide``, ``firesteel explain --what-if``."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from firesteel.errors import UsageError
from firesteel.model.costs import StepCost
from firesteel.options import (
    CUT,
    DATA_VOLUME_PER_TASK,
    DECIDER_OPTIONS,
    JOIN_SKEW,
    LEAST_VOLUME_PER_SLOT,
    MAX_PARALLELISM,
    MAX_SLICES_PER_SUBTASK,
    MIN_PARALLELISM,
    PARALLELISM_DEFAULT,
    TARGET_TASK_DURATION,
    Options,
    lookup,
    parse_int,
    parse_size,
)
from firesteel.options.registry import Option
from firesteel.scheduler.parallelism.bounds import bounds_within, global_maximum
from firesteel.scheduler.parallelism.model import Bounds

PARALLELISM = "parallelism"
"""Fixes the parallelism; no option of a job, where ``set_parallelism`` does it."""
SLOTS = "slots"
"""Tasks that can run at once; no option of a job, which sees its cluster."""
BYTES_PER_SECOND = "bytes-per-second"
"""Plain bytes that one subtask gets done in a second; no option of a job, which finds it in the journals of earlier runs."""


class Asked(NamedTuple):
    """The answers that a request gives. ``fixed``, ``slots``, ``cost``: None where they are left out."""

    options: Options
    fixed: int | None
    slots: int | None
    cost: StepCost | None


def bounds_asked(values: Mapping[str, Any], defaults: Options) -> Bounds:
    """Bounds from options of the decider, by any name, "parallelism", "slots" (1 where it is left out) and "bytes-per-second" (not known
    where it is left out). Raises UsageError."""
    options, fixed, slots, cost = parsed(values)
    bounds = replace(bounds_within(defaults.with_values(options), fixed), slots=slots or 1, cost=cost)
    if fixed is None:
        bounds.interval()
    return bounds


def bounds_changed(bounds: Bounds, values: Mapping[str, Any], also: Sequence[Option[Any]] = ()) -> Bounds:
    """Returns these bounds with what is asked for in their place. A parallelism that was fixed before stays. ``also``: as ``parsed``
    takes it. Raises UsageError."""
    options, fixed, slots, cost = parsed(values, also)
    changed = bounds if slots is None else replace(bounds, slots=slots)
    if cost is not None:
        target = bounds.target_seconds if bounds.cost is not None else Options()[TARGET_TASK_DURATION]
        changed = replace(changed, cost=cost, target_seconds=target)
    for option, field in (
        (MIN_PARALLELISM, "minimum"),
        (DATA_VOLUME_PER_TASK, "data_volume"),
        (MAX_SLICES_PER_SUBTASK, "max_slices"),
        (LEAST_VOLUME_PER_SLOT, "least_volume"),
        (TARGET_TASK_DURATION, "target_seconds"),
        (CUT, "cut"),
    ):
        if options.is_set(option):
            changed = replace(changed, **{field: options[option]})
    if options.is_set(JOIN_SKEW):
        changed = replace(changed, divides=options[JOIN_SKEW] == "auto")
    if options.is_set(MAX_PARALLELISM) or options.is_set(PARALLELISM_DEFAULT):
        maximum, key = global_maximum(options)
        changed = replace(changed, maximum=maximum, maximum_key=key)
    if fixed is not None and bounds.fixed is None:
        changed = replace(changed, fixed=fixed)
    return changed


def parsed(values: Mapping[str, Any], also: Sequence[Option[Any]] = ()) -> Asked:
    """The values, checked. ``also``: options that are taken beside the decider's. Raises UsageError for what is not taken."""
    left = dict(values)
    fixed, slots, rate = (left.pop(key, None) for key in (PARALLELISM, SLOTS, BYTES_PER_SECOND))
    for key in left:
        check_decider_option(key, also)
    return Asked(Options(left), _count(PARALLELISM, fixed), _count(SLOTS, slots), _cost(rate))


def check_decider_option(key: str, also: Sequence[Option[Any]] = ()) -> None:
    """Raises UsageError, with "did you mean", unless the decider takes an option of this name, or it is one of ``also``."""
    taken = (*DECIDER_OPTIONS, *also)
    names = [name for option in taken for name in (option.key, *option.aliases)]
    short = {name.rsplit(".", 1)[-1] if name != PARALLELISM_DEFAULT.key else name for name in names}
    known = sorted({PARALLELISM, SLOTS, BYTES_PER_SECOND, *short})
    try:
        found = lookup(key)
    except UsageError:
        raise unknown("option", key, [*known, *names], known) from None
    if found not in taken:
        raise UsageError(f"The option '{key}' has no part in this decision.", hint=f"What has: {', '.join(known)}.")


def _count(name: str, value: Any) -> int | None:
    if value is None:
        return None
    try:
        number = parse_int(value)
    except ValueError:
        raise UsageError(f"Option '{name}' = {value!r} is not a whole number of at least 1.") from None
    if number < 1:
        raise UsageError(f"Option '{name}' = {value!r} must be at least 1.")
    return number


def _cost(rate: Any) -> StepCost | None:
    if rate is None:
        return None
    try:
        size = parse_size(rate)
    except ValueError as error:
        raise UsageError(f"Option '{BYTES_PER_SECOND}' = {rate!r} is not {error}.") from None
    if size < 1:
        raise UsageError(f"Option '{BYTES_PER_SECOND}' = {rate!r} must be at least 1 byte.")
    return StepCost(1 / size)


def unknown(what: str, key: str, names: Sequence[str], known: Sequence[str]) -> UsageError:
    """Says that there is no ``what`` called ``key``, and which one may be meant."""
    close = difflib.get_close_matches(key, names, n=1, cutoff=0.6)
    hint = f"Did you mean '{close[0]}'?" if close else f"There are: {', '.join(known)}."
    return UsageError(f"There is no {what} '{key}'.", hint=hint)
