"""Waves of subtasks: whole ones, later ones smaller, and the larger subtasks of a step first; so that all slots end together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.scheduler_kit import GraphBuilder, plane, reason_in
from tests.simulation.job import SimulatedJob

from firesteel.model.costs import StepCost
from firesteel.model.job_graph import ShipStrategy, SourceInfo
from firesteel.options import Options
from firesteel.scheduler.inputs import Inputs
from firesteel.scheduler.parallelism import Bounds, ConsumedResult, decide_source, decide_vertex
from firesteel.scheduler.parallelism.line import Line
from firesteel.scheduler.parallelism.replay import recalled
from firesteel.scheduler.parallelism.waves import Waves, falling
from firesteel.scheduler.scheduler import create_scheduler
from firesteel.simulation.cluster.nodes import ClusterSpec
from firesteel.simulation.plane import World

MIB = 1 << 20


def bounds(**changes) -> Bounds:
    values = {"minimum": 1, "maximum": 128, "fixed": None, "data_volume": 64 * MIB, "max_slices": 32768} | changes
    return Bounds(**{"cut": "by-bytes", "slots": 16, "least_volume": 4 * MIB, "tapers": True, **values})


def source(split_bytes, given):
    return decide_source(SourceInfo(np.array(split_bytes, np.int64)), given)


def keyed(sizes, partitions=16):
    sizes = np.array(sizes, np.int64)
    return ConsumedResult(0, ShipStrategy.HASH, True, partitions, len(sizes), sizes, total_bytes=int(sizes.sum()))


def ends(plan, given):
    return Waves.of(given).end(plan.input_bytes)


@pytest.mark.parametrize(
    ("total", "waves", "largest", "smallest", "sizes"),
    [
        (144, 4, 64, 8, [64, 45.333, 26.667, 8]),
        (144, 3, 64, 8, [64, 64, 16]),  # smaller ones would make the first too large
        (640, 11, 64, 8, [64] * 9 + [56, 8]),
        (144, 2, 64, 8, []),  # they hold 128 at most
        (30, 4, 64, 8, []),  # no room for four
        (64, 1, 64, 8, []),
    ],
)
def test_sizes_fall_from_wave_to_wave(total, waves, largest, smallest, sizes):
    found = falling(total, waves, largest, smallest)
    assert found == pytest.approx(sizes, abs=1e-3)
    assert not found or sum(found) == pytest.approx(total)
    assert found == sorted(found, reverse=True) and all(smallest <= size <= largest for size in found)


def test_a_source_leaves_no_wave_half_empty_and_little_to_wait_for():
    splits = [4 * MIB] * 576  # 36 times 64 MiB: a third wave would have 4 subtasks for 16 slots
    plan = source(splits, bounds())
    assert (plan.parallelism, plan.decision["rule"]) == (64, "tapered")
    assert reason_in(plan.decision) == (
        "64 source subtasks: 2.25 GiB in 576 splits over 64 MiB each makes 36; 64 in 4 waves on 16 slots, the later ones smaller, "
        "so that the slots end together, bounded by nothing"
    )
    assert plan.input_bytes.max() <= 64 * MIB and plan.input_bytes.sum() == sum(splits)
    assert plan.input_bytes[-16:].max() <= 12 * MIB, "the last ones"
    even = source(splits, bounds(tapers=False))
    assert (even.parallelism, even.input_bytes.max()) == (48, 48 * MIB)
    before = source(splits, bounds(least_volume=0))
    assert before.parallelism == 36
    assert ends(plan, bounds()) < 0.95 * ends(even, bounds()) < 0.85 * ends(before, bounds())


@pytest.mark.parametrize(
    ("splits", "changes", "parallelism"),
    [
        ([4 * MIB] * 160, {}, 16),  # one wave stays one
        ([4 * MIB] * 576, {"maximum": 40}, 40),
        ([4 * MIB] * 576, {"maximum": 30}, 30),
        ([4 * MIB] * 576, {"slots": 1}, 36),  # nobody knows of any
        ([4 * MIB] * 576, {"fixed": 36}, 36),
        ([64 * MIB] * 36, {}, 36),  # nothing to part
        ([4 * MIB] * 576, {"cost": StepCost(1 / (20 << 30)), "target_seconds": 0.25}, 16),  # cheap: one wave
    ],
)
def test_bounds_and_what_is_known_hold(splits, changes, parallelism):
    assert source(splits, bounds(**changes)).parallelism == parallelism


def test_a_start_that_costs_much_is_not_made_for_a_smaller_end():
    slow, quick = (replace(bounds(), cost=StepCost(1 / rate), target_seconds=0.25) for rate in (64 * MIB, 256 * MIB))
    assert source([4 * MIB] * 576, slow).parallelism == 64
    assert source([4 * MIB] * 576, quick).parallelism == 32, "14 ms are as much as 3.5 MiB"


def test_a_heavy_subpartition_does_not_make_all_ranges_as_large():
    sizes = [65 * MIB] + [4 * MIB] * 256
    plan = decide_vertex([keyed(sizes)], bounds(tapers=False))
    assert (plan.parallelism, plan.decision["rule"]) == (32, "idle slots")
    given = bounds(tapers=False)
    fewest = decide_vertex([keyed(sizes)], replace(given, least_volume=0))
    assert fewest.parallelism == 17 and ends(plan, given) < 0.8 * ends(fewest, given)


def test_a_step_behind_an_exchange_is_cut_so_as_well_and_the_record_gives_it_again():
    plan = decide_vertex([keyed([4 * MIB] * 576)], bounds())
    assert (plan.parallelism, plan.decision["rule"]) == (64, "tapered")
    assert plan.input_bytes.max() <= 64 * MIB and plan.input_bytes[0] > 5 * plan.input_bytes[-1]
    found = recalled(plan.decision["inputs"])
    assert found is not None and decide_vertex(*found).decision == plan.decision
    older = {**plan.decision["inputs"], "allowed": {**plan.decision["inputs"]["allowed"]}}
    del older["allowed"]["tapers"]
    found = recalled(older)
    assert found is not None and decide_vertex(*found).parallelism == 48, "as it was decided then"


def test_ranges_of_cut_waves_all_have_units():
    units = np.zeros(600, np.int64)
    units[100:] = MIB
    line = Line(units)
    for cut in Waves(4, MIB // 3, MIB).tapered(line, 4, 64, 128 * MIB):
        assert cut[0] == 0 and cut[-1] == 600 and (np.diff(cut) > 0).all()
        assert np.diff(line.prefix[cut]).max() <= 128 * MIB


# --- in a job -----------------------------------------------------------------------------------------------------


def test_what_is_written_to_files_shows_no_waves():
    for has_sink, parallelism in ((True, 48), (False, 64)):
        builder = GraphBuilder()
        number = builder.source([4 * MIB] * 576)
        builder.graph.vertices[number].has_sink = has_sink
        p = plane(builder.graph, slots=16).start()
        assert p.parallelism(number) == parallelism


def makespan(cluster, **options):
    builder = GraphBuilder()
    builder.step((builder.source([4 * MIB] * 576), ShipStrategy.HASH))
    scheduler = create_scheduler(builder.graph, Options(options), Inputs(slots=cluster.total_slots))
    return SimulatedJob(scheduler, World(cluster, heartbeat=0.0)).run().makespan


@pytest.mark.parametrize("slow_nodes", [0, 1])
def test_simulated_jobs_end_sooner(slow_nodes):
    cluster = ClusterSpec(nodes=4, slots=4, slow_nodes=slow_nodes, slow_factor=0.5)
    before = makespan(cluster, **{"firesteel.decider.least-volume-per-slot": "0 b"})
    assert makespan(cluster) < 0.85 * before


def test_a_job_that_goes_on_cuts_as_the_one_before():
    """Its subtasks have what those had, and so take over what they left; with other slots only their number is the same."""
    splits, given = [MIB] * 512, bounds(slots=8)
    first = source(splits, given)
    assert first.decision["rule"] == "tapered"
    pinned = replace(given, fixed=first.parallelism, fixed_rule="as before the resume")
    again = source(splits, pinned)
    assert np.array_equal(again.input_bytes, first.input_bytes)
    assert again.decision["rule"] == "as before the resume"
    assert source(splits, replace(pinned, slots=3)).parallelism == first.parallelism
    sizes = [MIB] * 512
    first = decide_vertex([keyed(sizes)], given)
    pinned = replace(given, fixed=first.parallelism, fixed_rule="as before the resume")
    assert np.array_equal(decide_vertex([keyed(sizes)], pinned).input_bytes, first.input_bytes)


def test_whole_waves_are_no_more_than_there_are_splits():
    plan = source([8 * MIB] * 70, bounds(data_volume=8 * MIB, tapers=False))
    assert not plan.decision["bounds"]
    capped = source([8 * MIB] * 70, bounds(data_volume=8 * MIB, tapers=False, maximum=66))
    assert capped.parallelism <= 66


def test_sources_and_steps_behind_an_exchange_are_cut_into_the_same_waves():
    for total, changes in [(576, {}), (576, {"tapers": False}), (300, {}), (160, {}), (576, {"maximum": 48})]:
        sizes = [4 * MIB] * total
        read, behind = source(sizes, bounds(**changes)), decide_vertex([keyed(sizes)], bounds(**changes))
        assert read.parallelism == behind.parallelism and read.input_bytes.tolist() == behind.input_bytes.tolist()
