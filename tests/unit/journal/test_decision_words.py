"""The words of decisions whose inputs are facts, with and without the name of the step."""

from __future__ import annotations

import pytest
from msgspec import to_builtins

from firesteel.journal.file import encode, read
from firesteel.report.decisions import reason_of, with_reason
from firesteel.report.explain import explain
from firesteel.scheduler.kernel.decisions import (
    BlockedUse,
    Failed,
    GoesOn,
    KeptSubtasks,
    MetRetiredWorker,
    OnBlockedNode,
    Outcome,
    RejectedOften,
    Slow,
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
    ],
)
def test_words(facts, result, words):
    made = Decision(at=1.0, what="x", vertex=0, name="read", inputs=to_builtins(facts), result=result)
    told = with_reason(made)
    assert told.reason == words.format(" of 'read'")
    assert reason_of(told, named=False) == words.format("")


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
