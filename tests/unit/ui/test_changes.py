"""Streams told what to do over REST and by forms, over their real control socket; only with the token."""

from __future__ import annotations

import time

import pytest
from msgspec.structs import replace
from tests import journal_samples
from tests.stream_samples import STATUS, words
from tests.ui_server_kit import BEARER, served

from firesteel.control import places, server
from firesteel.errors import UsageError
from firesteel.journal.file import Journal
from firesteel.scheduler.streaming.records import StreamEnded, StreamStatus
from firesteel.ui.begun import Begun
from firesteel.ui.catalog.following import Tap
from firesteel.ui.catalog.runs import OwnRun, OwnRuns

API = "/api/v1/jobs/"


class Stream:
    """Takes wishes in."""

    def __init__(self, checkpoint: str) -> None:
        self.now = replace(STATUS, checkpoint=checkpoint, parallelism=7, lower=2, upper=9)
        self.asked: list[object] = []

    def status(self) -> StreamStatus:
        return self.now

    def update_requirements(self, lower: int | None, upper: int | None) -> None:
        if lower is not None and upper is not None and lower > upper:
            raise UsageError(f"Resource requirements of {lower} to {upper} cannot be met.")
        self.asked.append((lower, upper))

    def rescale(self, parallelism: int | None) -> None:
        self.asked.append(parallelism)

    def stop(self) -> None:
        self.asked.append("stop")

    def cancel(self) -> None:
        self.asked.append("cancel")


def running_words(path) -> tuple[Journal, list]:
    """The journal of a stream that has not ended."""
    records = [record for record in words() if not isinstance(record, StreamEnded)]
    journal = Journal(path)
    for record in records:
        journal.record(record)
    journal.flush()
    return journal, records


@pytest.fixture(params=["over its socket", "in the same process"])
def told(request, tmp_path, monkeypatch):
    """(a stream that runs, a client of a server that shows it, the stream's id there)."""
    monkeypatch.setenv(places.RUNTIME_VARIABLE, str(tmp_path / "run"))
    stream = Stream(str(tmp_path / "chk"))
    journal, records = running_words(tmp_path / "words.jsonl")
    runs, control = OwnRuns(), None
    if request.param == "over its socket":
        control = server.open_control(str(tmp_path / "chk"), name="words", journal=str(journal.path))
        control.serve(stream)
    else:
        tap = Tap()
        for record in records:
            tap.record(record)
        begun = Begun(
            records[0].stream_id, "words", journal.path, stream.cancel, lambda: "http://spark:4040", stream=stream
        )
        runs.add(OwnRun(begun, tap, time.time()))
    with served([tmp_path] if control is not None else [], runs) as running, running.client() as client:
        (job,) = client.get("/api/v1/streams").json()["items"]
        yield stream, client, job["id"]
    journal.close()
    if control is not None:
        control.close()


def test_a_stream_that_runs_says_how_it_is(told):
    stream, client, id = told
    shown = client.get(f"{API}{id}").json()
    assert (shown["parallelism"], shown["lower"], shown["upper"]) == (7, 2, 9)
    assert shown["may_change"] and shown["waits_for"] == stream.now.waits_for
    times = [record.at for record in words() if not isinstance(record, StreamEnded)]
    assert 0.0 <= shown["summary"]["seconds"] - (max(times) - min(times)) < 60.0, "by its own clock"
    assert client.get(f"{API}{id}/resource-requirements").json() == {"lower": 2, "upper": 9}


def test_wishes_reach_it(told):
    stream, client, id = told
    for method, path, body in (
        ("PATCH", "/rescaling?parallelism=4", None),
        ("PATCH", "/rescaling", None),
        ("PUT", "/resource-requirements", {"lower": 3}),
        ("PUT", "/resource-requirements", {"lower": 3, "upper": 5}),
        ("POST", "/stop", None),
        ("PATCH", "?mode=cancel", None),
    ):
        assert client.request(method, f"{API}{id}{path}", json=body).status_code == 401
        assert client.request(method, f"{API}{id}{path}", json=body, headers=BEARER).status_code == 202
    assert stream.asked == [4, None, (3, None), (3, 5), "stop", "cancel"]


def test_forms_do_the_same(told):
    stream, client, id = told
    for name, fields in (
        ("rescale", {"parallelism": "4"}),
        ("requirements", {"lower": "", "upper": "8"}),
        ("stop", {}),
    ):
        answer = client.post(f"/jobs/{id}/{name}", data=fields, headers=BEARER)
        assert (answer.status_code, answer.headers["location"]) == (303, f"/jobs/{id}")
    assert stream.asked == [4, (None, 8), "stop"]
    assert client.post(f"/jobs/{id}/rescale", data={"parallelism": "x"}, headers=BEARER).status_code == 400


def test_wrong_wishes_are_said_in_the_streams_words(told):
    stream, client, id = told
    answer = client.put(f"{API}{id}/resource-requirements", json={"lower": 9, "upper": 3}, headers=BEARER)
    assert answer.status_code == 400
    assert answer.json()["error"] == "Resource requirements of 9 to 3 cannot be met."
    assert client.patch(f"{API}{id}?mode=nonsense", headers=BEARER).status_code == 400
    assert stream.asked == []


def test_a_stream_that_is_silent_is_shown_by_its_journal(told, monkeypatch):
    stream, client, id = told

    def broken() -> StreamStatus:
        raise UsageError("not now")

    monkeypatch.setattr(stream, "status", broken)
    assert client.get(f"{API}{id}").json()["lower"] == words()[0].lower


def test_a_job_of_another_process_cannot_be_cancelled_here(tmp_path):
    journal = Journal(tmp_path / "wc.jsonl")
    for record in journal_samples.word_count()[:5]:
        journal.record(record)
    journal.flush()
    with served([tmp_path]) as running, running.client() as client:
        (job,) = client.get("/api/v1/jobs").json()["items"]
        answer = client.patch(f"{API}{job['id']}", headers=BEARER)
        assert answer.status_code == 409 and "another process" in answer.json()["error"]
    journal.close()


def test_what_only_streams_can_do_no_job_does(tmp_path):
    asked: list[str] = []
    tap, runs = Tap(), OwnRuns()
    for record in journal_samples.word_count()[:5]:
        tap.record(record)
    begun = Begun("wc", "word count", tmp_path / "wc.jsonl", lambda: asked.append("cancel"), lambda: None)
    runs.add(OwnRun(begun, tap, time.time()))
    with served(own=runs) as running, running.client() as client:
        assert client.post(f"{API}wc/stop", headers=BEARER).status_code == 400
        assert client.patch(f"{API}wc/rescaling?parallelism=2", headers=BEARER).status_code == 400
        assert client.put(f"{API}wc/resource-requirements", json={"lower": 1}, headers=BEARER).status_code == 400
        assert client.post("/jobs/wc/cancel", headers=BEARER).status_code == 303
    assert asked == ["cancel"]
