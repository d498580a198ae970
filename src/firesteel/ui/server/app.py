"""The application: REST, events and pages, made of their tables, behind the guard."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route as Mounted

from firesteel.errors import FiresteelError, UsageError
from firesteel.ui.catalog.source import Conflict, Source
from firesteel.ui.pages import pages
from firesteel.ui.pages.templates import Asked
from firesteel.ui.server import openapi
from firesteel.ui.server.answers import JSON, Answer, NotAcceptable, answer
from firesteel.ui.server.guard import App, Guard, Policy, Scope, TooLarge
from firesteel.ui.server.openapi import Problem
from firesteel.ui.server.routes import ACTIONS, EVENTS, PREFIX, ROUTES, Parameter, Route
from firesteel.ui.server.workers import Busy, Shared, Workers
from firesteel.ui.views.structs import Pulse, UnknownThing

HTML = "text/html; charset=utf-8"
MOST_PARAMETERS = 64
_STATUS: tuple[tuple[type[FiresteelError], int], ...] = (
    (UnknownThing, 404),
    (NotAcceptable, 406),
    (Conflict, 409),
    (TooLarge, 413),
    (UsageError, 400),
    (Busy, 503),
    (FiresteelError, 502),
)
_LONGEST_AGE = "max-age=3600"
_log = logging.getLogger("firesteel.ui")


def application(source: Source, policy: Policy, workers: Workers) -> App:
    """The ASGI application."""
    return Guard(_Site(source, workers).starlette(), policy, refusal)


def refusal(scope: Scope, status: int, message: str, hint: str) -> tuple[bytes, str]:
    """The body of an answer that something is wrong, and its media type: a page, or JSON where REST was asked."""
    if scope["path"].startswith(f"{PREFIX}/"):
        return msgspec.json.encode(Problem(error=message, hint=hint or None)), JSON
    return pages.error_page(Asked(root=scope.get("root_path") or ""), status, message, hint).encode(), HTML


def status_of(error: FiresteelError) -> int:
    return next(status for kind, status in _STATUS if isinstance(error, kind))


class _Site:
    def __init__(self, source: Source, workers: Workers) -> None:
        self._source = source
        self._workers = workers
        self._shared = Shared[Answer](lambda made: len(made.body))
        self._pulses = Shared[Pulse](lambda made: 1000)
        self._channels = Channels(self._look)

    def starlette(self) -> Starlette:
        routes = [
            Mounted(EVENTS, self._events),
            *(Mounted(PREFIX + route.path, self._rest(route), methods=[route.method]) for route in ROUTES),
            Mounted(f"{PREFIX}/openapi.json", self._fixed(_document)),
            Mounted(f"{PREFIX}/docs", self._fixed(_docs)),
            Mounted(PREFIX, _to_docs),
            *(Mounted(f"/files/{name}", self._file(name, media)) for name, media in pages.FILES.items()),
            *(Mounted(page.path, self._page(page)) for page in pages.ROUTES),
            *(Mounted(f"/jobs/{{id}}/{name}", self._action(name), methods=["POST"]) for name in ACTIONS),
        ]
        handlers: Any = {FiresteelError: _failed, HTTPException: _http_failed, Exception: _broken}
        return Starlette(routes=routes, exception_handlers=handlers)

    # --- REST ---

    def _rest(self, route: Route) -> Any:
        async def endpoint(request: Request) -> Response:
            values = await _values(route, request)
            if route.changes:
                await self._workers.run(lambda: route.call(self._source, **values))
                return Response(status_code=202)
            accepted = request.headers.get("accept", "")

            def make() -> Answer:
                return answer(route.call(self._source, **values), accepted, route.item)

            made = await self._shared.get((request.url.path, request.url.query, accepted), make, self._workers)
            return _response(request, made)

        return endpoint

    async def _events(self, request: Request) -> Response:
        id = request.path_params["id"]
        pulse = await self._pulses.get(id, lambda: self._source.pulse(id), self._workers)
        if pulse.is_over:
            return Response(status_code=204)  # a browser does not ask again
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(self._channels.listen(id), media_type="text/event-stream", headers=headers)

    async def _look(self, id: str, version: int) -> Pulse | None:
        pulse = await self._pulses.get(id, lambda: self._source.pulse(id), self._workers)
        return None if pulse.version == version and not pulse.is_over else pulse

    # --- pages ---

    def _page(self, page: pages.Route) -> Any:
        async def endpoint(request: Request) -> Response:
            asked = _asked(request)

            def make() -> Answer:
                return Answer(200, page.render(self._source, asked).encode("utf-8", "replace"), HTML)

            made = await self._shared.get((request.url.path, request.url.query, HTML), make, self._workers)
            return _response(request, made)

        return endpoint

    def _action(self, name: str) -> Any:
        async def endpoint(request: Request) -> Response:
            id = request.path_params["id"]
            given = {**_fields(await request.body()), "id": id}
            action = ACTIONS[name]
            values = {each.name: _value(each, given.get(each.name, "").strip()) for each in action.parameters}
            await self._workers.run(lambda: action.call(self._source, **values))
            root = request.scope.get("root_path") or ""
            return RedirectResponse(f"{root}/jobs/{id}", status_code=303)

        return endpoint

    def _file(self, name: str, media: str) -> Any:
        async def endpoint(request: Request) -> Response:
            return _response(request, Answer(200, pages.file(name), media), _LONGEST_AGE)

        return endpoint

    def _fixed(self, make: Callable[[str], tuple[bytes, str]]) -> Any:
        async def endpoint(request: Request) -> Response:
            body, media = make(request.scope.get("root_path") or "")
            return _response(request, Answer(200, body, media))

        return endpoint


def _document(root: str) -> tuple[bytes, str]:
    return openapi.document(), JSON


def _docs(root: str) -> tuple[bytes, str]:
    return openapi.page(root).encode(), HTML


async def _to_docs(request: Request) -> Response:
    return RedirectResponse(f"{request.scope.get('root_path') or ''}{PREFIX}/docs")


def _response(request: Request, made: Answer, age: str = "no-cache") -> Response:
    """304 where the reader has it already."""
    headers = {"ETag": made.tag, "Cache-Control": age, **made.headers}
    known = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
    if made.status == 200 and (made.tag in known or "*" in known):
        return Response(status_code=304, headers=headers)
    return Response(made.body, made.status, headers=headers, media_type=made.media)


def _asked(request: Request) -> Asked:
    query = _fields(request.url.query.encode("latin-1", "replace"))
    return Asked(dict(request.path_params), query, request.scope.get("root_path") or "")


def _fields(text: bytes) -> dict[str, str]:
    """Of a query, or a form. Of one that is given twice the last counts. Raises UsageError."""
    try:
        pairs = parse_qsl(text.decode("ascii", "replace"), keep_blank_values=True, max_num_fields=MOST_PARAMETERS)
    except ValueError:
        raise UsageError(f"There are more than {MOST_PARAMETERS} parameters.") from None
    return dict(pairs)


async def _values(route: Route, request: Request) -> Mapping[str, Any]:
    """The request's parameters, all of them, by name. Raises UsageError, and UnknownThing for a path that there cannot be."""
    query = _fields(request.url.query.encode("latin-1", "replace"))
    body = await _body(route, request)
    told = {"path": request.path_params, "query": query, "body": body}
    values = {each.name: _value(each, told[each.where].get(each.name)) for each in route.parameters}
    own = {each.name for each in route.parameters if each.where == "query"}
    others = {name: value for name, value in query.items() if name not in own}
    if others and not route.others:
        there = ", ".join(sorted(own)) or "none"
        raise UsageError(f"There is no parameter '{next(iter(others))[:80]}' here.", hint=f"There are: {there}.")
    _check_body(route, body)
    return {**values, **route.fixed, **({"values": others} if route.others else {})}


async def _body(route: Route, request: Request) -> Mapping[str, Any]:
    written = await request.body()
    if not written.strip():
        return {}
    if not route.changes:
        raise UsageError("This request takes no body.")
    try:
        return msgspec.json.decode(written, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UsageError(f"The body is not a JSON object: {error}.") from None


def _check_body(route: Route, body: Mapping[str, Any]) -> None:
    own = {each.name for each in route.parameters if each.where == "body"}
    odd = next((name for name in body if name not in own), None)
    if odd is not None:
        raise UsageError(
            f"There is no field '{odd[:80]}' here.", hint=f"There are: {', '.join(sorted(own)) or 'none'}."
        )


def _value(parameter: Parameter, given: Any) -> Any:
    if given is None or given == "":
        return parameter.default
    if parameter.kind == "string":
        return str(given)
    number = _integer(given) if parameter.kind == "integer" else _number(given)
    if number is None:
        wrong = f"'{str(given)[:40]}' is no {parameter.kind} from 0 on: that is what '{parameter.name}' is."
        raise UnknownThing(wrong) if parameter.where == "path" else UsageError(wrong)
    return number


def _integer(given: Any) -> int | None:
    if isinstance(given, bool) or (isinstance(given, str) and (not given.isascii() or not given.isdecimal())):
        return None
    if isinstance(given, str):
        return int(given) if len(given) <= 12 else None
    return given if isinstance(given, int) and given >= 0 else None


def _number(given: Any) -> float | None:
    try:
        found = float(given)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if 0 <= found < float("inf") else None


# --- what goes wrong ---


async def _failed(request: Request, error: FiresteelError) -> Response:
    return _told(request, status_of(error), error.message, error.hint or "")


async def _http_failed(request: Request, error: HTTPException) -> Response:
    if error.status_code == 404:
        return _told(request, 404, "There is no such page.", "")
    return _told(request, error.status_code, f"{error.detail}.", "")


async def _broken(request: Request, error: Exception) -> Response:
    _log.error("%s %s could not be answered.", request.method, request.url.path, exc_info=error)
    return _told(request, 500, "The server could not do this.", "Its log says more.")


def _told(request: Request, status: int, message: str, hint: str) -> Response:
    body, media = refusal(request.scope, status, message, hint)
    headers = {"Cache-Control": "no-store", **({"Retry-After": "2"} if status == 503 else {})}
    return Response(body, status, media_type=media, headers=headers)


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
