"""Processes that hold external resources in the place of Python workers, so that what was loaded for an address serves every task that gets it.

Spark gives a task to any of its idle workers. Each of them would make a context of its own on a card, load the model again, and keep both while
others work. So a worker hands the execution of a slot with external resources to a *holder*: a process that took these addresses once and runs one
execution after another, for whichever worker asks. The worker waits for it, and dies with a holder that dies, as if it had run the execution itself;
a holder whose worker was killed ends at once (``task.executor.holder``).

The holders of an executor are files in a folder of its local directory, each locked by the worker that uses it. Who takes an address first ends the
idle holders that are more there than the shares that were promised, and waits until they are gone. A file stays until its process is seen to have
ended, so that no other begins beside one that is still ending; one that takes too long is killed. A connection alone does not tell that a holder is
there: processes that it forked may keep the other end open. Needs Linux (abstract sockets, process descriptors); elsewhere, and where workers are not
used again, workers do it themselves.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import uuid
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import IO, NamedTuple

from firesteel.task.executor.slots import retiring
from firesteel.task.executor.slots.memory_watch import descendants, kill_all
from firesteel.task.executor.slots.slot import SlotInformation

ENDING_SECONDS = 10.0
"""For a holder that is to go, to be gone, and for an idle one to answer; then it is killed. What it held of a card is free then."""
BEGINNING_SECONDS = 60.0
"""For a new one to answer."""
LAST, NOT_LAST = b"L", b"N"
"""First byte of an answer: the holder ends behind it, or takes others."""
_MODULE = "firesteel.task.executor.holder"
_BEGIN = f"""import os, sys
if begun := os.fork():  # it is no child of the worker, whose child processes count and end with its task
    os.write(1, str(begun).encode())
    os._exit(0)
os.dup2(2, 1)
import json
sys.path[:] = json.loads(sys.argv[1])
from {_MODULE} import main
main(*sys.argv[2:])"""
Addresses = Mapping[str, tuple[str, ...]]


class HolderLostError(Exception):
    """The process that ran an execution has ended before it answered."""


class Claim(NamedTuple):
    """The features of a holder that can serve a task. ``daemon``: the process that forks the workers, one for each environment of theirs."""

    addresses: dict[str, list[str]]
    threads: int
    daemon: int

    @classmethod
    def of(cls, slot: SlotInformation, addresses: Addresses) -> Claim:
        return cls({name: list(own) for name, own in addresses.items()}, slot.threads, os.getppid())

    def has(self, resource: str, address: str) -> bool:
        return address in self.addresses.get(resource, ())


class _Process:
    """A process by its descriptor, which is never another one's."""

    def __init__(self, number: int, descriptor: int) -> None:
        self._number = number
        self.descriptor = descriptor
        """Ready to be read when it has ended."""

    @classmethod
    def found(cls, number: int, started: str) -> _Process | None:
        """None: it has ended. ``started``: as :func:`_started` told; numbers are used again."""
        try:
            descriptor = os.pidfd_open(number)
        except ProcessLookupError:
            return None
        if _started(number) == started and not wait([descriptor], 0):
            return cls(number, descriptor)
        os.close(descriptor)
        return None

    def see_gone(self, seconds: float) -> None:
        """Returns when it has ended; if it has not within ``seconds``, by force."""
        if not wait([self.descriptor], seconds):
            children = descendants(self._number)
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.descriptor, signal.SIGKILL)
            kill_all(children)
            wait([self.descriptor], ENDING_SECONDS)

    def close(self) -> None:
        os.close(self.descriptor)


class _Holder:
    """One that is known; locked: nobody else uses it until :meth:`release`.

    Its file: a line with its claim; when it has begun, a line with its process and when that was started.
    """

    def __init__(self, path: Path, file: IO[str], claim: Claim) -> None:
        self.path, self.claim = path, claim
        self._file = file

    @classmethod
    def made(cls, path: Path, claim: Claim) -> _Holder:
        file = path.open("x+")
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(json.dumps(claim) + "\n")
        file.flush()
        return cls(path, file, claim)

    @classmethod
    def known(cls, path: Path) -> _Holder | None:
        """Not locked yet. None: it is gone."""
        try:
            file = path.open("r+")
            return cls(path, file, Claim(*json.loads(file.readline())))
        except (OSError, ValueError):
            return None

    def lock(self) -> bool:
        """Returns False if another worker uses it."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def release(self) -> None:
        self._file.close()

    def process(self) -> _Process | None:
        """To be closed. None: it has ended, or never begun. For who has locked it."""
        self._file.seek(0)
        lines = self._file.read().splitlines()
        return _Process.found(*json.loads(lines[1])) if len(lines) > 1 else None

    def is_gone(self) -> bool:
        process = self.process()
        if process is not None:
            process.close()
        return process is None

    def begin(self, idle_seconds: float) -> None:
        """Starts its process, which can be connected with at once. Raises OSError."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
            listening.bind(_name(self.path))
            listening.listen()
            told = [str(listening.fileno()), str(self.path), str(idle_seconds), str(self.claim.daemon)]
            command = [sys.executable, "-c", _BEGIN, json.dumps(sys.path), *told]
            begun = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                pass_fds=[listening.fileno()],
                env=retiring.environment(),
                check=False,
            )
        if begun.stdout:
            number = int(begun.stdout.split()[-1])
            self._file.seek(0, os.SEEK_END)
            self._file.write(json.dumps([number, _started(number)]) + "\n")
            self._file.flush()

    def connect(self, seconds: float) -> tuple[Connection, _Process] | None:
        """The connection and the holder's process, both to be closed. None: it is gone; one that does not answer in time was killed."""
        process = self.process()
        if process is None:
            return None
        connection = self._connection()
        left = ENDING_SECONDS
        if connection is not None:
            ready = wait([connection, process.descriptor], seconds)
            with suppress(OSError, EOFError):
                if connection in ready and connection.recv_bytes():
                    return connection, process
            connection.close()
            left = ENDING_SECONDS if ready else 0
        with contextlib.closing(process):
            process.see_gone(left)
        return None

    def _connection(self) -> Connection | None:
        """None: it takes none."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
                client.connect(_name(self.path))
                return Connection(client.detach()) if is_own(client) else None
        except OSError:
            return None

    def forget(self) -> None:
        self.path.unlink(missing_ok=True)
        self.release()

    def end(self) -> None:
        """Tells it to go, and returns when it is gone."""
        connected = self.connect(ENDING_SECONDS)
        if connected is not None:
            connection, process = connected
            with contextlib.closing(process):
                with contextlib.closing(connection), suppress(OSError):
                    connection.send_bytes(b"")
                process.see_gone(ENDING_SECONDS)
        self.forget()


class Holders:
    """The holders of an executor. ``folder``: of their files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def run(self, work: bytes, slot: SlotInformation, addresses: Addresses) -> bytes:
        """Returns what the holder answers; if that was its last one, when it has ended. Raises HolderLostError, and OSError if none can be started."""
        holder, connection, process = self._taken(Claim.of(slot, addresses), slot)
        try:
            with contextlib.closing(process):
                answer = _answer(work, connection, process)
                if answer is None or answer[:1] == LAST:
                    process.see_gone(ENDING_SECONDS)
            if answer is None:
                raise HolderLostError
            return answer[1:]
        finally:
            with suppress(OSError):
                os.utime(holder.path)
            holder.release()

    def _taken(self, claim: Claim, slot: SlotInformation) -> tuple[_Holder, Connection, _Process]:
        self._folder.mkdir(exist_ok=True)
        while True:
            holder, is_new, going = self._chosen(claim, slot)
            for one in going:
                one.end()
            try:
                if is_new:
                    holder.begin(slot.idle_seconds)
                connected = holder.connect(BEGINNING_SECONDS if is_new else ENDING_SECONDS)
            except OSError:
                holder.forget()
                raise
            if connected is not None:
                return holder, *connected
            holder.forget()
            if is_new:
                raise OSError("a process that was to hold external resources has not begun")

    def _chosen(self, claim: Claim, slot: SlotInformation) -> tuple[_Holder, bool, list[_Holder]]:
        """A holder for the caller alone, True if it has still to begin, and those that must go before."""
        with self._alone():
            paths = sorted(self._folder.glob("*.json"), key=_used_at)
            known = [holder for path in paths if (holder := _Holder.known(path)) is not None]
            idle = [holder for holder in known if holder.lock()]
            for gone in [holder for holder in idle if holder.is_gone()]:
                gone.forget()
                known.remove(gone)
                idle.remove(gone)
            mine = next((holder for holder in reversed(idle) if holder.claim == claim), None)
            is_new = mine is None
            if mine is None:
                mine = _Holder.made(self._folder / f"{uuid.uuid4().hex}.json", claim)
                known.append(mine)
            going = _surplus(known, [holder for holder in idle if holder is not mine], claim, slot)
            for holder in known:
                if holder is not mine and holder not in going:
                    holder.release()
        return mine, is_new, going

    @contextlib.contextmanager
    def _alone(self) -> Generator[None]:
        with (self._folder / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _surplus(known: Sequence[_Holder], idle: Sequence[_Holder], claim: Claim, slot: SlotInformation) -> list[_Holder]:
    """The idle ones, least recently used first, that are more at an address than it has shares of the size that was taken."""
    going: list[_Holder] = []
    for resource, addresses in claim.addresses.items():
        most = _shares(slot.external.get(resource, 1.0))
        for address in addresses:
            there = [holder for holder in known if holder not in going and holder.claim.has(resource, address)]
            able = [holder for holder in idle if holder in there]
            going += able[: max(0, len(there) - most)]
    return going


def _shares(amount: float) -> int:
    """Slots that one address is enough for."""
    return 1 if amount >= 1 else int(1 / amount + 1e-6)


def _used_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # it is gone
        return 0.0


def _name(path: Path) -> str:
    """Of the socket: abstract, since a path may be too long for one."""
    return f"\0firesteel-{path.stem}"


def is_own(connected: socket.socket) -> bool:
    """Returns False if the process at the other end is of another user."""
    _, user, _ = struct.unpack("3i", connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return user == os.getuid()


def _started(process: int) -> str:
    """The time at which a process was started, in ticks since the machine was; empty: it is gone."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def _answer(work: bytes, connection: Connection, process: _Process) -> bytes | None:
    """None: the process ended before it had answered, though others may still have the connection's other end."""
    with contextlib.closing(connection), suppress(OSError, EOFError):
        connection.send_bytes(work)
        if connection in wait([connection, process.descriptor]):
            return connection.recv_bytes()
    return None


def holders_here() -> Holders | None:
    """The holders of this worker's executor. None: there can be none."""
    if "SPARK_REUSE_WORKER" not in os.environ or not _tells_of_processes():
        return None
    local = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return Holders(Path(local) / "firesteel-holders") if local else None


def _tells_of_processes() -> bool:
    """Returns False where the system has no descriptors of processes, or forbids them, as some containers do."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (OSError, AttributeError):
        return False
    return True
