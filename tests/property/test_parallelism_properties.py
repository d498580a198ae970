"""The decider against brute force on small inputs, and what must hold for any input."""

import time
from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import examples
from tests.scheduler_kit import GraphBuilder, plane

from firesteel.model.job_graph import ShipStrategy, SourceInfo
from firesteel.scheduler.parallelism import Bounds, ConsumedResult, decide_source, decide_vertex
from firesteel.scheduler.parallelism import line as line_module
from firesteel.scheduler.parallelism.line import Line
from firesteel.scheduler.parallelism.waves import Waves

modest = settings(max_examples=examples(100), deadline=None)
sizes = st.one_of(st.integers(0, 9), st.integers(0, 9), st.sampled_from([0, 1, 100]), st.integers(2**53 - 3, 2**53 + 3))
weights = st.lists(sizes, min_size=1, max_size=9)


def partitions_of(size, n):
    """All ways to cut ``size`` units into n contiguous, possibly empty ranges."""
    for inner in combinations(range(size + n - 1), n - 1):
        yield (0, *(c - i for i, c in enumerate(inner)), size)


def sums(values, cuts):
    return [sum(values[a:b]) for a, b in pairwise(cuts)]


def smallest_largest(values, n, slices=None, max_slices=None):
    """Brute force: the least possible largest range, None if the slice bound excludes every cut."""
    allowed = (
        cuts for cuts in partitions_of(len(values), n) if max_slices is None or max(sums(slices, cuts)) <= max_slices
    )
    return min((max(sums(values, cuts)) for cuts in allowed), default=None)


@modest
@given(weights, st.integers(1, 5))
def test_largest_range_is_as_small_as_can_be(values, n):
    cuts = Line(values).cut(n).tolist()
    assert (cuts[0], cuts[-1], len(cuts)) == (0, len(values), n + 1)
    assert max(sums(values, cuts)) == smallest_largest(values, n)
    filled = [b > a for a, b in pairwise(cuts)]
    assert all(b >= a for a, b in pairwise(cuts))
    assert sum(filled) == min(n, len(values))


@modest
@given(st.lists(st.tuples(sizes, st.integers(0, 4)), min_size=1, max_size=8), st.integers(1, 4), st.integers(4, 16))
def test_largest_range_is_optimal_within_a_slice_bound(units, n, max_slices):
    values, slices = [u[0] for u in units], [u[1] for u in units]
    best = smallest_largest(values, n, slices, max_slices)
    line = Line(values, slices)
    fits = line.ranges_needed(line.total, max_slices, n) <= n
    assert fits == (best is not None)
    if fits:
        cuts = line.cut(n, max_slices).tolist()
        assert max(sums(values, cuts)) == best
        assert max(sums(slices, cuts)) <= max_slices


@modest
@given(weights, st.integers(1, 40))
def test_fewest_ranges_within_the_limit(values, volume):
    limit = max(volume, *values)
    fewest = next(n for n in range(1, len(values) + 1) if smallest_largest(values, n) <= limit)
    assert Line(values).ranges_needed(limit, None, 100) == fewest
    if fewest > 1:
        assert Line(values).ranges_needed(limit, None, fewest - 1) == fewest


@st.composite
def results(draw, width=None):
    kind = draw(st.sampled_from(["keyed", "rescale", "rebalance", "broadcast", "global"]))
    producers = draw(st.integers(1, 4))
    width = {"keyed": width, "broadcast": 1, "global": 1}.get(kind, draw(st.integers(1, 5)))
    rows = draw(st.lists(st.lists(sizes, min_size=width, max_size=width), min_size=producers, max_size=producers))
    cells = np.array(rows, dtype=np.int64)
    ship = ShipStrategy.HASH if kind == "keyed" else ShipStrategy(kind)
    folded = draw(st.booleans()) and kind == "keyed"
    return ConsumedResult(
        dataset=draw(st.integers(0, 99)),
        ship=ship,
        co_partitioned=kind == "keyed",
        num_partitions=producers,
        num_subpartitions=width,
        subpartition_bytes=cells.sum(axis=0) if folded else None,
        cells=cells,
        total_bytes=int(cells.sum()),
        is_broadcast=kind == "broadcast",
    )


@st.composite
def requests(draw):
    width = draw(st.integers(1, 9))
    inputs = draw(st.lists(results(width), min_size=1, max_size=3))
    low = draw(st.integers(1, 5))
    return inputs, Bounds(
        minimum=low,
        maximum=draw(st.integers(2 * low, 24)),  # two powers of two apart: one lies between
        fixed=draw(st.one_of(st.none(), st.integers(1, 20))),
        data_volume=draw(st.one_of(st.integers(1, 60), st.just(2**53))),
        max_slices=draw(st.sampled_from([1, 3, 6, 12, 1000])),
        cut=draw(st.sampled_from(["by-bytes", "by-count"])),
        vertex_maximum=draw(st.one_of(st.none(), st.integers(1, 12))),
        slots=draw(st.sampled_from([1, 4, 7])),
        least_volume=draw(st.sampled_from([0, 1, 9])),
    )


def times_read(result, ranges):
    """How often each cell is read over all subtasks, and the bytes of each subtask."""
    counts = np.zeros((result.num_partitions, result.num_subpartitions), dtype=int)
    read = []
    for k in range(ranges.parallelism):
        total = 0
        for p0, p1, s0, s1 in ranges.of(k).tolist():
            assert 0 <= p0 < p1 <= result.num_partitions
            assert 0 <= s0 < s1 <= result.num_subpartitions
            counts[p0:p1, s0:s1] += 1
            total += int(result.cells[p0:p1, s0:s1].sum())
        read.append(total)
    return counts, read


@settings(max_examples=examples(250), deadline=None)
@given(requests())
def test_every_cell_is_read_exactly_once_and_every_number_is_true(request):
    inputs, bounds = request
    plan = decide_vertex(inputs, bounds)
    read_by_all = np.zeros(plan.parallelism, dtype=np.int64)
    own = np.zeros(plan.parallelism, dtype=np.int64)
    for result, ranges in zip(inputs, plan.ranges, strict=True):
        assert ranges.parallelism == plan.parallelism
        counts, read = times_read(result, ranges)
        assert (counts == (plan.parallelism if result.is_broadcast else 1)).all()
        read_by_all += np.array(read)
        own += 0 if result.is_broadcast else np.array(read)
    assert plan.input_bytes.tolist() == read_by_all.tolist()
    assert plan.decision["result"]["largest"] == own.max()
    assert plan.decision["result"]["smallest"] == own.min()
    together = [ranges for result, ranges in zip(inputs, plan.ranges, strict=True) if result.co_partitioned]
    assert len({tuple(ranges.rects[:, 2:].ravel().tolist()) for ranges in together}) <= 1


@settings(max_examples=examples(130), deadline=None)
@given(requests())
def test_parallelism_is_within_the_bounds_and_the_words_are_true(request):
    inputs, bounds = request
    plan = decide_vertex(inputs, bounds)
    words = " and ".join(plan.decision["bounds"])
    slices = plan.decision["result"]["slices"]
    if (
        "max-slices-per-subtask" not in words
        and plan.decision["rule"] == "by-bytes"
        and plan.decision["inputs"]["non_broadcast"]
    ):
        assert slices <= bounds.max_slices or all(r.is_broadcast for r in inputs)
    if bounds.fixed is not None:
        assert plan.parallelism == bounds.fixed
        return
    if plan.decision["rule"] == "global":
        assert plan.parallelism == 1
        return
    low, high = bounds.interval()
    assert low <= plan.parallelism <= high
    if (
        "max-parallelism" in words or "the step's max parallelism" in words
    ) and "as small a largest range" not in words:
        assert plan.parallelism == high
    if "min-parallelism" in words:
        assert plan.parallelism == low
    if bounds.cut == "by-count" and bounds.vertex_maximum is None:
        assert plan.parallelism.bit_count() == 1
    if bounds.cut == "by-bytes" and not words:
        limit = max(1, int(bounds.data_volume - min(plan.decision["inputs"]["broadcast"], bounds.data_volume * 0.5)))
        assert plan.decision["result"]["largest"] <= limit
        assert plan.decision["result"]["slices"] <= bounds.max_slices or not plan.decision["inputs"]["non_broadcast"]


@modest
@given(requests())
def test_idle_slots_only_ever_make_more_subtasks_and_no_larger_largest_range(request):
    inputs, bounds = request
    filled, plain = decide_vertex(inputs, bounds), decide_vertex(inputs, replace(bounds, least_volume=0))
    assert filled.parallelism >= plain.parallelism
    assert (filled.decision["rule"] == "idle slots") == (filled.parallelism > plain.parallelism)
    if filled.parallelism > plain.parallelism:
        assert filled.decision["result"]["largest"] <= plain.decision["result"]["largest"]
        assert filled.parallelism <= -(-plain.parallelism // bounds.slots) * bounds.slots
        assert filled.parallelism * bounds.least_volume <= filled.decision["inputs"]["non_broadcast"]


@st.composite
def large_requests(draw):
    """Enough to do for several waves: sizes in MiB of a keyed result, or of a source's splits."""
    seed, units = draw(st.integers(0, 1 << 32)), draw(st.integers(1, 500))
    sizes = np.random.default_rng(seed).pareto(draw(st.sampled_from([1.2, 3, 50])), units) * (16 << 20)
    return sizes.astype(np.int64), Bounds(
        minimum=draw(st.sampled_from([1, 1, 9])),
        maximum=draw(st.sampled_from([10, 100, 10000])),
        fixed=None,
        data_volume=draw(st.sampled_from([8, 64, 500])) << 20,
        max_slices=draw(st.sampled_from([100, 32768])),
        cut="by-bytes",
        slots=draw(st.sampled_from([1, 2, 5, 16])),
        least_volume=4 << 20,
        tapers=draw(st.booleans()),
    )


@modest
@given(large_requests())
def test_waves_never_end_later_and_keep_all_bounds(request):
    """Reckoned on slots that differ a little, as ``waves`` does, and on slots that are alike, where a start for each wave may be lost."""
    sizes, bounds = request
    result = ConsumedResult(0, ShipStrategy.HASH, True, 1, len(sizes), sizes, total_bytes=int(sizes.sum()))
    source = SourceInfo(sizes)
    by_volume = replace(bounds, least_volume=0)
    for plan, plain in (
        (decide_vertex([result], bounds), decide_vertex([result], by_volume)),
        (decide_source(source, bounds), decide_source(source, by_volume)),
    ):
        waves = Waves.of(bounds, 16 << 10)
        assert plan.parallelism >= plain.parallelism
        assert plan.input_bytes.sum() == sizes.sum()
        assert waves.end(plan.input_bytes) <= waves.end(plain.input_bytes) * 1.001 + 2 * waves.start
        assert plan.parallelism <= max(bounds.interval()[1], plain.parallelism)
        if plan.decision["rule"] == "tapered":
            assert plan.parallelism % bounds.slots == 0 and bounds.tapers
            assert plan.input_bytes.max() <= max(bounds.data_volume, plain.input_bytes.max())


@modest
@given(requests())
def test_the_same_request_gives_the_same_plan(request):
    inputs, bounds = request
    one, two = decide_vertex(inputs, bounds), decide_vertex(inputs, bounds)
    assert one.decision == two.decision
    for a, b in zip(one.ranges, two.ranges, strict=True):
        assert np.array_equal(a.offsets, b.offsets)
        assert np.array_equal(a.rects, b.rects)


@modest
@given(st.lists(weights.filter(lambda w: len(w) > 3).map(lambda w: w[:4]), min_size=1, max_size=3), st.integers(1, 40))
def test_keyed_inputs_get_the_smallest_parallelism_that_stays_within_the_limit(rows, volume):
    inputs = [
        ConsumedResult(i, ShipStrategy.HASH, True, 1, 4, np.array(r, dtype=np.int64), total_bytes=sum(r))
        for i, r in enumerate(rows)
    ]
    together = [sum(column) for column in zip(*rows, strict=True)]
    plan = decide_vertex(inputs, Bounds(1, 128, None, volume, 32768, "by-bytes"))
    limit = max(volume, *together)
    assert plan.parallelism == next(n for n in range(1, 5) if smallest_largest(together, n) <= limit)
    assert plan.decision["result"]["largest"] == smallest_largest(together, plan.parallelism)


@modest
@given(weights, st.integers(1, 5), st.integers(1, 5), st.integers(1, 40), st.sampled_from([1, 2, 3, 1000]))
def test_the_fewest_subtasks_with_the_smallest_largest_range(values, low, more, volume, max_slices):
    """Against all cuts: where the volume cannot be kept, no fewer subtasks would have as small a largest range."""
    high = low + more - 1
    result = ConsumedResult(0, ShipStrategy.HASH, True, 1, len(values), np.array(values, dtype=np.int64))
    plan = decide_vertex([result], Bounds(low, high, None, volume, max_slices, "by-bytes"))
    slices = [1] * len(values)
    best = {n: smallest_largest(values, n, slices, max_slices) for n in range(low, high + 1)}
    if best[high] is None:
        return  # the slices do not fit: told by the words, and another rule
    limit = max(volume, *values)
    within = [n for n, most in best.items() if most is not None and most <= limit]
    target = best[within[0]] if within else best[high]
    fewest = next(n for n, most in best.items() if most is not None and (n in within if within else most == best[high]))
    if sum(values):
        assert plan.parallelism == fewest
        assert plan.decision["result"]["largest"] == target


@pytest.mark.parametrize("cut", ["by-bytes", "by-count"])
@pytest.mark.parametrize("skew", [0, 1.1, 3])
def test_large_inputs_are_covered_once(cut, skew):
    rng = np.random.default_rng(7)
    sizes = (rng.pareto(skew, 4096) * 2**20).astype(np.int64) if skew else np.full(4096, 2**20)
    result = ConsumedResult(0, ShipStrategy.HASH, True, 50, 4096, sizes, total_bytes=int(sizes.sum()))
    plan = decide_vertex([result], Bounds(1, 512, None, 16 << 20, 32768, cut))
    edges = plan.ranges[0].rects[:, 2:]
    assert edges[0, 0] == 0
    assert edges[-1, 1] == 4096
    assert (edges[1:, 0] == edges[:-1, 1]).all()
    assert plan.input_bytes.sum() == sizes.sum()


def test_a_decision_over_4096_subpartitions_takes_under_10_ms():
    rng = np.random.default_rng(7)
    sizes = (rng.pareto(1.5, 4096) * 2**21).astype(np.int64)
    inputs = [ConsumedResult(i, ShipStrategy.HASH, True, 500, 4096, sizes) for i in range(2)]
    bounds = Bounds(1, 1024, None, 16 << 20, 32768, "by-bytes")
    took = []
    for _ in range(7):
        start = time.process_time()
        plan = decide_vertex(inputs, bounds)
        took.append(time.process_time() - start)
    assert plan.parallelism > 100
    assert min(took) < 0.010  # the quickest, and of the CPU: the others wait for whatever else this machine does


@modest
@given(st.lists(sizes, max_size=9), st.integers(1, 12))
def test_splits_go_out_once_in_order_and_even(split_bytes, n):
    plan = decide_source(SourceInfo(np.array(split_bytes, dtype=np.int64)), Bounds(1, 128, n, 64, 32768, "by-bytes"))
    assert plan.splits.indexes.tolist() == list(range(len(split_bytes)))
    assert plan.input_bytes.tolist() == [
        sum(split_bytes[i] for i in plan.splits.of(k)) for k in range(plan.parallelism)
    ]
    if split_bytes:
        assert plan.input_bytes.max() == smallest_largest(split_bytes, min(n, len(split_bytes)))


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(0, 1 << 32))
def test_looking_all_jumps_up_is_bisecting_for_each(seed):
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 60))
    units = rng.integers(0, rng.choice([1, 3, 100]), size) * rng.integers(0, 2, size), rng.integers(1, 4, size)
    n = int(rng.integers(1, size + 2))

    def answers(dense):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(line_module, "_DENSE", dense)
            line = Line(*units)
            bound = int(rng.integers(line.largest_slices, line.total_slices + 2))
            limit = max(line.largest, line.total // 3)
            needed = [line.ranges_needed(limit, b, at_most) for b in (None, bound) for at_most in (1, n, size)]
            fits = line.ranges_needed(line.total, bound, n) <= n
            return needed, line.cut(n).tolist(), line.cut(n, bound).tolist() if fits else None

    state = rng.bit_generator.state
    one_by_one = answers(0)
    rng.bit_generator.state = state
    assert answers(1 << 20) == one_by_one


# --- by count, subpartitions divide evenly ------------------------------------------------------------------------


@st.composite
def jobs_by_count(draw):
    """One result read by a step that is decided by count, perhaps beside a step of set parallelism, or joined with another."""
    ship = draw(st.sampled_from([ShipStrategy.HASH, ShipStrategy.REBALANCE]))
    builder = GraphBuilder()
    builder.source([1] * 3, parallelism=draw(st.integers(1, 3)))
    inputs = [(0, ship)]
    if ship is ShipStrategy.HASH and draw(st.booleans()):
        inputs.append((builder.source([1]), ship))
    own = draw(st.one_of(st.none(), st.integers(1, 40)))
    decided = builder.step(*inputs, **({} if own is None else {"max_parallelism": own}))
    for _ in range(draw(st.integers(0, 2))):
        fields = draw(st.sampled_from(["parallelism", "max_parallelism"]))
        builder.step((0, ship), **{fields: draw(st.integers(1, 100))})
    low = draw(st.integers(1, 20))
    options = {
        "cut": "by-count",
        "min_parallelism": low,
        "max_parallelism": draw(st.integers(2 * low, 70)),
        "subpartition_factor": draw(st.integers(1, 4)),
        "data_volume_per_task": draw(st.integers(1, 300)),
        "bounded_by_slots": draw(st.booleans()),
    }
    return builder.graph, decided, options, draw(st.integers(1, 40))


@modest
@given(jobs_by_count())
def test_by_count_every_subtask_gets_equally_many_subpartitions(job):
    graph, decided, options, slots = job
    p = plane(graph, **options).start()
    p.worker("w", slots=slots)
    assert p.run().status == "FINISHED"
    assert [d.rule for d in p.decisions("parallelism") if d.vertex == decided] == ["by-count"]
    for vertex in (d.vertex for d in p.decisions("parallelism") if d.rule == "by-count"):
        (deploy,) = [d for d in p.deploys if d.vertex == vertex]
        for ranges in deploy.ranges:
            widths = [sum(s1 - s0 for _, _, s0, s1 in ranges.of(k).tolist()) for k in range(ranges.parallelism)]
            assert len(set(widths)) == 1, f"{ranges.parallelism} subtasks: {widths}"
