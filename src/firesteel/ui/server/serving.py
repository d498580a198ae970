"""The server on a thread of its own: uvicorn, with limits that leave the job beside it its file descriptors."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from firesteel.errors import FiresteelError, UsageError
from firesteel.ui.catalog.runs import OwnRuns
from firesteel.ui.server.guard import App, Policy

_log = logging.getLogger("firesteel.ui")

MOST_CONNECTIONS = 2000
SHARE_OF_FILES = 4
"""One of so many file descriptors of the process may be a connection."""
START_SECONDS = 30.0
TICK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Limits:
    """``connections``: at once; None: as many as the process has file descriptors to spare. ``head_seconds``: within which a
    request's head must be there, whole; ``idle_seconds``: that a connection may lie idle between two."""

    connections: int | None = None
    head_seconds: float = 10.0
    idle_seconds: float = 15.0


class Connection(H11Protocol):
    """One that is closed where there are too many, and where a request does not come."""

    def __init__(self, *args: Any, limits: Limits, **options: Any) -> None:
        super().__init__(*args, **options)
        self._most = limits.connections or most_connections()
        self._head_seconds = limits.head_seconds
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        if len(self.connections) > self._most:
            transport.abort()
            return
        self._wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_waiting() and self._deadline is None:
            self._wait()
        elif not self._is_waiting():
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _is_waiting(self) -> bool:
        cycle: Any = self.cycle  # None before the first request
        return cycle is None or cycle.response_complete

    def _wait(self) -> None:
        self._deadline = self.loop.call_later(self._head_seconds, self._too_late)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_late(self) -> None:
        self._deadline = None
        if self._is_waiting() and not self.transport.is_closing():
            self.transport.close()


class _Uvicorn(uvicorn.Server):
    """One that tells when it has begun, and looks after the runs of its process. While nobody asks it wakes once a second, not ten times."""

    def __init__(self, config: uvicorn.Config, begun: threading.Event, runs: OwnRuns) -> None:
        super().__init__(config)
        self._begun = begun
        self._runs = runs
        self._sweeps = True
        self._ending = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._loop = asyncio.get_running_loop()
        self._begun.set()

    async def main_loop(self) -> None:
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                async with asyncio.timeout(TICK_SECONDS):
                    await self._ending.wait()
            if self._sweeps and self._runs.are_due:
                await self._sweep()

    async def _sweep(self) -> None:
        try:
            await asyncio.to_thread(self._runs.sweep)
        except RuntimeError:  # the process ends
            self._sweeps = False
        except Exception:
            self._sweeps = False
            _log.exception("The page takes in no more of what jobs tell, unless it is looked at.")

    def end(self) -> None:
        """From any thread, once it has begun."""
        self.should_exit = True
        with suppress(RuntimeError):  # its loop is over
            self._loop.call_soon_threadsafe(self._ending.set)


class Serving:
    """A server, from its construction to :meth:`close`. ``runs``: of this process, swept where that is due."""

    def __init__(
        self,
        app: App,
        listener: socket.socket,
        runs: OwnRuns | None = None,
        limits: Limits = Limits(),
    ) -> None:
        """Raises FiresteelError where it does not begin."""
        config = uvicorn.Config(
            app,  # pyright: ignore[reportArgumentType]
            http=partial(Connection, limits=limits),  # pyright: ignore[reportArgumentType]
            loop="asyncio",
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=limits.idle_seconds,  # pyright: ignore[reportArgumentType]
            timeout_graceful_shutdown=1,
        )
        begun = threading.Event()
        self._listener = listener
        self._server = _Uvicorn(config, begun, runs or OwnRuns())
        self._thread = threading.Thread(target=self._run, args=(begun,), name="firesteel-ui", daemon=True)
        self._failed: BaseException | None = None
        self._thread.start()
        begun.wait(START_SECONDS)
        if self._failed is not None or not self._server.started:
            raise FiresteelError(f"The page cannot be served: {self._failed or 'it did not begin'}.")

    def _run(self, begun: threading.Event) -> None:
        try:
            self._server.run(sockets=[self._listener])
        except BaseException as error:  # uvicorn ends with SystemExit where it cannot begin
            self._failed = error
        finally:
            begun.set()

    def close(self) -> None:
        """Ends it, and waits for that. Safe to call twice."""
        self._server.end()
        self._thread.join(10.0)
        self._listener.close()


def most_connections() -> int:
    try:
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    except (ImportError, ValueError):
        return 256
    if soft == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS
    return max(16, min(MOST_CONNECTIONS, soft // SHARE_OF_FILES))


def listen(address: str, ports: range) -> socket.socket:
    """On the first port that is free (0: any). Raises UsageError."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    problem: OSError | None = None
    for port in ports:
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # asyncio wants to see it named
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((address, port))
            listener.listen(128)
            listener.set_inheritable(False)
            return listener
        except (OSError, OverflowError) as error:
            listener.close()
            problem = error if isinstance(error, OSError) else OSError(str(error))
    tried = str(ports[0]) if len(ports) == 1 else f"{ports[0]}-{ports[-1]}"
    raise UsageError(
        f"The page cannot be served at {address}, port {tried}: {problem.strerror or problem if problem else 'no port'}.",
        hint="Set rest.bind-address, or rest.bind-port (0: any that is free).",
    )


def url_of(listener: socket.socket, address: str) -> str:
    """As one would write it in a browser on this machine, or on another where it can be called from there."""
    port = listener.getsockname()[1]
    name = address
    if is_any(address):
        name = socket.gethostname()
    return f"http://{f'[{name}]' if ':' in name else name}:{port}/"


def is_any(address: str) -> bool:
    """All addresses of the machine."""
    try:
        return ipaddress.ip_address(address).is_unspecified
    except ValueError:
        return False


def is_loopback(address: str) -> bool:
    """It can be called from this machine alone. A name counts as one only where it is ``localhost``."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def policy_of(address: str, token: str) -> Policy:
    """Of a server that listens there: on any address but the loopback one everything needs the token."""
    if is_loopback(address):
        return Policy(token, frozenset({"localhost", "127.0.0.1", "::1", address.lower()}))
    names = {address.lower(), "localhost", "127.0.0.1", "::1"}
    if is_any(address):
        names |= {socket.gethostname().lower(), socket.getfqdn().lower()}
    return Policy(token, frozenset(names), any_address=is_any(address), readers_need_token=True)
