"""A process that holds external resources and runs the executions of tasks that get them, for one worker at a time (``slots.holders``).

It ends when it was idle for a while, when it is told to, when a task leaves it unfit for others, with the daemon that forks the workers, and, in the
midst of an execution, with the worker that waits for it.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import os
import pickle
import signal
import socket
import sys
import time
import traceback
from _thread import start_new_thread
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path

from firesteel.task.executor.handed import Handed
from firesteel.task.executor.slots.holders import ENDING_SECONDS, LAST, NOT_LAST, is_own
from firesteel.task.executor.slots.memory_watch import descendants, kill_all

_own: set[int] = set()
"""Descriptors of sockets that no process may keep which a function forks: workers would wait for that one, in vain."""


def main(listening: str, path: str, idle_seconds: str, daemon: str) -> None:
    """Serves until there is a reason to end. ``path``: of the file by which workers know this process."""
    os.register_at_fork(after_in_child=_give_up_own)
    clients = _Clients(int(listening), Path(path), float(idle_seconds), int(daemon))
    try:
        _serve_all(clients)
    except BaseException:
        traceback.print_exc()
    clients.close()
    _end()


def _give_up_own() -> None:
    """Puts nothing in their places, as objects of the forked process still close them."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in _own:
        os.dup2(nothing, descriptor, inheritable=False)
    os.close(nothing)


def _end() -> None:
    """Runs the exit functions, which may load or wait for what they like, but not for ever."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(int(ENDING_SECONDS) + 1)  # also if one never lets another thread run
    start_new_thread(_end_late, ())
    try:
        atexit._run_exitfuncs()
        sys.stdout.flush()
    finally:
        kill_all(descendants(os.getpid()))
        os._exit(0)  # threads of the user's may go on for ever


def _end_late() -> None:
    time.sleep(ENDING_SECONDS)
    _kill_all()


def _kill_all() -> None:
    """This process and those that the functions have started."""
    kill_all(descendants(os.getpid()))
    os.kill(os.getpid(), signal.SIGKILL)


class _Clients:
    """The workers that connect, one after another."""

    def __init__(self, listening: int, path: Path, idle_seconds: float, daemon: int) -> None:
        os.set_inheritable(listening, False)
        self._listening = socket.socket(fileno=listening)
        self._path, self._idle_seconds = path, idle_seconds
        self._ends = [listening]
        _own.add(listening)
        with suppress(OSError):  # the daemon has ended: then the idle time is left
            self._ends.append(os.pidfd_open(daemon))

    def next(self) -> Connection | None:
        """None: there are to be no more."""
        while True:
            ready = wait(self._ends, self._idle_seconds)
            if any(end in ready for end in self._ends[1:]) or (not ready and self._leave()):
                return None
            if ready:
                client, _ = self._listening.accept()
                if is_own(client):
                    return Connection(client.detach())
                client.close()

    def _leave(self) -> bool:
        """Takes no worker any more: those that find this process see its end. False: one has found it, and is about to connect."""
        try:
            with self._path.open("r+") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self.close()
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Takes no worker any more. May be called again."""
        _own.discard(self._ends[0])
        self._listening.close()


def _serve_all(clients: _Clients) -> None:
    while (connection := clients.next()) is not None:
        with closing(connection), suppress(OSError, EOFError), _kept(connection.fileno()):
            connection.send_bytes(b"here")
            work = connection.recv_bytes()
            if not work or not _serve(connection, work, clients):
                return
        gc.collect()  # as PySpark's worker does behind every task


@contextmanager
def _kept(descriptor: int) -> Generator[None]:
    """Keeps it out of forked processes."""
    _own.add(descriptor)
    try:
        yield
    finally:
        _own.discard(descriptor)


def _serve(connection: Connection, work: bytes, clients: _Clients) -> bool:
    """Runs the executions and answers. False: this process can take no others."""
    handed: Handed = pickle.loads(work)
    handed.appear()
    with _no_longer_than(connection):
        handed.function.take_in_modules()
        messages, is_last = handed.function.run_here(handed.descriptors, None, handed.place)
    if is_last:
        clients.close()
    connection.send_bytes((LAST if is_last else NOT_LAST) + pickle.dumps(messages))
    return not is_last


@contextmanager
def _no_longer_than(connection: Connection) -> Generator[None]:
    """Ends the process, and those that the functions have started, if the worker at the other end is gone meanwhile: it was killed, or its
    executor is lost."""
    over, ends = os.pipe()
    is_over = False

    def watch() -> None:
        with suppress(OSError):  # it is over already, and the connection closed
            if over not in wait([connection, over]) and not is_over:
                _kill_all()
        os.close(over)

    start_new_thread(watch, ())
    try:
        yield
    finally:
        is_over = True
        os.write(ends, b"\0")  # closing it alone tells nothing if a forked process has it too
        os.close(ends)
