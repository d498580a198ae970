"""Runs a page of the docs from top to bottom, as a reader would: ``docs_run.py PAGE FOLDER``.

Python blocks run one after the other in one namespace; one that begins with ``# name.py`` is written to that file instead. Of
shell blocks the lines that call ``firesteel`` run, each must end with 0 (or with N, where it ends in ``# exits with N``). What
the page takes as given (files, names) comes from ``docs_given/PAGE.py``. A cluster's URL becomes ``local[2]``.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

PATIENCE_SECONDS = 600
_BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```$", re.S | re.M)
_FILE = re.compile(r"# ([\w/]+\.(?:py|sh|yaml))$")
_GIVEN = Path(__file__).parent / "docs_given"


def blocks(page: Path) -> Iterator[tuple[str, str, int]]:
    """(language, code, line of its first line) of all that is to run."""
    text = page.read_text()
    for found in _BLOCK.finditer(text):
        yield found[1], found[2], text.count("\n", 0, found.start()) + 2


def run(page: Path) -> None:
    """In the current folder. Raises what a block raises."""
    given = _GIVEN / f"{page.stem.lower().replace('-', '_')}.py"
    names: dict[str, object] = {"__name__": "__docs__", "__file__": str(given)}
    if given.exists():
        exec(compile(given.read_text(), given, "exec", dont_inherit=True), names)
    running: list[subprocess.Popen[bytes]] = []
    try:
        for language, code, line in blocks(page):
            at = f"{page.name}:{line}"
            print(f"--- {at}", flush=True)
            if language == "sh":
                for command in commands(code):
                    call(command, at, running)
            elif named := _FILE.match(code.splitlines()[0]):
                Path(named[1]).write_text(code)
            else:
                exec(compile("\n" * (line - 1) + code, page, "exec", dont_inherit=True), names)
    finally:
        for process in running:
            process.terminate()
            process.wait(PATIENCE_SECONDS)


def commands(code: str) -> Iterator[str]:
    """The lines that call ``firesteel``."""
    for line in code.replace("\\\n", " ").splitlines():
        if line.startswith(("firesteel ", "$ firesteel ")):
            yield line.removeprefix("$ ")


def call(command: str, at: str, running: list[subprocess.Popen[bytes]]) -> None:
    due = re.search(r"# exits with (\d+)", command)
    _, *arguments = shlex.split(command, comments=True)
    program = [sys.executable, "-m", "firesteel", *(re.sub(r"^spark://.*", "local[2]", a) for a in arguments)]
    print(f"$ {command}", flush=True)
    if arguments[:2] == ["stream", "run"]:
        running.append(subprocess.Popen(program, stdin=subprocess.DEVNULL))
        _await_stream(arguments, running[-1])
        return
    if arguments[:1] == ["ui"]:
        running.append(_serving([each for each in program if "://" not in each]))
        return
    if "--watch" in arguments:
        _watch(program)
        return
    ended = subprocess.run(program, stdin=subprocess.DEVNULL, timeout=PATIENCE_SECONDS, check=False)
    wanted = int(due[1]) if due else 0
    assert ended.returncode == wanted, f"{at}: '{command}' ended with {ended.returncode}, not {wanted}"


def _serving(program: list[str]) -> subprocess.Popen[bytes]:
    """Once it says where."""
    process = subprocess.Popen(program, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    line = process.stderr.readline()
    assert line.startswith(b"firesteel: see http://"), line
    return process


def _await_stream(arguments: list[str], stream: subprocess.Popen[bytes]) -> None:
    """Until the stream answers."""
    checkpoint = arguments[arguments.index("--checkpoint") + 1]
    asked = [sys.executable, "-m", "firesteel", "stream", "status", checkpoint]
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        answer = subprocess.run(asked, capture_output=True, check=False, timeout=PATIENCE_SECONDS, text=True)
        if answer.returncode == 0:
            return
        said = answer.stdout + answer.stderr
        assert stream.poll() is None, f"the stream on {checkpoint} has ended: {said}"
        if time.monotonic() >= end:
            raise TimeoutError(f"the stream on {checkpoint} does not answer: {said}")


def _watch(program: list[str]) -> None:
    """Until it has said something; then Ctrl-C."""
    with subprocess.Popen(program, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip(), "it said nothing"
        process.send_signal(signal.SIGINT)
        try:
            process.communicate(timeout=PATIENCE_SECONDS)
        finally:
            process.kill()
        assert process.returncode in (0, 130), process.returncode


if __name__ == "__main__":
    target = Path(sys.argv[1]).resolve()
    os.chdir(sys.argv[2])
    try:
        run(target)
    except Exception:
        traceback.print_exc()
        sys.exit(1)
