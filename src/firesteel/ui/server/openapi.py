"""The OpenAPI document of the REST, and a plain page of it: both made of the table of routes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec

from firesteel.ui.pages import pages
from firesteel.ui.pages.templates import Asked
from firesteel.ui.server.answers import JSON, TABLES
from firesteel.ui.server.routes import EVENTS, PREFIX, ROUTES, Parameter, Route
from firesteel.ui.views.structs import Pulse, View

_REFERENCE = "#/components/schemas/{name}"


class Problem(View, frozen=True):
    """Says what was wrong with a request."""

    error: str
    """A sentence."""
    hint: str | None = None
    """Says what to do about it."""


@cache
def document() -> bytes:
    """OpenAPI 3.1, as JSON."""
    return msgspec.json.encode(_document())


def _document() -> dict[str, Any]:
    kinds = [kind for route in ROUTES for kind in route.returns]
    _, components = msgspec.json.schema_components([*kinds, Problem, Pulse], ref_template=_REFERENCE)
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    events = EVENTS.removeprefix(PREFIX)
    paths[events] = {"get": _events()}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Firesteel",
            "version": "1",
            "description": "Jobs and streams, live and from their journals. Times are seconds since a job began, bytes are plain.",
        },
        "servers": [{"url": PREFIX}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The server's token; also as the password of Basic.",
                }
            },
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    told: dict[str, Any] = {
        "summary": route.doc,
        "operationId": _operation_id(route),
        "parameters": [_parameter(each) for each in route.parameters if each.where != "body"],
        "responses": dict(_responses(route)),
    }
    if route.others:
        told["parameters"].append(
            {
                "name": "others", "in": "query", "description": route.others, "style": "form", "explode": True,
                "schema": {"type": "object", "additionalProperties": {"type": "string"}},
            }
        )  # fmt: skip
    body = [each for each in route.parameters if each.where == "body"]
    if body:
        schema = {
            "type": "object",
            "properties": {each.name: {"type": each.kind, "description": each.doc} for each in body},
        }
        told["requestBody"] = {"required": True, "content": {JSON: {"schema": schema}}}
    if route.changes:
        told["security"] = [{"token": []}]
    return told


def _operation_id(route: Route) -> str:
    parts = [part.strip("{}").replace("-", "_") for part in route.path.strip("/").split("/")]
    return "_".join([route.method.lower(), *parts])


def _parameter(one: Parameter) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": one.kind}
    if one.default not in (None, ""):
        schema["default"] = one.default
    return {
        "name": one.name,
        "in": one.where,
        "required": one.where == "path",
        "description": one.doc,
        "schema": schema,
    }


def _responses(route: Route) -> Iterator[tuple[str, dict[str, Any]]]:
    if not route.returns:
        yield "202", {"description": "It was taken in."}
        yield "401", _problem("The token is missing or wrong.")
        yield "409", _problem("It cannot be done with a job that is as it is.")
    else:
        schemas, _ = msgspec.json.schema_components(list(route.returns), ref_template=_REFERENCE)
        content: dict[str, Any] = {JSON: {"schema": schemas[0] if len(schemas) == 1 else {"oneOf": list(schemas)}}}
        if route.item is not None:
            content |= {media: {"schema": {"type": "string", "format": "binary"}} for media in TABLES}
        yield "200", {"description": "So it is.", "content": content}
        yield "304", {"description": "It is as it was (If-None-Match)."}
    yield "400", _problem("A value makes no sense.")
    yield "404", _problem("There is no such thing.")


def _problem(text: str) -> dict[str, Any]:
    return {"description": text, "content": {JSON: {"schema": {"$ref": "#/components/schemas/Problem"}}}}


def _events() -> dict[str, Any]:
    told = "Server-sent events of one that runs; the data of each is a Pulse. 204: it is over."
    content = {"text/event-stream": {"schema": {"type": "string"}}}
    return {
        "summary": told,
        "operationId": "get_jobs_id_events",
        "parameters": [_parameter(Parameter("id", doc="The job's id.", where="path"))],
        "responses": {"200": {"description": told, "content": content}, "204": {"description": "It is over."}},
    }


def page(root: str) -> str:
    """HTML. ``root``: before all addresses."""
    return pages.rest_page(
        Asked(root=root),
        [*map(_request, ROUTES), pages.Request("GET", EVENTS, "Live updates of one that runs, as server-sent events.")],
    )


def _request(route: Route) -> pages.Request:
    told = [(each.name, each.doc) for each in route.parameters if each.where != "path"]
    told += [("...", route.others)] if route.others else []
    token = " Needs the token." if route.changes else ""
    tables = " Also as Arrow and Parquet." if route.item is not None else ""
    return pages.Request(route.method, PREFIX + route.path, f"{route.doc}{token}{tables}", told)
