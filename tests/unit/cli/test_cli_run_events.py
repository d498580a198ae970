"""``firesteel run --json``: errors and ends as JSON lines, without Spark."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from firesteel.cli.main import app
from firesteel.scheduler.streaming.records import StreamBatch, StreamEnded, StreamPlanned, StreamStateChange
from firesteel.view import progress
from firesteel.view.json_events import write_event
from firesteel.view.stream_progress import JsonStream


@pytest.fixture(autouse=True)
def own_progress(monkeypatch):
    monkeypatch.setattr(progress, "_json", [])


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["firesteel"])
    monkeypatch.setattr("sys.path", [*sys.path])

    def call(script: str, *arguments: str):
        (tmp_path / "s.py").write_text(script)
        return CliRunner().invoke(app, ["run", *arguments, "s.py"])

    return call


def lines(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


def test_errors_and_the_end_are_told_on_stderr_and_stdout_is_the_scripts(run):
    shown = run(
        "print('mine')\nfrom firesteel import ExecutionEnvironment\nExecutionEnvironment(options={'x': 1})", "--json"
    )
    error, end = lines(shown.stderr)
    assert shown.stdout == "mine\n"
    assert (error["v"], error["event"], error["kind"], error["exit_code"]) == (1, "error", "UsageError", 2)
    assert error["message"] == "There is no option 'x'." and error["hint"]
    assert (end["event"], end["code"], shown.exit_code) == ("exit", 2, 2)


def test_what_is_wrong_before_the_script_begins_is_told_too(run, tmp_path):
    shown = CliRunner().invoke(app, ["run", "--json", "missing.py"])
    assert [line["event"] for line in lines(shown.stderr)] == ["error", "exit"]
    assert shown.exit_code == 2
    shown = run("", "--json", "-O", "nonsense=1")
    assert [line["event"] for line in lines(shown.stderr)] == ["error", "exit"]


def test_a_file_beside_the_usual_words(run, tmp_path):
    shown = run("import sys\nsys.exit(3)", "--json-file", "events")
    assert (shown.exit_code, shown.stderr) == (3, "")
    assert [(line["event"], line["code"]) for line in lines((tmp_path / "events").read_text())] == [("exit", 3)]
    shown = run("from firesteel.errors import UsageError\nraise UsageError('wrong')", "--json-file", "-")
    assert [line["event"] for line in lines(shown.stdout)] == ["error", "exit"]
    assert shown.stderr.startswith("firesteel: wrong\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device")
def test_a_file_that_takes_nothing_is_told_of_once(run):
    shown = run("import sys\nsys.exit(3)", "--json-file", "/dev/full")
    assert shown.exit_code == 3
    assert shown.stderr == "firesteel: Not all events could be written to '/dev/full': No space left on device.\n"


def test_wrong_use_of_the_flags(run):
    shown = run("", "--json", "--json-file", "x")
    assert "Leave one out" in str(shown.exception)
    shown = run("", "--json-file", "no/such/folder/x")
    assert "cannot be written" in str(shown.exception)


def test_quiet_is_silent(run):
    shown = run("print('mine')", "--quiet")
    assert (shown.stdout, shown.stderr) == ("mine\n", "")


def test_secrets_are_masked_and_paths_stay(run, monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    told = io.StringIO()
    write_event(
        told,
        "failed",
        subtasks=[0],
        cause="no login at postgres://bob:hunter2@db/x (hunter2), see /home/ada/log",
        options={"password": "hunter2"},
    )
    (line,) = lines(told.getvalue())
    assert line["cause"] == "no login at postgres://***@db/x (***), see /home/ada/log"
    assert line["options"] == {"password": "***"} and line["subtasks"] == [0]


def test_a_stream_in_json():
    stream = io.StringIO()
    view = JsonStream(stream)
    for record in [
        StreamPlanned(at=0.0, stream_id="s1", name="payments", checkpoint="c", lower=1, upper=2, options={}),
        StreamStateChange(at=1.0, state="Executing", phase="Idling"),
        StreamBatch(at=2.0, run=1, batch=0, parallelism=2, rows=5, duration=0.1, batches=2),
        StreamEnded(at=3.0, status="FINISHED"),
    ]:
        view.record(record)
    view.close()
    told = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [event["event"] for event in told] == ["stream", "stream_state", "stream_result"]
    assert {(event["v"], event["stream"]) for event in told} == {(1, "s1")}
    assert (told[-1]["batches"], told[-1]["rows"], told[-1]["at"]) == (2, 5, 3.0)
