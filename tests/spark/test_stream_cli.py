"""``firesteel stream run`` in one process, looked after from others; and the demo of streams."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from pathlib import Path

import pytest

from firesteel.cli.demos import stream as demo_stream
from firesteel.control.client import StreamClient
from firesteel.control.names import find_stream
from firesteel.control.places import RUNTIME_VARIABLE
from firesteel.errors import FiresteelError
from firesteel.journal.file import read
from firesteel.report.fold import StreamFold
from stream_sources_kit import PATIENCE_SECONDS as PATIENCE

pytestmark = [pytest.mark.spark, pytest.mark.full]

SCRIPT = """
    import json
    import sys
    from pathlib import Path

    checkpoint = "chk"


    def sink(frame, batch):
        counts = {row["word"]: row["count"] for row in frame.collect()}
        Path(f"sunk/{batch}.json").write_text(json.dumps(counts))


    def build(spark):
        words = spark.readStream.schema("word string").json(sys.argv[1])
        return words.groupBy("word").count().writeStream.outputMode("update").foreachBatch(sink)


    if __name__ == "__main__":
        raise SystemExit("this is not run")
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "words.py").write_text(textwrap.dedent(SCRIPT))
    for name in ("in", "sunk"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv(RUNTIME_VARIABLE, str(tmp_path / "run"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def firesteel(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "firesteel", "stream", *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
        timeout=PATIENCE,
    )


def start(folder: Path, *more: str) -> subprocess.Popen[str]:
    """A terminal of its own, in effect: Ctrl-C reaches all that it started."""
    return subprocess.Popen(
        [sys.executable, "-m", "firesteel", "stream", "run", "words.py", "in", "--master", "local[2]", *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        cwd=folder,
        start_new_session=True,
    )


def feed(folder: Path, number: int) -> Counter[str]:
    words = [f"w{(number * 31 + at) % 17}" for at in range(200)]
    draft = folder / "in" / f".{number}"
    draft.write_text("\n".join(json.dumps({"word": word}) for word in words))
    draft.rename(folder / "in" / f"{number}.json")
    return Counter(words)


def name_of(folder: Path) -> str:
    """By default: the end of the checkpoint's path."""
    return f"{folder.name}/chk"


def wait_until(running: subprocess.Popen[str], reached) -> None:
    """``reached`` of the status that another process is given."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if running.poll() is not None:
            pytest.fail(f"it has ended with {running.returncode}: {running.stderr.read()}")
        try:
            with StreamClient(find_stream("chk")) as client:
                while not reached(client.status()):
                    time.sleep(0.1)
                return
        except FiresteelError:  # it is starting
            time.sleep(0.2)
    raise TimeoutError("gave up on it")


def answer(folder: Path) -> dict[str, int]:
    found: dict[str, int] = {}
    for path in sorted((folder / "sunk").iterdir(), key=lambda path: int(path.stem)):
        found |= json.loads(path.read_text())
    return found


def numbers(directory: Path) -> list[int]:
    return sorted(int(path.name) for path in directory.iterdir() if path.name.isdigit())


def test_a_stream_is_run_looked_after_from_another_terminal_and_goes_on_after_ctrl_c(folder):
    expected = feed(folder, 0)
    running = start(folder, "--lower", "2", "--upper", "2", "-O", "cooldown-after-rescaling=0s")
    try:
        wait_until(running, lambda now: now.batches >= 1)
        status = json.loads(firesteel("status", "chk", "--json").stdout)
        assert (status["state"], status["parallelism"], status["upper"]) == ("Executing", 2, 2)
        second = firesteel("run", "words.py", "in")
        assert (second.returncode, second.stdout) == (2, "")
        assert f"already: '{name_of(folder)}' (process {running.pid} on " in second.stderr
        refused = firesteel("requirements", "chk", "--lower", "9")
        assert (refused.returncode, refused.stderr.startswith("firesteel: Resource requirements of 9 to 2 ")) == (
            2,
            True,
        )
        rescaled = firesteel("rescale", "chk", "5", "--wait")
        assert rescaled.returncode == 0, rescaled.stderr
        assert rescaled.stdout.startswith(f"{name_of(folder)} ({folder / 'chk'}): 2 -> 5 partitions")
        expected += feed(folder, 1)
        wait_until(running, lambda now: now.parallelism == 5 and now.state_rows == 17 and answer(folder) == expected)
        os.killpg(running.pid, signal.SIGINT)
        out, err = running.communicate(timeout=PATIENCE)
    finally:
        running.kill()
        running.wait()
    assert (running.returncode, out) == (130, ""), err
    assert "Traceback" not in err and "Exception" not in err
    assert err.splitlines()[-1] == f"firesteel: The stream '{name_of(folder)}' was interrupted and stopped."
    assert numbers(folder / "chk" / "offsets")[-1] == numbers(folder / "chk" / "commits")[-1], "nothing is half done"
    over = firesteel("status", "chk")
    assert over.returncode == 1
    assert over.stderr.startswith(f"firesteel: The stream '{name_of(folder)}' does not run: it ended on ")
    (line,) = (line for line in firesteel("history", "chk").stdout.splitlines() if "2 -> 5" in line)
    assert line.split()[-2:] == ["0", "completed"], "no row twice"

    expected += feed(folder, 2)
    running = start(folder, "--quiet")
    try:
        wait_until(running, lambda now: now.parallelism == 5 and answer(folder) == expected)
        stopped = firesteel("stop", "chk")
        assert (stopped.returncode, stopped.stdout) == (
            0,
            f"{name_of(folder)}: it has ended; its checkpoint is '{folder / 'chk'}'.\n",
        )
        assert running.communicate(timeout=PATIENCE) == ("", "")
    finally:
        running.kill()
        running.wait()
    assert running.returncode == 0
    assert "FINISHED" in firesteel("explain", "chk").stdout.splitlines()[0]
    assert firesteel("list").stdout == "No stream of yours runs on this machine.\n"


def test_a_build_that_fails_shows_the_users_frames(folder):
    (folder / "words.py").write_text(
        "def inner(spark):\n    return 1 / 0\n\ndef build(spark):\n    return inner(spark)\n"
    )
    failed = firesteel(
        "run", "words.py", "--checkpoint", "chk", "--quiet", "--master", "local[1]", "-O", "restart-strategy.type=none"
    )
    assert (failed.returncode, failed.stdout) == (1, "")
    assert [line.strip() for line in failed.stderr.splitlines() if "File" in line] == [
        f'File "{folder / "words.py"}", line 5, in build',
        f'File "{folder / "words.py"}", line 2, in inner',
    ]
    assert f"The stream '{name_of(folder)}' failed: It raised ZeroDivisionError: division by zero" in failed.stderr
    over = firesteel("status", "chk")
    assert "FAILED: It raised ZeroDivisionError" in over.stderr


def test_the_demo_shows_a_rescale_and_a_right_answer(spark, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(RUNTIME_VARIABLE, str(tmp_path / "run"))
    for name, value in {"ROWS_PER_FILE": 50, "FILE_SECONDS": 0.2, "BATCHES": 1, "SHRUNK": 3, "GROWN": 5}.items():
        monkeypatch.setattr(demo_stream, name, value)
    options = {"firesteel.progress": False, "firesteel.journal.directory": str(tmp_path / "journal")}
    demo_stream.run(tmp_path / "out", None, options)
    out = capsys.readouterr().out
    assert "2 -> 5" in out and "5 -> 3" in out and "The answer is right: " in out
    sums = demo_stream.independent_sums(tmp_path / "out" / "in")
    payments = sum(count for _, count in sums.values())
    (journal,) = (tmp_path / "journal").glob("*.jsonl")
    size = StreamFold(read(journal)).totals
    assert size.rows == payments, "what is counted is what was checked"
    assert f"The answer is right: {payments:,} payments" in out
    assert sum(map(int, (text.replace(",", "") for text in re.findall(r"([\d,]+) payments? in ", out)))) == payments, (
        "batch by batch"
    )


def test_the_options_of_a_group_say_what_the_session_gives_to_each_task(folder):
    expected = feed(folder, 0)
    group = "slot-sharing-group.default."
    given = (f"{group}cpu-cores=2", f"{group}task-heap-memory=64m", "max-parallelism=9")
    running = start(folder, *(word for pair in given for word in ("-O", pair)))
    try:
        wait_until(running, lambda now: now.batches >= 1 and answer(folder) == expected)
        status = json.loads(firesteel("status", "chk", "--json").stdout)
        assert (status["parallelism"], status["slots"], status["cores"]) == (1, 1, 2)
        assert status["slot_sharing_group"] == "default (2 cores, 64 MiB heap)"
        assert "slots        1 of default (2 cores, 64 MiB heap)" in firesteel("status", "chk").stdout
        assert firesteel("stop", "chk").returncode == 0
        _, err = running.communicate(timeout=PATIENCE)
    finally:
        running.kill()
        running.wait()
    assert "max-parallelism, from -O, is for batch jobs and changes nothing on a stream" in err
    told = firesteel("explain", "chk").stdout
    assert "2 cores give 1 slot of 2 cores, 64 MiB heap (slot sharing group 'default')" in told
    assert "Spark gives each task 2 cores (spark.task.cpus)" in told


def test_a_group_that_no_executor_can_hold_is_refused(folder):
    group = "slot-sharing-group.default."
    large = ("-O", f"{group}cpu-cores=1", "-O", f"{group}task-heap-memory=900g")
    refused = firesteel("run", "words.py", "in", "--master", "local[2]", *large)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith(
        "firesteel: No slot of default (1 core, 900 GiB heap) fits into an executor: spark.d"
    )
    assert not (folder / "chk" / "offsets").exists()
    wide = ("-O", f"{group}cpu-cores=8", "-O", f"{group}task-heap-memory=64m")
    refused = firesteel("run", "words.py", "in", "--master", "local[2]", *wide)
    assert refused.returncode == 2
    assert "Traceback" not in refused.stderr
    assert "Spark did not start on 'local[2]'" in refused.stderr
