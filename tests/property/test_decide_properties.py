"""What ``firesteel decide`` answers, held against FLIP-187 written down a second time: slowly, and from the JSON alone."""

from __future__ import annotations

import json
from fractions import Fraction
from functools import cache
from io import BytesIO
from math import ceil, floor, log2

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import examples

from firesteel.cli.answers import answers
from firesteel.options import Options

DEFAULTS = {
    "min-parallelism": 1,
    "max-parallelism": 128,
    "data-volume-per-task": 64 << 20,
    "cut": "by-bytes",
    "parallelism": None,
}
sizes = st.one_of(st.integers(0, 9), st.sampled_from([0, 0, 1, 30]), st.integers(2**53 - 2, 2**53 + 2))


@st.composite
def inputs(draw, width):
    """Of one width where they are keyed, mostly: a different one cannot be met."""
    one = {}
    if draw(st.booleans()):
        one["pattern"] = draw(st.sampled_from(["all-to-all", "pointwise"]))
    if draw(st.booleans()):
        one["broadcast"] = draw(st.sampled_from([True, False, None]))
    if draw(st.booleans()):
        one["keyed"] = draw(st.sampled_from([True, False, None]))
    own = draw(st.sampled_from([width] * 9 + [width + 1]))
    one["bytes"] = draw(st.lists(st.lists(sizes, min_size=own, max_size=own), min_size=1, max_size=4))
    return one


@st.composite
def requests(draw):
    options = {
        "min-parallelism": draw(st.integers(1, 5)),
        "max-parallelism": draw(st.integers(1, 12)),
        "data-volume-per-task": draw(st.sampled_from([1, 2, 5, 12, 40, 2**53, 2**54])),
        "cut": draw(st.sampled_from(["by-bytes", "by-count"])),
        "parallelism": draw(st.sampled_from([None, None, None, 1, 3, 7])),
    }
    dropped = draw(st.sets(st.sampled_from(list(options)), max_size=2))
    options = {key: value for key, value in options.items() if key not in dropped}
    width = draw(st.integers(1, 6))
    return {"options": options, "inputs": draw(st.lists(inputs(width), min_size=1, max_size=3))}


def ask(request):
    ((text, _),) = answers(BytesIO(json.dumps(request).encode()), Options(), "the test")
    return json.loads(text)


def is_broadcast(one):
    return bool(one.get("broadcast"))


def is_keyed(one):
    if is_broadcast(one):
        return False
    keyed = one.get("keyed")
    return one.get("pattern", "all-to-all") == "all-to-all" if keyed is None else keyed


def total(one):
    return sum(map(sum, one["bytes"]))


def read_by(one, rects):
    """Cells of ``one`` in a subtask's ranges, each as often as it is in them."""
    return [
        (p, s)
        for rect in rects
        for p in range(*rect["partitions"])
        for s in range(*rect["subpartitions"])
        if one["bytes"][p][s] >= 0  # out of bounds: IndexError
    ]


def effective(request):
    return DEFAULTS | request["options"]


def limit(request):
    """V less the discount for broadcasts, exactly."""
    volume = Fraction(effective(request)["data-volume-per-task"])
    broadcast = sum(total(one) for one in request["inputs"] if is_broadcast(one))
    return volume - min(broadcast, volume / 2)


def cannot_be_met(request):
    options = effective(request)
    widths = {len(one["bytes"][0]) for one in request["inputs"] if is_keyed(one)}
    if len(widths) > 1:
        return True
    if options["parallelism"] is not None:
        return False
    low, high = options["min-parallelism"], options["max-parallelism"]
    if options["cut"] == "by-count":
        return low > high or not any(low <= 2**k <= high for k in range(40))
    return low > high


@settings(max_examples=examples(100), deadline=None)
@given(requests())
def test_every_cell_is_read_once_and_a_broadcast_by_each(request_):
    answer = ask(request_)
    assert ("error" in answer) == cannot_be_met(request_), answer
    if "error" in answer:
        return
    n = answer["parallelism"]
    for one, subtasks in zip(request_["inputs"], answer["ranges"], strict=True):
        assert len(subtasks) == n
        every = sorted((p, s) for p, row in enumerate(one["bytes"]) for s in range(len(row)))
        assert all(a < b for rects in subtasks for rect in rects for a, b in rect.values())
        if is_broadcast(one):
            assert all(sorted(read_by(one, rects)) == every for rects in subtasks)
            continue
        assert sorted(cell for rects in subtasks for cell in read_by(one, rects)) == every
        if is_keyed(one):
            assert all(rect["partitions"] == [0, len(one["bytes"])] for rects in subtasks for rect in rects)
    keyed = [r for one, r in zip(request_["inputs"], answer["ranges"], strict=True) if is_keyed(one)]
    for subtask in zip(*keyed, strict=True):
        assert len({json.dumps([rect["subpartitions"] for rect in rects]) for rects in subtask}) <= 1


@settings(max_examples=examples(100), deadline=None)
@given(requests())
def test_parallelism_by_count_is_the_seeds_formula(request_):
    request_["options"]["cut"] = "by-count"
    answer, options = ask(request_), effective(request_)
    if "error" in answer:
        return
    if options["parallelism"] is None:
        needed = ceil(sum(total(one) for one in request_["inputs"] if not is_broadcast(one)) / limit(request_))
        low = 2 ** ceil(log2(options["min-parallelism"]))
        high = 2 ** floor(log2(options["max-parallelism"]))
        powers = [2**k for k in range(70)]
        nearest = min(powers, key=lambda power: (abs(power - needed), -power))
        assert answer["parallelism"] == min(max(nearest, low), high)
    else:
        assert answer["parallelism"] == options["parallelism"]
    n = answer["parallelism"]
    for one, subtasks in zip(request_["inputs"], answer["ranges"], strict=True):
        if is_broadcast(one) or (one.get("pattern") == "pointwise" and not is_keyed(one)):
            continue
        width = len(one["bytes"][0])
        for k, rects in enumerate(subtasks):
            begin, end = floor(k * width / n), floor((k + 1) * width / n)
            assert [rect["subpartitions"] for rect in rects] == ([[begin, end]] if begin < end else [])


def units_of(request):
    """Bytes of what may not be split, in the order in which it is laid out: keyed inputs together, where the first stands."""
    row, keyed_done = [], False
    for one in request["inputs"]:
        if is_broadcast(one):
            continue
        if not is_keyed(one):
            row += [size for producer in one["bytes"] for size in producer]
        elif not keyed_done:
            keyed_done = True
            together = [producer for other in request["inputs"] if is_keyed(other) for producer in other["bytes"]]
            row += [sum(column) for column in zip(*together, strict=True)]
    return row


def best_largest(row, n):
    """The least possible largest sum of n contiguous runs."""

    @cache
    def best(start, runs):
        if runs == 1:
            return sum(row[start:])
        ends = range(start, len(row) + 1)
        return min(max(sum(row[start:end]), best(end, runs - 1)) for end in ends)

    return best(0, n)


@settings(max_examples=examples(100), deadline=None)
@given(requests())
def test_by_bytes_is_the_fewest_ranges_within_the_limit_and_the_evenest_of_them(request_):
    request_["options"]["cut"] = "by-bytes"
    request_["inputs"] = request_["inputs"][:2]
    answer, options = ask(request_), effective(request_)
    if "error" in answer:
        return
    row, n = units_of(request_), answer["parallelism"]
    if options["parallelism"] is not None:
        assert n == options["parallelism"]
    elif not row:
        assert n == options["min-parallelism"]
    else:
        allowed = max(limit(request_), *row)
        fits = (k for k in range(1, options["max-parallelism"]) if best_largest(tuple(row), k) <= allowed)
        assert n == max(next(fits, options["max-parallelism"]), options["min-parallelism"])
    shares = [0] * n
    for one, subtasks in zip(request_["inputs"], answer["ranges"], strict=True):
        if not is_broadcast(one):
            for k, rects in enumerate(subtasks):
                shares[k] += sum(one["bytes"][p][s] for p, s in read_by(one, rects))
    if row:
        assert max(shares) == best_largest(tuple(row), n)
