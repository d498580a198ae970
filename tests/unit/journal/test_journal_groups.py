"""Slot sharing groups in the journal: the plan, explain, history and progress; and journals that know of none."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.journal_samples import mirrored, planned, word_count
from tests.scheduler_kit import GraphBuilder
from tests.unit.journal.test_journal_progress import plain_lines, watched

from firesteel.journal.file import Journal, read
from firesteel.model.job_graph import ShipStrategy
from firesteel.model.slot_sharing_group import SlotSharingGroup
from firesteel.options import Options
from firesteel.report.explain import attempts_report, explain
from firesteel.report.fold import JobFold, JobHistory
from firesteel.scheduler.kernel.records import RETIRED, Decision, JobStatusRecord, JournalRecord, SlotUsage, StateChange
from firesteel.scheduler.slots.resource_profile import ResourceProfile
from firesteel.scheduler.topology.planned import planned as plan_of
from firesteel.view.live_table import headline

MIB, GIB = 1 << 20, 1 << 30
TRAIN = ResourceProfile(2.0, 2 * GIB, managed_memory=512 * MIB, external=(("gpu", 1.0),))


def grouped() -> list[JournalRecord]:
    """A coarse step, and one of two cores and a gpu whose slots are few; network memory is known later."""
    plan = planned()
    vertices = [{**v, "slot_sharing_group": g} for v, g in zip(plan.vertices, ("default", "train"), strict=True)]
    plan = replace(plan, vertices=vertices, slot_sharing_groups={"default": {}, "train": TRAIN.numbers()})
    later = TRAIN.with_network_memory(64 * MIB).numbers()
    four, states = [0, 1, 2, 3], [0, 0, 0, 0]
    return [
        plan,
        JobStatusRecord(at=100.0, status="RUNNING"),
        SlotUsage(at=100.0, group="default", asked=2, held=0),
        SlotUsage(at=100.5, group="default", asked=0, held=2),
        SlotUsage(at=102.0, group="default", asked=0, held=0, core_seconds=3.0, gib_seconds=12.25, waited_seconds=0.5),
        StateChange(at=102.0, vertex=1, state="SCHEDULED", subtasks=four, attempts=states),
        SlotUsage(at=102.0, group="train", asked=4, held=0, profile=later),
        SlotUsage(at=102.5, group="train", asked=2, held=2),
        StateChange(
            at=104.5, vertex=1, state="FINISHED", subtasks=[2, 0], attempts=[0, 0], peaks=[700, 1_800], deployed=[103, 103]
        ),
        SlotUsage(at=104.5, group="train", asked=0, held=2, core_seconds=8.0, gib_seconds=10.25, waited_seconds=2.5),
        StateChange(at=106.0, vertex=1, state="FINISHED", subtasks=[1, 3], attempts=[0, 0], peaks=[1_800, 900]),
        SlotUsage(at=106.0, group="train", asked=0, held=0, core_seconds=1234.5, gib_seconds=15.4, waited_seconds=2.5),
        JobStatusRecord(at=106.5, status="FINISHED"),
    ]  # fmt: skip


def test_numbers_of_a_profile_read_back():
    for profile in (TRAIN, TRAIN.with_network_memory(7), ResourceProfile.UNKNOWN, ResourceProfile(0.5, 1, 2, 3, 4)):
        assert ResourceProfile.of_numbers(profile.numbers()) == profile
    assert ResourceProfile.of_numbers({"cpu_cores": 1.0, "of another version": 3.0}) == ResourceProfile(1.0)


def test_the_plan_tells_of_groups_only_where_one_has_resources():
    build = GraphBuilder()
    source = build.source()
    build.step((source, ShipStrategy.HASH), slot_sharing_group="train")
    plain = plan_of(build.graph, "j", Options())
    assert plain.slot_sharing_groups == {}
    assert not any("slot_sharing_group" in vertex for vertex in plain.vertices)
    build.graph.slot_sharing_groups["train"] = SlotSharingGroup("train", 2.0, GIB, external_resources={"gpu": 1.0})
    told = plan_of(build.graph, "j", Options())
    needs = {"cpu_cores": 2.0, "task_heap_memory": GIB, "external.gpu": 1.0}
    assert told.slot_sharing_groups == {"default": {}, "train": needs}
    assert [vertex["slot_sharing_group"] for vertex in told.vertices] == ["default", "train"]


def test_explain_tells_of_groups_slots_and_peaks():
    lines = explain(grouped()).splitlines()
    told = [line for line in lines if line.startswith(("    group ", "    slot ", "    memory ", " " * 17))]
    needs = "2 cores, 2 GiB heap, 512 MiB managed, 64 MiB network, 1 gpu"
    assert told == [
        "    group        default: coarse, slots as they are; [0].",
        "                 2 slots held at once at most, 2 waited at most (500 ms in all); 3 core-seconds, 12.2 GiB-seconds "
        "held in all.",
        f"    group        train: {needs}; [1].",
        "                 2 slots held at once at most, 4 waited at most (2.5 s in all); 1,234 core-seconds, "
        "15.4 GiB-seconds held in all; at most 62 % of a slot's memory was used.",
        "    slot         of default: coarse, slots as they are.",
        f"    slot         of train: {needs}.",
        "    memory       at most 1.76 GiB (subtask 0), median 1.32 GiB, of 2.81 GiB that a worker may hold (62 %).",
    ]


def test_a_group_that_never_got_a_slot():
    text = explain([grouped()[0], SlotUsage(at=101.0, group="train", asked=4, held=0), *grouped()[-1:]])
    assert "                 No slot was held, 4 waited at most." in text
    assert "core-seconds" not in text


def test_slots_held_at_once_are_counted_though_launches_are_told_of_late():
    def finished(at: float, vertex: int, *spans: tuple[float, float]) -> StateChange:
        began, ended = zip(*spans, strict=True)
        numbers = list(range(len(spans)))
        return StateChange(
            at=at, vertex=vertex, state="FINISHED", subtasks=numbers, attempts=[0] * len(spans), deployed=list(began),
            times=list(ended),
        )  # fmt: skip

    records = [finished(9, 1, (1, 3), (3, 5), (2, 4)), finished(9, 2, (1.5, 2.5)), finished(9, 3, (0, 9), (0, 9))]
    assert JobFold(records).most_at_once([1]) == 2, "one that ends as another begins makes room for it"
    assert JobFold(records).most_at_once([1, 2]) == 3
    assert JobFold(records[:2]).most_at_once([3]) == 0
    assert JobFold(grouped()).most_at_once([1]) == 2


def test_history_tells_of_slots_and_peaks():
    lines = attempts_report(grouped(), all_of_them=True).splitlines()
    assert lines[0].startswith("[1] aggregate by word -> parquet out: slots of train (2 cores, 2 GiB heap, ")
    assert lines[1] == "       3 s  subtask 0, attempt 1 finished after 1.5 s, 1.76 GiB at its peak"


def test_what_a_retired_worker_hands_back_is_no_matter_of_blocked_nodes():
    records = grouped()[:8]
    records += [
        StateChange(at=103.0, vertex=1, state="CANCELED", subtasks=[1], attempts=[0], cause=RETIRED),
        StateChange(at=103.0, vertex=1, state="CREATED", subtasks=[1], attempts=[1], beside=True),
        Decision(at=103.0, what="retired worker", vertex=1, reason="Subtask 1 met another"),
        StateChange(at=104.0, vertex=1, state="FINISHED", subtasks=[1], attempts=[1], peaks=[700], deployed=[103.5]),
    ]
    text = explain(records, 1)
    assert "    retired      Subtask 1 met another." in text
    assert "subtask 1: attempt 1 was rejected by a worker that had begun with other external resources." in text
    assert "attempt 2 finished after 500 ms, 700 MiB at its peak and won." in text
    assert "blocked" not in text and "mirrors" not in text


def test_progress_tells_what_waits_for_a_slot():
    records = grouped()
    assert headline(watched(records[:8])).endswith("; waiting for slots: 2 of train")
    assert "waiting" not in headline(watched(records))


def test_progress_tells_of_requests_that_no_worker_can_hold():
    waits = Decision(at=103.0, what="slot request", vertex=1, result="waits", reason="Group 'train' waits: no worker")
    lines = plain_lines([*grouped()[:8], waits])
    assert "[1] Group 'train' waits: no worker" in lines


def test_a_journal_keeps_all_of_it(tmp_path):
    journal = Journal(tmp_path / "j.jsonl")
    for record in grouped():
        journal.record(record)
    journal.close()
    assert read(journal.path) == grouped()


@pytest.mark.parametrize("records", [word_count(), mirrored()], ids=["word count", "mirrored"])
def test_without_groups_nothing_is_said_of_them(records):
    text = explain(records) + attempts_report(records, all_of_them=True)
    assert not JobHistory(records).groups
    assert not any(word in text for word in ("group", "slots", "    slot", "memory", "core-seconds", "peak"))


def test_a_journal_of_before_groups_reads(tmp_path):
    old = b'{"type":"JobPlanned","at":0.0,"job_id":"j","job_name":"old","vertices":[{"id":0,"name":"a"}],"datasets":[],'
    old += (
        b'"options":{}}\n{"type":"StateChange","at":1.0,"vertex":0,"state":"FINISHED","subtasks":[0],"attempts":[0]}\n'
    )
    (tmp_path / "old.jsonl").write_bytes(old)
    history = JobHistory(read(tmp_path / "old.jsonl"))
    assert not history.groups and history.group_of(history.vertices[0]) is None
    assert "1 subtask finished" in explain(read(tmp_path / "old.jsonl"))
