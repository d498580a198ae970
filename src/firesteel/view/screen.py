"""The lines at the bottom of a terminal that are redrawn while jobs run: one block for all jobs of a process.

What anybody prints meanwhile, to stdout or stderr, goes above them and stays. Nothing scrolls away, no key is read. When the last
job is over the terminal is as it was. rich makes the lines; putting them there is done here, because what the user prints must
reach the stream that it was printed to, as it is. ``rich.live`` does not do that: it wraps lines at words, makes spaces of tabs, drops
links, and sends the output of a redirected stdout to the terminal. A print takes 4,900 us with it, and 12 us here.
"""

from __future__ import annotations

import atexit
import os
import re
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TextIO

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

REFRESH_SECONDS = 0.25
MOST_OF_A_CORE = 0.03
"""Large tables on slow machines are redrawn less often than that."""
PAUSE_SECONDS = 0.05
"""After a print, when there are many: they are not slowed down by redrawing after each."""
_HIDE, _SHOW, _CLEAR = "\x1b[?25l", "\x1b[?25h", "\x1b[J"
_STYLE = re.compile(r"\x1b\[[0-9;]*m")


class Panel(Protocol):
    """The part of the screen that shows one job."""

    def draw(self, width: int, height: int) -> RenderableType:
        """At most so many characters wide and lines high. Called with the screen's lock held."""
        ...


class Screen:
    """Of one terminal, ``stream``. Safe to use from several threads."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.lock = threading.RLock()
        self._panels: list[Panel] = []
        self._console: Console | None = None
        self._frame = ""
        self._widths: list[int] = []
        """Of the lines that are there now, in characters; empty: none are."""
        self._printed_at = 0.0
        self._wake = threading.Event()
        self._above: list[tuple[str, Above]] = []
        self._running = False

    @property
    def width(self) -> int:
        """In characters, now."""
        return 80 if self._console is None else self._console.width

    def add(self, panel: Panel) -> None:
        with self.lock:
            self._panels.append(panel)
            if not self._running:
                self._start()

    def remove(self, panel: Panel, last: RenderableType | None = None) -> None:
        """``last``: what stays of it. Nothing happens if it is not there."""
        with self.lock:
            if panel not in self._panels:
                return
            self._panels.remove(panel)
            self.write("" if last is None else self._text(last))
            if not self._panels:
                self.stop()

    def note(self, text: str) -> None:
        """A line that stays, above what is redrawn."""
        self.write(f"{text}\n")

    def write(self, text: str, target: TextIO | None = None) -> None:
        """Whole lines, as they are, above what is redrawn. ``target``: the stream they are meant for, if not this one."""
        with self.lock:
            erase, out = self._erasing(), target or self.stream
            if out is self.stream:
                text = erase + text
            elif erase:
                self.stream.write(erase)
                self.stream.flush()
            out.write(text)
            out.flush()
            now = time.monotonic()
            if now - self._printed_at > PAUSE_SECONDS:
                self._show()
            self._printed_at = now
            self._wake.set()

    def stop(self) -> None:
        """Erases the frame, shows the cursor and gives stdout and stderr back as they were."""
        with self.lock:
            if not self._running:
                return
            self._running = False
            self._wake.set()
            for name, above in self._above:
                if getattr(sys, name) is above:
                    setattr(sys, name, above.target)
                above.end()
            self._above = []
            self.stream.write(self._erasing() + _SHOW)
            self.stream.flush()

    def _start(self) -> None:
        from rich.console import Console

        if self._console is None:
            self._console = Console(file=self.stream, highlight=False, force_terminal=True)
            atexit.register(self._at_exit)
        self._running = True
        for name in ("stdout", "stderr"):
            target = getattr(sys, name)
            if _is_same_terminal(target, self.stream):
                above = Above(self, target)
                setattr(sys, name, above)
                self._above.append((name, above))
        self.stream.write(_HIDE)
        self._wake = threading.Event()
        threading.Thread(target=self._refresh, args=(self._wake,), name="firesteel-screen", daemon=True).start()

    def _refresh(self, wake: threading.Event) -> None:
        with suppress(OSError, ValueError):  # the terminal is gone
            while True:
                began = time.thread_time()
                with self.lock:
                    if not self._running or wake is not self._wake:
                        return
                    with suppress(Exception):  # a frame that cannot be drawn is left out
                        self._frame = self._drawn()
                    self._show(self._erasing())
                spent = time.thread_time() - began
                if not self._rest(wake, max(REFRESH_SECONDS, spent / MOST_OF_A_CORE)):
                    return

    def _rest(self, wake: threading.Event, seconds: float) -> bool:
        """Until the next frame is due; what prints have put out of sight is shown again meanwhile. False: it is over."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if wake.wait(left):
                wake.clear()
                time.sleep(PAUSE_SECONDS)
                with self.lock:
                    if not self._running or wake is not self._wake:
                        return False
                    self._show()
        return True

    def _drawn(self) -> str:
        from rich.console import Group

        assert self._console is not None
        size = self._console.size
        height = max(4, (size.height - 1) // max(1, len(self._panels)))
        text = self._text(Group(*(panel.draw(size.width, height) for panel in self._panels)))
        return "".join(text.splitlines(keepends=True)[: max(1, size.height - 1)])

    def _text(self, renderable: RenderableType) -> str:
        if self._console is None:
            return ""
        with self._console.capture() as captured:
            self._console.print(renderable)
        encoding = getattr(self.stream, "encoding", None) or "utf-8"
        return captured.get().encode(encoding, "replace").decode(encoding)

    def _show(self, erase: str = "") -> None:
        """The frame, in one write with what takes away the one before."""
        if self._running and self._frame and not self._widths:
            from rich.cells import cell_len

            self.stream.write(erase + self._frame)
            self.stream.flush()
            self._widths = [cell_len(_STYLE.sub("", line)) for line in self._frame.splitlines()]

    def _erasing(self) -> str:
        """Returns the characters that erase the frame, also where the terminal has become narrower and has wrapped its lines."""
        if not self._widths or self._console is None:
            return ""
        width = max(1, self._console.width)
        rows = sum(max(1, -(-length // width)) for length in self._widths)
        self._widths = []
        return f"\r\x1b[{rows}A{_CLEAR}"

    def _at_exit(self) -> None:
        with suppress(Exception):
            self.stop()


class Above:
    """Stands for stdout or stderr while something is redrawn: whole lines go above it, the rest of one waits for its end."""

    def __init__(self, screen: Screen, target: TextIO) -> None:
        self.target = target
        self._screen = screen
        self._rest = ""
        self._over = False

    def write(self, text: str) -> int:
        with self._screen.lock:
            if self._over:  # somebody has kept us
                return self.target.write(text)
            lines, newline, self._rest = (self._rest + text).rpartition("\n")
            if newline:
                self._screen.write(lines + newline, self.target)
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        if self._over:
            self.target.flush()

    def end(self) -> None:
        """From now on everything goes to the target."""
        self._over = True
        rest, self._rest = self._rest, ""
        if rest:
            self._screen.write(rest, self.target)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.target, name)


_screens: dict[int, Screen] = {}
_screens_lock = threading.Lock()


def screen_of(stream: TextIO) -> Screen:
    """The one of this stream: jobs that run at once share it."""
    if isinstance(stream, Above):
        stream = stream.target
    with _screens_lock:
        known = _screens.get(id(stream))
        if known is None or known.stream is not stream:
            known = _screens[id(stream)] = Screen(stream)
        return known


def is_live(stream: TextIO) -> bool:
    """Returns True if ``stream`` is a terminal that can redraw."""
    try:
        return stream.isatty() and os.environ.get("TERM", "") != "dumb" and "NO_LIVE_PROGRESS" not in os.environ
    except (ValueError, AttributeError):
        return False


def _is_same_terminal(one: Any, other: TextIO) -> bool:
    try:
        return one.isatty() and os.fstat(one.fileno()).st_rdev == os.fstat(other.fileno()).st_rdev
    except (OSError, ValueError, AttributeError):
        return one is other
