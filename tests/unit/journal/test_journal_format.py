"""What journals are promised to be: read by later versions, small, cheap, and without secrets."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import pytest
from msgspec import structs
from tests.journal_samples import word_count
from tests.stream_samples import GROWN

from firesteel.errors import UsageError
from firesteel.journal.file import FORMAT, Journal, encode, last_record, read
from firesteel.journal.pending import Pending
from firesteel.report.explain import explain
from firesteel.report.fold import JobFold, JobHistory
from firesteel.report.stream_report import explain_stream
from firesteel.scheduler.kernel.records import (
    REJECTED,
    RETIRED,
    Decision,
    JobPlanned,
    JobStatusRecord,
    MetricsSnapshot,
    OutputGone,
    StateChange,
)

OLD = Path(__file__).parent / "journals"
MAJOR, MINOR = FORMAT


def change(state, subtasks, at=1.0, vertex=0, **columns):
    columns.setdefault("attempts", [0] * len(subtasks))
    return StateChange(at=at, vertex=vertex, state=state, subtasks=list(subtasks), **columns)


# --- versions ----------------------------------------------------------------------------------------------------


def test_journals_of_format_1_are_read():
    job = read(OLD / "format_1_job.jsonl")
    assert len(job) == 65, "every line of it"
    history = JobHistory(job)
    assert history.status == "FINISHED"
    assert [v.parallelism for v in history.vertices.values()] == [30, 30, 30]
    assert "30 subtasks" in explain(job)
    assert len(JobFold(job).lives()) > 0
    stream = read(OLD / "format_1_stream.jsonl")
    assert len(stream) == 14
    assert "rescale" in explain_stream(stream)


def test_the_words_of_older_formats_are_read_as_those_of_today(tmp_path):
    old = tmp_path / "old.jsonl"
    causes = ("handed back by a blocked node", "handed back by a worker that had begun with other external resources")
    records = [change("CANCELED", [1], cause=cause) for cause in (*causes, "something else")]
    rule = "fixed-delay, failed region with its lost inputs, unfinished consumers and rereaders"
    inputs = {"culpable": True, "rereaders": {"1": 2}, "kind": "lost"}
    records += [Decision(at=1.0, what="failover", inputs=inputs, rule=rule)]
    records += [Decision(at=1.0, what="restart", inputs={"charged": False})]
    records += [Decision(at=1.0, what="another", inputs={"charged": False})]
    rule = "firesteel.speculative.max-returns"
    records += [Decision(at=1.0, what="placement", inputs={"subtasks": [1], "returns": 2}, rule=rule)]
    told = [
        "Vertex 0 'a' has subtask 1 under way for 9 s.",
        "Vertex 1 'b' is not decided yet: it waits for vertex 0 'a'.",
    ]
    records += [Decision(at=1.0, what="waiting", result=told, reason=" ".join(told))]
    slots = "Group 'gpu' (step 'train') waits for 1 slot of 1 core: 1 worker could hold one, but it has no room now."
    waits = {"waits": [{"type": "ForRequest", "group": "gpu", "text": slots}]}
    records += [Decision(at=1.0, what="waiting", inputs=waits, result=[slots], reason=slots)]
    records += [structs.replace(GROWN, steps={"wait": 4.0, "hold": 0.5}, trigger_kind="")]
    old.write_bytes(b'{"type":"JournalHeader","at":0.0,"format":"2.0"}\n' + b"".join(map(encode, records)))
    *changes, failover, restart, another, placement, waiting, slot, rescale = read(old)
    assert [one.cause for one in changes] == [REJECTED, RETIRED, "something else"]
    assert failover.inputs == {"counted": True, "invalidated": {"1": 2}, "kind": "lost"}
    assert failover.rule == "fixed-delay, failed region with its lost inputs, unfinished and invalidated consumers"
    assert placement.inputs == {"subtasks": [1], "rejections": 2}
    assert placement.rule == "firesteel.speculative.max-rejections"
    assert [(each["type"], each.get("vertex")) for each in waiting.inputs["waits"]] == [
        ("Told", None),
        ("ForDecision", 1),
    ]
    over = explain([waiting, JobStatusRecord(at=105.0, status="FAILED")])
    assert f"{told[0]} Not decided by then: [1], which never was." in over
    assert slots in explain([slot, JobStatusRecord(at=105.0, status="FAILED")])
    assert rescale.steps == {"wait": 4.0, "commit barrier": 0.5} and rescale.trigger_kind == "CHECKPOINT"
    assert restart.inputs == {"counted": False} and another.inputs == {"charged": False}
    (first,) = [one for one in read(OLD / "format_1_job.jsonl") if getattr(one, "what", "") == "failover"]
    assert first.inputs["counted"] is True and first.inputs["invalidated"] == {}
    assert first.rule.endswith("unfinished and invalidated consumers")


def test_a_journal_begins_with_its_format(tmp_path):
    journal = Journal(tmp_path / "j.jsonl")
    journal.record(JobStatusRecord(at=0.5, status="RUNNING"))
    header = json.loads(journal.path.read_text().splitlines()[0])
    assert header["type"] == "JournalHeader"
    assert header["format"] == f"{MAJOR}.{MINOR}"
    assert read(journal.path) == [JobStatusRecord(at=0.5, status="RUNNING")]
    journal.close()
    again = Journal(journal.path)
    again.close()
    assert journal.path.read_text().count("JournalHeader") == 1, "one that is gone on with has a header already"
    empty = Journal(tmp_path / "empty.jsonl")
    empty.close()
    assert read(empty.path) == []
    assert last_record(empty.path) is None


def test_a_newer_major_format_is_refused_and_a_newer_minor_one_is_read(tmp_path):
    path = tmp_path / "j.jsonl"
    status = '{"type":"JobStatusRecord","at":1.0,"status":"RUNNING","mood":"good"}\n'
    fresh = '{"type":"Weather","at":1.0}\n'
    path.write_text(f'{{"type":"JournalHeader","format":"{MAJOR + 1}.0","firesteel":"9.1","at":"noon"}}\n{status}')
    with pytest.raises(
        UsageError, match=rf"format {MAJOR + 1}\.0; this Firesteel reads formats up to {MAJOR}\. Firesteel 9\.1 wrote"
    ):
        read(path)
    path.write_text(f'{{"type":"JournalHeader","format":"{MAJOR}.{MINOR + 1}","at":0.0}}\n{fresh}{status}')
    assert read(path) == [JobStatusRecord(at=1.0, status="RUNNING")], "what it does not know is left out"
    path.write_text(f'{{"type":"JournalHeader","format":"{MAJOR}.{MINOR}","at":0.0}}\n{fresh}{status}')
    with pytest.raises(UsageError, match="Line 2 of"):
        read(path)  # before a record that is whole


# --- small and cheap ---------------------------------------------------------------------------------------------


def together(*records):
    pending = Pending()
    for record in records:
        pending.add(record)
    return pending.take()


def test_changes_to_one_state_become_one_record():
    found = together(
        change("RUNNING", [1], 1.0, hosts=["a"], nodes=[0]),
        change("FINISHED", [0], 1.1, deployed=[0.123456], running=[0.2], tokens=[7]),
        change("RUNNING", [2, 3], 1.2, hosts=["b", "a"], nodes=[1, -1]),
        MetricsSnapshot(at=1.25),
        change("FINISHED", [1], 1.3, deployed=[0.4], running=[0.5], tokens=[8]),
        OutputGone(at=1.4, vertex=5, dataset=1, subtasks=[4], attempts=[0], tokens=[1], reason="released"),
        OutputGone(at=1.5, vertex=5, dataset=1, subtasks=[5], attempts=[1], tokens=[2], reason="released"),
    )
    assert found == [
        change("RUNNING", [1, 2, 3], 1.2, hosts=["a"], nodes=[0, 0, -1], times=[1.0, 1.2, 1.2]),
        change("FINISHED", [0, 1], 1.3, deployed=[0.1235, 0.4], running=[0.2, 0.5], tokens=[7, 8], times=[1.1, 1.3]),
        MetricsSnapshot(at=1.25),
        OutputGone(at=1.5, vertex=5, dataset=1, subtasks=[4, 5], attempts=[0, 1], tokens=[1, 2], reason="released"),
    ]


def test_nothing_is_moved_past_a_record_of_the_same_subtask():
    failed = change("FAILED", [1], 2.0, cause="boom")
    records = [
        change("RUNNING", [1], 1.0),
        failed,
        change("RUNNING", [1], 3.0, attempts=[1]),
        change("RUNNING", [2], 3.1),
        change("RUNNING", [2], 3.2),
    ]
    found = together(*records)
    assert [(r.state, r.subtasks, r.attempts) for r in found] == [
        ("RUNNING", [1], [0]),
        ("FAILED", [1], [0]),
        ("RUNNING", [1, 2], [1, 0]),
        ("RUNNING", [2], [0]),
    ]


def small_job(subtasks, rng):
    """A job's records as they come when every subtask is told of on its own: the worst that can be."""
    yield JobPlanned(at=0.0, job_id="j", job_name="many", vertices=[{"id": 0, "name": "v"}], datasets=[], options={})
    yield Decision(at=0.0, what="parallelism", vertex=0, result={"parallelism": subtasks})
    yield change("SCHEDULED", range(subtasks), 0.0)
    at = 0.0
    order = list(range(subtasks))
    rng.shuffle(order)
    for subtask in order:
        at += rng.random() * 0.01
        yield change("RUNNING", [subtask], at, hosts=[f"10.0.0.{subtask % 50}"], nodes=[0], times=[at - 0.0123456789])
        columns = {"deployed": [at + 0.0123456789], "running": [at + 0.0345678912], "times": [at + 1.23456789]}
        yield change("FINISHED", [subtask], at + 1.5, tokens=[100_000 + subtask], peaks=[300 + subtask % 90], **columns)
        if not subtask % 100:
            yield MetricsSnapshot(
                at=at,
                job={"numRestarts": 0},
                vertices={0: {"parallelism": subtasks} | {f"number{k}": subtask for k in range(20)}},
            )
    yield OutputGone(
        at=at, vertex=0, dataset=0, subtasks=order, attempts=[0] * subtasks, tokens=order, reason="released"
    )
    yield JobStatusRecord(at=at, status="FINISHED")


def test_ten_thousand_subtasks_stay_under_two_megabytes_and_read_the_same(tmp_path):
    records = list(small_job(10_000, random.Random(0)))
    journal = Journal(tmp_path / "j.jsonl")
    started = time.process_time()
    for record in records:
        journal.record(record)
    journal.close()
    cost = time.process_time() - started
    size = journal.path.stat().st_size
    assert size < 2_000_000, size
    assert sum(len(encode(record)) for record in records) > 2_000_000, "what it would be line by line"
    assert cost < 5, "generous: about 0.3 s where it was measured"
    ours, plain = JobHistory(read(journal.path)), JobHistory(records)
    assert +ours.vertices[0].by_state == +plain.vertices[0].by_state == {"FINISHED": 10_000}
    mine, theirs = (JobFold(told).lives(all_of_them=True) for told in (read(journal.path), records))
    assert mine.keys() == theirs.keys()
    for key in list(mine)[::97]:
        (one,), (other,) = mine[key], theirs[key]
        assert (one.state, one.node, one.peak) == (other.state, other.node, other.peak)
        assert one.ended == pytest.approx(other.ended, abs=1e-4)
        assert one.deployed == pytest.approx(other.deployed, abs=1e-4)


# --- no secrets --------------------------------------------------------------------------------------------------

SECRETS = ("hunter2x", "s3cr3t/key", "tok-123456", "sigsig%3D", "envsecret99", "AKIAIOSFODNN7EXAMPLE", "/home/ada")


def test_no_planted_secret_gets_into_a_journal(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setenv("WAREHOUSE_PASSWORD", "envsecret99")
    journal = Journal(tmp_path / "j.jsonl")
    journal.record(
        JobPlanned(
            at=0.0,
            job_id="j",
            job_name="from /home/ada/in to s3://me:s3cr3t/key@bucket/out",
            vertices=[
                {"id": 0, "name": "read jdbc:postgresql://db/x?user=u&password=hunter2x", "place": "/home/ada/j.py:3"}
            ],
            datasets=[],
            options={
                "firesteel.storage.directory": "s3://bucket/x?access_key=AKIAIOSFODNN7EXAMPLE&secret_key=s3cr3t/key",
                "restart.auth-token": "tok-123456",
            },
        )
    )
    told = "login with hunter2x refused; Authorization: Bearer tok-123456; https://x/y?sig=sigsig%3D; envsecret99"
    journal.record(change("FAILED", [0], cause=f"Traceback:\n  File /home/ada/j.py\nOSError: {told}"))
    journal.record(
        Decision(
            at=1.0,
            what="restart",
            name="AKIAIOSFODNN7EXAMPLE",
            inputs={"cause": told, "nested": [{"path": Path("/home/ada/in"), "password": "hunter2x"}], "sizes": [1, 2]},
            bounds=[f"because of {told}"],
            result={"path": "/home/ada"},
            reason=told,
        )
    )
    journal.record(JobStatusRecord(at=2.0, status="FAILED", cause=told))
    journal.close()
    text = journal.path.read_text()
    for secret in SECRETS:
        assert secret not in text, secret
    restart = next(r for r in read(journal.path) if isinstance(r, Decision))
    assert restart.inputs["sizes"] == [1, 2]
    assert restart.inputs["nested"] == [{"path": "~/in", "password": "***"}]
    assert restart.result == {"path": "~"}


def test_what_is_no_secret_is_written_as_it_is(tmp_path):
    journal = Journal(tmp_path / "j.jsonl")
    for record in word_count():
        journal.record(record)
    journal.close()
    assert read(journal.path) == word_count()
