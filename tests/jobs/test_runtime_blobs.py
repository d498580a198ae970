"""Gate descriptors as blobs: the same answers, one fetch per executor, nothing left."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa

from firesteel.options import OFFLOAD_THRESHOLD
from firesteel.results.storage.store import ResultStore
from firesteel.scheduler.kernel.commands import JobStatus
from firesteel.scheduler.kernel.events import FailureKind
from firesteel.spark.driver.runtime import submit
from firesteel.spark.storage.cleaning import late
from runtime_support import NUMBERS, Numbers, collected, left_behind, options, two_steps


def given(tmp_path, **values):
    return options(tmp_path, **{OFFLOAD_THRESHOLD.key.replace(".", "__"): "1 b", **values})


def test_each_executor_fetches_a_blob_once_and_nothing_is_left(session, tmp_path):
    root = tmp_path / "storage"

    def ask(batches):
        list(batches)
        (blob,) = (p for p in Path(root).glob("firesteel-job-*.scratch/blobs/*/*") if p.is_file())
        yield pa.RecordBatch.from_arrays([pa.array([blob.stat().st_ino]), pa.array([os.getpid()])], schema=NUMBERS)

    outcome = submit(two_steps(splits=6, fn=ask, parallelism=8), session, given(tmp_path)).result()
    assert outcome.error is None
    (decision,) = (d for d in outcome.decisions if d.what == "offload")
    assert decision.inputs["consumers"] == 8
    rows = collected(outcome)
    assert len(set(rows["k"].to_pylist())) == 1, "one file, which no worker wrote again"
    assert rows.num_rows == 8
    assert not [name for name in left_behind(tmp_path) if "blob" in name]
    outcome.close()
    assert left_behind(tmp_path) == []


def test_the_answer_is_the_same(session, tmp_path):
    answers = []
    for options_ in (given(tmp_path), options(tmp_path)):
        outcome = submit(two_steps(splits=6, rows=50, parallelism=5), session, options_).result()
        assert outcome.error is None
        answers.append(sorted(collected(outcome)["v"].to_pylist()))
        outcome.close()
    assert answers[0] == answers[1] == list(range(300))


def test_a_storage_that_takes_no_blob_leaves_the_descriptors_in_the_deployments(session, tmp_path, monkeypatch):
    real = ResultStore.open_output

    def refuse(self, name):
        if name.startswith("blob-"):
            raise OSError(28, "No space left on device")
        return real(self, name)

    monkeypatch.setattr(ResultStore, "open_output", refuse)
    outcome = submit(two_steps(splits=3, rows=10, parallelism=2), session, given(tmp_path)).result()
    assert outcome.error is None
    assert sorted(collected(outcome)["v"].to_pylist()) == list(range(30))
    (said,) = (d for d in outcome.decisions if d.rule == "not stored")
    assert "No space left" in said.reason
    outcome.close()
    assert left_behind(tmp_path) == []


def test_a_blob_that_is_gone_fails_the_job_with_a_sentence(session, tmp_path, monkeypatch):
    monkeypatch.setattr("firesteel.spark.storage.blob_server.put_blob", lambda store, digest, data: None)
    values = {"restart-strategy.fixed-delay.attempts": 1}
    outcome = submit(two_steps(splits=3, rows=10), session, given(tmp_path).with_values(values)).result()
    assert "tells tasks where to read, is missing" in str(outcome.error)
    late.run_all()
    assert left_behind(tmp_path) == []


def test_a_cancelled_job_leaves_no_blob(session, tmp_path):
    where = str(tmp_path)

    def wait(batches):
        Path(where, "reading").touch()
        while not Path(where, "go").exists():
            time.sleep(0.01)
        yield from batches

    job = submit(two_steps(splits=3, fn=wait, parallelism=2), session, given(tmp_path))
    until((tmp_path / "reading").exists)
    assert [name for name in left_behind(tmp_path) if "/blob-" in name], "it is there while the job runs"
    job.cancel()
    assert job.result().status is JobStatus.CANCELED
    late.run_all()
    assert left_behind(tmp_path) == []


def until(condition, seconds=600.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def test_a_worker_that_dies_while_it_fetches_holds_nobody_up(session, tmp_path):
    """The first one to fetch is killed with the lock in its hand, half a file written; the next one fetches."""
    outcome = submit(two_steps(splits=4, source=DiesFetching(), parallelism=4), session, given(tmp_path)).result()
    assert outcome.error is None
    assert sorted(collected(outcome)["v"].to_pylist()) == list(range(40))
    assert [d for d in outcome.decisions if d.what == "failover"]


class DiesFetching:
    """Makes this worker's next fetch, and no other, end it."""

    def read(self, split, ctx):
        from firesteel.task.executor import blobs
        from runtime_support import Numbers

        mark = ctx.scratch.parent / "died"

        def die(cache, digest):
            if cache._folder.name == ctx.job_id and not mark.exists():
                mark.touch()
                (cache._folder / (digest.hex() + blobs.PART)).write_bytes(b"half")
                os._exit(137)
            return fetch(cache, digest)

        if not hasattr(blobs.BlobCache, "real_fetch"):
            blobs.BlobCache.real_fetch = blobs.BlobCache._fetch
        fetch = blobs.BlobCache.real_fetch
        blobs.BlobCache._fetch = die
        yield from Numbers(10).read(split, ctx)


def test_a_newer_descriptor_leaves_those_that_were_sent_before_what_they_need(session, tmp_path):
    """A merged object is lost: who missed it is told anew, while others that were told of it wait for their turn yet."""
    root = tmp_path / "storage"

    def lose(batches):
        for path in root.glob("firesteel-job-*/d0-m*"):
            path.unlink(missing_ok=True)
        time.sleep(0.1)
        yield from batches

    forced = {"firesteel.merge.request-time": "1 s", "restart-strategy.fixed-delay.attempts": 1}
    compiled = two_steps(splits=12, source=Numbers(20_000, keys=10_007), fn=lose, parallelism=12)
    outcome = submit(compiled, session, given(tmp_path).with_values(forced)).result()
    failovers = [d for d in outcome.decisions if d.what == "failover"]
    assert failovers, "somebody missed the merged object"
    assert outcome.error is None
    assert {d.inputs["kind"] for d in failovers} == {FailureKind.PARTITION.value}, [d.reason for d in failovers]
    assert sorted(collected(outcome)["v"].to_pylist()) == list(range(12 * 20_000))
    outcome.close()
