"""Speculative execution where slowness is real: a node's executor and Python processes are stopped and continued."""

from __future__ import annotations

from functools import partial

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.full]
VICTIM = "127.0.0.4"


def at(folder, name):
    return sorted(path.name.rpartition("-")[2] for path in folder.glob(f"at-{name}-*"))


def hurt_once_all_work(session, folder, hurt, **arguments):
    """Begins when a task runs on each node. The tasks go on when the node is hurt."""
    session.start("speculating", folder, gate="go-begin", **arguments)
    session.until(lambda: len(set(at(folder, "begin"))) == 3)
    held = hurt(VICTIM)
    (folder / "go-begin").touch()
    return held


def assert_right(answer, splits):
    assert answer["rows"] == list(range(100 * splits))
    assert answer["hidden"] == answer["beside"] == answer["left"] == []
    finished = [(a["vertex"], a["subtask"]) for a in answer["attempts"] if "FINISHED" in a["states"]]
    assert len(finished) == len(set(finished)), "two attempts of one subtask were admitted"


def mirrors(answer):
    return [a for a in answer["attempts"] if a["mirror"]]


def test_mirrors_win_over_a_node_at_a_tenth_of_its_speed(cluster, session, tmp_path):
    with hurt_once_all_work(session, tmp_path, cluster.standalone.slow, splits=9, naps=800):
        answer = session.answer()
    assert_right(answer, 9)
    won = [a for a in mirrors(answer) if "FINISHED" in a["states"]]
    assert won
    assert all(a["node"] != VICTIM for a in won)
    # and nothing new stays on the node that is blocked
    since = min(a["states"]["CREATED"] for a in mirrors(answer))
    for one in answer["attempts"]:
        if one["node"] == VICTIM and one["states"].get("RUNNING", 0) > since:
            assert "FINISHED" not in one["states"], one


@pytest.mark.parametrize("splits", [3, 9])
def test_a_job_ends_while_a_node_stands_still(cluster, session, tmp_path, splits):
    """In one wave, where only the fallback rule can help, and with work that is queued."""
    with hurt_once_all_work(session, tmp_path, cluster.standalone.freeze, splits=splits, naps=800):
        answer = session.answer()
    assert_right(answer, splits)
    assert any("FINISHED" in a["states"] and a["node"] != VICTIM for a in mirrors(answer))
    after = tmp_path / "after"
    after.mkdir()
    assert_right(session.run("speculating", after, splits=6, naps=10), 6)


def finished(session):
    return {subtask for change in session.changes() if change.state == "FINISHED" for subtask in change.subtasks}


def racing(session, folder):
    """Attempt at subtask 0 to its host, of all that have come to their end and are not called off, or lost."""
    over = {
        attempt
        for change in session.changes()
        if change.state in ("CANCELED", "FAILED")
        for subtask, attempt in zip(change.subtasks, change.attempts, strict=True)
        if subtask == 0
    }
    names = [path.name.split("-") for path in folder.glob("at-end-*")]
    return {int(attempt): host for _, _, attempt, _, host in names if int(attempt) not in over}


def pair(session, folder, without=None):
    """The racing attempts with their hosts, once there are two and this one is none of them."""
    now = racing(session, folder)
    return sorted(now.items()) if len(now) == 2 and without not in now else None


def test_two_attempts_that_finish_in_the_same_moment_give_their_rows_once(session, tmp_path):
    session.start("speculating", tmp_path, splits=5, naps=100, race=True, sink="text")
    session.until(lambda: pair(session, tmp_path))
    (tmp_path / "go-end").touch()
    answer = session.answer()
    assert_right(answer, 5)
    assert sum(a["subtask"] == 0 and "FINISHED" in a["states"] for a in answer["attempts"]) == 1


def test_executors_that_die_in_a_race_cost_a_mirror_and_no_restart(cluster, session, tmp_path):
    """First that of a mirror, then that of the slow original, while another attempt goes on."""
    session.start("speculating", tmp_path, splits=5, naps=100, race=True)
    session.until(lambda: finished(session) == {1, 2, 3, 4})  # nothing else dies with an executor
    (original, slow), (mirror, copied) = session.until(lambda: pair(session, tmp_path))
    assert slow != copied
    cluster.standalone.kill_executor(copied)
    session.until(
        lambda: pair(session, tmp_path, without=mirror)
    )  # not always the next number: blocked nodes reject some
    cluster.standalone.kill_executor(slow)
    session.until(lambda: pair(session, tmp_path, without=original))
    (tmp_path / "go-end").touch()
    answer = session.answer()
    assert_right(answer, 5)
    own = [a for a in answer["attempts"] if a["subtask"] == 0]
    lost = [a for a in own if "FAILED" in a["states"]]
    assert sorted(a["mirror"] for a in lost) == [
        False,
        True,
    ]  # either may have the lower number: blocked nodes reject some
    assert [a["attempt"] for a in lost] == [original, mirror]
    for one, host in zip(lost, (slow, copied), strict=True):
        assert one["cause"].startswith(("The executor", "An executor")) and one["node"] in (
            host,
            "",
        )  # perhaps it was never seen to run
    (won,) = [a for a in own if "FINISHED" in a["states"]]
    assert won["mirror"]
    told = [(f["rule"], f["result"]) for f in answer["failovers"]]
    assert told == [("another current execution can finish", {})] * 2, "nothing ran again"


def test_what_losers_wrote_is_gone_while_the_job_still_runs(cluster, session, tmp_path):
    seen = set()

    def written():
        now = {path.name for path in (tmp_path / "storage").glob("firesteel-job-*/d0-p*")}
        seen.update(now)
        return now

    session.start("speculating", tmp_path, splits=6, naps=800, hold=True)
    session.until(lambda: len(written()) >= 3 and len(set(at(tmp_path, "begin"))) == 3)
    with cluster.standalone.slow(VICTIM):
        session.until(lambda: written() and at(tmp_path, "read"))
        session.until(lambda: len(written()) == 6)
    assert len(seen) > 6, "no loser wrote anything"
    (tmp_path / "go-read").touch()
    answer = session.answer()
    assert_right(answer, 6)
    assert mirrors(answer)


def test_a_step_with_side_effects_gets_no_mirror(cluster, session, tmp_path):
    gently = partial(cluster.standalone.slow, share=0.2)
    with hurt_once_all_work(session, tmp_path, gently, splits=6, naps=500, side_effects=True):
        answer = session.answer()
    assert_right(answer, 6)
    assert not mirrors(answer)
