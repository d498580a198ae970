"""Several attempts of a subtask at once, in the fold of the records, explain, history and both views of progress."""

from __future__ import annotations

import io
import random

import pytest
from msgspec.structs import replace
from tests.journal_samples import mirrored, planned, word_count
from tests.scheduler_kit import GraphBuilder, ints, plane
from tests.unit.journal.test_journal_progress import watched

from firesteel.cli import main as cli
from firesteel.errors import UsageError
from firesteel.journal.file import Journal
from firesteel.report.explain import attempts_report, explain
from firesteel.report.fold import JobFold, JobHistory
from firesteel.scheduler.kernel.events import ExecutionsRejected
from firesteel.scheduler.kernel.records import Decision, JobStatusRecord, StateChange
from firesteel.view.live_table import table_of
from firesteel.view.progress import create

EXPLAINED = """\
    speculation  Attempt 1 of subtask 1 of 'text' has taken 12.3 s on 10.0.0.4, three took 1.1 s: attempt 2 is made.
    winner       Attempt 3 (a mirror, on 10.0.0.3) of subtask 1 of 'text' finished first.
    produced     30 rows.
    took         13.8 s, 3 subtasks finished.
    mirrors      1 mirror, which won; 1 execution was rejected by blocked nodes.
    attempts     1 subtask needed more than one attempt (at most 3): 1.
                 subtask 1: attempt 1 on 10.0.0.4 was cancelled after 14.2 s: another attempt was faster.
                     attempt 2 (a mirror) on 10.0.0.4 was rejected by a blocked node.
                     attempt 3 (a mirror) on 10.0.0.3 finished after 1.1 s and won."""

REPORTED = """\
blocked  node 10.0.0.4 from 12.5 s until at least 1 min 12 s: attempt 1 of subtask 1 of 'text' has taken 12.3 s \
there, three took 1.1 s.

[0] text src/**/*.py -> tokenize: 1 subtask with several attempts, 1 mirror, which won; 1 execution was rejected \
by blocked nodes
    200 ms  subtask 1, attempt 1 on 10.0.0.4 was cancelled after 14.2 s: another attempt was faster
    12.6 s  subtask 1, attempt 2 (a mirror) on 10.0.0.4 was rejected by a blocked node
    12.8 s  subtask 1, attempt 3 (a mirror) on 10.0.0.3 finished after 1.1 s and won"""


def upto(at: float):
    return [record for record in mirrored() if record.at <= at]


def test_the_subtask_is_in_the_state_of_its_best_execution():
    seen = [JobHistory(upto(at)).vertices[0].counts() for at in (100.3, 112.5, 112.7, 112.8, 113.9, 114.4)]
    assert seen == [(0, 3, 0), (0, 1, 2), (0, 1, 2), (0, 1, 2), (0, 0, 3), (0, 0, 3)]
    vertex = JobHistory(mirrored()).vertices[0]
    assert vertex.is_done and vertex.states == {0: "FINISHED", 1: "FINISHED", 2: "FINISHED"}
    assert vertex.seconds == pytest.approx(13.8), "the loser's end does not count"
    assert vertex.mirrors == {(1, 2)} and (vertex.effective, vertex.rejected) == (1, 1)
    assert vertex.attempts == {1: 3}


def test_mirrors_run_until_they_end():
    assert [JobHistory(upto(at)).vertices[0].running_mirrors for at in (112.5, 112.6, 112.7, 112.8, 113.9)] == [
        0,
        1,
        0,
        1,
        0,
    ]


def test_late_word_of_an_attempt_before_a_restart_changes_nothing():
    late = [
        StateChange(at=101.0, vertex=0, state="RUNNING", subtasks=[0, 1], attempts=[0, 0]),
        StateChange(at=102.0, vertex=0, state="CANCELING", subtasks=[0], attempts=[0]),
        StateChange(at=102.0, vertex=0, state="CREATED", subtasks=[0], attempts=[1], cause="restart"),
        StateChange(at=103.0, vertex=0, state="RUNNING", subtasks=[0], attempts=[1]),
        StateChange(at=104.0, vertex=0, state="CANCELED", subtasks=[0], attempts=[0]),
    ]
    history = JobHistory([planned(), *late])
    assert history.vertices[0].counts() == (0, 2, 0)
    assert history.vertices[0].states == {0: "RUNNING", 1: "RUNNING"}


def test_a_restart_ends_the_race():
    again = StateChange(at=112.9, vertex=0, state="CREATED", subtasks=[1], attempts=[3], cause="restart")
    history = JobHistory(
        [*upto(112.8), again, StateChange(at=113, vertex=0, state="CANCELED", subtasks=[1, 1], attempts=[0, 2])]
    )
    vertex = history.vertices[0]
    assert vertex.states[1] == "CREATED" and vertex.counts() == (1, 0, 2) and not vertex.concurrent
    assert vertex.attempts == {1: 4} and vertex.running_mirrors == 0


def test_counts_are_those_of_single_steps_whatever_the_bulk():
    """All records cut to single executions, in the same order, give the same."""
    whole, single = JobHistory(mirrored()), JobHistory()
    for record in mirrored():
        if isinstance(record, StateChange) and not record.hosts:
            for subtask, attempt in zip(record.subtasks, record.attempts, strict=True):
                single.apply(replace(record, subtasks=[subtask], attempts=[attempt]))
        else:
            single.apply(record)
    assert whole.vertices[0].by_state == single.vertices[0].by_state
    assert sum(whole.vertices[0].by_state.values()) == 3


def test_blocked_nodes_until_they_are_not():
    told = next(r for r in mirrored() if isinstance(r, Decision) and r.what == "blocklist")
    history = JobHistory(upto(112.5))
    assert [(b.node, b.start, b.end) for b in history.blocked] == [("10.0.0.4", 112.5, 172.5)]
    assert not history.decisions, "they are told of as blocks"
    history.apply(replace(told, at=172.5, inputs={**told.inputs, "end": 180.0}, result="prolonged"))
    assert [b.end for b in history.blocked] == [180.0]
    later = {**told.inputs, "end": 190.0, "times": 3}
    history.apply(replace(told, at=190.0, inputs=later, result="unblocked"))
    assert not history.blocked and history.blocks[0].end == 190.0
    history.apply(replace(told, at=200.0))
    assert len(history.blocked) == 1 and len(history.blocks) == 2
    history.apply(Decision(at=201.0, what="blocklist", inputs={"blocked": ["10.0.0.4"]}, result="used", reason="so"))
    assert len(history.decisions) == 1


def test_explain_tells_every_attempt():
    text = explain(mirrored())
    assert EXPLAINED in text
    assert "    blocked      node 10.0.0.4 from 12.5 s until at least 1 min 12 s: attempt 1" in text


def test_history_tells_every_attempt():
    assert attempts_report(mirrored()) == REPORTED
    assert attempts_report(mirrored(), 0) == REPORTED.split("\n\n")[1]
    every = attempts_report(mirrored(), "tokenize", all_of_them=True)
    assert "    200 ms  subtask 0, attempt 1 on 10.0.0.3 finished after 1.1 s" in every.splitlines()
    assert attempts_report(upto(112.4)) == "Every subtask had one attempt; --all prints them."
    assert "attempt 2 failed" not in attempts_report(
        word_count()
    ) and "attempt 1 failed after 600 ms: worker lost" in attempts_report(word_count())
    with pytest.raises(UsageError, match="empty"):
        attempts_report([])


def test_history_of_a_job_that_still_runs():
    running = attempts_report(upto(112.8)).splitlines()
    assert running[-3].endswith("attempt 1 on 10.0.0.4 runs since 12.6 s")
    assert running[-1].endswith("attempt 3 (a mirror) on 10.0.0.3 runs since 0 ms")
    assert attempts_report(upto(112.5)).endswith("     never  subtask 1, attempt 2 (a mirror) waits for a slot")


def test_history_of_a_job_that_ended_in_the_middle():
    ended = JobStatusRecord(at=114.0, status="FAILED")
    assert attempts_report([*upto(112.8), ended]).endswith(
        "attempt 3 (a mirror) on 10.0.0.3 had run for 1.2 s when the job ended"
    )
    assert attempts_report([*upto(112.5), ended]).endswith("attempt 2 (a mirror) never ran")
    assert "attempt 1 on 10.0.0.4 was being cancelled after 13.7 s: another" in attempts_report([*upto(113.9), ended])


def test_where_nothing_was_begun_there_is_no_more_to_print():
    assert attempts_report([planned()], all_of_them=True) == "No subtask was begun."


def test_an_attempt_that_failed_before_its_start_was_told_has_not_never_run():
    failed = StateChange(at=100.5, vertex=0, state="FAILED", subtasks=[0], attempts=[0], cause="too large")
    text = attempts_report([planned(), failed], all_of_them=True)
    assert text.endswith("         ?  subtask 0, attempt 1 failed: too large")


def test_what_a_winner_wrote_may_be_lost():
    from firesteel.scheduler.kernel.records import OutputGone

    gone = OutputGone(at=120, vertex=0, dataset=None, subtasks=[1], attempts=[2], tokens=[7], reason="discarded: lost")
    (attempts,) = JobFold([*mirrored(), gone]).lives().values()
    assert [a.is_void for a in attempts] == [False, False, True]
    assert "and won; what it wrote is made anew" in attempts_report([*mirrored(), gone])


def test_the_schedulers_own_records_are_understood():
    """A mirror is made, rejected, made again, and wins; two nodes are known, one is blocked and let go."""
    builder = GraphBuilder()
    builder.source([1] * 3, parallelism=3)
    p = plane(builder.graph, speculative__enabled=True).start()
    for subtask in range(3):
        p.launch((0, subtask, 0))
    p.slow((0, 1, 0))
    p.tasks.pop((0, 1, 1))
    p.send(ExecutionsRejected(at=p.tick(), vertex=0, subtasks=ints(1), attempts=ints(1), nodes=("node-1",)))
    p.launch((0, 1, 2), node="node-2")
    stream = io.StringIO()
    view = create(True, stream)
    for record in p.records:
        view.record(record)
    assert "[0] subtask 1 is slow on node-1 (1 s, slow from " in stream.getvalue()
    before = JobHistory(p.records)
    assert before.vertices[0].running_mirrors == 1 and [b.node for b in before.blocked] == ["node-1"]
    p.finish((0, 1, 2))
    p.run()
    after = JobHistory(p.records)
    vertex = after.vertices[0]
    assert (vertex.effective, vertex.rejected, vertex.mirrors) == (1, 1, {(1, 2)})
    assert vertex.is_done and all(state == "FINISHED" for state in vertex.states.values())
    text = attempts_report(p.records)
    assert "attempt 1 on node-1 was being cancelled after" in text and ": another attempt was faster" in text
    assert "attempt 2 (a mirror)" in text and "was rejected by a blocked node" in text
    assert "attempt 3 (a mirror) on node-2 finished" in text and text.splitlines()[-1].endswith("and won")
    view.record(p.decisions("winner")[0])
    assert "[0] subtask 1: the mirror on node-2 won" in stream.getvalue()


def test_the_cli_prints_it(tmp_path, monkeypatch, capsys):
    journal = Journal(tmp_path / "job.jsonl")
    for record in mirrored():
        journal.record(record)
    journal.close()
    monkeypatch.setattr("sys.argv", ["firesteel", "history", str(journal.path)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 0 and capsys.readouterr().out == REPORTED + "\n"


def test_plain_progress_says_what_is_slow_and_who_won():
    stream = io.StringIO()
    view = create(True, stream)
    for record in mirrored():
        view.record(record)
    view.close()
    lines = [line.split(" s  ", 1)[1] for line in stream.getvalue().splitlines()]
    assert lines[2:] == [
        "node 10.0.0.4 is blocked for 1 min: attempt 1 of subtask 1 of 'text' has taken 12.3 s there, three took 1.1 s",
        "[0] subtask 1 is slow on 10.0.0.4 (12.3 s, slow from 1.7 s): mirrored",
        "[0] subtask 1: the mirror on 10.0.0.3 won",
        "[0] finished in 13.8 s, 30 rows",
    ]


def test_the_live_table_shows_mirrors_and_blocked_nodes():
    table = table_of(watched(upto(112.8)), 120)
    columns = {str(c.header): list(c.cells) for c in table.columns}
    assert columns["mirrors"] == ["1", ""] and columns["running"][0] == "1"
    assert str(table.title).endswith("; blocked: 10.0.0.4")
    assert "mirrors" not in {c.header for c in table_of(watched(upto(112.4)), 120).columns}


def test_a_step_that_is_kept_out_is_told_of_where_speculation_is_on():
    vertices = [{**v, "not_mirrored": "no_speculation() of step 'x'"} for v in planned().vertices]
    on = replace(mirrored()[0], vertices=vertices)
    assert explain([on], 1).endswith("    mirrors      none are made: no_speculation() of step 'x'.")
    assert "none are made" not in explain([replace(planned(), vertices=vertices)])


def test_random_races_leave_the_best_state():
    """Against the definition: of the newest round, the state that is nearest to FINISHED."""
    order = ["FINISHED", "RUNNING", "DEPLOYING", "SCHEDULED", "CREATED", "CANCELING", "FAILED", "CANCELED"]
    for seed in range(50):
        rng, history = random.Random(seed), JobHistory()
        rounds: dict[int, dict[int, str]] = {s: {0: "CREATED"} for s in range(3)}
        last = dict.fromkeys(range(3), 0)
        history.apply(StateChange(at=0, vertex=0, state="SCHEDULED", subtasks=[0, 1, 2], attempts=[0, 0, 0]))
        for s in rounds:
            rounds[s] = {0: "SCHEDULED"}
        for at in range(1, 40):
            s = rng.randrange(3)
            if rng.random() < 0.2:
                last[s] += 1
                beside = rng.random() < 0.7
                rounds[s] = {**(rounds[s] if beside else {}), last[s]: "CREATED"}
                made = StateChange(at=at, vertex=0, state="CREATED", subtasks=[s], attempts=[last[s]], beside=beside)
                history.apply(made)
                continue
            attempt, state = rng.randint(0, last[s]), rng.choice([s for s in order if s != "CREATED"])
            if attempt in rounds[s]:
                rounds[s][attempt] = state
            history.apply(StateChange(at=at, vertex=0, state=state, subtasks=[s], attempts=[attempt]))
        best = {s: min(states.values(), key=order.index) for s, states in rounds.items()}
        assert history.vertices[0].states == best
