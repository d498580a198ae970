"""Small outputs merged, and storages opened by a function of the user's."""

from __future__ import annotations

import pytest

import far_storage
from firesteel.errors import UsageError
from firesteel.results.storage.store import merged_name
from firesteel.scheduler.exchange import merging
from firesteel.scheduler.kernel.commands import JobStatus
from firesteel.spark.driver.runtime import submit
from firesteel.spark.storage import merge as merge_module
from runtime_support import collected, left_behind, options, two_steps

FORCED = {"firesteel__merge__request-time": "1 h", "firesteel__merge__threshold": "1 g"}
PRODUCERS = 9


@pytest.fixture(autouse=True)
def worth_it(monkeypatch):
    monkeypatch.setattr(merging, "WORTH", 0.0)
    monkeypatch.setattr(merging, "WHOLE_BYTES", 0)


def run(session, tmp_path, fn=None, each=50, parallelism=5, **values):
    return submit(
        two_steps(PRODUCERS, each, fn=fn, parallelism=parallelism), session, options(tmp_path, **values)
    ).result()


def rows(outcome):
    assert outcome.error is None
    found = sorted(collected(outcome)["v"].to_pylist())
    outcome.close()
    return found


def decisions(outcome, what):
    return [d for d in outcome.decisions if d.what == what]


def test_merged_results_give_the_same_answer_and_leave_nothing(session, tmp_path):
    plain = run(session, tmp_path, firesteel__merge__threshold="0")
    merged = run(session, tmp_path, **FORCED)
    assert not decisions(plain, "merge")
    (outcome,) = decisions(merged, "merged")
    assert outcome.result == 2  # as many as there are slots
    assert not [name for name in left_behind(tmp_path) if "/d0-" in name]
    assert rows(plain) == rows(merged) == list(range(50 * PRODUCERS))
    assert left_behind(tmp_path) == []


def test_small_local_jobs_are_not_merged_and_say_why(session, tmp_path, monkeypatch):
    monkeypatch.setattr(merging, "WORTH", 2.0)
    outcome = run(session, tmp_path)
    (decision,) = decisions(outcome, "merge")
    assert decision.result == "not merged" and 0 < decision.inputs["request_seconds"] < 0.05
    assert len(rows(outcome)) == 50 * PRODUCERS


def test_a_merged_object_that_is_lost_costs_nothing_but_a_restart(session, tmp_path, monkeypatch):
    """The second task that reads finds that somebody removed it."""
    answer = merge_module._answer

    def and_lose(merge, groups, reason, at):
        told = answer(merge, groups, reason, at)
        first, end = int(merge.bounds[0]), int(merge.bounds[1])
        (path,) = tmp_path.glob(f"storage/*/{merged_name(0, first, end, int(told.tokens[0]))}")
        path.unlink()
        return told

    monkeypatch.setattr(merge_module, "_answer", and_lose)
    outcome = run(session, tmp_path, **FORCED, **{"restart-strategy__fixed-delay__attempts": "0"})
    assert "the partitions that were merged are there still" in decisions(outcome, "failover")[0].reason
    assert rows(outcome) == list(range(50 * PRODUCERS))


def test_a_merge_that_fails_is_only_a_reason(session, tmp_path, monkeypatch):
    monkeypatch.setattr(merge_module.Merger, "_run", lambda *_: 1 / 0)
    outcome = run(session, tmp_path, **FORCED)
    (decision,) = decisions(outcome, "merged")
    assert decision.result == 0 and "2 groups not" in decision.reason
    assert rows(outcome) == list(range(50 * PRODUCERS))


def test_a_job_is_cancelled_while_it_merges(session, tmp_path, monkeypatch):
    start = merge_module.Merger.start
    runs = []

    def and_cancel(self, merge):
        start(self, merge)
        runs[0].cancel("enough")

    monkeypatch.setattr(merge_module.Merger, "start", and_cancel)
    runs.append(submit(two_steps(PRODUCERS, 50), session, options(tmp_path, **FORCED)))
    assert runs[0].result().status is JobStatus.CANCELED


def test_a_far_storage_is_asked_less_when_small_results_are_merged(session, tmp_path):
    """Objects are too large for a worker to fetch them whole: every slice is a request."""
    asked, each = {}, 20_000
    for name, values in (("plain", {"firesteel__merge__threshold": "0"}), ("merged", FORCED)):
        root = tmp_path / name
        root.mkdir()
        place = {
            "firesteel__storage__filesystem": "far_storage:open_counted",
            "firesteel__storage__directory": str(root),
        }
        outcome = run(session, tmp_path, each=each, parallelism=16, **values, **place)
        assert rows(outcome) == list(range(each * PRODUCERS))
        asked[name] = far_storage.counts(root / far_storage.FILE)
    assert asked["merged"]["reads"] < asked["plain"]["reads"], asked


def test_a_wrong_file_system_is_refused_before_anything_runs(session, tmp_path):
    with pytest.raises(UsageError, match="there is no 'nothing' in far_storage"):
        run(session, tmp_path, firesteel__storage__filesystem="far_storage:nothing")
