"""``firesteel.decide``: what the decider would make of some inputs, without a job. ``firesteel decide`` is its command."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from firesteel.errors import UsageError
from firesteel.humanize import plural
from firesteel.model.job_graph import ShipStrategy
from firesteel.options import Options, parse_size
from firesteel.report.decisions import reason_of_plan
from firesteel.scheduler.inputs import DirectInputs
from firesteel.scheduler.kernel.commands import InputRanges
from firesteel.scheduler.parallelism import ConsumedResult
from firesteel.scheduler.parallelism.asked import bounds_asked, unknown
from firesteel.scheduler.parallelism.vertex_decider import Decider

_SHIPS = {
    ("all-to-all", True): ShipStrategy.HASH,
    ("all-to-all", False): ShipStrategy.REBALANCE,
    ("pointwise", True): ShipStrategy.RESCALE,  # co-partitioned, which goes over its pattern
    ("pointwise", False): ShipStrategy.RESCALE,
}
_PATTERNS = ("all-to-all", "pointwise")
_REQUEST_KEYS = ("options", "inputs", "join")
_INPUT_KEYS = ("pattern", "broadcast", "keyed", "divisible", "bytes")
_MOST_BYTES = 1 << 62
_BY_VALUE = "by-value"
_LONGEST_SHOWN = 100
"""Characters of a value in an error; no size is as long."""


class Slices(NamedTuple):
    """A rectangle of (producer, subpartition) cells, both half-open: ``partitions`` are numbers of producers.

    ``part``: of one subpartition that is divided among subtasks, the part that is read of each producer's rows there, and how many parts
    there are; (0, 1): all of them.
    """

    partitions: tuple[int, int]
    subpartitions: tuple[int, int]
    part: tuple[int, int] = (0, 1)

    def as_dict(self) -> dict[str, tuple[int, int]]:
        """Without ``part`` where that is all."""
        told = {"partitions": self.partitions, "subpartitions": self.subpartitions}
        return told if self.part[1] == 1 else {**told, "part": self.part}


@dataclass(frozen=True, slots=True, eq=False)
class Decided:
    """A step's parallelism and what each of its subtasks reads.

    ``rule``: what chose the parallelism (``by-bytes``, ``by-count``, ``fixed``). ``bounds``: which bounds were hit, in
    words; none: an empty list. ``reason``: one sentence with numbers. ``bytes``: plain bytes per subtask, broadcasts
    included, int64; None where it cannot be known.
    """

    parallelism: int
    rule: str
    bounds: list[str]
    reason: str
    bytes: NDArray[np.int64] | None
    _ranges: tuple[InputRanges, ...]

    @property
    def ranges(self) -> list[list[list[Slices]]]:
        """Per input, per subtask, the rectangles that it reads; a subtask that reads nothing of it has none."""
        return [_rectangles(ranges) for ranges in self._ranges]

    def as_dict(self) -> dict[str, Any]:
        """As ``firesteel decide`` prints it."""
        return {
            "parallelism": self.parallelism,
            "ranges": [[[r.as_dict() for r in subtask] for subtask in one] for one in self.ranges],
            "rule": self.rule,
            "bounds": self.bounds,
            "reason": self.reason,
        }


def _rectangles(ranges: InputRanges) -> list[list[Slices]]:
    shares = [[0, 1]] * len(ranges.rects) if ranges.shares is None else ranges.shares.tolist()
    rects = [
        Slices((p0, p1), (s0, s1), (part, parts))
        for (p0, p1, s0, s1), (part, parts) in zip(ranges.rects.tolist(), shares, strict=True)
    ]
    offsets = ranges.offsets.tolist()
    return [rects[begin:end] for begin, end in pairwise(offsets)]


def decide(
    inputs: Iterable[Mapping[str, Any]], options: Mapping[str, Any] | None = None, join: str | None = None
) -> Decided:
    """The parallelism that a step with these inputs would get, and the ranges its subtasks would read (FLIP-187).

    Each input is ``{"pattern": "all-to-all" | "pointwise", "broadcast": False, "keyed": ..., "bytes": rows}`` with one
    row per producer, each with one size per subpartition: whole numbers or ``"64 MiB"``; plain, uncompressed bytes.
    ``pattern`` is all-to-all where it is left out; ``keyed`` (rows of one subpartition belong together, whoever
    produced them) is then true, and false for pointwise. All keyed inputs are co-partitioned.

    ``join``: the kind of join of the two keyed inputs, left and right ("inner", "left", ...), which says whose heavy subpartitions may be
    divided among subtasks. ``"divisible": True`` of an input says so by itself; ``"by-value"``: of the only one, as where distinct values
    are counted.

    ``options``: those that bound a decision, by any of their names, and ``parallelism``, which
    fixes it. What is left out, or None, has its default. Raises UsageError for what cannot be met.
    """
    given: Any = inputs
    if isinstance(given, Iterable) and not isinstance(given, Mapping | str):
        given = list(cast("Iterable[Any]", given))
    return decide_request({"inputs": given, "options": options, "join": join})


def decide_request(request: Any, defaults: Options | None = None) -> Decided:
    """As :func:`decide`, of ``{"options": ..., "inputs": ..., "join": ...}``. ``defaults``: for options that the request leaves out."""
    fields = _mapping(request, "A request", _REQUEST_KEYS)
    if fields.get("inputs") is None:
        raise UsageError("A request needs 'inputs', a list.", hint='Write {"options": {...}, "inputs": [...]}.')
    options = {} if fields.get("options") is None else _mapping(fields["options"], "'options'")
    defaults = defaults or Options()
    bounds = bounds_asked(options, defaults)
    if not isinstance(fields["inputs"], list | tuple):
        raise UsageError(f"'inputs' is a list, not {_kind(fields['inputs'])}.", hint='Write "inputs": [{...}, ...].')
    given: Sequence[Any] = fields["inputs"]
    results = _joined([_input(i, one) for i, one in enumerate(given)], fields.get("join"))
    plan = Decider(defaults, DirectInputs()).decide(results, bounds, "a request")
    reason = reason_of_plan(plan.decision)
    return Decided(plan.parallelism, plan.rule, plan.bounds, reason, plan.input_bytes, plan.ranges)


def _input(index: int, given: Any) -> ConsumedResult:
    fields = _mapping(given, f"Input {index}", _INPUT_KEYS)
    pattern = "all-to-all" if fields.get("pattern") is None else fields["pattern"]
    if pattern not in _PATTERNS:
        raise UsageError(f"Input {index}: there is no pattern {pattern!r}.", hint='Write "all-to-all" or "pointwise".')
    is_broadcast = _flag(index, fields, "broadcast", default=False)
    keyed = _flag(index, fields, "keyed", default=pattern == "all-to-all") and not is_broadcast
    ship = ShipStrategy.BROADCAST if is_broadcast else _SHIPS[pattern, keyed]
    by_value = fields.get("divisible") == _BY_VALUE
    divisible = by_value or _flag(index, fields, "divisible", default=False)
    if divisible and ship is not ShipStrategy.HASH:
        raise UsageError(
            f"Input {index}: only a keyed all-to-all input can be divisible.", hint="Leave 'divisible' out."
        )
    cells = _cells(index, fields.get("bytes"))
    return ConsumedResult(
        dataset=index,
        ship=ship,
        co_partitioned=keyed,
        num_partitions=cells.shape[0],
        num_subpartitions=cells.shape[1],
        cells=cells,
        total_bytes=int(cells.sum(dtype=np.int64)),
        is_broadcast=is_broadcast,
        divisible=divisible,
        indivisible="as the request says" if fields.get("divisible") is False else "",
        by_value=by_value,
    )


def _joined(results: list[ConsumedResult], join: Any) -> list[ConsumedResult]:
    """The same inputs, those of a join of this kind (None: of none) divisible as far as it allows it, unless the request says otherwise."""
    if any(result.by_value for result in results) and sum(not result.is_broadcast for result in results) > 1:
        raise UsageError(
            "An input that is divisible by value is the only one that is not broadcast.", hint="Leave the others out."
        )
    if join is None:
        return results
    from firesteel.task.operators.join import divisibility_of, join_kind  # needs pyarrow

    if not isinstance(join, str):
        raise UsageError(f"'join' is {_kind(join)}, not the kind of a join.", hint='Write "join": "inner".')
    allowed = divisibility_of(join_kind(join))
    sides = [place for place, result in enumerate(results) if result.ship is ShipStrategy.HASH]
    if len(sides) != len(allowed):
        raise UsageError(
            f"A join has two keyed all-to-all inputs, left and right, and here {'is' if len(sides) == 1 else 'are'} {len(sides)}.",
            hint="Give two, or leave 'join' out.",
        )
    joined = list(results)
    for place, (may, why) in zip(sides, allowed, strict=True):
        if not (results[place].divisible or results[place].indivisible):
            joined[place] = replace(results[place], divisible=may, indivisible=why)
    return joined


def _flag(index: int, fields: Mapping[str, Any], key: str, *, default: bool) -> bool:
    value = fields.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise UsageError(f"Input {index}: '{key}' is {value!r}, which is neither true nor false.")
    return value


def _cells(index: int, rows: Any) -> NDArray[np.int64]:
    if isinstance(rows, np.ndarray):
        rows = rows.tolist()
    if not isinstance(rows, list | tuple):
        raise UsageError(
            f"Input {index} needs 'bytes', a list of lists, not {_kind(rows)}.",
            hint="Write one list per producer, with one size per subpartition.",
        )
    if not rows:
        raise UsageError(f"Input {index} has no producers.", hint='A result has at least one: write "bytes": [[0]].')
    table = [_row(index, number, row) for number, row in enumerate(rows)]
    width = len(table[0])
    ragged = next((number for number, row in enumerate(table) if len(row) != width), None)
    if ragged is not None:
        raise UsageError(
            f"Input {index}: producer 0 has {plural(width, 'subpartition')}, producer {ragged} has {len(table[ragged])}.",
            hint="Every producer gives one size per subpartition.",
        )
    if not width:
        raise UsageError(f"Input {index} has no subpartitions.", hint="A result has at least one.")
    return np.array(table, dtype=np.int64)


def _row(index: int, number: int, row: Any) -> Sequence[int]:
    if isinstance(row, np.ndarray):
        row = row.tolist()
    if not isinstance(row, list | tuple):
        raise UsageError(
            f"Input {index}: the sizes of producer {number} are a list, not {_kind(row)}.",
            hint="Write one list per producer, with one size per subpartition.",
        )
    sizes: Sequence[Any] = row
    if set(map(type, sizes)) <= {int} and (not sizes or (min(sizes) >= 0 and max(sizes) < _MOST_BYTES)):
        return sizes
    return [_size(f"Input {index}: bytes[{number}][{place}]", value) for place, value in enumerate(sizes)]


def _size(where: str, value: Any) -> int:
    if isinstance(value, np.integer):
        value = int(value)
    if len(repr(value)) > _LONGEST_SHOWN:
        raise UsageError(f"{where} = {repr(value)[:_LONGEST_SHOWN]}... is not a size.", hint="Write such as '64 MiB'.")
    if isinstance(value, str | int) and not isinstance(value, bool):
        try:
            size = parse_size(value)
        except ValueError as error:
            raise UsageError(f"{where} = {value!r} is not {error}.") from None
        if size < 0:
            raise UsageError(f"{where} = {value!r} must not be negative.", hint="Sizes are whole numbers from 0.")
        if size < _MOST_BYTES:
            return size
        raise UsageError(f"{where} = {value!r} is 4 EiB or more, which cannot be added up.", hint="Check the sizes.")
    raise UsageError(f"{where} = {value!r} is not a size: a whole number of bytes, or such as '64 MiB'.")


def _mapping(given: Any, what: str, keys: Sequence[str] | None = None) -> Mapping[str, Any]:
    """``given``, if it has no other keys than these."""
    if not isinstance(given, Mapping):
        raise UsageError(
            f"{what} is an object, values by key, not {_kind(given)}.", hint="See 'firesteel decide --help'."
        )
    fields: Mapping[Any, Any] = given
    for key in fields:
        if not isinstance(key, str):
            raise UsageError(f"{what} has the key {key!r}, which is not text.")
        if keys is not None and key not in keys:
            raise unknown(f"key in {what[0].lower()}{what[1:]}:", key, list(keys), list(keys))
    return fields


def _kind(value: Any) -> str:
    if value is None:
        return "nothing"
    names = {bool: "true or false", int: "a number", float: "a number", str: "text", list: "a list", dict: "an object"}
    return names.get(type(value), f"a {type(value).__name__}")
