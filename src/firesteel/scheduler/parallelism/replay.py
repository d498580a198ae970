"""The part of a decision's record that holds the sizes and bounds it was made from, so that it can be made again, or differently."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from firesteel.model.costs import StepCost
from firesteel.model.job_graph import ShipStrategy
from firesteel.scheduler.kernel.decisions import Sized
from firesteel.scheduler.parallelism.model import MAX_NUMBERS_RECORDED, Bounds, ConsumedResult, Longs

TAPERED = "tapered"
"""The rule where the subtasks of later waves are smaller on purpose."""
MAX_NUMBERS_PACKED = 1 << 16
"""In all inputs of one decision; more are not recorded."""
_BOUNDS = (
    "minimum",
    "maximum",
    "maximum_key",
    "max_slices",
    "vertex_maximum",
    "fixed",
    "fixed_rule",
    "slots",
    "least_volume",
)


def remembered(inputs: Sequence[ConsumedResult], bounds: Bounds) -> dict[str, Any]:
    """For the "inputs" of a decision: ``co_partitioned``, ``allowed`` (the bounds), and all sizes that there were; of a join
    ``divisible``, ``indivisible`` and ``by_value`` too.

    ``sizes``, per input: bytes per subpartition (summed over the producers), or per cell, producer by producer; nothing for
    an input whose sizes were not known. Where that would be much, ``packed_sizes`` instead (``pack_numbers``); beyond
    MAX_NUMBERS_PACKED neither.
    """
    allowed = {name: value for name in _BOUNDS if (value := getattr(bounds, name)) is not None}
    if bounds.slots_maximum is not None:
        allowed["slots_maximum"] = bounds.slots_maximum.count
    allowed |= cost_told(bounds)
    known: dict[str, Any] = {"co_partitioned": [r.co_partitioned for r in inputs], "allowed": allowed}
    for name in ("divisible", "indivisible", "by_value"):
        if any(each := [getattr(result, name) for result in inputs]):
            known[name] = each
    for name in ("apart", "tapers"):
        if getattr(bounds, name):
            allowed[name] = True
    if "divisible" in known:
        allowed["divides"] = bounds.divides
    told = [_told(result) for result in inputs]
    count = sum(len(sizes) for sizes in told)
    if count <= MAX_NUMBERS_RECORDED:
        return known | {"sizes": [sizes.tolist() for sizes in told]}
    if count <= MAX_NUMBERS_PACKED:
        return known | {"packed_sizes": [pack_numbers(sizes) for sizes in told]}
    return known


def cost_told(bounds: Bounds) -> dict[str, Any]:
    """For the record of a decision: the measured cost and the duration aimed at; nothing where the cost is not known."""
    if bounds.cost is None:
        return {}
    cost = {"seconds_per_byte": bounds.cost.seconds_per_byte, "runs": bounds.cost.runs}
    rebuilt = {"rebuilt": bounds.rebuilt} if bounds.rebuilt else {}
    return {"cost": cost, "target_seconds": bounds.target_seconds, **rebuilt}


def _told(result: ConsumedResult) -> Longs:
    sizes: ArrayLike | None = result.folded() if result.is_keyed or result.cells is None else result.cells
    return np.zeros(0, dtype=np.int64) if sizes is None else np.asarray(sizes, dtype=np.int64).ravel()


def pack_numbers(numbers: ArrayLike) -> str:
    """Numbers from 0 as text: the type's width in bytes, a colon, and little-endian integers, deflated, in base 64."""
    values = np.asarray(numbers, dtype=np.uint64)
    width = np.min_scalar_type(values.max(initial=0)).itemsize
    return f"{width}:{base64.b64encode(zlib.compress(values.astype(f'<u{width}').tobytes(), 6)).decode()}"


def unpack_numbers(text: str) -> Longs:
    """Of ``pack_numbers``. Raises ValueError for any other text."""
    width, colon, packed = text.partition(":")
    if not colon or width not in ("1", "2", "4", "8"):
        raise ValueError("no packed numbers")
    try:
        raw = zlib.decompress(base64.b64decode(packed, validate=True))
    except zlib.error:
        raise ValueError("no packed numbers") from None
    return np.frombuffer(raw, dtype=f"<u{width}").astype(np.int64)


def recalled(inputs: Mapping[str, Any]) -> tuple[list[ConsumedResult], Bounds] | None:
    """Returns the results and bounds that a decision was made from, out of its "inputs"; None where they do not tell (there were too many sizes, nothing was
    measured, or an older Firesteel wrote them)."""
    try:
        facts = msgspec.convert({**inputs, "type": Sized.__name__}, Sized)  # none up to format 2.7
    except msgspec.ValidationError:
        return None
    told = facts.sizes if facts.packed_sizes is None else map(unpack_numbers, facts.packed_sizes)
    if told is None:
        return None
    results = [_result(facts, index, np.asarray(sizes, dtype=np.int64)) for index, sizes in enumerate(told)]
    if any(r.folded() is None and not (r.is_broadcast or r.is_forward) for r in results):
        return None
    allowed = dict(facts.allowed)
    cost: dict[str, Any] | None = allowed.pop("cost", None)
    if cost is not None:
        allowed["cost"] = StepCost(float(cost["seconds_per_byte"]), int(cost["runs"]))
    slots = allowed.pop("slots_maximum", None)
    if slots is not None:
        own = allowed.get("vertex_maximum")
        allowed["vertex_maximum"] = slots if own is None else min(own, slots)
    filled: dict[str, Any] = {"vertex_maximum": None, "fixed": None, **allowed}
    bounds = Bounds(**filled, data_volume=facts.data_volume, cut=facts.cut)
    return results, bounds


def _result(facts: Sized, index: int, sizes: Longs) -> ConsumedResult:
    ship, partitions, width = ShipStrategy(facts.ship[index]), facts.partitions[index], facts.subpartitions[index]
    bare = ConsumedResult(
        dataset=facts.datasets[index],
        ship=ship,
        co_partitioned=facts.co_partitioned[index],
        num_partitions=partitions,
        num_subpartitions=width,
        total_bytes=facts.bytes[index],
        is_broadcast=ship is ShipStrategy.BROADCAST,
        divisible=facts.divisible[index] if facts.divisible else False,
        indivisible=facts.indivisible[index] if facts.indivisible else "",
        by_value=facts.by_value[index] if facts.by_value else False,
    )
    if not len(sizes):
        return bare
    if bare.is_keyed or len(sizes) != partitions * width:
        return replace(bare, subpartition_bytes=sizes)
    return replace(bare, cells=sizes.reshape(partitions, width))
