"""Writes docs/api.md from the docstrings of the public names."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any

MODULES = ("firesteel", "firesteel.streaming", "firesteel.errors")
_GROUPS = (
    ("Environment", ("ExecutionEnvironment",)),
    ("Streams of rows", ("DataStream", "KeyedStream", "BroadcastStream")),
    ("Expressions, rows, aggregates, windows", ("functions", "arrow", "Row", "agg", "window")),
    ("Jobs", ("JobClient", "JobResult", "History")),
    ("Deciding without a job", ("decide", "Decided")),
    ("A decider of your own", ("VertexParallelismDecider", "UndecidedStep", "ConsumedResult")),
    ("Resources", ("SlotSharingGroup", "TaskResources", "task_resources")),
    ("A slow task detector of your own", ("SlowTaskStrategy", "StepTimes", "SlowTaskBaseline")),
    ("Connectors of your own", ("Source", "Split", "Sink", "SinkWriter")),
)
"""The order of the page; public names that are in none of them follow under "More"."""
_HIDDEN = {"model_computed_fields", "mro"}
_LINK = re.compile(r":(?:class|meth|func|mod|attr|data):`~?([^`]+)`")


def api_page() -> str:
    """docs/api.md: every public name with its signature and docstring."""
    package = importlib.import_module("firesteel")
    left = [name for name in package.__all__ if name != "errors"]
    parts = [
        "# API reference\n\nGenerated from the docstrings by `./dev docs`. All names are those of `firesteel`, unless a heading says "
        "otherwise. What a stream's\nsteps are for is told in [guide.md](guide.md)."
    ]
    for title, names in _GROUPS:
        parts += _section(title, [(name, getattr(package, name)) for name in names if name in left])
        left = [name for name in left if name not in names]
    if left:
        parts += _section("More", [(name, getattr(package, name)) for name in sorted(left)])
    for module in MODULES[1:]:
        parts += _section(f"`{module}`", list(_public(importlib.import_module(module))))
    return "\n\n".join(parts) + "\n"


def dictionary() -> str:
    """PySpark's names, and what to write for them."""
    from pyspark.sql import Column, DataFrame, GroupedData, SparkSession, functions

    import firesteel
    from firesteel.api import unknown_names as told

    keyed = {**told.ELSEWHERE, **told.ELSEWHERE_KEYED}
    parts: list[str] = []
    for theirs, ours, elsewhere in (
        (DataFrame, firesteel.DataStream, told.ELSEWHERE),
        (GroupedData, firesteel.KeyedStream, keyed),
        (Column, firesteel.functions.Column, told.ELSEWHERE_COLUMN),
        (SparkSession, firesteel.ExecutionEnvironment, told.ELSEWHERE_ENVIRONMENT),
        (functions, firesteel.functions, {}),
    ):
        known = getattr(theirs, "__all__", None) or dir(theirs)
        names = sorted({name for name in known if name[0].islower()}, key=str.lower)
        there = set(getattr(ours, "__all__", None) or dir(ours))
        others = [name for name in names if name not in there]
        said = ", ".join(f"`{name}`" for name in names if name in there)
        parts.append(f"**{theirs.__name__.rpartition('.')[2]}** and here: {said}.")
        if elsewhere:
            rows = [f"| `{name}` | {elsewhere[name]} |" for name in others if name in elsewhere]
            parts.append("\n".join(["| PySpark | here |", "|---|---|", *rows]))
        if theirs is not functions:
            parts.append(f"Not here: {', '.join(f'`{name}`' for name in others if name not in elsewhere)}.")
    return "\n\n".join(parts)


def _public(module: Any) -> Iterator[tuple[str, Any]]:
    """What a module says is public, or else what it defines, in the order of its source."""
    names = getattr(module, "__all__", None)
    if names is None:
        own = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
        names = [name for name in own if not name.startswith("_")]
    for name in names:
        yield name, getattr(module, name)


def _section(title: str, entries: list[tuple[str, Any]]) -> list[str]:
    parts = [f"## {title}"]
    for name, value in entries:
        if inspect.isclass(value):
            parts += _class(name, value)
        elif inspect.ismodule(value):
            parts.append(f"### {name}\n\n{_doc(value)}")
            told = [(own, one) for own, one in _public(value) if _doc(one)]
            for own, one in told:
                parts += _class(own, one) if inspect.isclass(one) else [_entry("####", f"{name}.{own}", own, one)]
            rest = [f"`{own}{_signature(one)}`" for own, one in _public(value) if not _doc(one)]
            parts += [f"Without more words: {', '.join(rest)}."] if rest else []
        else:
            parts.append(_entry("###", name, name, value))
    return parts


def _class(name: str, value: type) -> list[str]:
    makes = f"`{name}{_signature(value)}`\n\n" if _is_made_by_users(value) else ""
    bases = [f"[{base.__name__}](#{base.__name__.lower()})" for base in value.__mro__[1:] if _is_public(base)]
    has = f"\n\nHas all that {' and '.join(bases)} has." if bases else ""
    parts = [f"### {name}\n\n{makes}{_doc(value)}{has}"]
    aliases: dict[str, list[str]] = {}
    members = list(_members(value))
    first = {}
    for member, attribute in members:
        function = getattr(attribute, "__func__", attribute)
        first.setdefault(function if callable(function) else (member, id(attribute)), member)
    for member, attribute in members:
        function = getattr(attribute, "__func__", attribute)
        own = first[function if callable(function) else (member, id(attribute))]
        if own != member:
            aliases.setdefault(own, []).append(member)
    skipped = {alias for found in aliases.values() for alias in found}
    for member, attribute in members:
        if member not in skipped:
            parts.append(_entry("####", f"{name}.{member}", member, attribute, aliases.get(member, [])))
    return parts


def _members(value: type) -> Iterator[tuple[str, Any]]:
    """Public attributes with a docstring: base classes' first, each in the order of its source; the nearest definition counts."""
    seen: set[str] = set()
    documented = {owner for owner in value.__mro__[1:] if _is_public(owner)}
    inherited = {base for owner in documented for base in owner.__mro__}
    for owner in reversed(value.__mro__):
        if not owner.__module__.startswith("firesteel") or owner in inherited:
            continue
        for name in vars(owner):
            if name.startswith("_") or name in seen or name in _HIDDEN:
                continue
            attribute = inspect.getattr_static(value, name)
            seen.add(name)
            if callable(getattr(attribute, "__func__", attribute)) or _getter(attribute) is not None:
                yield name, attribute


def _getter(attribute: Any) -> Any:
    """The function behind a property; None for what is none."""
    if isinstance(attribute, property):
        return attribute.fget
    return attribute.func if isinstance(attribute, cached_property) else None


def _is_public(value: type) -> bool:
    """Has an entry of its own on the page."""
    package = importlib.import_module("firesteel")
    return value.__name__ in package.__all__ and getattr(package, value.__name__) is value


def _is_made_by_users(value: type) -> bool:
    made = inspect.getattr_static(value, "__init__", None)
    doc = inspect.getdoc(made) or ""
    return (
        not getattr(value, "_is_protocol", False) and "not by users" not in doc and not issubclass(value, BaseException)
    )


def _entry(level: str, title: str, name: str, value: Any, aliases: list[str] | None = None) -> str:
    if getter := _getter(value):
        head, doc = f"`{name}`", _doc(getter)
        answer = inspect.signature(getter).return_annotation
        head = f"`{name}: {answer}`" if answer is not inspect.Signature.empty else head
    else:
        function = getattr(value, "__func__", value)
        head, doc = f"`{name}{_signature(function)}`", _doc(function)
    also = f"\n\nAlso: {', '.join(f'`{alias}`' for alias in aliases)}." if aliases else ""
    return f"{level} {title}\n\n{head}\n\n{doc}{also}".rstrip()


def _signature(value: Any) -> str:
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return "(...)"
    kept = [p.replace(annotation=_Plain.of(p.annotation)) for p in signature.parameters.values()]
    kept = [p for p in kept if p.name not in ("self", "cls")]
    return str(signature.replace(parameters=kept, return_annotation=_Plain.of(signature.return_annotation)))


class _Plain(str):
    """An annotation that is written as it stands in the source, without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)

    @classmethod
    def of(cls, annotation: Any) -> Any:
        return cls(annotation) if isinstance(annotation, str) else annotation


def _doc(value: Any) -> str:
    """The docstring as Markdown: roles of Sphinx become code; code in double backticks, single ones."""
    text = inspect.cleandoc(getattr(value, "__doc__", None) or "")
    text = _LINK.sub(lambda found: f"`{found[1].removeprefix('firesteel.')}`", text)
    return text.replace("``", "`")
