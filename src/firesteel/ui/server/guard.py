"""The guard before the application: who may ask, from where, how much, and for how long; and what browsers are told of each answer.

Against pages of other sites that reach for this server through the reader's browser: the Host must be one of this server's names (DNS
rebinding), an Origin must be the server's own (browsers name one with everything that could change something), and changes need the token:
the password of HTTP's Basic authentication, or a Bearer token. There are no cookies, which other servers of the same host would be sent.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import ipaddress
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from firesteel.errors import UsageError
from firesteel.ui.server.routes import EVENTS

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Refuse = Callable[[Scope, int, str, str], tuple[bytes, str]]
"""(request, status, sentence, hint) to body and media type."""

MOST_BODY = 1 << 16
MOST_TARGET = 1 << 13
"""Bytes of path and query."""
ANSWER_SECONDS = 60.0
"""For a request and its answer, but for events."""
SEND_SECONDS = 60.0
"""A reader of events who takes none for so long is let go."""
SAFE = frozenset({"GET", "HEAD"})
METHODS = SAFE | {"POST", "PATCH", "PUT"}
HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; "
        b"base-uri 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),  # "no-referrer" would hide the origin of our own forms, too
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)
_log = logging.getLogger("firesteel.ui")


@dataclass(frozen=True, slots=True)
class Policy:
    """``hosts``: names of this server, in small letters. ``any_address``: it may be called by any number of an address, too.
    ``readers_need_token``: nothing can be had without it."""

    token: str
    hosts: frozenset[str]
    any_address: bool = False
    readers_need_token: bool = False

    def knows_host(self, host: str) -> bool:
        name = _name_of(host)
        return name in self.hosts or (self.any_address and _is_address(name))


def _name_of(host: str) -> str:
    """Without the port."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


_Refusal = tuple[int, str, str]
"""Status, sentence, hint."""
_TOO_LONG = ("The body is too long.", f"At most {MOST_BODY} bytes are taken.")


class TooLarge(UsageError):
    """The body of a request is."""


class Guard:
    def __init__(self, app: App, policy: Policy, refuse: Refuse) -> None:
        self._app = app
        self._policy = policy
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            return
        answering = _Answering(scope, receive, send)
        refusal = self._refusal(scope, answering.headers)
        if refusal is not None:
            await self._say(scope, answering, *refusal)
            return
        try:
            async with asyncio.timeout(None if answering.is_stream else ANSWER_SECONDS):
                await self._app(scope, answering.receive, answering.send)
        except TimeoutError:
            await self._say(scope, answering, 503, "This took too long.", "Try again later.")

    def _refusal(self, scope: Scope, headers: dict[str, list[str]]) -> _Refusal | None:
        """None: it may pass."""
        hosts = headers.get("host", [])
        if len(hosts) != 1 or not self._policy.knows_host(hosts[0]):
            return 403, "This server is not called that.", "Use the address that it said when it began."
        if not _is_own(headers, hosts[0], scope["method"]):
            return 403, "A page of another site asked for this.", "Open this server's own page."
        needed = self._policy.readers_need_token or scope["method"] not in SAFE
        if needed and not self._has_token(headers.get("authorization", [])):
            return 401, "This needs the token.", "It is in the file that the server named when it began."
        return _oversized(scope, headers)

    def _has_token(self, said: list[str]) -> bool:
        if len(said) != 1:
            return False
        scheme, _, value = said[0].partition(" ")
        value = value.strip()
        if scheme.lower() == "basic":
            try:
                value = base64.b64decode(value, validate=True).decode("utf-8").partition(":")[2]
            except (binascii.Error, UnicodeDecodeError, ValueError):
                return False
        elif scheme.lower() != "bearer":
            return False
        return hmac.compare_digest(value.encode(), self._policy.token.encode())

    async def _say(self, scope: Scope, answering: _Answering, status: int, message: str, hint: str) -> None:
        """Nothing where the answer has begun: then its end is missing, which the other side notices."""
        if answering.has_begun:
            raise ConnectionResetError(message)
        body, media = self._refuse(scope, status, message, hint)
        headers = [(b"content-type", media.encode()), (b"content-length", str(len(body)).encode())]
        if status == 401:
            headers.append((b"www-authenticate", b'Basic realm="firesteel: the token as password", charset="UTF-8"'))
        if status in (413, 503):
            headers.append((b"connection", b"close"))
        await answering.send({"type": "http.response.start", "status": status, "headers": headers})
        await answering.send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


def _oversized(scope: Scope, headers: dict[str, list[str]]) -> _Refusal | None:
    if scope["method"] not in METHODS:
        return 405, "There is no such method here.", ""
    if len(scope.get("raw_path") or b"") + len(scope.get("query_string") or b"") > MOST_TARGET:
        return 414, "The address is too long.", ""
    lengths = headers.get("content-length", [])
    if lengths and (not lengths[0].isdecimal() or int(lengths[0][:20]) > MOST_BODY):
        return 413, *_TOO_LONG
    return None


def _is_own(headers: dict[str, list[str]], host: str, method: str) -> bool:
    """Does it come from a page of this server, or from no page at all? Links from elsewhere may be followed."""
    origins = headers.get("origin", [])
    if len(origins) > 1:
        return False
    if origins:
        try:
            return urlsplit(origins[0]).netloc.lower() == host.lower()
        except ValueError:
            return False
    site = headers.get("sec-fetch-site", ["none"])[0]
    return method in SAFE or site in ("same-origin", "none")


class _Answering:
    """One request and its answer, with limits."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._length = 0
        self.has_begun = False
        self.is_stream = _is_events(scope["path"])
        self.headers: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            self.headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))

    async def receive(self) -> Message:
        message = await self._receive()
        self._length += len(message.get("body") or b"")
        if self._length > MOST_BODY:
            raise TooLarge(_TOO_LONG[0], hint=_TOO_LONG[1])
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_begun = True
            message = {**message, "headers": [*message.get("headers", ()), *HEADERS]}
        async with asyncio.timeout(SEND_SECONDS):
            await self._send(message)


_BEFORE, _BEHIND = EVENTS.split("{id}")


def _is_events(path: str) -> bool:
    return path.startswith(_BEFORE) and path.endswith(_BEHIND) and "/" not in path[len(_BEFORE) : -len(_BEHIND)]
