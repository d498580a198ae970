"""Scripts in processes of their own, which die or freeze as they write to one of their logs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from firesteel.recovery import log
from firesteel.recovery.files import FileLog
from firesteel.recovery.frames import MAGIC, read
from firesteel.scheduler.recovery.codec import FINISHED, decode
from firesteel.scheduler.recovery.records import Told

TESTS = Path(__file__).parent
PATHS = os.pathsep.join([str(TESTS), str(TESTS / "plain")])
"""Pandas would take longer to import, by driver and workers, than these jobs take."""

# --- for the test ----------------------------------------------------------------------------------------------------


def begun(script, *arguments, flags=(), **environment):
    """``firesteel run FLAGS SCRIPT ARGUMENTS``, begun in a process of its own. What it leaves is kept for a day."""
    command = [sys.executable, "-m", "firesteel", "run", *flags, str(script), *map(str, arguments)]
    environment = {**os.environ, "FIRESTEEL_RESULTS_RETAIN_ON_FAILURE": "1 d", "PYTHONPATH": PATHS, **environment}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=script.parent, env=environment, **pipes)


def ended(process):
    """Waits for its end."""
    out, errors = process.communicate(timeout=300)
    return subprocess.CompletedProcess(process.args, process.returncode, out, errors)


def firesteel(*arguments):
    """``firesteel ARGUMENTS``, which must end well, in this process. Returns what it prints."""
    from typer.testing import CliRunner

    from firesteel.cli.main import app

    end = CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)
    assert end.exit_code == 0, end.output
    return end.stdout


# --- for the script --------------------------------------------------------------------------------------------------


def dies_as_it_writes(kind=FileLog):
    """Lets the process die at a group of a log of this kind; every event makes a group of its own, more or less.

    The variable DIES says where ("WHEN WHAT N"): before, in the middle of (``torn``) or after the N-th group, the group with the N-th ``finish`` of
    executions, or the N-th group with a record called so; all its logs count. ``stops``: it freezes before. Without the variable it lives.
    """
    log.PAUSE_SECONDS = 0.0
    if os.environ.get("DIES"):
        when, what, number = os.environ["DIES"].split()
        left = int(number)

        def is_here(data):
            nonlocal left
            before, left = left, left - _count(what, data)
            return left <= 0 < before

        dies_at(kind, "append", when, is_here)


def dies_at(owner, name, when, is_here):
    """Lets the process die before or after a call of a method, or freezes it, where ``is_here`` says so of what is given."""
    real = getattr(owner, name)

    def call(self, *given):
        if not is_here(*given):
            return real(self, *given)
        if when == "torn":
            os.write(self._fd, given[0][: len(given[0]) // 2])
        if when == "after":
            real(self, *given)
        os.kill(os.getpid(), signal.SIGSTOP if when == "stops" else signal.SIGKILL)
        return real(self, *given)

    setattr(owner, name, call)


def _count(what, data):
    """How many groups, or executions that finished, a group is."""
    if what == "group":
        return 1
    if what == "finish":
        told = [entry[0] for entry in read(MAGIC + data, "").entries if isinstance(entry[0], Told)]
        return sum(len(decode(one.event).subtasks) for one in told if one.event_kind == FINISHED)
    return bytes([0xA0 | len(what)]) + what.encode() in data
