"""The words of decisions whose inputs are facts, with and without the name of the step."""

from __future__ import annotations

import pytest
from msgspec import to_builtins

from firesteel.journal.file import encode, read
from firesteel.report.decisions import reason_of, with_reason
from firesteel.report.explain import explain
from firesteel.scheduler.kernel.decisions import (
    Admission,
    AdmittedBecause,
    BegunWithout,
    BlockedAlone,
    BlockedFor,
    BlockedUse,
    DeferredFor,
    Failed,
    GoesOn,
    KeptSubtasks,
    Merge,
    Merged,
    MetRetiredWorker,
    NetworkNeed,
    NetworkShare,
    NotStored,
    Offload,
    OnBlockedNode,
    Outcome,
    ReadLess,
    RejectedOften,
    RoomKept,
    Slow,
    StepsBecause,
    TwoOrOne,
    Won,
)
from firesteel.scheduler.kernel.records import Decision
from firesteel.scheduler.kernel.waits import ForRoom, ForWorker
from firesteel.scheduler.slots.resource_profile import ResourceProfile, WorkerResources

FAILED = {"subtasks": [3, 3], "attempts": [0, 1], "cause": "it broke.", "verdict": "restart 1 of 3, after 1 s"}
GPU = {
    "group": "gpu",
    "steps": ("a", "b"),
    "num_steps": 3,
    "needs": ((ResourceProfile(1.0, 1 << 30, external=(("gpu", 2.0),)), 1),),
}
BOTH = GPU | {"num_steps": 2, "needs": ((ResourceProfile(1.0), 2), (ResourceProfile.UNKNOWN, 1))}
HELD = (("x", WorkerResources(1.5, 1 << 30, {"gpu": 1.0})), ("y", WorkerResources(1.0, 0)))
BLOCKED = BlockedFor(node="a", cause="it was slow", start=0.0, end=60.0, times=2)
MERGE = Merge(
    dataset=3, partitions=25, slices=100, requests=100, stored_bytes=100 << 10, mean_slice=1024.0, request_seconds=0.1, slots=2,
    threshold=16 << 10, saved_s=4.0, cost_s=1.0,
)  # fmt: skip
MIB = 1 << 20
DEFERRED = {"join": 4, "build": "left", "probe_bytes": 2 * MIB}
BEGUN = BegunWithout(join=4, side="right", idle=1.5, budget=2.0, written=3 * MIB, limit=2 * MIB)
IDLE = (
    "; slots may be idle for 1 s in all meanwhile, a part of what an exchange of the other side takes, estimated 2 MiB"
)
SLOW = {"nodes": ["a", ""], "elapsed": [9.0, 5.0], "baseline": [1.0, 1.0], "limit": 2}


@pytest.mark.parametrize(
    ("facts", "result", "words"),
    [
        (
            MetRetiredWorker(subtasks=[0, 4], attempts=[0, 0]),
            2,
            "subtasks 0, 4{} met a Python worker that had begun with other external resources: it is gone, and a new attempt is sent at once",
        ),
        (
            Failed(**FAILED, kind="error", counted=True, invalidated={"2": 1}, outcome=Outcome.RESTART),
            {"1": 2, "2": 1},
            "subtask 3{} failed (error): 3 subtasks to run again (1 of them finished before: what they read may come in another order, "
            "or be other rows), restart 1 of 3, after 1 s",
        ),
        (
            Failed(
                **FAILED, kind="lost", counted=False, invalidated={}, outcome=Outcome.RESTART, dataset=1, partition=7
            ),
            {"1": 1},
            "subtask 3{} ended at partition 7 of data set 1 (it broke): 1 subtask to be sent again, restart 1 of 3, after 1 s",
        ),
        (
            Failed(**FAILED, kind="error", counted=True, invalidated={}, outcome=Outcome.JOB_FAILS),
            {},
            "subtask 3{} failed (error): the job fails, restart 1 of 3, after 1 s",
        ),
        (
            Failed(**FAILED, kind="error", counted=True, invalidated={}, outcome=Outcome.ANOTHER_RUNS),
            {},
            "subtask 3{} failed (error): another attempt can still finish, so nothing runs again (for the restart strategy: "
            "restart 1 of 3, after 1 s)",
        ),
        (
            Slow(subtasks=[5, 6], attempts=[0, 2], place=0, taken=0.0649, why="others took 1 s", **SLOW),
            [[5, 1], [6, 3]],
            "attempt 1 of subtask 5{} has taken 64.9 ms on a, others took 1 s: attempt 2 is made beside it, and 1 more",
        ),
        (
            Slow(subtasks=[5, 6], attempts=[0, 2], place=1, taken=5.0, why="its step forbids it", **SLOW),
            [],
            "attempt 3 of subtask 6{} is slow and gets no mirror: its step forbids it",
        ),
        (
            Won(
                subtask=4,
                attempts=[1, 0, 2],
                nodes=["b", "a", ""],
                mirror=True,
                mirrors=[True, False, False],
                taken=[8.0, None],
            ),
            1,
            "attempt 2 (a mirror, on b) of subtask 4{} finished first; attempt 1 (on a) had taken 8 s, attempt 3 was queued",
        ),
        (
            RejectedOften(subtasks=[1], rejections=3),
            "anywhere",
            "executions of subtask 1{} were rejected 3 times in a row: the next ones run wherever Spark starts them",
        ),
        (
            OnBlockedNode(subtasks=[1], attempts=[0], nodes=["a", "b"], why=BlockedUse.NO_OTHER),
            "",
            "subtask 1{} runs on a, b, though blocked: no other node is known",
        ),
        (
            KeptSubtasks(job="a", jobs=["a", "b"], kept=4, subtasks=1000),
            "kept",
            "4 of 1,000 subtasks{} are kept from jobs a, b.",
        ),
        (
            GoesOn(group="gpu", seconds=61.0, others=False),
            "goes on",
            "group 'gpu' waits no more, after 1 min 1 s: there is a worker that can hold a slot",
        ),
        (
            GoesOn(group="gpu", seconds=0.5, others=True),
            "goes on",
            "group 'gpu' has all its slots, 500 ms after other jobs held some of what it asked for",
        ),
        (
            ForWorker(
                **GPU, workers=1, are_made=False, largest=WorkerResources(4.0, 8 << 30), framework=1 << 20, seconds=9.0
            ),
            "waits",
            "Group 'gpu' (steps 'a', 'b' and 1 more) waits: there is no worker that could hold 1 core, 1 GiB heap, 2 gpu (the largest "
            "worker has 4 cores, 8 GiB and no gpu, and each slot takes 1 MiB more for its Python worker (firesteel.memory.framework)). "
            "The job gives up in 9 s (slot.request.timeout).",
        ),
        (
            ForWorker(**BOTH, workers=0, are_made=False, largest=None, framework=0, seconds=9.0),
            "waits",
            "Group 'gpu' (steps 'a', 'b') waits: there is no room, even if nothing ran, for 2 times 1 core and any size at once (no "
            "worker is there). The job gives up in 9 s (slot.request.timeout).",
        ),
        (
            ForRoom(**BOTH, missing=1, able=3, blocked=3, held=()),
            "waits",
            "Group 'gpu' (steps 'a', 'b') waits for 1 region of 2 times 1 core and any size at once: 3 workers could hold some, but they "
            "are on blocked nodes.",
        ),
        (
            ForRoom(**GPU, missing=2, able=3, blocked=2, held=HELD),
            "waits",
            "Group 'gpu' (steps 'a', 'b' and 1 more) waits for 2 slots of 1 core, 1 GiB heap, 2 gpu: 3 workers could hold some, but they "
            "have no room now, and there job 'x' holds 1.5 cores, 1 GiB, 1 gpu; job 'y' holds 1 core, 0 B.",
        ),
        (BLOCKED, "blocked", "node a is blocked for 1 min: it was slow"),
        (BLOCKED, "unblocked", "node a is not blocked any more, after 1 s, reported 2 times"),
        (BLOCKED, "prolonged", "node a stays blocked for another 59 s: it was reported 2 times by now"),
        (
            BlockedAlone(blocked=["a", "b"], others=0),
            "used",
            "nothing but blocked nodes is known (a, b): they are used again, rather than wait",
        ),
        (
            BlockedAlone(blocked=["a"], others=2),
            "avoided",
            "blocked nodes are left alone again: 2 other nodes can be used",
        ),
        (
            RoomKept(group="gpu", workers=["w1", "w2"], passed=4),
            ["w1", "w2"],
            "others got 4 slots while none was large enough for 'read': room for one is kept on w1, w2 until it is there, and again "
            "whenever that happens",
        ),
        (
            Admission(
                asked_bytes_per_core={"a": 1 << 30, "b": 2.0},
                least_bytes_per_core=1 << 20,
                why=AdmittedBecause.MEMORY_MAY,
            ),
            "the slot pool",
            "memory may run out before cores (1 GiB a core are asked for, 1 MiB are there): what has no slot waits, the rest runs where "
            "its slot is",
        ),
        (
            NetworkNeed(group="g", vertices=[1], needed=3 << 20, far=False, share=NetworkShare.WHOLE),
            3 << 20,
            "readers and writers of the 1 step of group 'g' hold up to 3 MiB in a slot: it is part of the slots that are asked for from now on",
        ),
        (
            NetworkNeed(group="g", vertices=[1, 2], needed=3 << 20, far=True, share=NetworkShare.AS_FITS),
            0,
            "readers and writers of the 2 steps of group 'g' hold up to 3 MiB in a slot: nothing of it enters the profile, for workers would "
            "hold fewer slots with all of it",
        ),
        (
            MERGE,
            4,
            "100 slices of 1 KiB on average, under 16 KiB: 25 objects become 4, which saves 4 s for 1 s.",
        ),
        (
            MERGE,
            "not merged",
            "100 slices of 1 KiB on average, under 16 KiB, but merging saves only 4 s for 1 s, less than twice its price: they are read as "
            "they are.",
        ),
        (
            Merged(dataset=3, groups=4, seconds=2.0, bytes=1 << 20, stale=1, failed=2),
            1,
            "1 group of data set 3 merged, 1 group of partitions produced anew meanwhile, 2 groups not (no reason was given), 1 MiB, 2 s after "
            "it was asked for.",
        ),
        (
            Merged(dataset=3, groups=4, seconds=9.0, in_time=False),
            0,
            "Merging data set 3 took longer than 9 s: its consumers read the single objects.",
        ),
        (
            Offload(dataset=0, partitions=1, bytes=2048, consumers=300, threshold=1),
            "ab",
            "The descriptor of 1 partition takes 2 KiB and goes to 300 consumers, so it is stored once and fetched by every executor.",
        ),
        (
            NotStored(blob="ab", error="disk full"),
            "inline",
            "A descriptor could not be stored as a blob and travels in each deployment: disk full",
        ),
        (
            ReadLess(filters=[], bytes=2048, splits=3, found="5 keys"),
            {"bytes": 1024, "splits": 1},
            "reads 1 KiB of 2 KiB in 3 splits: 5 keys",
        ),
        (
            ReadLess(filters=[], bytes=2048, splits=3, found="made up"),
            {"bytes": 2048, "splits": 3},
            "reads all of 2 KiB: made up",
        ),
    ],
)
def test_words(facts, result, words):
    made = Decision(at=1.0, what="x", vertex=0, name="read", inputs=to_builtins(facts), result=result)
    told = with_reason(made)
    assert told.reason == words.format(" of 'read'")
    assert reason_of(told, named=False) == words.format("")


@pytest.mark.parametrize(
    ("facts", "rule", "result", "words"),
    [
        *(
            (
                DeferredFor(
                    **DEFERRED, build_bytes=nbytes, build_read=read, build_runs=runs, likely=likely, budget=1.0
                ),
                "smaller side first",
                "put off",
                f"put off until the left side of [4] is there, estimated {words}{IDLE}",
            )
            for nbytes, read, runs, likely, words in (
                (12 * MIB, 1200 * MIB, 3, True, "12 MiB: 1.17 GiB read, of which 1 % came out in 3 earlier runs"),
                (12 * MIB, 8 * MIB, 1, True, "12 MiB: 8 MiB read, of which 150 % came out in 1 earlier run"),
                (10, 1200 * MIB, 3, True, "10 B: 1.17 GiB read, of which under 0.01 % came out in 3 earlier runs"),
                (0, 0, 1, True, "0 B: 0 B read, of which 0 % came out in 1 earlier run"),
                (12 * MIB, 12 * MIB, 0, False, "12 MiB at most"),
            )
        ),
        (
            DeferredFor(**DEFERRED, build_bytes=MIB),
            "hint",
            "put off",
            "put off until the left side of [4] is there, which is to be broadcast, as was asked for",
        ),
        (
            DeferredFor(**DEFERRED, build_bytes=MIB, budget=1.0),
            "runtime filter",
            "put off",
            "put off until the left side of [4] is there, estimated 1 MiB, whose keys may save much of 2 MiB: slots may be idle for 1 s in "
            "all meanwhile",
        ),
        (
            BEGUN,
            "memory",
            "begins",
            "begins without the right side of [4]: that side has 3 MiB already, more than the 2 MiB that a task can hold",
        ),
        (
            BEGUN,
            "idle slots",
            "begins",
            "begins without the right side of [4]: its share of the time of idle slots was 2 s",
        ),
        (
            TwoOrOne(first=1, bytes=[9], parallelism=3, why=StepsBecause.EXCHANGE, saved=MIB, exchanged=2 * MIB),
            "not divided",
            "one step",
            "one step: dividing what it reads would save the largest subtask 1 MiB, less than the 2 MiB of each slot in the exchange that "
            "would follow",
        ),
        (
            TwoOrOne(first=1, bytes=[9], parallelism=3, why=StepsBecause.FEW_VALUES),
            "not divided",
            "one step",
            "one step: no key has so many values that it would pay to divide them",
        ),
        (
            TwoOrOne(first=1, bytes=[9], parallelism=3, why=StepsBecause.COUNTED_HEAVY),
            "divided",
            "two steps",
            "two steps: 3 subtasks count the values, those of heavy keys by parts, and what they count is added up",
        ),
    ],
)
def test_words_by_rule(facts, rule, result, words):
    assert reason_of(Decision(at=1.0, what="x", inputs=to_builtins(facts), rule=rule, result=result)) == words


def test_a_sentence_of_an_older_journal_is_shown_without_the_name(tmp_path):
    sentence = "subtask 3 of 'read' failed (error): the job fails, restarts are off"
    old = Decision(at=1.0, what="failover", vertex=0, name="read", inputs={"kind": "error"}, reason=sentence)
    other = Decision(
        at=1.0, what="sizes", vertex=0, name="read", inputs={"type": "of a later format"}, reason="so it is"
    )
    (tmp_path / "j").write_bytes(b"".join(map(encode, [old, other])))
    first, second = read(tmp_path / "j")
    assert first.reason == sentence and reason_of(first, named=False) == sentence.replace(" of 'read'", "")
    assert second == other and reason_of(second, named=False) == "so it is"
    shown = explain([first, second])
    assert "subtask 3 failed" in shown.lower() and "of 'read'" not in shown
