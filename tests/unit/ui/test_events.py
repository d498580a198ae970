"""Live updates: what readers hear, and what they cost, however slow they are."""

from __future__ import annotations

import json
import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from tests import journal_samples, stream_samples, ui_journals
from tests.ui_server_kit import Served, served

from firesteel.ui.begun import Begun
from firesteel.ui.catalog.following import Tap
from firesteel.ui.catalog.runs import OwnRun, OwnRuns
from firesteel.ui.server.serving import most_connections

EVENTS = "/api/v1/jobs/{}/events"


def pulses(server: Served, id: str) -> Iterator[dict]:
    """Until the end is told."""
    with server.client() as client, client.stream("GET", EVENTS.format(id)) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        for line in answer.iter_lines():
            if line.startswith('data: {"version'):
                yield json.loads(line.removeprefix("data: "))
            if line == "event: end":
                return


def test_a_growing_journal_is_told_of_to_its_end(tmp_path):
    records = journal_samples.word_count()
    grown = ui_journals.growing(tmp_path, "a", records, 5)
    with served([tmp_path]) as running:
        heard = []
        for pulse in pulses(running, "a"):
            heard.append(pulse)
            grown.go_on(3 if len(heard) < 3 else None)
        assert [pulse["version"] for pulse in heard] == sorted({pulse["version"] for pulse in heard})
        assert len(heard) > 3
        assert (heard[0]["status"], heard[-1]["status"], heard[-1]["is_over"]) == ("running", "finished", True)
        assert heard[-1]["progress"] == 1.0
    grown.close()


def test_a_journal_whose_writer_is_gone_ends(tmp_path):
    grown = ui_journals.growing(tmp_path, "a", journal_samples.word_count(), 5)
    with served([tmp_path]) as running:
        heard = []
        for pulse in pulses(running, "a"):
            heard.append(pulse)
            grown.close()
        assert heard[-1]["status"] == "broken off" and heard[-1]["is_over"]


def test_a_stream_is_told_of(tmp_path):
    grown = ui_journals.growing(tmp_path, "s", stream_samples.words(), 4)
    with served([tmp_path]) as running:
        heard = []
        for pulse in pulses(running, "s"):
            heard.append(pulse)
            grown.go_on()
        assert heard[-1]["is_over"] and heard[-1]["batches"] > 0
    grown.close()


def test_browsers_do_not_ask_again_for_what_is_over(tmp_path):
    ui_journals.write(tmp_path, "a", journal_samples.word_count())
    with served([tmp_path]) as running, running.client() as client:
        assert client.get(EVENTS.format("a")).status_code == 204
        assert client.get(EVENTS.format("nothing")).status_code == 404


@contextmanager
def many_files(count: int):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        pytest.skip(f"only {hard} files may be open")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def slow_readers(stack: ExitStack, server: Served, id: str, count: int) -> list[socket.socket]:
    """They ask, and read nothing, with a small window."""
    request = f"GET {EVENTS.format(id)} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    made = []
    for _ in range(count):
        reader = stack.enter_context(socket.socket())
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        reader.settimeout(60.0)
        reader.connect(("127.0.0.1", server.port))
        reader.sendall(request)
        made.append(reader)
    return made


@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.full)])
def test_slow_readers_hold_nobody_up(tmp_path, count):
    """The job's thread only appends; whoever else asks is answered; the slow ones are told the latest, and nothing else waits."""
    records = ui_journals.simulated(tmp_path / "sim.jsonl")
    tap, runs = Tap(), OwnRuns()
    runs.add(OwnRun(Begun("sim", "sim", tmp_path / "sim.jsonl", lambda: None, lambda: None), tap, time.time()))
    for record in records[:10]:
        tap.record(record)
    with ExitStack() as stack:
        stack.enter_context(many_files(4 * count + 1000))
        running = stack.enter_context(served(own=runs))
        readers = slow_readers(stack, running, "sim", count)
        for reader in readers:  # all are served
            assert reader.recv(15) == b"HTTP/1.1 200 OK"
        heard = pulses(running, "sim")
        next(heard)
        told = threading.Thread(target=lambda: [tap.record(record) for record in records[10:]])
        told.start()
        told.join()
        tap.close()
        *_, last = heard
        assert last["is_over"] and last["status"] == "finished" and last["progress"] == 1.0
        with running.client() as client:
            assert client.get("/jobs/sim").status_code == 200


def test_a_server_leaves_the_job_beside_it_its_files():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 1024), hard))
        assert most_connections() <= 256
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
