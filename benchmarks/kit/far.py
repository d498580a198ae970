"""A store of objects that is far away: an S3 server on loopback that answers each request after a pause, and counts them.

It serves the files of one folder as the bucket ``BUCKET``: GET of a range, HEAD, and lists. It checks no signature.
"""

from __future__ import annotations

import asyncio
import os
import re
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from email.utils import formatdate
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

BUCKET = "tables"
ASKED = "/-asked"


@contextmanager
def far_store(folder: Path, seconds: float) -> Iterator[dict[str, str]]:
    """The variables of the environment that lead Arrow's and other clients to the store. ``seconds``: the pause before each answer."""
    started: list[int] = []
    ready = threading.Event()
    loop = asyncio.new_event_loop()
    store = _Store(folder, seconds)

    async def serve() -> None:
        server = await asyncio.start_server(store.talk, "127.0.0.1", 0)
        started.append(server.sockets[0].getsockname()[1])
        ready.set()

    def work() -> None:
        loop.run_until_complete(serve())
        loop.run_forever()
        talks = asyncio.all_tasks(loop)
        for talk in talks:
            talk.cancel()
        loop.run_until_complete(_ended(talks))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    ready.wait()
    url = f"http://127.0.0.1:{started[0]}"
    try:
        yield {
            "AWS_ACCESS_KEY_ID": "AKIAFIRESTEEL",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": url,
            "AWS_ENDPOINT": url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _ended(talks: set[asyncio.Task[Any]]) -> None:
    await asyncio.gather(*talks, return_exceptions=True)


def counted(ask: Callable[[str], Any]) -> Callable[[str], tuple[Any, float]]:
    """Asks, and tells with the answer how many requests the store has answered meanwhile."""

    def told(text: str) -> tuple[Any, float]:
        before = _asked()
        answer = ask(text)
        return answer, float(_asked() - before)

    return told


def _asked() -> int:
    with urllib.request.urlopen(os.environ["AWS_ENDPOINT_URL"] + ASKED) as answer:
        return int(answer.read())


class _Store:
    def __init__(self, folder: Path, seconds: float) -> None:
        self._folder, self._seconds, self._count = folder, seconds, 0

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers the requests of one connection, one after another."""
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                method, target, _ = head.split(" ", 2)
                if target == ASKED:
                    self._say(writer, "200 OK", [], str(self._count).encode())
                    continue
                self._count += 1
                await asyncio.sleep(self._seconds)
                await self._answer(writer, method, urlsplit(target), head)
        writer.close()

    async def _answer(self, writer: asyncio.StreamWriter, method: str, target: SplitResult, head: str) -> None:
        path, query = unquote(target.path).strip("/"), parse_qs(target.query)
        bucket, _, key = path.partition("/")
        file = self._folder / key
        if bucket != BUCKET or (key and not file.is_file()):
            self._say(
                writer, "404 Not Found", [], b"" if method == "HEAD" else b"<Error><Code>NoSuchKey</Code></Error>"
            )
        elif not key:
            self._say(
                writer, "200 OK", ["Content-Type: application/xml"], self._listed(query) if method == "GET" else b""
            )
        else:
            await self._sent(writer, method, file, head)

    def _listed(self, query: dict[str, list[str]]) -> bytes:
        prefix = query.get("prefix", [""])[0]
        keys = sorted(str(p.relative_to(self._folder)) for p in self._folder.rglob("*") if p.is_file())
        rows = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{(self._folder / key).stat().st_size}</Size>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for key in keys
            if key.startswith(prefix)
        )
        return (
            f"<ListBucketResult><Name>{BUCKET}</Name><IsTruncated>false</IsTruncated>{rows}</ListBucketResult>".encode()
        )

    async def _sent(self, writer: asyncio.StreamWriter, method: str, file: Path, head: str) -> None:
        info = file.stat()
        first, last, status = 0, info.st_size - 1, "200 OK"
        ranged = re.search(r"(?im)^range: *bytes=(\d*)-(\d*)", head)
        lines = [
            "Accept-Ranges: bytes",
            f'ETag: "{info.st_size:x}-{info.st_mtime_ns:x}"',
            f"Last-Modified: {formatdate(info.st_mtime, usegmt=True)}",
        ]
        if ranged:
            begin, end = ranged.groups()
            first = int(begin) if begin else info.st_size - int(end)
            last = min(int(end), last) if begin and end else last
            status = "206 Partial Content"
            lines.append(f"Content-Range: bytes {first}-{last}/{info.st_size}")
        self._say(writer, status, lines, b"", length=last + 1 - first)
        if method == "HEAD":
            return
        with file.open("rb") as opened:
            await asyncio.get_running_loop().sendfile(writer.transport, opened, first, last + 1 - first)

    def _say(
        self, writer: asyncio.StreamWriter, status: str, lines: list[str], body: bytes, length: int | None = None
    ) -> None:
        size = len(body) if length is None else length
        writer.write("\r\n".join([f"HTTP/1.1 {status}", f"Content-Length: {size}", *lines, "", ""]).encode() + body)
