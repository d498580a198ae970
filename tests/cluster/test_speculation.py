"""Speculative execution where slowness is real: a node's executor and Python processes are stopped and continued."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.cluster
VICTIM = "127.0.0.4"


@pytest.fixture(scope="module", autouse=True)
def _warm(session, tmp_path_factory):
    """Python workers that have everything loaded."""
    session.run("speculating", tmp_path_factory.mktemp("warm"), splits=9, naps=10, enabled=False)


def at(folder, name):
    return sorted(path.name.rpartition("-")[2] for path in folder.glob(f"at-{name}-*"))


def hurt_once_all_work(session, folder, hurt):
    """Begins when a task runs on each node."""
    session.until(lambda: len(set(at(folder, "begin"))) == 3)
    return hurt(VICTIM)


def assert_right(answer, splits):
    assert answer["rows"] == list(range(100 * splits))
    assert answer["hidden"] == answer["beside"] == answer["left"] == []
    finished = [(a["vertex"], a["subtask"]) for a in answer["attempts"] if "FINISHED" in a["states"]]
    assert len(finished) == len(set(finished)), "two attempts of one subtask were admitted"


def mirrors(answer):
    return [a for a in answer["attempts"] if a["mirror"]]


@pytest.fixture
def slowed(cluster, session, tmp_path):
    """Nine subtasks, of which one gets to a tenth of its speed; without speculation, and with it."""
    answers = []
    for enabled in (False, True):
        folder = tmp_path / str(enabled)
        folder.mkdir()
        session.start("speculating", folder, splits=9, naps=800, enabled=enabled)
        with hurt_once_all_work(session, folder, cluster.standalone.slow):
            answers.append(session.answer())
    return answers


def test_mirrors_win_over_a_node_at_a_tenth_of_its_speed(slowed):
    without, mirrored = slowed
    assert_right(without, 9)
    assert_right(mirrored, 9)
    assert not mirrors(without)
    won = [a for a in mirrors(mirrored) if "FINISHED" in a["states"]]
    assert won
    assert all(a["node"] != VICTIM for a in won)
    assert mirrored["seconds"] < 0.75 * without["seconds"]


@pytest.mark.parametrize("splits", [3, 9])
def test_a_job_ends_while_a_node_stands_still(cluster, session, tmp_path, splits):
    """In one wave, where only the further rule can help, and with work that is queued."""
    session.start("speculating", tmp_path, splits=splits, naps=800)
    with hurt_once_all_work(session, tmp_path, cluster.standalone.freeze):
        answer = session.answer()
    assert_right(answer, splits)
    assert any("FINISHED" in a["states"] and a["node"] != VICTIM for a in mirrors(answer))
    after = tmp_path / "after"
    after.mkdir()
    assert_right(session.run("speculating", after, splits=6, naps=10), 6)


def test_two_attempts_that_finish_in_the_same_moment_give_their_rows_once(session, tmp_path):
    session.start("speculating", tmp_path, splits=5, naps=100, race=True, sink="text")
    session.until(lambda: len(at(tmp_path, "end")) == 2)
    (tmp_path / "go-end").touch()
    answer = session.answer()
    assert_right(answer, 5)
    assert sum(a["subtask"] == 0 and "FINISHED" in a["states"] for a in answer["attempts"]) == 1
