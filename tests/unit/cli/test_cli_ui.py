"""``firesteel ui`` and ``demo --ui`` as real processes: the line, the page, the end."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from tests import journal_samples, ui_journals

MAIN = (sys.executable, "-m", "firesteel")
KEEP = """
from firesteel.cli.shared import given_options, wait_for_a_key
wait_for_a_key(given_options(["rest.bind-port=0"], with_ui=True))
"""


@contextmanager
def running(folder: Path, *command: str, **options: object) -> Generator[subprocess.Popen[str]]:
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), "FIRESTEEL_REST_BIND_PORT": "0"}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=folder, env=environment, **options)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def url_in(process: subprocess.Popen[str]) -> str:
    line = process.stderr.readline()
    found = re.fullmatch(
        r"firesteel: see (http://127\.0\.0\.1:\d+/) \(changing something needs the token in (.*)\)\n", line
    )
    assert found, line
    return found[1]


def jobs(url: str) -> list[str]:
    answer = httpx.get(f"{url}api/v1/jobs", timeout=60.0, trust_env=False)
    return [job["id"] for job in answer.json()["items"]]


def test_it_serves_what_it_is_given_until_ctrl_c(tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    ui_journals.write(one, "wc", journal_samples.word_count())
    ui_journals.write(other, "mirrors", journal_samples.mirrored())
    with running(tmp_path, *MAIN, "ui", str(one), f"file://{other}", "--port", "0") as process:
        url = url_in(process)
        assert set(jobs(url)) == {"wc", "mirrors"}
        assert "word count" in httpx.get(f"{url}jobs/wc", timeout=60.0, trust_env=False).text
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert process.stderr.read() == ""


def test_without_a_folder_it_serves_the_journals_of_here(tmp_path):
    folder = tmp_path / ".firesteel" / "journal"
    folder.mkdir(parents=True)
    ui_journals.write(folder, "wc", journal_samples.word_count())
    with running(tmp_path, *MAIN, "ui") as process:
        assert "wc" in jobs(url_in(process))
        assert (folder / "ui-token").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["nothing"], "There is no directory 'nothing'", marks=pytest.mark.full),
        (["notes.txt"], "'notes.txt' is not a journal. Give a journal, or a directory with journals."),
        pytest.param(["--port", "99999", "."], "is not a port", marks=pytest.mark.full),
        pytest.param(["--address", "192.0.2.1", "."], "cannot be served at 192.0.2.1", marks=pytest.mark.full),
        pytest.param(["-O", "firesteel.ui.token-file=/dev/null", "."], "can read '/dev/null'", marks=pytest.mark.full),
    ],
)
def test_what_is_wrong_is_one_sentence(tmp_path, arguments, said):
    (tmp_path / "notes.txt").write_text("Dear diary,\n")
    with running(tmp_path, *MAIN, "ui", *arguments) as process:
        assert process.wait(60) == 2
        told = process.stderr.read()
        assert said in told and told.startswith("firesteel: ") and told.count("\n") == 1


@pytest.mark.full
def test_a_port_that_is_taken_is_left_alone(tmp_path):
    ui_journals.write(tmp_path, "wc", journal_samples.word_count())
    with running(tmp_path, *MAIN, "ui", ".") as process:
        port = int(re.search(r":(\d+)/", url_in(process))[1])
        with running(tmp_path, *MAIN, "ui", ".", "--port", str(port)) as second:
            assert second.wait(60) == 2
            assert f"port {port}" in second.stderr.read()
        with running(tmp_path, *MAIN, "ui", ".", "--port", f"{port}-{min(port + 50, 65535)}") as third:
            assert f":{port}/" not in url_in(third)


@pytest.mark.parametrize("key", [b"x", pytest.param(b"\x03", marks=pytest.mark.full)], ids=["a letter", "ctrl-c"])
def test_the_page_stays_until_a_key_is_pressed(tmp_path, key):
    leader, follower = pty.openpty()
    try:
        with running(tmp_path, sys.executable, "-c", KEEP, stdin=follower) as process:
            url = url_in(process)
            assert process.stderr.readline() == f"firesteel: the page stays at {url} until you press a key.\n"
            assert jobs(url) == []
            assert process.poll() is None
            until = time.monotonic() + 60.0
            while (
                process.poll() is None and time.monotonic() < until
            ):  # the terminal is told by then that it wants keys
                os.write(leader, key)
                time.sleep(0.05)
            assert process.wait(60) == 0
            assert process.stderr.read() == ""
    finally:
        os.close(leader)
        os.close(follower)


def test_nobody_is_waited_for_who_cannot_press_a_key(tmp_path):
    with running(tmp_path, sys.executable, "-c", KEEP, stdin=subprocess.DEVNULL) as process:
        assert process.wait(60) == 0
