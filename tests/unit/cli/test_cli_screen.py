"""The live view on a real pseudo-terminal: what is on the screen, what has gone above, what is left at the end."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SHOW = """
import sys, time
from tests.journal_samples import word_count
from firesteel.view.progress import create
one, two = create(True), create(True)
records = word_count()
for number, record in enumerate(records):
    one.record(record)
    print("printed", number)
    if number < 6:
        two.record(record)
    if number in (2, 5, 9):
        time.sleep(0.4)  # a frame or two
print("to stderr", "é" * 3, file=sys.stderr)
print("x" * 150)
one.close()
two.close()
print("after")
"""


class Screen:
    """As much of a terminal as is needed: text, newlines that scroll, cursor up, clear below; the cursor hidden or not."""

    def __init__(self, columns: int) -> None:
        self.columns, self.lines, self.row, self.column, self.hidden = columns, [""], 0, 0, False

    def feed(self, text: str) -> None:
        for part in re.findall(r"\x1b\[\??[0-9;]*[A-Za-z]|\r|\n|[^\x1b\r\n]", text):
            if part == "\r":
                self.column = 0
            elif part == "\n":
                self._down()
            elif part.startswith("\x1b"):
                self._control(part)
            else:
                if self.column == self.columns:
                    self._down()
                    self.column = 0
                line = self.lines[self.row].ljust(self.column)
                self.lines[self.row] = line[: self.column] + part + line[self.column + 1 :]
                self.column += 1

    def _down(self) -> None:
        self.row += 1
        if self.row == len(self.lines):
            self.lines.append("")

    def _control(self, part: str) -> None:
        if part.endswith("A"):
            self.row -= int(part[2:-1])
            assert self.row >= 0
        elif part == "\x1b[J":
            self.lines[self.row] = self.lines[self.row][: self.column]
            del self.lines[self.row + 1 :]
        elif part in ("\x1b[?25l", "\x1b[?25h"):
            self.hidden = part.endswith("l")
        else:
            assert part.endswith("m"), f"unknown: {part!r}"

    @property
    def text(self) -> list[str]:
        return [line.rstrip() for line in self.lines]


@pytest.mark.parametrize("columns", [60, 120])
def test_prints_stay_above_and_the_end_is_clean(columns):
    screen, frames = shown(columns, SHOW)
    text = screen.text
    assert not screen.hidden
    assert max(frames) >= 3, "it was redrawn"
    printed = [line for line in text if line.startswith("printed")]
    assert printed == [f"printed {number}" for number in range(len(printed))] and len(printed) == 15
    assert "to stderr ééé" in text
    long = text.index("x" * columns)
    assert "".join(text[long : long + 3]).startswith("x" * 150), "as it was printed, wrapped by the terminal"
    tables = [place for place, line in enumerate(text) if re.match("word count: (finished|running)", line)]
    assert [text[place].split(",")[0] for place in tables] == ["word count: finished", "word count: running"]
    assert text[tables[0] + 2].startswith("  0  text")
    assert text[-2:] == ["after", ""]
    assert sum("failed: worker lost" in line for line in text) == 2, "each job tells of it once"


def test_without_colours_there_are_none(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    raw = run(80, SHOW)
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", raw)
    monkeypatch.setenv("TERM", "dumb")
    assert "\x1b" not in run(80, SHOW)


def shown(columns: int, script: str) -> tuple[Screen, list[int]]:
    raw = run(columns, script)
    screen = Screen(columns)
    screen.feed(raw)
    return screen, [raw.count("\x1b[J")]


def run(columns: int, script: str) -> str:
    """All that a program writes to a terminal of so many columns."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    kept = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES", "TERM")}
    term = "dumb" if os.environ.get("TERM") == "dumb" else "xterm-256color"
    environment = {**kept, "TERM": term, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdin=follower, stdout=follower, stderr=follower, env=environment
    )
    os.close(follower)
    got = bytearray()
    while True:
        try:
            data = os.read(leader, 1 << 16)
        except OSError:  # the other end is closed
            break
        if not data:
            break
        got += data
    os.close(leader)
    assert process.wait() == 0, got.decode()
    return got.decode().replace("\r\n", "\n\r")
