"""The socket of a stream: requests and answers over real sockets, and who may not disturb it."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from firesteel.control import claims, messages, names, places, server
from firesteel.control.client import StreamClient, StreamGone
from firesteel.control.messages import Call, Request
from firesteel.errors import FiresteelError, UsageError
from firesteel.scheduler.streaming.records import StreamStatus

STATUS = StreamStatus(
    name="words",
    checkpoint="chk",
    state="Executing",
    phase="Idling",
    parallelism=4,
    wanted=4,
    lower=1,
    upper=64,
    cores=2,
    executors=1,
    run=1,
    batches=3,
    batch=2,
    input_rate=10.0,
    processed_rate=20.0,
    state_rows=7,
    state_bytes=700,
    backlog=None,
    rescales=0,
    last_rescale=None,
    waits_for="",
)


class Stream:
    """What a stream takes in, without Spark."""

    def __init__(self) -> None:
        self.now = STATUS
        self.asked: list[object] = []
        self.may_answer = threading.Event()
        self.may_answer.set()

    def status(self) -> StreamStatus:
        self.may_answer.wait(600)
        return self.now

    def update_requirements(self, lower, upper) -> None:
        if lower == 99:
            raise UsageError("Resource requirements of 99 to 64 cannot be met.", hint="Less.")
        self.asked.append((lower, upper))
        self.now = replace(self.now, lower=lower or self.now.lower, upper=upper or self.now.upper)

    def rescale(self, parallelism) -> None:
        if parallelism == 13:
            raise KeyError("thirteen")
        self.asked.append(parallelism)

    def stop(self) -> None:
        self.asked.append("stop")

    def cancel(self) -> None:
        self.asked.append("cancel")


@pytest.fixture(autouse=True)
def runtime(tmp_path, monkeypatch):
    place = tmp_path / "run"
    monkeypatch.setenv(places.RUNTIME_VARIABLE, str(place))
    monkeypatch.setattr(places, "claims_directory", lambda: tmp_path / "claims")
    return place


@pytest.fixture
def opened(tmp_path):
    """A stream 'words' that answers at its socket."""
    controls: list[server.ControlServer] = []

    def start(checkpoint=None, name="words", stream=None) -> tuple[Stream, server.ControlServer]:
        control = server.open_control(str(checkpoint or tmp_path / "chk"), name=name)
        assert isinstance(control, server.ControlServer)
        stream = stream or Stream()
        control.serve(stream)
        controls.append(control)
        return stream, control

    yield start
    for control in controls:
        control.close()


def raw(control) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(10)
    connection.connect(str(control.path))
    return connection


def is_hung_up_on(connection: socket.socket) -> bool:
    try:
        return connection.recv(100) == b""
    except ConnectionResetError:  # with something unread
        return True


def test_every_call_is_answered_with_how_the_stream_is_then(opened):
    stream, _ = opened()
    with StreamClient(names.find_stream("words")) as caller:
        assert caller.status() == STATUS
        assert caller.call(Request(call=Call.REQUIREMENTS, lower=2, upper=16)).upper == 16
        caller.call(Request(call=Call.RESCALE, parallelism=8))
        caller.call(Request(call=Call.RESCALE))
        caller.call(Request(call=Call.STOP))
        caller.call(Request(call=Call.CANCEL))
    assert stream.asked == [(2, 16), 8, None, "stop", "cancel"]


def test_what_the_stream_complains_of_is_raised_where_it_was_asked(opened):
    opened()
    with StreamClient(names.find_stream("words")) as caller:
        with pytest.raises(UsageError, match=r"99 to 64 cannot be met\. Less\."):
            caller.call(Request(call=Call.REQUIREMENTS, lower=99))
        with pytest.raises(FiresteelError, match="could not do it: KeyError: 'thirteen'") as raised:
            caller.call(Request(call=Call.RESCALE, parallelism=13))
        assert raised.value.exit_code == 1
        assert caller.status() == STATUS, "the connection lives on"


def test_only_the_owner_can_reach_it(opened, tmp_path, runtime, monkeypatch):
    _, control = opened()
    for directory in (tmp_path / ".chk.firesteel", runtime, runtime / "streams"):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    for file in (control.path, tmp_path / ".chk.firesteel" / "stream.json", *(runtime / "streams").iterdir()):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    monkeypatch.setattr(server, "peer_user", lambda connection: os.geteuid() + 1)
    with raw(control) as stranger:
        with suppress(ConnectionError):  # hung up on before it spoke
            stranger.sendall(b'{"call":"status"}\n')
        assert is_hung_up_on(stranger)


def test_the_user_at_the_other_end_is_known(opened):
    _, control = opened()
    with raw(control) as connection:
        assert messages.peer_user(connection) == os.geteuid()


@pytest.mark.parametrize(
    "line",
    [
        b"rubbish",
        b"[]",
        b'{"call":"dance"}',
        b'{"call":"status","more":1}',
        b'{"call":"rescale","parallelism":"x"}',
        b"\xff\xfe",
    ],
)
def test_rubbish_is_answered_with_a_sentence(opened, line):
    _, control = opened()
    with raw(control) as connection:
        connection.sendall(line + b"\n")
        answer = json.loads(connection.makefile("rb").readline())
    assert answer["error"].startswith("This version of Firesteel does not know the request:")
    assert answer["exit_code"] == 2


def test_endless_lines_and_callers_that_go_or_hang_disturb_nobody(opened):
    _, control = opened()
    with raw(control) as endless, raw(control) as hanging, raw(control) as hasty:
        endless.sendall(b"x" * (messages.MAX_REQUEST + 1))
        assert is_hung_up_on(endless)
        hanging.sendall(b'{"call":')
        hasty.sendall(b'{"call":"status"}\n' * 50)
        hasty.close()
        with StreamClient(names.find_stream("words")) as caller:
            assert caller.status() == STATUS


def test_who_says_nothing_is_hung_up_on(opened, monkeypatch):
    monkeypatch.setattr(server, "REQUEST_SECONDS", 0.05)
    _, control = opened()
    with raw(control) as silent:
        silent.sendall(b"{")
        assert is_hung_up_on(silent)


def test_more_callers_than_it_takes_are_told_to_come_later(opened, monkeypatch):
    monkeypatch.setattr(server, "MAX_CALLERS", 2)
    _, control = opened()
    entry = names.read_entry(control.path.with_name(places.ENTRY))
    with StreamClient(entry) as one, StreamClient(entry) as two:
        assert one.status() == two.status() == STATUS  # both have been let in
        with StreamClient(entry) as third, pytest.raises(FiresteelError, match="has 2 connections"):
            third.status()


def test_a_stream_that_does_not_answer_is_said_to(opened):
    stream, _ = opened()
    stream.may_answer.clear()
    expected = pytest.raises(FiresteelError, match=rf"'words' \(process {os.getpid()}\) does not answer within 0.05 s")
    with StreamClient(names.find_stream("words")) as caller, expected:
        caller.call(Request(call=Call.STATUS), seconds=0.05)
    stream.may_answer.set()


def test_a_caller_may_come_before_the_stream_answers(tmp_path):
    control = server.open_control(str(tmp_path / "chk"), name="early")
    with StreamClient(names.find_stream("early")) as caller:
        control.serve(Stream())
        assert caller.status() == STATUS
    control.close()


def test_one_stream_per_checkpoint(opened, tmp_path):
    _, control = opened()
    (tmp_path / "link").symlink_to(tmp_path / "chk")
    for same in (tmp_path / "chk", tmp_path / "x" / ".." / "chk", f"file://{tmp_path}/chk", tmp_path / "link"):
        with pytest.raises(UsageError, match=r"already: 'words' \(process \d+ on .*firesteel stream stop \S*/chk"):
            server.open_control(str(same), name="second")
    control.close()
    again = server.open_control(str(tmp_path / "chk"), name="second")
    again.close()


def test_what_a_killed_process_left_is_taken_over(tmp_path, opened):
    code = (
        "import os, sys\nfrom firesteel.control.server import open_control\n"
        "control = open_control(sys.argv[1], name='words')\nprint(control.path, flush=True)\nos.kill(os.getpid(), 9)"
    )
    left = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "chk")], capture_output=True, text=True, check=False
    )
    assert left.returncode == -9
    assert Path(left.stdout.strip()).exists(), "its socket is still there"
    entry = names.find_stream(str(tmp_path / "chk"))
    with pytest.raises(StreamGone, match=rf"'words' does not run: its process {entry.pid} is gone."):
        StreamClient(entry)
    opened()
    with StreamClient(names.find_stream("words")) as caller:
        assert caller.status() == STATUS


def test_a_forked_child_of_a_killed_process_keeps_no_claim(tmp_path):
    code = (
        "import os, sys\nfrom firesteel.control.server import open_control\n"
        "control = open_control(sys.argv[1], name='words')\n"
        "if os.fork() == 0:\n    print('forked', flush=True)\n    sys.stdin.read()\n    os._exit(0)\n"
        "os.wait()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "chk")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout.readline() == "forked\n"
        parent.kill()
        parent.wait()
        server.open_control(str(tmp_path / "chk"), name="next").close()
        parent.stdin.close()


def test_after_its_end_a_stream_is_said_to_be_over(opened, tmp_path):
    _, control = opened()
    with StreamClient(names.find_stream("words")) as caller:
        caller.status()
        control.close()
        control.close()
    assert not control.path.exists()
    with pytest.raises(StreamGone, match="'words' does not run: it ended on 20"):
        StreamClient(names.find_stream(str(tmp_path / "chk")))


def test_one_that_is_over_does_not_hide_one_that_runs_on_the_checkpoint_of_its_name(opened, tmp_path, monkeypatch):
    journal = tmp_path / "over.jsonl"
    journal.touch()
    server.open_control(str(tmp_path / "other"), name="chk", journal=str(journal)).close()
    monkeypatch.chdir(tmp_path)
    assert names.find_stream("chk").checkpoint == str(tmp_path / "other")
    opened()
    assert names.find_stream("chk").checkpoint == str(tmp_path / "chk")


def test_a_long_path_gets_a_short_socket_and_a_word_where_it_is(opened, tmp_path, runtime):
    deep = tmp_path / ("x" * 60) / ("y" * 60) / "chk"
    _, control = opened(deep)
    assert control.path.parent == runtime
    assert len(os.fsencode(control.path)) <= places.LONGEST_SOCKET
    for file in (runtime / "streams").iterdir():
        file.unlink()
    with StreamClient(names.find_stream(str(deep))) as caller:
        assert caller.status() == STATUS


def test_a_remote_checkpoint_is_spoken_to_through_the_users_own_directory(opened, runtime):
    _, control = opened("s3a://bucket/chk/")
    assert control.path.is_relative_to(runtime)
    with StreamClient(names.find_stream("s3a://bucket/chk")) as caller:
        assert caller.status() == STATUS


@pytest.mark.parametrize(
    "same", ["s3a://bucket/chk/", "s3a://bucket//chk", "s3a://bucket/x/../chk", "S3A://Bucket/./chk"]
)
def test_a_remote_checkpoint_is_claimed_however_it_is_spelled_and_whatever_the_environment(
    opened, tmp_path, monkeypatch, same
):
    _, control = opened("s3a://bucket/chk")
    with pytest.raises(UsageError, match=r"already: 'words' \(process"):
        server.open_control(same, name="second")
    monkeypatch.setenv(places.RUNTIME_VARIABLE, str(tmp_path / "other"))
    with pytest.raises(UsageError, match="already: another process"):
        server.open_control(same, name="second")
    control.close()
    server.open_control(same, name="second").close()


def test_the_place_of_claims_does_not_depend_on_the_environment(monkeypatch, tmp_path):
    monkeypatch.undo()
    before = places.claims_directory()
    for name in (places.RUNTIME_VARIABLE, "XDG_RUNTIME_DIR", "TMPDIR"):
        monkeypatch.setenv(name, str(tmp_path))
    assert places.claims_directory() == before == Path(f"/tmp/firesteel-run-{os.getuid()}")


def test_a_stream_runs_without_a_socket_where_there_is_no_place_for_one(tmp_path, monkeypatch, caplog):
    (tmp_path / "file").touch()
    monkeypatch.setattr(places, "claims_directory", lambda: tmp_path / "file" / "run")
    control = server.open_control("hdfs://host/chk", name="words")
    assert isinstance(control, server.NoControl)
    assert "'firesteel stream' cannot reach the stream 'words': there is no place for its socket: " in caplog.text
    control.serve(Stream())
    control.close()


@pytest.mark.parametrize("checkpoint", ["chk", "hdfs://host/chk"])
def test_a_stream_without_a_socket_keeps_its_claim(tmp_path, monkeypatch, checkpoint):
    monkeypatch.chdir(tmp_path)

    def bind(self, address):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(socket, "socket", type("Unbound", (socket.socket,), {"bind": bind}))
    first = server.open_control(checkpoint, name="words")
    assert (type(first), first.reason) == (server.NoControl, "its socket cannot be made: Operation not supported")
    with pytest.raises(UsageError, match="already: another process"):
        server.open_control(checkpoint, name="second")
    first.close()
    monkeypatch.undo()
    server.open_control(checkpoint if "://" in checkpoint else str(tmp_path / checkpoint), name="second").close()


def test_where_the_file_system_has_no_locks_the_users_own_directory_is_claimed(opened, tmp_path, monkeypatch):
    flock = fcntl.flock

    def only_there(file, how):
        if not Path(f"/proc/self/fd/{file}").readlink().is_relative_to(tmp_path / "claims"):
            raise OSError(37, "No locks available")
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", only_there)
    opened()
    with StreamClient(names.find_stream(str(tmp_path / "chk"))) as caller:
        assert caller.status() == STATUS
    with pytest.raises(UsageError, match="already: 'words'"):
        server.open_control(str(tmp_path / "chk"), name="second")


def test_a_checkpoint_that_is_deleted_under_its_stream_is_still_claimed(opened, tmp_path):
    opened()
    (tmp_path / "chk").rmdir()
    with pytest.raises(UsageError, match="already: 'words'"):
        server.open_control(str(tmp_path / "chk"), name="second")


def test_what_belongs_to_another_user_is_refused_with_his_name(tmp_path, monkeypatch):
    (tmp_path / "chk").mkdir()
    monkeypatch.setattr(os, "access", lambda path, how: Path(path) != tmp_path / "chk")
    me = claims.user_name(os.getuid())
    with pytest.raises(
        UsageError, match=rf"'{tmp_path}/chk' belongs to {me}, and you \({me}\) may not read and write it"
    ):
        server.open_control(str(tmp_path / "chk"), name="words")
    (tmp_path / "claims").mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(
        UsageError, match=rf"'hdfs://host/chk' cannot be claimed: '{tmp_path}/claims' belongs to {me}\."
    ):
        server.open_control("hdfs://host/chk", name="words")
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is not a directory"):
        server.open_control(str(tmp_path / "file"), name="words")


def test_another_user_cannot_have_the_checkpoint_meanwhile(tmp_path, monkeypatch):
    """The directory beside it is the first one's; the claim is not."""
    checkpoint = tmp_path / "chk"
    first = server.open_control(str(checkpoint), name="words")
    me = os.getuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    with pytest.raises(UsageError, match=rf"already: one that {claims.user_name(me)} started\. Its owner can stop it"):
        server.open_control(str(checkpoint), name="second")
    monkeypatch.undo()
    first.close()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_two_users_who_may_write_a_checkpoint_claim_the_same():
    code = (
        "import os, sys\nfrom firesteel.control.server import open_control\nfrom firesteel.errors import UsageError\n"
        "control = open_control(sys.argv[1], name='words')\nif os.fork() == 0:\n    os.setuid(65534)\n"
        "    try:\n        open_control(sys.argv[1], name='second')\n        print('both')\n"
        "    except UsageError as refused:\n        print(refused)\n    sys.stdout.flush()\n    os._exit(0)\nos.wait()"
    )
    with tempfile.TemporaryDirectory(dir="/tmp") as shared:
        Path(shared).chmod(0o777)
        (Path(shared) / "chk").mkdir()
        (Path(shared) / "chk").chmod(0o777)
        said = subprocess.run([sys.executable, "-c", code, f"{shared}/chk"], capture_output=True, text=True, check=True)
    assert said.stdout.startswith(f"A stream runs on the checkpoint '{shared}/chk' already: one that 'root' started.")


def test_a_directory_of_somebody_else_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(PermissionError, match="belongs to another user"):
        places.make_private(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path)
    monkeypatch.undo()
    with pytest.raises(PermissionError, match="not a directory"):
        places.make_private(tmp_path / "link")
