"""Executors and workers that die, files that are damaged or lost, storage that fails, jobs that are cancelled: on a cluster."""

from __future__ import annotations

import signal

import pytest
from tools.standalone import HOSTS as NODES

pytestmark = pytest.mark.cluster


def at(folder, name):
    """The hosts where tasks hold, one entry for each task."""
    return sorted(path.name.rpartition("-")[2] for path in folder.glob(f"at-{name}-*"))


def objects(folder, dataset):
    return sorted((folder / "storage").glob(f"firesteel-job-*/d{dataset}-p*"))


def truncated(path):
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def flipped(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(data)


def deleted(path):
    path.unlink()


@pytest.mark.parametrize("hurt", [flipped, *(pytest.param(h, marks=pytest.mark.full) for h in (truncated, deleted))])
def test_a_damaged_file_is_produced_again_and_nothing_else(session, tmp_path, hurt):
    session.start("damaged", tmp_path)
    session.until(lambda: len(at(tmp_path, "read")) == 3)
    found = objects(tmp_path, 0)
    assert len(found) == 6
    hurt(found[2])
    (tmp_path / "go-read").touch()
    answer = session.answer()
    assert answer["right"]
    assert answer["left"] == []
    again = [a for a in answer["attempts"] if a["vertex"] == 0 and a["attempt"] > 0]
    assert [(a["subtask"], a["states"].keys() >= {"FINISHED"}) for a in again] == [(2, True)]
    assert {(f["kind"], f["vertex"]) for f in answer["failovers"]} == {("partition lost or damaged", 1)}
    assert all(f["0"] == 1 for f in answer["failovers"] if "0" in f), "more than the damaged one was produced again"


def test_files_lost_with_their_node_are_produced_again_together(cluster, session, tmp_path):
    session.start("damaged", tmp_path)
    session.until(lambda: len(at(tmp_path, "read")) == 3)
    for path in objects(tmp_path, 0):
        path.unlink()
    cluster.standalone.kill_worker("127.0.0.4")
    (tmp_path / "go-read").touch()
    answer = session.answer()
    assert answer["right"]
    assert answer["left"] == []
    assert sorted(a["subtask"] for a in answer["attempts"] if a["vertex"] == 0 and a["attempt"] == 1) == list(range(6))


@pytest.mark.full
def test_results_outlive_the_worker_that_made_them(cluster, session, tmp_path):
    session.start("damaged", tmp_path)
    session.until(lambda: len(at(tmp_path, "read")) == 3)
    cluster.standalone.kill_worker(at(tmp_path, "numbers")[0])
    (tmp_path / "go-read").touch()
    answer = session.answer()
    assert answer["right"]
    assert answer["left"] == []
    producers = [a for a in answer["attempts"] if a["vertex"] == 0]
    assert [a["attempt"] for a in producers] == [0] * 6, "what the dead worker had made was made again"


@pytest.mark.full
def test_an_executor_dies_while_it_writes_a_result_and_another_one_while_it_writes_a_file(cluster, session, tmp_path):
    session.start("writing", tmp_path)
    session.until(lambda: len(at(tmp_path, "source")) == 3)
    cluster.standalone.kill_executor("127.0.0.2")
    session.until(lambda: len(at(tmp_path, "source")) == 4)
    (tmp_path / "go-source").touch()
    session.until(lambda: len(at(tmp_path, "sink")) == 3)
    cluster.standalone.kill_executor("127.0.0.3")
    session.until(lambda: len(at(tmp_path, "sink")) == 4)
    (tmp_path / "go-sink").touch()
    answer = session.answer()
    assert answer["right"]
    assert answer["hidden"] == answer["beside"] == answer["left"] == []
    # what ran there is an attempt of its own in the records, and so is its restart
    for vertex, killed in ((0, "127.0.0.2"), (1, "127.0.0.3")):
        (lost,) = [a for a in answer["attempts"] if a["vertex"] == vertex and "FAILED" in a["states"]]
        assert lost["node"] in (killed, "")  # killed at once, it was perhaps never seen to run
        assert lost["cause"].startswith(("The executor", "An executor"))
        same = [a for a in answer["attempts"] if (a["vertex"], a["subtask"]) == (vertex, lost["subtask"])]
        assert [a["attempt"] for a in same] == [0, 1]
        assert "FINISHED" in same[1]["states"]
        assert same[1]["node"] in NODES


@pytest.mark.full
def test_executors_die_in_the_middle_of_a_sort(cluster, session, tmp_path):
    """One while it writes ranges, one while it reads them: all rows are there once, in order."""
    session.start("sorted", tmp_path)
    session.until(lambda: len(at(tmp_path, "ranges")) == 3)
    cluster.standalone.kill_executor("127.0.0.2")
    session.until(lambda: len(at(tmp_path, "ranges")) == 4)
    (tmp_path / "go-ranges").touch()
    session.until(lambda: len(at(tmp_path, "sorted")) == 3)
    cluster.standalone.kill_executor("127.0.0.3")
    session.until(lambda: len(at(tmp_path, "sorted")) == 4)
    (tmp_path / "go-sorted").touch()
    answer = session.answer()
    assert answer["right"] and answer["left"] == []
    lost = {a["vertex"] for a in answer["attempts"] if "FAILED" in a["states"]}
    assert lost == {0, 1}, "each of the two steps lost an attempt"


@pytest.mark.full
def test_a_pipelined_job_survives_a_killed_executor(cluster, session, tmp_path):
    session.start("pipelined", tmp_path)
    session.until(lambda: len(at(tmp_path, "step")) == 3)
    cluster.standalone.kill_executor("127.0.0.3")
    session.until(lambda: len(at(tmp_path, "step")) >= 4)
    (tmp_path / "go-step").touch()
    assert session.answer() == {"values": list(range(40)), "left": []}


@pytest.mark.full
def test_readers_of_merged_objects_survive_a_killed_executor(cluster, session, tmp_path):
    session.start("merged", tmp_path)
    session.until(lambda: len(at(tmp_path, "merged")) == 3)
    cluster.standalone.kill_executor("127.0.0.2")
    (tmp_path / "go-merged").touch()
    assert session.answer() == {"right": True, "merged": [3], "left": []}


@pytest.mark.full
def test_an_executor_dies_while_the_state_of_a_stream_is_rewritten(cluster, session, tmp_path):
    session.start("repartitioned", tmp_path, partitions=24)
    session.until(lambda: list(tmp_path.glob("checkpoint/state/0/*/2.zip")))
    cluster.standalone.kill_executor("127.0.0.2")
    assert not (tmp_path / "checkpoint" / "commits" / "1").exists(), "too late: the repartition was over"
    assert session.answer() == {"right": True, "before": 3, "parallelism": 24, "pending": None}


def test_a_storage_that_fails_now_and_then_costs_nobody_an_attempt(session, tmp_path):
    answer = session.run("hiccups", tmp_path, every=7)
    assert answer["failed"] > 5
    assert answer["right"]
    assert answer["failovers"] == []
    assert answer["left"] == []


def test_a_cancelled_job_ends_soon_and_leaves_nothing(session, tmp_path):
    session.start("cancelled", tmp_path)
    session.until(lambda: len(at(tmp_path, "cancel")) == 3)
    (tmp_path / "cancel").touch()
    answer = session.answer()
    assert "was cancelled" in answer["told"]
    assert answer["seconds"] < 300, "its tasks hold for ever"
    assert answer["next"] == list(range(30))
    assert answer["out"] == answer["left"] == []


@pytest.mark.full
def test_ctrl_c_cancels_the_job_and_the_session_goes_on(session, tmp_path):
    session.start("interrupted", tmp_path)
    session.until(lambda: len(at(tmp_path, "never")) == 3)
    session.process.send_signal(signal.SIGINT)
    answer = session.answer()
    assert "was interrupted" in answer["told"]
    assert answer["next"] == list(range(30))
    assert answer["out"] == answer["left"] == []


@pytest.mark.full
def test_a_job_without_executors_says_so_and_ends_when_there_are_some_again(cluster, session, tmp_path):
    hosts = cluster.standalone.hosts
    session.start("waiting", tmp_path)
    session.until(lambda: len(at(tmp_path, "waits")) == 3)
    for host in hosts:
        cluster.standalone.kill_worker(host)
    session.until(lambda: "Spark has no executor" in (tmp_path / "waits").read_text())
    (tmp_path / "go-waits").touch()
    cluster.standalone.start_workers()
    answer = session.answer()
    assert answer["rows"] == list(range(30))
    assert answer["left"] == []
