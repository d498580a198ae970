"""``firesteel stream`` as a user calls it, with a stream at the other end of a real socket."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import threading

import pytest
from msgspec.structs import replace
from tests.stream_samples import GROWN, REFUSED, STATUS, words

from firesteel.cli import main
from firesteel.cli.streams import watch as stream_watch
from firesteel.control import places, server
from firesteel.errors import UsageError
from firesteel.journal.file import Journal, encode
from firesteel.report.waits import of_stream
from firesteel.scheduler.streaming.records import StreamEnded, StreamStatus
from firesteel.scheduler.streaming.waits import Awaited, StreamWait


class Stream:
    """Takes wishes in; ``next`` holds how it is after each of the coming looks."""

    def __init__(self, checkpoint: str) -> None:
        self.now = replace(STATUS, checkpoint=checkpoint)
        self.next: list[StreamStatus] = []
        self.asked: list[object] = []

    def status(self) -> StreamStatus:
        if self.next:
            self.now = self.next.pop(0)
        return self.now

    def update_requirements(self, lower, upper) -> None:
        if lower and lower > (upper or self.now.upper):
            raise UsageError(f"Resource requirements of {lower} to {upper or self.now.upper} cannot be met.")
        self.asked.append((lower, upper))
        self.now = replace(self.now, lower=lower or self.now.lower, upper=upper or self.now.upper)

    def rescale(self, parallelism) -> None:
        self.asked.append(parallelism)

    def stop(self) -> None:
        self.asked.append("stop")

    def cancel(self) -> None:
        self.asked.append("cancel")


@pytest.fixture
def stream(tmp_path, monkeypatch):
    monkeypatch.setenv(places.RUNTIME_VARIABLE, str(tmp_path / "run"))
    monkeypatch.chdir(tmp_path)
    journal = Journal(tmp_path / "words.jsonl")
    for record in words():
        journal.record(record)
    journal.close()
    control = server.open_control(str(tmp_path / "chk"), name="words", journal=str(journal.path))
    stream = Stream(str(tmp_path / "chk"))
    stream.control = control
    control.serve(stream)
    yield stream
    control.close()


@pytest.fixture
def call(monkeypatch, capsys):
    def firesteel(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["firesteel", "stream", *arguments])
        with pytest.raises(SystemExit) as end:
            main.main()
        out, err = capsys.readouterr()
        return end.value.code, out, err

    return firesteel


def whose(stream) -> str:
    return f"words ({stream.now.checkpoint})"


def test_status_for_people_and_for_programs(stream, call):
    code, out, err = call("status", "words")
    assert (code, err) == (0, "")
    assert out.startswith(
        f"words: Executing, Stabilizing (checkpoint {stream.now.checkpoint})\n    partitions   8 part"
    )
    assert call("status", "chk")[1] == out
    code, out, _ = call("status", "words", "--json")
    assert (code, json.loads(out)["wanted"]) == (0, 16)


def test_run_wants_build_and_a_checkpoint(stream, call, tmp_path):
    script = tmp_path / "s.py"
    script.write_text("import sys\nprint(__name__, sys.argv)\n")
    code, out, err = call("run", "s.py", "a", "--deep")
    assert (code, out) == (2, "__stream__ ['s.py', 'a', '--deep']\n")
    assert err.startswith("firesteel: s.py defines no function build(spark). It must return a DataStreamWriter")
    assert "firesteel run s.py" in err
    script.write_text("def build(spark): ...\n")
    code, _, err = call("run", "s.py")
    assert (code, err.splitlines()) == (
        2,
        ["firesteel: The stream's checkpoint is not given. Give --checkpoint DIR, or set checkpoint = 'DIR' in s.py."],
    )
    code, _, err = call("run", "s.py", "--checkpoint", "chk2", "--lower", "5", "--upper", "4")
    assert (code, err.splitlines()[0][:58]) == (2, "firesteel: Resource requirements of 5 to 4 cannot be met. ")
    said = ("-O", "execution.batch.speculative.enabled=true")
    code, _, err = call("run", "s.py", "--checkpoint", "chk2", *said)
    assert (code, "batch jobs only (FLIP-168)" in err, "= true, from -O," in err) == (2, True, True)
    said = ("-O", "slot-sharing-group.default.cpu-cores=2")
    code, _, err = call("run", "s.py", "--checkpoint", "chk2", *said)
    assert (code, "slot-sharing-group.default.task-heap-memory" in err) == (2, True)
    script.write_text("1 / 0\n")
    code, _, err = call("run", "s.py")
    assert (code, err.splitlines()[-1]) == (1, "ZeroDivisionError: division by zero")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("status", "word"), "firesteel: There is no stream 'word'. Did you mean 'words'?"),
        (("stop", "clicks"), "firesteel: There is no stream 'clicks'. There are: words; or give"),
        (("rescale", "words", "many"), "firesteel: PARTITIONS many is not a valid whole number."),
        (("rescale", "words", "0"), "firesteel: A stream cannot have 0 partitions."),
        (("rescale", "words", "1000000000"), "firesteel: A stream cannot have 1000000000 partitions."),
        (("requirements", "words", "--lower", "99"), "firesteel: Resource requirements of 99 to 64 cannot be met."),
        (("requirements", "words", "--lower", "x"), "firesteel: --lower x is not a valid whole number."),
        (("status", "words", "--interval", "0"), "firesteel: --interval 0 must be between 0.05 and 3600 seconds."),
        (("run", "missing.py"), "firesteel: There is no script 'missing.py'."),
        (("history", "clicks"), "firesteel: There is no stream 'clicks'."),
    ],
)
def test_wrong_use_is_a_sentence_and_exit_2(stream, call, arguments, sentence):
    code, out, err = call(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith(sentence)
    assert len(err.splitlines()) == 1


def test_a_stream_that_is_over_is_told_with_exit_1_and_still_explained(stream, call):
    stream.control.close()
    code, out, err = call("status", "words")
    assert (code, out) == (1, "")
    assert err.startswith("firesteel: The stream 'words' does not run: it ended on 2")
    assert err.endswith(f"'firesteel stream explain {stream.now.checkpoint}' says how it ended.\n")
    assert "MB" not in call("explain", "words")[1]
    assert call("history", "chk")[1].startswith("words (stream 3f2a91c0): FINISHED after 1 min.\n  #  ended at")


def test_requirements_are_shown_and_changed(stream, call):
    assert call("requirements", "words")[1].startswith("words: 1 to 64 partitions. Now: Executing, Stabilizing; 8 part")
    code, out, _ = call("requirements", "words", "--upper", "32")
    assert (code, stream.asked) == (0, [(None, 32)])
    assert out.startswith(f"{whose(stream)}: 1 to 32 partitions (it was 1 to 64). Now: ")
    assert json.loads(call("requirements", "words", "--json")[1])["upper"] == 32


def test_a_rescale_is_asked_for_and_waited_for(stream, call):
    code, out, _ = call("rescale", "words", "4")
    assert (code, stream.asked) == (0, [4])
    assert out.startswith(
        f"{whose(stream)}: a rescale was asked for. Now: Executing, Stabilizing; 8 partitions, 16 wanted;"
    )
    before, second = stream.now, replace(GROWN, rescale=2, before=8, requested=4, granted=4)
    stream.next = [before, before, replace(before, state="Restarting"), replace(before, last_rescale=second)]
    code, out, _ = call("rescale", "words", "--wait")
    assert (code, stream.asked) == (0, [4, None])
    assert out.startswith(f"{whose(stream)}: 8 -> 4 partitions at checkpoint 17 (") and "completed, down 1.9 s" in out
    earlier = replace(stream.now, last_rescale=second)  # one that was under way when this was asked for
    stream.next = [stream.now, stream.now, earlier, replace(stream.now, last_rescale=REFUSED)]
    code, out, _ = call("rescale", "words", "500", "--wait")
    assert code == 1
    assert "ignored: the sink takes at most 64 partitions" in out


def test_a_rescale_that_is_not_needed_is_not_waited_for(stream, call, monkeypatch):
    monkeypatch.setattr("firesteel.cli.streams.commands.TAKEN_IN_SECONDS", 0.0)
    stream.now = replace(stream.now, wanted=8)
    code, out, _ = call("rescale", "words", "--wait")
    assert (code, stream.asked) == (0, [None])
    assert out.startswith(
        f"{whose(stream)}: no rescale is needed. Now: Executing, Stabilizing; 8 partitions; 3 committed"
    )
    stream.next = [
        stream.now,
        stream.now,
        replace(stream.now, state="Restarting"),
        replace(stream.now, parallelism=16, wanted=16),
    ]
    code, out, _ = call("rescale", "words", "16", "--wait")
    assert (code, stream.asked) == (0, [None, 16])
    assert out.startswith(f"{whose(stream)}: 8 -> 16 partitions; the first batch with them is still to come. Now: ")


def test_a_rescale_to_what_it_has_is_not_asked_for(stream, call):
    stream.now = replace(stream.now, wanted=8)
    assert call("rescale", "words", "8") == (0, f"{whose(stream)}: it has 8 partitions already.\n", "")
    assert stream.asked == []


@pytest.fixture
def terminal(monkeypatch):
    """Standard input is a terminal; what is put into it is typed."""
    leader, follower = pty.openpty()
    monkeypatch.setattr(sys, "stdin", os.fdopen(follower))
    yield lambda text: os.write(leader, text.encode())
    sys.stdin.close()
    os.close(leader)


@pytest.mark.parametrize(
    ("arguments", "question"),
    [
        (("stop", "words", "--no-wait"), "Stop the stream 'words' on "),
        (("stop", "words", "--no-wait", "--cancel"), "Cancel the stream 'words' on "),
        (("rescale", "words", "4"), "Rescale the stream 'words' on "),
        (("requirements", "words", "--upper", "32"), "Change the bounds of the stream 'words' on "),
    ],
)
def test_a_stream_that_lies_elsewhere_is_changed_only_after_a_yes(
    stream, call, terminal, tmp_path, monkeypatch, arguments, question
):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    terminal("n\n")
    code, out, err = call(*arguments)
    assert (code, out, stream.asked) == (1, "", [])
    assert err.startswith(f"{question}'{stream.now.checkpoint}' (process {os.getpid()})? [y/N] ")
    assert err.endswith("firesteel: Nothing was changed. Use --yes, or give the checkpoint, to skip the question.\n")
    terminal("y\n")
    code, out, _ = call(*arguments)
    assert (code, len(stream.asked)) == (0, 1)
    assert out.startswith(f"{whose(stream)}: ")
    assert call(*arguments, "--yes")[2] == "", "nobody is asked"
    assert len(stream.asked) == 2


def test_nobody_is_asked_where_the_stream_was_pointed_at_or_lies_here_or_is_not_changed(
    stream, call, terminal, tmp_path, monkeypatch
):
    assert call("rescale", "words", "4")[2] == "", "here"
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    for arguments in (("rescale", "../chk", "4"), ("status", "words"), ("requirements", "words"), ("explain", "words")):
        code, _, err = call(*arguments)
        assert (code, err) == (0, ""), arguments


def test_a_script_is_told_whose_stream_it_has_changed_and_not_asked(stream, call, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setattr(sys, "stdin", None)
    assert call("stop", "words", "--no-wait") == (0, f"{whose(stream)}: it is being stopped.\n", "")


def test_no_command_reaches_another_stream_than_that_of_the_path_that_is_there(stream, call, tmp_path, monkeypatch):
    """Two folders with a checkpoint of the same name: in one its stream is over, in the other it runs."""
    mine = tmp_path / "mine"
    (mine / "chk").mkdir(parents=True)
    monkeypatch.chdir(mine)
    for command in ("stop", "status", "rescale", "explain", "history", "requirements"):
        code, out, err = call(command, "chk")
        assert (code, out, stream.asked) == (2, "", []), command
        assert err.startswith("firesteel: No stream of yours is known on the checkpoint 'chk'."), command
    over = server.open_control(str(mine / "chk"), name="chk", journal=str(tmp_path / "words.jsonl"))
    over.close()
    for command in ("stop", "status", "rescale", "requirements"):
        code, out, err = call(command, "chk")
        assert (code, out, stream.asked) == (1, "", []), command
        assert err.startswith("firesteel: The stream 'chk' does not run: it ended on 2"), command


def test_stop_waits_for_the_end(stream, call):
    stream.next = [stream.now, replace(stream.now, state="StopWithSavepoint"), replace(stream.now, state="Finished")]
    code, out, _ = call("stop", "words")
    assert (code, stream.asked) == (0, ["stop"])
    assert out == f"words: it has ended; its checkpoint is '{stream.now.checkpoint}'.\n"
    stream.now = replace(stream.now, state="Canceling")
    assert call("stop", "words", "--cancel", "--no-wait")[1] == f"{whose(stream)}: it is being cancelled.\n"
    stream.next = [stream.now, replace(stream.now, state="Finished", cause="the disk is full")]
    code, _, err = call("stop", "words")
    assert (code, err) == (1, f"firesteel: {whose(stream)}: it failed: the disk is full\n")


def test_a_stream_that_goes_while_it_is_waited_for_has_ended(stream, call, monkeypatch):
    monkeypatch.setattr("firesteel.cli.streams.commands.time.sleep", lambda _: stream.control.close() or hang_up())

    def hang_up() -> None:
        monkeypatch.setattr("firesteel.control.client.StreamClient.status", gone)

    def gone(client):
        from firesteel.control.client import gone

        raise gone(client.entry)

    code, out, _ = call("stop", "words")
    assert (code, out) == (0, f"words: it has ended; its checkpoint is '{stream.now.checkpoint}'.\n")


def test_a_stream_that_failed_says_why_it_is_gone(stream, call, tmp_path):
    with (tmp_path / "words.jsonl").open("ab") as journal:
        journal.write(encode(StreamEnded(at=170.0, status="FAILED", cause="It raised ValueError: x.\n  File y")))
    stream.control.close()
    code, out, err = call("status", "words")
    assert (code, out) == (1, "")
    assert re.match(
        r"firesteel: The stream 'words' does not run: it ended on .*\. FAILED: It raised ValueError: x\. 'fire", err
    )


def test_history_and_explain_take_names_ids_and_journals(stream, call):
    for name in ("words", "chk", "words.jsonl"):
        code, out, _ = call("history", name)
        assert (code, out.splitlines()[0]) == (0, "words (stream 3f2a91c0): FINISHED after 1 min.")
        assert call("explain", name)[1].splitlines()[0] == out.splitlines()[0]


def test_the_commands_for_jobs_take_a_streams_journal_too(stream, monkeypatch, capsys):
    def firesteel(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["firesteel", *arguments])
        with pytest.raises(SystemExit) as end:
            main.main()
        return (end.value.code, *capsys.readouterr())

    assert "foreseen" in firesteel("history", "words.jsonl")[1]
    assert "8 partitions: 32 slots" in firesteel("explain", "words.jsonl")[1]
    code, _, err = firesteel("explain", "words.jsonl", "3")
    assert (code, err) == (2, "firesteel: This is no job: it has no vertex '3'. Leave it out.\n")


def test_list_shows_what_runs_and_with_all_what_is_over(stream, call):
    assert call("list")[1].splitlines() == [
        "name   state                   partitions    process  checkpoint",
        f"words  Executing, Stabilizing  8 (wants 16)  {os.getpid():<7}  {stream.now.checkpoint}",
    ]
    (listed,) = json.loads(call("list", "--json")[1])
    assert (listed["live"], listed["status"]["batch"], listed["name"]) == (True, 18, "words")
    stream.control.close()
    assert call("list")[1] == "No stream of yours runs on this machine.\n"
    assert call("list", "--all")[1].splitlines()[1].startswith("words  over")


@pytest.mark.parametrize("awaited", [Awaited.CHECKPOINT, Awaited.SLOTS])
def test_watch_in_a_pipe_says_each_change_once(stream, call, awaited):
    now, sooner = (
        replace(
            stream.now, waits=(wait := StreamWait(awaited=awaited, seconds=seconds, slots=1)), waits_for=of_stream(wait)
        )
        for seconds in (22.3, 21.8)
    )
    assert now.waits_for != sooner.waits_for
    stream.now = now
    later = replace(sooner, batches=4, batch=19)
    stream.next = [stream.now, stream.now, sooner, later, replace(later, state="Finished", phase="", waits_for="")]
    code, out, _ = call("status", "words", "--watch", "--interval", "0.05")
    assert code == 0
    assert [line.split("; ")[0] for line in out.splitlines()] == [
        "words: Executing, Stabilizing",
        "words: Executing, Stabilizing",
        "words: Finished",
    ]


def test_watch_ends_with_a_stream_that_goes(stream, call, monkeypatch):
    monkeypatch.setattr(stream_watch.time, "sleep", lambda _: stream.control.close())
    monkeypatch.setattr(server, "REQUEST_SECONDS", 0.01)
    looks = iter([stream.now])
    monkeypatch.setattr(stream_watch, "_status", lambda client: next(looks, None))
    assert (
        call("status", "words", "--watch")[1].splitlines()[-1]
        == f"words: it has ended; its checkpoint is '{stream.now.checkpoint}'."
    )


def test_watch_on_a_terminal_redraws_and_leaves_a_plain_one(stream, tmp_path):
    pty = pytest.importorskip("pty")
    main_end, terminal = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    environment.pop("NO_LIVE_PROGRESS", None)
    with subprocess.Popen(
        [sys.executable, "-m", "firesteel", "stream", "status", "words", "--watch", "--interval", "0.05"],
        stdin=subprocess.DEVNULL,
        stdout=terminal,
        stderr=subprocess.PIPE,
        env=environment,
        cwd=tmp_path,
    ) as watching:
        os.close(terminal)
        shown = b""
        while b"16 wanted" not in shown:
            shown += os.read(main_end, 1 << 16)
        stream.now = replace(stream.now, state="Finished", phase="", waits_for="")
        done = threading.Timer(30, watching.kill)
        done.start()
        while True:
            try:
                chunk = os.read(main_end, 1 << 16)
            except OSError:  # the other end is closed
                break
            if not chunk:
                break
            shown += chunk
        assert watching.wait() == 0, watching.stderr.read()
        done.cancel()
    os.close(main_end)
    assert b"words: Finished" in shown
    assert shown.rstrip().endswith(b"\x1b[?25h"), "the cursor is back"


def test_a_reader_of_watch_that_goes_away_is_no_error(stream, tmp_path):
    reading, writing = os.pipe()
    os.close(reading)
    shown = subprocess.run(
        [sys.executable, "-m", "firesteel", "stream", "status", "words", "--watch"],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        check=False,
        timeout=600,
    )
    os.close(writing)
    assert (shown.returncode, shown.stderr) == (0, "")
