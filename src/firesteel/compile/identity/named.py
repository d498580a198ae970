"""Things that go by name: statements of the user's modules, each with those that it needs, and libraries by their versions."""

from __future__ import annotations

import builtins
import sys
import types
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from firesteel.compile.identity.code import CodeFacts, Import
from firesteel.compile.identity.facts import digest, of_names
from firesteel.compile.identity.modules import Source, Statement, absolute, library_version
from firesteel.compile.identity.pure import resolved

if TYPE_CHECKING:
    from firesteel.compile.identity.walk import Walk

ALWAYS = ("firesteel", "numpy", "pyarrow")
"""Libraries that count for every vertex."""
Path = tuple[str, ...]


def reference(walk: Walk, module: str, qualname: str) -> bytes:
    """Returns what stands for a function or class that workers import."""
    return _named(walk, module, tuple(qualname.split(".")))


def of_module(walk: Walk, module: types.ModuleType, path: Path = ()) -> bytes:
    """Returns what stands for a module, or for what it has at this path of attributes."""
    users = walk.known.modules.users  # of whose modules the source tells what a name is
    while path and not users(module.__name__) and isinstance(vars(module).get(path[0]), types.ModuleType):
        module, path = vars(module)[path[0]], path[1:]
    if is_by_value(module.__name__) and path:
        value = vars(module).get(path[0])
        return walk.item(("global", walk.known.namespace(vars(module)), path[0]), lambda: digest(walk.encoded(value)))
    if sys.modules.get(module.__name__) is not module or is_by_value(module.__name__):
        return walk.unknowable(f"uses a module that was made while the program ran ({module.__name__})")
    return _named(walk, module.__name__, path)


def is_by_value(module: str) -> bool:
    """The user has told cloudpickle to ship what is in this module by value."""
    registered = getattr(sys.modules.get("pyspark.cloudpickle.cloudpickle"), "_PICKLE_BY_VALUE_MODULES", ())
    parts = module.split(".")
    return any(".".join(parts[: count + 1]) in registered for count in range(len(parts))) if registered else False


def code(walk: Walk, facts: CodeFacts, package: str) -> None:
    """Looks into what code imports and reads of anything. ``package``: where relative imports begin."""
    walk.reads(facts.attributes, facts.attributes | {name for name, _ in facts.reads}, facts.texts)
    for one in facts.imports:
        _imported(walk, one, package)
    for module, path in sorted(facts.borrowed):
        if not walk.known.modules.users(module):
            walk.uses(*resolved(module, path))


def _imported(walk: Walk, one: Import, package: str) -> None:
    module = absolute(one, package)
    if not walk.known.modules.users(module):
        note_library(walk, module.partition(".")[0])
        return
    for path in [(name,) for name in one.names] or [()]:
        _named(walk, module, path)


def _named(walk: Walk, module: str, path: Path) -> bytes:
    if walk.known.modules.users(module):
        _users(walk, module, path)
    else:
        walk.uses(*resolved(module, path))
        note_library(walk, module.partition(".")[0])
    return b"n" + of_names(module, *path)


def note_library(walk: Walk, top: str) -> None:
    """Adds the version of a library, by its top-level module."""
    walk.reached.add(top)
    if top in (*ALWAYS, "__main__"):
        return
    version = library_version(top)
    if version is None:
        walk.item(("library", top), lambda: walk.unknowable(f"uses {top}, of which no version is known"))
    elif version:
        walk.item(("library", top), lambda: of_names(version))
        walk.note(f"library {top}", of_names(version), version)


# --- the user's modules -----------------------------------------------------------------------------------------------


def _users(walk: Walk, module: str, path: Path) -> None:
    """Adds the statements that this path of attributes needs; empty: all of the module."""
    source = walk.known.source(module)
    if source is None:
        walk.item(("module", module), partial(_without_source, walk, module))
        return
    _run_by_import(walk, module)
    if not path or path == ("*",):
        walk.item(("module", module), partial(_whole, walk, source))
        return
    name, rest = path[0], path[1:]
    found = source.binding(name)
    if any(name not in statement.origins for statement in found):
        walk.item(("source", module, name), partial(_binding, walk, source, name))
    for origin in dict.fromkeys(statement.origins[name] for statement in found if name in statement.origins):
        _origin(walk, module, name, origin, rest)
    if not found:
        _unbound(walk, source, name, rest)


def _origin(walk: Walk, module: str, name: str, origin: tuple[str, str | None], rest: Path) -> None:
    """Of what is imported under this name."""
    target, attribute = origin
    if (target, attribute) == (module, name):  # a package's own module
        target, attribute = f"{module}.{name}", None
    path = ((attribute,) if attribute else ()) + rest
    key = ("import", module, name, target, *path)
    walk.item(key, lambda: _named(walk, target, path))  # once: two modules may import from each other


def _unbound(walk: Walk, source: Source, name: str, rest: Path) -> None:
    """A name that no statement binds: a module of the package, or what comes with a star, or is made while it runs."""
    if walk.known.modules.file(f"{source.name}.{name}") is not None:
        walk.item(("import", source.name, name, *rest), lambda: _named(walk, f"{source.name}.{name}", rest))
        return
    for module in source.starred:
        walk.item(("import", source.name, "*", module, name, *rest), lambda m=module: _named(walk, m, (name, *rest)))
    if not source.starred and not (name.startswith("__") and name.endswith("__")):
        walk.item(("module", source.name), partial(_whole, walk, source))


def _binding(walk: Walk, source: Source, name: str) -> bytes:
    statements = [statement for statement in source.binding(name) if name not in statement.origins]
    found = _looked_into(walk, source, statements, f"{source.name}.{name}")
    walk.note(
        f"{statements[-1].kind} {'of ' if statements[-1].kind == 'code' else ''}{source.name}.{name}",
        found,
        statements[-1].shown,
    )
    return found


def _whole(walk: Walk, source: Source) -> bytes:
    found = _looked_into(walk, source, source.statements, source.name)
    for statement in source.statements:
        for name, origin in statement.origins.items():
            _origin(walk, source.name, name, origin, ())
    for module in source.starred:
        _named(walk, module, ())
    walk.note(f"code of module {source.name}", found)
    return found


def _run_by_import(walk: Walk, module: str) -> None:
    """Adds all that importing the module does besides binding names, its packages' own first."""
    parts = module.split(".")
    for count in range(1, len(parts) + 1):
        name = ".".join(parts[:count])
        source = walk.known.source(name)
        if source is not None:
            walk.item(("run", name), partial(_run, walk, source))


def _run(walk: Walk, source: Source) -> bytes:
    for name in source.imported:
        if walk.known.modules.users(name) and walk.known.source(name) is not None:
            _run_by_import(walk, name)
    if not source.doing_more:
        return b""
    found = _looked_into(walk, source, source.doing_more, source.name)
    walk.note(f"code of what importing {source.name} does", found)
    return found


def _without_source(walk: Walk, module: str) -> bytes:
    file = walk.known.modules.file(module)
    if file is None or file.is_python:
        return walk.unknowable(f"uses the module {module}, whose source cannot be read")
    walk.uses(module)
    walk.note(f"code of module {module}", digest(file.source))
    return digest(file.source)


def _looked_into(walk: Walk, source: Source, statements: Iterable[Statement], where: str) -> bytes:
    """A digest of the statements; what they read is added."""
    file = walk.known.modules.file(source.name)
    package = file.package if file is not None else ""
    parts: list[bytes] = []
    with walk.within(where):
        for statement in statements:
            parts.append(statement.facts.digest)
            if statement.kind != "import":
                code(walk, statement.facts, package)
                _read(walk, source, statement)
    return digest(*parts)


def _read(walk: Walk, source: Source, statement: Statement) -> None:
    for name, path in statement.facts.reads:
        if source.binding(name):
            _users(walk, source.name, (name, *path))
        elif hasattr(builtins, name):
            walk.uses("builtins", (name,))
            _instead_of_builtin(walk, source, name)
        elif source.starred:
            _unbound(walk, source, name, path)
        elif name.startswith("__"):  # ``__file__``: where the module lies
            walk.uses(source.name, (name,))


def _instead_of_builtin(walk: Walk, source: Source, name: str) -> None:
    """Adds what comes with a star, which may stand for a builtin."""
    for module in source.starred:
        other = walk.known.source(module)
        if other is not None and (other.binding(name) or other.starred):
            _users(walk, module, (name,))
