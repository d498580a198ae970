"""Events of OpenLineage held against its classes, which are generated from its JSON schemas: names, types, and what must be there, by the ``_schemaURL`` of each part.

With ``OPENLINEAGE_SPEC``, the folder ``spec`` of a checkout of OpenLineage, they are held against the schemas themselves, too. Our own facet is held
against the schema in the package.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import sys
import typing
from collections.abc import Iterator
from datetime import datetime
from enum import Enum
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

import attr
from jsonschema import Draft202012Validator, FormatChecker
from openlineage.client import generated
from openlineage.client.event_v2 import RunEvent
from openlineage.client.generated import base
from referencing import Registry, Resource

from firesteel.monitoring import openlineage as facets

OURS = Path(facets.__file__).parent / "DecisionsRunFacet.json"
CORE = "https://openlineage.io/spec/2-0-2/OpenLineage.json"
RUN_FACET = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$id": CORE,
    "$defs": {
        "RunFacet": {
            "type": "object",
            "properties": {"_producer": {"type": "string"}, "_schemaURL": {"type": "string"}},
            "required": ["_producer", "_schemaURL"],
        }
    },
}
"""All that our own facet takes from OpenLineage's schema."""


def validated(event: dict[str, Any]) -> dict[str, Any]:
    """The event. Raises AssertionError, and ``jsonschema.ValidationError``."""
    _check_object(event, RunEvent)
    for facet in _facets(event):
        url = facet["_schemaURL"]
        if url.startswith(facets.SCHEMA):
            _by_schema(facet, url)
        else:
            _check_object(facet, _classes()[url])
    if _SPEC:
        for part, url in [(event, event["schemaURL"]), *((facet, facet["_schemaURL"]) for facet in _facets(event))]:
            _by_schema(part, url)
    return event


def _facets(part: Any) -> Iterator[dict[str, Any]]:
    if isinstance(part, dict):
        if "_schemaURL" in part:
            yield part
        for value in part.values():
            yield from _facets(value)
    elif isinstance(part, list):
        for value in part:
            yield from _facets(value)


# --- by classes ------------------------------------------------------------------------------------------------------


@cache
def _classes() -> dict[str, type]:
    """By the URL of their schemas."""
    modules = [
        importlib.import_module(f"{generated.__name__}.{m.name}") for m in pkgutil.iter_modules(generated.__path__)
    ]
    kinds = [kind for module in modules for kind in vars(module).values() if isinstance(kind, type)]
    return {kind._get_schema(): kind for kind in kinds if hasattr(kind, "_get_schema") and kind._get_schema()}


def _check_object(value: Any, kind: type) -> None:
    assert isinstance(value, dict), (value, kind)
    hints = get_type_hints(kind, {**vars(typing), **vars(base), **vars(sys.modules[kind.__module__])})
    fields = {field.name: field for field in attr.fields(kind)}
    assert set(value) <= set(fields), f"{kind.__name__} has no {set(value) - set(fields)}"
    missing = {name for name, field in fields.items() if field.default is attr.NOTHING} - set(value)
    assert not missing, f"{kind.__name__} lacks {missing}"
    for name, part in value.items():
        assert _fits(part, hints[name]), f"{kind.__name__}.{name} is {part!r}"


def _fits(value: Any, hint: Any) -> bool:
    origin, inside = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, one) for one in inside)
    if origin is list:
        return isinstance(value, list) and all(_fits(one, inside[0]) for one in value)
    if origin is dict:
        return isinstance(value, dict) and all(_fits(one, inside[1]) for one in value.values())
    if hint is Any:
        return True
    if isinstance(hint, type) and issubclass(hint, Enum):
        return value in {one.value for one in hint}
    if attr.has(hint):
        if "_schemaURL" not in value:  # facets are looked at one by one, as what they say they are
            _check_object(value, hint)
        return isinstance(value, dict)
    return isinstance(value, NoneType if hint is None else hint) and not (hint is int and isinstance(value, bool))


# --- by schemas ------------------------------------------------------------------------------------------------------

_SPEC = os.environ.get("OPENLINEAGE_SPEC", "")
_FORMATS = FormatChecker()


@_FORMATS.checks("date-time", ValueError)
def _is_moment(value: object) -> bool:
    return not isinstance(value, str) or datetime.fromisoformat(value).tzinfo is not None


@_FORMATS.checks("uri")
def _is_uri(value: object) -> bool:
    return not isinstance(value, str) or bool(urlsplit(value).scheme)


def _by_schema(instance: Any, url: str) -> None:
    Draft202012Validator({"$ref": url}, registry=_registry(), format_checker=_FORMATS).validate(instance)


@cache
def _registry() -> Registry[Any]:
    files = [*Path(_SPEC).glob("*.json"), *Path(_SPEC).glob("facets/*.json")] if _SPEC else []
    contents = [RUN_FACET, *(json.loads(path.read_text()) for path in (*files, OURS))]
    return Registry().with_resources([(c["$id"], Resource.from_contents(c)) for c in contents])
