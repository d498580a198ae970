"""The page of the process that runs the jobs: begun with the first of them, live, and of no harm to them."""

from __future__ import annotations

import io
import sys
import threading
from pathlib import Path

import httpx
import pytest

from firesteel import ExecutionEnvironment
from firesteel.errors import JobCancelledError, UsageError
from firesteel.ui import process


@pytest.fixture
def env(session, tmp_path):
    options = {
        "firesteel.progress": False,
        "firesteel.journal.directory": str(tmp_path / "journal"),
        "firesteel.storage.directory": str(tmp_path / "storage"),
        "firesteel.ui.enabled": True,
        "rest.bind-port": "0",
    }
    (tmp_path / "journal").mkdir()
    yield ExecutionEnvironment(spark=session, options=options)
    for begun in process._begun:
        begun.close()
    process._begun.clear()


@pytest.fixture
def client(env):
    assert env.ui_url is not None
    with httpx.Client(base_url=env.ui_url, timeout=60.0, trust_env=False) as made:
        yield made


def numbers(env):
    rows = env.from_collection([{"n": n, "k": n % 7} for n in range(1000)])
    return rows.key_by("k").aggregate(total=("n", "sum"))


def token(tmp_path) -> str:
    return (tmp_path / "journal" / "ui-token").read_text().strip()


def test_jobs_are_shown(env, client):
    assert env.ui_url.startswith("http://127.0.0.1:")
    rows = numbers(env).collect()
    assert len(rows) == 7
    (job,) = client.get("/api/v1/jobs").json()["items"]
    assert (job["kind"], job["status"]) == ("job", "finished")
    shown = client.get(f"/api/v1/jobs/{job['id']}").json()
    assert shown["status"] == "FINISHED" and shown["progress"] == 1.0
    assert [vertex["finished"] for vertex in shown["vertices"]] == [v["parallelism"] for v in shown["vertices"]]
    assert [(edge["ship"], edge["keys"]) for edge in shown["edges"]] == [("hash", ["k"])]
    origins = {option["key"]: option["origin"] for option in shown["options"]}
    assert origins["rest.bind-port"] == "options="
    assert client.get(f"/jobs/{job['id']}").status_code == 200


def test_one_line_says_where(session, tmp_path, monkeypatch):
    heard = io.StringIO()
    monkeypatch.setattr(sys, "stderr", heard)
    options = {"firesteel.ui.enabled": True, "rest.bind-port": 0, "firesteel.ui.token-file": str(tmp_path / "token")}
    try:
        env = ExecutionEnvironment(spark=session, options=options)
        assert env.ui_url == env.ui_url  # one server
        assert (
            heard.getvalue()
            == f"firesteel: see {env.ui_url} (changing something needs the token in {tmp_path / 'token'})\n"
        )
    finally:
        process._begun.pop().close()


def test_a_job_is_seen_while_it_runs_and_can_be_cancelled(env, client, tmp_path):
    gate = tmp_path / "gate"

    def wait(batch):
        import time

        while not gate.exists():
            time.sleep(0.01)
        return batch

    stream = env.from_collection([{"n": n} for n in range(100)]).map_in_arrow(wait, "n bigint")
    stream.write_parquet(tmp_path / "out")
    running = env.execute_async("waits for a gate")
    path = f"/api/v1/jobs/{running.job_id}"
    with client.stream("GET", f"{path}/events") as answer:
        assert next(line for line in answer.iter_lines() if line.startswith("data:"))
    while not any(vertex["running"] for vertex in client.get(path).json()["vertices"]):
        pass
    assert client.get(path).json()["may_cancel"]
    assert client.get(path).json()["summary"]["is_live"]
    assert client.patch(path).status_code == 401
    assert client.patch(path, headers={"Authorization": f"Bearer {token(tmp_path)}"}).status_code == 202
    gate.touch()
    with pytest.raises(JobCancelledError):
        running.wait()
    assert client.get(path).json()["summary"]["status"] == "cancelled"
    again = client.patch(path, headers={"Authorization": f"Bearer {token(tmp_path)}"})
    assert again.status_code == 409


def test_many_jobs_at_once_are_told_apart(env, client):
    threads = [threading.Thread(target=lambda: numbers(env).collect()) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    jobs = client.get("/api/v1/jobs").json()["items"]
    assert len({job["id"] for job in jobs}) == 3 and {job["status"] for job in jobs} == {"finished"}


def test_a_page_that_is_off_is_nothing(session, tmp_path):
    env = ExecutionEnvironment(spark=session, options={"firesteel.journal.directory": str(tmp_path)})
    assert env.ui_url is None
    assert process._begun == []
    assert not (tmp_path / "ui-token").exists()


def test_a_page_that_cannot_be_served_fails_before_anything_runs(session, tmp_path):
    (tmp_path / "token").write_text("a-token-that-all-can-read")
    (tmp_path / "token").chmod(0o644)
    options = {
        "firesteel.ui.enabled": True,
        "firesteel.ui.token-file": str(tmp_path / "token"),
        "firesteel.journal.directory": str(tmp_path / "journal"),
    }
    with pytest.raises(UsageError, match="can read"):
        numbers(ExecutionEnvironment(spark=session, options=options)).collect()
    assert not list(Path(tmp_path / "journal").glob("*"))
