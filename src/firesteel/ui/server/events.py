"""Live updates: one look at a job for all who listen, each of whom is sent the latest and nothing else.

A slow reader has one message waiting for it, whatever happens meanwhile. The more readers there are, the rarer are updates, so that a
thousand of them cost little more than a hundred.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from firesteel.errors import FiresteelError
from firesteel.ui.server.workers import Busy
from firesteel.ui.views.structs import Pulse

LEAST_SECONDS = 1.0
"""Between two updates ..."""
READERS_A_SECOND = 100
"""... and so many more as it takes to send no more than these messages."""
QUIET_SECONDS = 15.0
"""A reader who has heard nothing for so long is sent a comment, by which one that is gone is noticed."""
MOST_SECONDS = 3600.0
"""Browsers connect again by themselves."""
_OVER = b"event: end\ndata: {}\n\n"

Look = Callable[[str, int], Awaitable[Pulse | None]]
"""Of (id, version that is known): how it stands; None: as it was. Raises FiresteelError for what is not there any more."""


class _Reader:
    """The latest message, until it is taken."""

    def __init__(self) -> None:
        self._latest = b""
        self._there = asyncio.Event()

    def put(self, message: bytes) -> None:
        self._latest = message
        self._there.set()

    async def take(self) -> bytes:
        """A comment, where there is none in time."""
        try:
            async with asyncio.timeout(QUIET_SECONDS):
                await self._there.wait()
        except TimeoutError:
            return b": nothing new\n\n"
        self._there.clear()
        return self._latest


class _Channel:
    """All who listen to one job."""

    def __init__(self, id: str, look: Look) -> None:
        self._id = id
        self._look = look
        self.readers: set[_Reader] = set()
        self._last = b""
        self._task: asyncio.Task[None] | None = None

    def join(self, reader: _Reader) -> None:
        self.readers.add(reader)
        if self._last:
            reader.put(self._last)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        version = -1
        while self.readers:
            try:
                pulse = await self._look(self._id, version)
            except Busy:
                pulse = None
            except FiresteelError:
                self._tell(_OVER)
                return
            if pulse is not None:
                version = pulse.version
                message = b"id: %d\ndata: %s\n\n" % (version, msgspec.json.encode(pulse))
                self._tell(message + _OVER if pulse.is_over else message)
                if pulse.is_over:
                    return
            await asyncio.sleep(max(LEAST_SECONDS, len(self.readers) / READERS_A_SECOND))

    def _tell(self, message: bytes) -> None:
        self._last = message
        for reader in self.readers:
            reader.put(message)


class Channels:
    """Of one server; used on its loop only."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._channels: dict[str, _Channel] = {}

    async def listen(self, id: str) -> AsyncIterator[bytes]:
        """Messages as they go over the wire, until the job is over, the reader goes, or an hour has passed."""
        channel = self._channels.setdefault(id, _Channel(id, self._look))
        reader = _Reader()
        channel.join(reader)
        until = asyncio.get_running_loop().time() + MOST_SECONDS
        try:
            while asyncio.get_running_loop().time() < until:
                message = await reader.take()
                yield message
                if message.endswith(_OVER):
                    return
        finally:
            channel.readers.discard(reader)
            if not channel.readers and self._channels.get(id) is channel:
                del self._channels[id]
