"""Modules: the user's own, found as files without importing them, and libraries, known by their versions.

Library is what is installed, of the standard library, or ours. All else is the user's, and may change between two runs.

A module of the user's is read statement by statement. A function needs the statements that bind the names it reads, and the statements that
those need in turn. A statement that may do more than bind a name counts for everything that uses the module: a call, a decorator, a class
with a base that may register it.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import importlib.machinery
import importlib.metadata
import importlib.util
import os
import platform
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeGuard

from firesteel.compile.identity.code import CodeFacts, Import, code_facts
from firesteel.errors import OURS

_SPARK = ("pyspark", "py4j")
"""Wherever they lie: Spark's folder may be on the path."""
_INSTALLED = ("site-packages", "dist-packages")


@dataclass(frozen=True, slots=True)
class ModuleFile:
    """``source``: of a module that is no Python source (an extension), its bytes. ``is_package``: its modules lie below it."""

    name: str
    source: bytes
    is_package: bool
    is_python: bool = True

    @property
    def package(self) -> str:
        """The package that its relative imports begin at."""
        return self.name if self.is_package else self.name.rpartition(".")[0]


class Modules:
    """Modules as they are now: each is looked for, and read, once."""

    def __init__(self) -> None:
        self._files: dict[str, ModuleFile | None] = {}
        self._places: dict[str, Path | None] = {}

    def users(self, name: str) -> bool:
        """Returns whether it is the user's own."""
        top = name.partition(".")[0]
        if top not in self._places:
            self._places[top] = _place(top)
        return self._places[top] is not None

    def file(self, name: str) -> ModuleFile | None:
        """The file of a module of the user's; None: there is none, or it cannot be read."""
        if name not in self._files:
            self._files[name] = self._read(name) if self.users(name) else None
        return self._files[name]

    def _read(self, name: str) -> ModuleFile | None:
        top, *parts = name.split(".")
        place = self._places[top]
        assert place is not None, "the user's own has a place"
        if parts and place.is_dir():
            place = place.joinpath(*parts)
        elif parts:
            return None
        with suppress(OSError):
            for path, is_package in _candidates(place):
                if path.is_file():
                    return ModuleFile(name, path.read_bytes(), is_package, path.suffix == ".py")
            if place.is_dir():  # a package without __init__.py
                return ModuleFile(name, b"", True)
        return _zipped(name)


def _candidates(place: Path) -> Iterator[tuple[Path, bool]]:
    if place.suffix == ".py" or place.suffix in (".so", ".pyd"):
        yield place, False
        return
    yield place / "__init__.py", True
    yield place.with_name(f"{place.name}.py"), False
    yield from ((place.with_name(place.name + end), False) for end in importlib.machinery.EXTENSION_SUFFIXES)


def _zipped(name: str) -> ModuleFile | None:
    """From an archive on the path, once it was imported."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    source = getattr(getattr(spec, "loader", None), "get_source", None)
    with suppress(ImportError, OSError, UnicodeError):
        text = None if source is None else source(name)
        if text is not None:
            return ModuleFile(name, text.encode(), getattr(spec, "submodule_search_locations", None) is not None)
    return None


def _place(top: str) -> Path | None:
    """The file, or a package's folder, of a top-level module of the user's; None: it is a library, or there is no such module."""
    if top in ("__main__", "firesteel", *_SPARK):
        return None
    module = sys.modules.get(top)
    names: dict[str, Any] = {} if module is None else vars(module)  # it may make others when it is asked
    spec = names.get("__spec__")
    if module is None:
        try:
            spec = importlib.util.find_spec(top)
        except Exception:  # finders of others may do anything
            return None
        if spec is None:
            return None
    folders = list(names.get("__path__") or getattr(spec, "submodule_search_locations", None) or ())
    file = names.get("__file__") or getattr(spec, "origin", None)
    found = folders[0] if folders else file
    if not isinstance(found, str):
        return None if module is None else Path(f"<{top}>")  # made at run time: the user's, and of no file
    path = Path(found)
    if top in sys.stdlib_module_names and not path.exists():  # built-in, frozen, or in an archive with Python
        return None
    return None if is_installed(path) or is_installed(path.resolve()) else path


def is_installed(path: Path) -> bool:
    """True if it lies with Python, among installed packages, or with us."""
    text = f"{path}/"
    return any(f"/{name}/" in text for name in _INSTALLED) or text.startswith(_installed_under())


@cache
def _installed_under() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    return (*(f"{paths[kind]}/" for kind in ("stdlib", "platstdlib", "purelib", "platlib")), OURS)


def python_version() -> str:
    """Of the interpreter, by which bytecode and the standard library are the same."""
    return f"{platform.python_implementation()} {'.'.join(map(str, sys.version_info[:2]))}"


def local_time() -> str:
    """The time zone that ``datetime.timestamp`` and ``time.mktime`` take."""
    return f"{os.environ.get('TZ', '')} {os.path.realpath('/etc/localtime')} {' '.join(time.tzname)}"


@cache
def library_version(top: str) -> str | None:
    """Of an installed library, by its top-level module; empty: it is part of Python; None: nobody says."""
    if top in sys.stdlib_module_names or top in sys.builtin_module_names or top == "builtins":
        return ""
    told = vars(sys.modules[top]).get("__version__") if top in sys.modules else None
    if isinstance(told, str) and told:
        return told
    with suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(top)
    with suppress(Exception):  # finders of others may do anything
        if top not in sys.modules and importlib.util.find_spec(top) is None:
            return "not installed"
    names = sorted(set(importlib.metadata.packages_distributions().get(top, ())))
    return " ".join(f"{name} {importlib.metadata.version(name)}" for name in names) or None


@dataclass(frozen=True, slots=True)
class Statement:
    """``binds``: names; ``shown``: of a plain constant, itself. ``origins``: of an import, by name the module and what of it is bound
    (None: itself). ``kind``: "code", "global" or "import", for people."""

    facts: CodeFacts
    binds: frozenset[str]
    only_binds: bool
    kind: str
    shown: str = ""
    origins: dict[str, tuple[str, str | None]] = field(default_factory=dict[str, tuple[str, str | None]])


@dataclass(frozen=True, slots=True)
class Source:
    """``starred``: modules of which all is imported. ``bound``: statements by the names that they bind."""

    name: str
    statements: tuple[Statement, ...]
    starred: tuple[str, ...]
    bound: dict[str, list[Statement]]

    def binding(self, name: str) -> list[Statement]:
        """All statements that bind the name."""
        return self.bound.get(name, [])

    @property
    def doing_more(self) -> list[Statement]:
        return [statement for statement in self.statements if not statement.only_binds]

    @property
    def imported(self) -> list[str]:
        """Names of modules, and of what may be one, whose statements run when this one is imported."""
        origins = [origin for statement in self.statements for origin in statement.origins.values()]
        names = [name for module, what in origins for name in (module, f"{module}.{what}") if what or name == module]
        return list(dict.fromkeys([*names, *self.starred]))


def source_of(file: ModuleFile, users: Callable[[str], bool]) -> Source:
    """``users``: is the module of this name the user's own? Raises SyntaxError, ValueError, RecursionError for what cannot be compiled."""
    readings = _readings(file)
    for answers, source in readings:
        if all(users(module) is answer for module, answer in answers.items()):
            return source
    answers: dict[str, bool] = {}
    source = _read(file, lambda module: answers.setdefault(module, users(module)))
    readings.append((answers, source))
    return source


@lru_cache(maxsize=256)
def _readings(file: ModuleFile) -> list[tuple[dict[str, bool], Source]]:
    """For the jobs to come: what was read in the file, with what was known of the modules that it imports."""
    return []


def _read(file: ModuleFile, users: Callable[[str], bool]) -> Source:
    tree = ast.parse(file.source)
    flags = 0
    for node in filter(_is_future, tree.body):
        for alias in node.names:
            flags |= getattr(__future__, alias.name).compiler_flag
    body = [node for node in tree.body if not (_is_future(node) or _never_runs(node) or _is_text(node))]
    body = tree.body[:1] * _is_text(tree.body[0]) + body if tree.body else body
    names = _Names(body, file, users)
    statements: list[Statement] = []
    starred: list[str] = []
    for node in body:
        code = compile(ast.Module([node], []), "<module>", "exec", flags, dont_inherit=True)
        origins = _origins(node, file)
        starred += [module for name, (module, _) in origins.items() if name.startswith("*")]
        origins = {name: origin for name, origin in origins.items() if not name.startswith("*")}
        facts, bound = code_facts(code), frozenset({"__doc__"} if _is_text(node) else _bound(node))
        statements.append(Statement(facts, bound, names.only_binds(node), _kind(node), _shown(node), origins))
    by_name: dict[str, list[Statement]] = {}
    for statement in statements:
        for name in statement.binds:
            by_name.setdefault(name, []).append(statement)
    return Source(file.name, tuple(statements), tuple(starred), by_name)


def absolute(imported: Import, package: str) -> str:
    """The full name of the module that an import names; ``package``: where it stands."""
    if not imported.level:
        return imported.module
    parts = package.split(".")
    return ".".join([*parts[: len(parts) - imported.level + 1], *([imported.module] if imported.module else [])])


def _is_future(node: ast.stmt) -> TypeGuard[ast.ImportFrom]:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _never_runs(node: ast.stmt) -> bool:
    """Only for type checkers, or where the module is run as a script."""
    if not isinstance(node, ast.If) or node.orelse:
        return False
    test = ast.unparse(node.test)
    return test in ("TYPE_CHECKING", "typing.TYPE_CHECKING", "__name__ == '__main__'")


def _is_text(node: ast.stmt) -> bool:
    """A docstring, or a text that says something to readers."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _origins(node: ast.stmt, file: ModuleFile) -> dict[str, tuple[str, str | None]]:
    """Of the imports in a statement, outside of functions."""
    found: dict[str, tuple[str, str | None]] = {}
    for one in _outside_functions(node):
        if isinstance(one, ast.Import):
            for alias in one.names:
                top = alias.name.partition(".")[0]
                found[alias.asname or top] = (alias.name if alias.asname else top, None)
                if not alias.asname and top != alias.name:
                    found[alias.name] = (alias.name, None)  # runs, too
        elif isinstance(one, ast.ImportFrom):
            module = absolute(Import(one.module or "", (), one.level), file.package)
            for alias in one.names:
                name = f"*{module}" if alias.name == "*" else alias.asname or alias.name
                found[name] = module, alias.name
    return found


def _outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    """The node and what is within it, but for the bodies of functions and classes."""
    yield node
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
        for child in ast.iter_child_nodes(node):
            yield from _outside_functions(child)


def _bound(node: ast.stmt) -> Iterator[str]:
    for one in _outside_functions(node):
        match one:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                yield name
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from (alias.asname or alias.name.partition(".")[0] for alias in names)
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
                | ast.ExceptHandler(name=str(name))
                | ast.MatchAs(name=str(name))
                | ast.MatchStar(name=str(name))
            ):
                yield name
            case _:
                pass


def _kind(node: ast.stmt) -> str:
    if isinstance(node, ast.Import | ast.ImportFrom):
        return "import"
    return "code" if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) else "global"


def _shown(node: ast.stmt) -> str:
    if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
        return ""
    try:
        value = ast.literal_eval(node.value)
    except (ValueError, TypeError, SyntaxError):
        return ""
    return repr(value) if isinstance(value, bool | int | float | None) else ""


class _Names:
    """The names of a module, as far as its statements show them."""

    def __init__(self, body: list[ast.stmt], file: ModuleFile, users: Callable[[str], bool]) -> None:
        origins = [_origins(node, file) for node in body]
        imported = {name: module for each in origins for name, (module, _) in each.items()}
        own = {name for node, each in zip(body, origins, strict=True) if not each for name in _bound(node)}
        library = {name for name, module in imported.items() if not users(module)}
        self._library = (library | (vars(builtins).keys() - imported.keys())) - own
        self._defined = {
            node.name for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        }

    def only_binds(self, node: ast.stmt) -> bool:
        """A statement that can do nothing but bind names, so that only those who read them need it."""
        match node:
            case ast.Import() | ast.ImportFrom() | ast.Pass() | ast.Expr(value=ast.Constant()):
                return True
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                defaults = filter(None, (*node.args.defaults, *node.args.kw_defaults))
                return all(map(self._decorates, node.decorator_list)) and all(map(self._is_plain, defaults))
            case ast.ClassDef():
                made_of = (*node.bases, *(keyword.value for keyword in node.keywords))
                return (
                    all(map(self._is_of_library, made_of))
                    and all(map(self._decorates, node.decorator_list))
                    and all(map(self.only_binds, node.body))
                )
            case ast.Assign(targets=targets, value=value):
                return all(map(_is_name, targets)) and self._is_plain(value)
            case ast.AnnAssign(target=target, value=value):
                return _is_name(target) and (value is None or self._is_plain(value))
            case _:
                return False

    def _decorates(self, node: ast.expr) -> bool:
        """A decorator of a library, or of a property."""
        is_part = isinstance(node, ast.Attribute) and node.attr in ("setter", "getter", "deleter")
        return is_part or (
            self._is_of_library(node.func if isinstance(node, ast.Call) else node) and self._is_plain(node)
        )

    def _is_plain(self, value: ast.AST) -> bool:
        """Calls nothing of the user's, and hands no function of the user's to what is called."""
        match value:
            case ast.Lambda():
                return True
            case ast.Await() | ast.Yield() | ast.YieldFrom() | ast.NamedExpr():
                return False
            case ast.Call() if not (self._is_of_library(value.func) and self._takes_no_function(value)):
                return False
            case _:
                return all(map(self._is_plain, ast.iter_child_nodes(value)))

    def _is_of_library(self, node: ast.expr) -> bool:
        while isinstance(node, ast.Attribute | ast.Subscript):  # Generic[T]
            node = node.value
        return isinstance(node, ast.Name) and node.id in self._library

    def _takes_no_function(self, call: ast.Call) -> bool:
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        inside = (node for one in given for node in ast.walk(one))
        return not any(
            isinstance(node, ast.Lambda) or (isinstance(node, ast.Name) and node.id in self._defined) for node in inside
        )


def _is_name(target: ast.expr) -> bool:
    return isinstance(target, ast.Name) or (
        isinstance(target, ast.Tuple | ast.List) and all(map(_is_name, target.elts))
    )
