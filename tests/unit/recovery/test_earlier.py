"""Executions of an earlier job are found by what they did and read; their objects get names of the present job's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from firesteel.compile.identity.facts import Fact, VertexPrint
from firesteel.errors import UsageError
from firesteel.model.reports import Opening
from firesteel.options import Options
from firesteel.results.reader import GateReader
from firesteel.results.storage.store import ResultStore, object_name
from firesteel.results.writer import ResultWriter
from firesteel.scheduler.kernel import events as ev
from firesteel.scheduler.kernel.commands import Deploy, InputRanges, Splits
from firesteel.scheduler.recovery.codec import encode
from firesteel.scheduler.recovery.earlier import earlier_job, execution_key
from firesteel.scheduler.recovery.records import Deployed, DriverBegan, Identified, Told
from firesteel.spark.recovery.corrected import Lines, matches
from firesteel.spark.recovery.deployments import _reads
from firesteel.spark.recovery.kept_objects import KeptObjects, LeftJob
from firesteel.spark.recovery.resuming import recovery_mode
from firesteel.spark.recovery.reused import check_reuse

A, B = b"a" * 16, b"b" * 16


def ints(*values):
    return np.array(values, np.int64)


def small(*values):
    return np.array(values, np.int32).tobytes()


def deployed(vertex, subtasks, attempts, inputs, identity=B):
    """The records of a deployment: of what each execution reads, and of what all of them do."""
    yield Deployed(vertex, 4, (1,), small(*subtasks), small(*attempts), b"".join(inputs))
    yield Identified(vertex, identity, (7,), small(*subtasks), small(*attempts))


def told(event):
    return Told(*encode(event))


def finished(vertex, subtasks, attempts, tokens, at=1.0):
    partition = ev.PartitionReports.of(7, [ints(3)] * len(subtasks))
    reports = ev.ExecutionReports.of(ints(*tokens), partitions=[partition])
    return told(
        ev.ExecutionsFinished(at=at, vertex=vertex, subtasks=ints(*subtasks), attempts=ints(*attempts), reports=reports)
    )


def test_the_fold_of_a_log():
    """Executions that finished, by the attempt that did; not those whose output was lost, or of which nobody can tell what they do."""
    lost = ev.PartitionsLost(at=5.0, dataset=7, partitions=ints(1), attempts=ints(0), tokens=ints(11))
    missed = ev.FailureCause(ev.FailureKind.PARTITION, "gone", dataset=7, partition=2, attempt=0, token=12)
    failed = ev.ExecutionsFailed(at=6.0, vertex=1, subtasks=ints(0), attempts=ints(0), cause=missed)
    entries = [
        [DriverBegan(1, 0, "h", 1, None, "app", 0.0, 0.0)],
        list(deployed(0, (0, 1, 2), (0, 0, 0), (A, B, A))),
        list(deployed(0, (1,), (1,), (B,))),
        list(deployed(1, (0,), (0,), (A,), identity=b"")),
        [finished(0, (0, 1, 2), (0, 0, 0), (10, 11, 12))],
        [told(lost)],
        [finished(0, (1,), (1,), (13,))],
        [finished(1, (0,), (0,), (14,), at=8.0)],
        [told(failed)],
    ]
    job = earlier_job(entries)
    assert [(one.subtask, one.attempt, one.token, one.key) for one in job.finished] == [
        (0, 0, 10, execution_key(B, A)),
        (1, 1, 13, execution_key(B, B)),
        (0, 0, 14, b""),
    ]
    assert (job.parallelism, job.at) == ({0: 4, 1: 4}, 8.0)
    assert [job.subtasks(vertex) for vertex in (0, 1, 2)] == [2, 1, 0]


def test_executions_that_one_standing_task_has_run_are_not_lost_together():
    """They have one token."""
    missed = ev.FailureCause(ev.FailureKind.PARTITION, "gone", dataset=7, partition=2, attempt=0, token=10)
    entries = [
        list(deployed(0, (0, 1, 2, 3), (0, 0, 0, 0), (A, A, A, A))),
        [finished(0, (0, 1, 2, 3), (0, 0, 0, 0), (10, 10, 10, 10))],
        [told(ev.PartitionsLost(at=5.0, dataset=7, partitions=ints(1), attempts=ints(0), tokens=ints(10)))],
        [told(ev.OutputsLost(at=5.0, vertex=1, subtasks=ints(3), attempts=ints(0), tokens=ints(10)))],
        [told(ev.OutputsLost(at=5.0, vertex=0, subtasks=ints(0), attempts=ints(0), tokens=ints(10)))],
        [told(ev.ExecutionsFailed(at=6.0, vertex=1, subtasks=ints(0), attempts=ints(0), cause=missed))],
    ]
    assert [one.subtask for one in earlier_job(entries).finished] == [3]


def test_what_a_standing_task_has_made_again_is_not_lost_with_what_it_made_first():
    missed = ev.FailureCause(ev.FailureKind.PARTITION, "gone", dataset=7, partition=2, attempt=0, token=10)
    entries = [
        list(deployed(0, (0, 1, 2), (0, 0, 0), (A, A, A))),
        list(deployed(0, (0, 1, 2), (1, 1, 1), (A, A, A))),
        [finished(0, (0, 1, 2), (0, 0, 0), (10, 10, 10))],
        [told(ev.OutputsLost(at=5.0, vertex=0, subtasks=ints(0), attempts=ints(0), tokens=ints(10)))],
        [told(ev.PartitionsLost(at=5.0, dataset=7, partitions=ints(1), attempts=ints(0), tokens=ints(10)))],
        [told(ev.ExecutionsFailed(at=6.0, vertex=1, subtasks=ints(0), attempts=ints(0), cause=missed))],
        [finished(0, (0, 1, 2), (1, 1, 1), (10, 10, 10))],
    ]
    assert [(one.subtask, one.attempt) for one in earlier_job(entries).finished] == [(0, 1), (1, 1), (2, 1)]


def test_an_execution_is_used_once_and_one_that_is_whole_before_others(tmp_path):
    entries = [
        list(deployed(0, (0, 1, 2), (0, 0, 0), (A, A, A))),
        [finished(0, (0, 1, 2), (0, 0, 0), (10, 11, 12))],
    ]
    then, now = tmp_path / "then", tmp_path / "now"
    then.mkdir()
    now.mkdir()
    (then / object_name(7, 1, 0, 11)).write_bytes(b"rows")
    kept = KeptObjects([LeftJob("x", then, earlier_job(entries))], now)
    key = execution_key(B, A)
    first = kept.take(key, whole=True)
    assert first.token == 11
    assert kept.take(key, whole=True) is None
    assert [kept.take(key, whole=False).token for _ in range(2)] == [10, 12]
    assert kept.take(key, whole=False) is None and kept.take(execution_key(A, A), whole=False) is None
    assert kept.link(first, 7, "new.fsr") and (now / "new.fsr").read_bytes() == b"rows"
    (then / object_name(7, 1, 0, 11)).unlink()
    assert not kept.link(first, 7, "newer.fsr")


def test_an_object_can_be_read_under_the_name_that_another_job_gives_it_and_under_no_other(tmp_path):
    """Its partition and its token are sealed into it."""
    store, schema = ResultStore(str(tmp_path)), pa.schema([("v", pa.int64())])
    writer = ResultWriter(store, object_name(3, 5, 1, 77), schema, 1, ["v"], memory_budget=1 << 20)
    writer.write(pa.record_batch([pa.array([1, 2])], schema))
    writer.finish()

    def rows(dataset, partition, attempt, token):
        path = tmp_path / object_name(dataset, partition, attempt, token)
        path.hardlink_to(tmp_path / object_name(3, 5, 1, 77))
        where = (
            ints(attempt),
            ints(token),
            np.array([[partition, partition + 1, 0, 1]], np.int32),
            ints(partition),
            None,
        )
        read = GateReader(store, dataset, schema, 1, *where).read()
        return pa.Table.from_batches(read, schema).column("v").to_pylist()

    assert rows(0, 5, 0, 77) == [1, 2]
    with pytest.raises(Exception, match="another"):
        rows(0, 6, 0, 77)
    with pytest.raises(Exception, match="another"):
        rows(0, 5, 0, 78)


def test_a_part_of_a_deployment():
    ranges = InputRanges(
        np.array([0, 1, 3, 3], np.int32), np.array([[0, 2, 0, 1], [1, 2, 0, 1], [4, 6, 0, 1]], np.int32)
    )
    splits = Splits(ints(0, 1, 1, 3), ints(9, 8, 7))
    whole = Deploy(2, 5, ints(4, 1, 3), ints(0, 2, 0), (), (ranges,), {7: 1}, splits, input_bytes=ints(10, 20, 30))
    part = whole.select(ints(0, 2))
    assert (
        part.subtasks.tolist() == [4, 3] and part.attempts.tolist() == [0, 0] and part.input_bytes.tolist() == [10, 30]
    )
    assert part.ranges[0].of(0).tolist() == [[0, 2, 0, 1]] and part.ranges[0].of(1).tolist() == []
    assert part.splits.of(0).tolist() == [9] and part.splits.of(1).tolist() == [8, 7]
    assert _reads(ranges, ints(1, 5)).tolist() == [[True, False], [True, True], [False, False]]


def print_of(name, read=b"", unprovable=(), **facts):
    return VertexPrint(
        name.encode(), read, {key: Fact(str(shown).encode(), str(shown)) for key, shown in facts.items()}, unprovable
    )


def test_lineages():
    """Equal from the sources on; else the first reason, in words."""
    names, inputs = ["read", "price", "write", "dates"], [[], [0], [1], []]
    then = Lines(names, [print_of("r", A), print_of("p", RATE=1), print_of("w"), print_of("d", B)], inputs)
    assert [match.then for match in matches(then, then)] == [0, 1, 2, 3]
    now = Lines(names, [print_of("r", A), print_of("q", RATE=2), print_of("w"), print_of("d", None)], inputs)
    found = matches(then, now)
    assert [match.then for match in found] == [0, None, None, None]
    assert [match.why for match in found] == [
        "",
        "RATE, 1 then, 2 now",
        "reads 'price', which runs again",
        "reads something of which nobody can tell whether it has changed",
    ]
    opens = Lines(names, [print_of("r", A, ("opens files itself",)), *then.prints[1:]], inputs)
    found = matches(opens, opens)
    assert [match.then for match in found] == [None, None, None, 3]
    assert found[0].why == "opens files itself" and found[1].why == "reads 'read', which runs again"
    seen = replace(then, opened={0: Opening("opened '/a'", "f")})
    assert [match.why for match in matches(seen, then)][:2] == [
        "opened '/a' in f while it ran",
        "reads 'read', which runs again",
    ]
    other = Lines(["read", "new"], [print_of("r", B), print_of("n")], [[], [0]])
    assert [match.why for match in matches(then, other)] == ["its input has changed, or is cut otherwise", "is new"]
    twins = Lines(["a", "a"], [print_of("r", A), print_of("r", A)], [[], []])
    assert [match.then for match in matches(twins, twins)] == [0, 1]


@pytest.mark.parametrize("url", ["gs://bucket/results", "hdfs://node/results"])
def test_results_that_nobody_can_hold_are_not_used_again(url):
    """Said as the job begins, and not a quiet run of everything."""
    options = Options({"firesteel.results.reuse": True, "firesteel.storage.directory": url})
    with pytest.raises(UsageError, match=r"firesteel\.results\.reuse = true: a job's log needs a directory") as raised:
        recovery_mode(options)
    assert "firesteel.results.reuse to false" in raised.value.hint
    s3 = options.merged(Options({"firesteel.storage.directory": "s3://bucket/results"}))
    assert recovery_mode(s3) == "on-request"
    with pytest.raises(UsageError, match="needs the logs of jobs, and none are written"):
        check_reuse(None)
