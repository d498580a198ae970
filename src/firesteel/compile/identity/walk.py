"""A value as it would be shipped, as a digest: by what it holds where it goes by value, by name where it goes by name.

What has a name (functions and globals of the script, statements of the user's modules) is looked into once and stands as an *item*
beside the value, so that functions may call each other in circles; all else is digested where it is met. A circle of plain objects
counts by how far up it closes. What cannot be looked into equals nothing, with the reason.
"""

from __future__ import annotations

import copyreg
import functools
import marshal
import types
import typing
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import is_dataclass
from typing import Any

import numpy as np
from pyarrow.fs import FileSystem

from firesteel.compile.identity import functions, named, ours
from firesteel.compile.identity.code import code_facts
from firesteel.compile.identity.facts import Fact, digest, never, of_data, of_names
from firesteel.compile.identity.modules import Modules, Source, source_of
from firesteel.compile.identity.pure import RANDOM_ROWS, outside, takes_clock, texts_that_matter, unknown
from firesteel.compile.identity.values import Encode, data_digest, draws
from firesteel.humanize import first_of


class Known:
    """Files and data as they are when they are first asked for."""

    def __init__(self, pure: Collection[str] = ()) -> None:
        """``pure``: names of modules and functions of libraries that the user says are pure."""
        self.pure = pure
        self.impure = set[str]()
        """Of the reasons of walks, those that name something which may not be pure."""
        self.modules = Modules()
        self._sources: dict[str, Source | None] = {}
        self._data: dict[int, tuple[Any, bytes]] = {}
        self._namespaces: dict[str, list[dict[str, Any]]] = {}

    def source(self, module: str) -> Source | None:
        """Of a module of the user's; None: it has none that can be read."""
        if module not in self._sources:
            file = self.modules.file(module)
            try:
                self._sources[module] = (
                    None if file is None or not file.is_python else source_of(file, self.modules.users)
                )
            except (SyntaxError, ValueError, RecursionError):  # importing it fails, too
                self._sources[module] = None
        return self._sources[module]

    def data(self, value: Any, encode: Encode) -> bytes | None:
        """A digest of data; None: it is none."""
        known = self._data.get(id(value))
        if known is not None:
            return known[1]
        found = data_digest(value, encode)
        if found is not None:
            self._data[id(value)] = value, found
        return found

    def namespace(self, names: dict[str, Any]) -> str:
        """A name for a module's globals; two modules of one name get two."""
        name = str(names.get("__name__"))
        those = self._namespaces.setdefault(name, [])
        if not any(one is names for one in those):
            those.append(names)
        number = next(i for i, one in enumerate(those) if one is names)
        return f"{name}#{number}" if number else name


_ATOMS = frozenset((type(None), bool, int, float, complex, str, bytes))
_NOTHING = frozenset[str]()
_PLAIN = (list, tuple, dict, set, frozenset)
_LONG = 1 << 16
_DEEPEST = 100
"""Values within values."""
_MOST_MET_AGAIN = 20_000
"""Visits to values on circles that were visited before: with more the walk might not end."""
_NO_CIRCLE = 1 << 30
_MOST_NAMED = 3
"""Names of what one function uses that may not be pure."""
Key = tuple[str, ...]


class Walk:
    """The walk through one vertex' program. ``routes``: by number of a route the place of its output; ``sides``: by name of a build side the
    place of its gate: both are numbered anew in every job."""

    def __init__(
        self, known: Known, routes: Mapping[int, int] | None = None, sides: Mapping[str, int] | None = None
    ) -> None:
        self.known = known
        self.routes, self.sides = routes or {}, sides or {}
        self.facts: dict[str, Fact] = {}
        self.unprovable: dict[str, None] = {}
        self._suspects: dict[str, dict[str, None]] = {}
        """By function: what it uses that may give another answer each time."""
        self.reached: set[str] = set()
        """Top-level modules of libraries of which the vertex may meet objects."""
        self._reads: dict[tuple[str, frozenset[str], frozenset[str], frozenset[str]], None] = {}
        """What code reads, each as ``reads`` has it, after the place."""
        self._texts: dict[tuple[str, str], None] = {}
        """Texts that matter where something takes names as texts, or dates: place and text."""
        self._items: dict[Key, bytes] = {}
        self._todo: list[tuple[Key, Callable[[], bytes]]] = []
        self._done: dict[int, tuple[Any, bytes]] = {}
        self._open: dict[int, int] = {}
        self._lowest = _NO_CIRCLE
        """The outermost open value that the present one refers back to."""
        self._visits = 0
        self._on_circles: set[int] = set()
        self._met_again = 0
        self._where = ""
        self._holder: type = type(None)
        """Of the innermost object, but for lists and the like, that holds the present value."""

    # --- what is found ---

    def finish(self) -> bytes:
        """Looks into all items; returns a digest of them, but for those that turned out to be nothing."""
        while self._todo:
            key, look = self._todo.pop()
            self._items[key] = self._tried(key, look)
        return digest(*(of_names(*key) + self._items[key] for key in sorted(self._items) if self._items[key]))

    def _tried(self, key: Key, look: Callable[[], bytes]) -> bytes:
        try:
            return look()
        except Exception as error:  # of the user's objects, or too deep for Python
            return self.unknowable(f"uses {key[-1]}, which cannot be looked into ({type(error).__name__})")

    def item(self, key: Key, look: Callable[[], bytes]) -> bytes:
        """Returns what stands for something that has a name and is looked into once."""
        if key not in self._items:
            self._items[key] = b""
            self._todo.append((key, look))
        return b"n" + of_names(*key)

    def note(self, name: str, found: bytes, said: str = "") -> None:
        """``said``: what of it anybody may see."""
        fact, first, number = Fact(found, said), name, 2
        while self.facts.get(name, fact) != fact:
            name, number = f"{first} ({number})", number + 1
        self.facts[name] = fact

    def mark(self, why: str | None) -> None:
        """The vertex may do something else though its program is the same. None: it may not."""
        if why is not None:
            self.unprovable[f"{why} in {self._where}" if self._where else why] = None

    def uses(self, module: str, path: tuple[str, ...] = ()) -> None:
        """``module``: of a library, or compiled. ``path``: attributes; empty: anything in the module."""
        self.reached.add(module.partition(".")[0])
        name = unknown(module, path, self.known.pure)
        if name is not None and not (takes_clock(module, path) and path == (self._holder.__name__,)):  # holds a time
            self.suspect(name)

    def reads(self, attributes: Collection[str], names: Collection[str], texts: Collection[str]) -> None:
        """Adds what code reads of anything, all names that it reads, and its constants that may matter."""
        self._reads[self._where, frozenset(attributes), frozenset(names), frozenset(texts)] = None
        self.reached |= {name[len("to_") :] for name in ("to_pandas", "to_numpy") if name in attributes}

    def suspect(self, name: str) -> None:
        """The vertex uses something that may give another answer each time."""
        self._suspects.setdefault(self._where, {})[name] = None

    def reasons(self) -> list[str]:
        """Why the vertex may give other rows all the same, in words that follow its name."""
        found = list(self.unprovable)
        all_names = frozenset(name for _, _, names, _ in self._reads for name in names)
        read = [*self._reads, *((where, _NOTHING, all_names, frozenset((text,))) for where, text in self._texts)]
        suspects = {where: dict(names) for where, names in self._suspects.items()}
        for where, attributes, names, texts in read:
            more = dict.fromkeys(outside(attributes, names, texts, self.reached))
            if more:
                suspects.setdefault(where, {}).update(more)
        for where, names in suspects.items():
            place = f" in {where}" if where else ""
            found.append(
                f"uses {first_of(sorted(names), _MOST_NAMED)}{place}, which Firesteel does not know to be pure"
            )
            self.known.impure.add(found[-1])
        return found

    @contextmanager
    def within(self, where: str) -> Generator[None]:
        """Says of all that is found meanwhile that it is in the function or class of this name."""
        outer, self._where = self._where, where
        try:
            yield
        finally:
            self._where = outer

    def unknowable(self, why: str) -> bytes:
        """Returns what stands for a value that cannot be looked into."""
        self.unprovable[why] = None
        return b"d" + never()

    # --- values ---

    def encoded(self, value: Any) -> bytes:
        """The value in some bytes that no other value begins with."""
        kind = type(value)
        if kind in _ATOMS:
            if kind in (str, bytes):
                if len(value) > _LONG:
                    data = value if kind is bytes else value.encode(errors="surrogatepass")
                    return b"d" + digest(kind.__name__.encode(), of_data(data))
                self._note_texts((value,))
            return b"a" + marshal.dumps(value, 2)
        if (kind is tuple or kind is list) and _ATOMS.issuperset(kinds := set(map(type, value))):
            if not kinds.isdisjoint((str, bytes)):
                self._note_texts(value)
            return b"d" + digest(marshal.dumps(value, 2))
        return self._composite(value)

    def _note_texts(self, values: Iterable[Any]) -> None:
        for text in texts_that_matter(values):
            if not ours.is_ours(self._holder):  # whose texts are names of columns and steps
                self._texts[self._where, text] = None

    def sequence(self, kind: bytes, values: Iterable[Any]) -> bytes:
        """A digest of values in order."""
        return digest(kind, b"".join(map(self.encoded, values)))

    def by_name(self, kind: bytes, values: Mapping[Any, Any]) -> bytes:
        """A digest of values whose order says nothing."""
        names = sorted(values, key=str)
        return digest(kind, b"".join(self._name(name) + self.encoded(values[name]) for name in names))

    def _name(self, name: Any) -> bytes:
        return b"a" + marshal.dumps(name, 2) if type(name) is str else self.encoded(name)

    def _composite(self, value: Any) -> bytes:
        kind, number, here = type(value), id(value), len(self._open)
        if issubclass(kind, FileSystem) and not ours.is_connector(self._holder):
            self.suspect("a filesystem")
        known = self._done.get(number)
        if known is not None:
            return known[1]
        depth = self._open.get(number)
        if depth is not None:
            self._lowest = min(self._lowest, depth)
            return b"d" + digest(b"circle", (here - depth).to_bytes(4, "little"))
        if here >= _DEEPEST:
            return self.unknowable(f"holds values in more than {_DEEPEST} others")
        self._met_again += number in self._on_circles
        if self._met_again > _MOST_MET_AGAIN:
            return self.unknowable("holds objects that refer to each other in too many ways")
        outer, self._lowest = self._lowest, _NO_CIRCLE
        self._open[number] = here
        holder, self._holder = self._holder, self._holder if kind in _PLAIN or issubclass(kind, type) else kind
        self._visits = before = self._visits + 1
        try:
            made = self._looked_into(value)
        except Exception as error:  # of the user's objects, which may do anything, or too deep for Python
            made = self.unknowable(f"holds a {kind.__qualname__}, which cannot be looked into ({type(error).__name__})")
        finally:
            del self._open[number]
            self._holder = holder
        closed = self._lowest >= here
        self._lowest = outer if closed else min(outer, self._lowest)
        if not closed:
            self._on_circles.add(number)
        elif self._visits > before or issubclass(kind, type):  # not of small ones, of which there may be millions
            self._done[number] = value, made  # held: its number is its own as long
        return made

    def _looked_into(self, value: Any) -> bytes:
        if isinstance(value, type):
            return functions.of_class(self, value)
        look = _KINDS.get(type(value))
        if look is not None:
            return look(self, value)
        stands_for = ours.stand_in(self, value)
        if stands_for is not None:
            return b"d" + digest(self.encoded(type(value)), self.encoded(stands_for))
        self.mark(RANDOM_ROWS if draws(value) else None)
        data = self.known.data(value, self.encoded)
        if data is not None:
            self.reached.add(type(value).__module__.partition(".")[0])
            return b"d" + data
        if ours.is_ours(type(value)) and is_dataclass(value):
            return b"d" + digest(self.encoded(type(value)), self.sequence(b"fields", ours.fields_of(value)))
        return self._reduced(value)

    def _reduced(self, value: Any) -> bytes:
        """As it is pickled."""
        kind = type(value)
        try:
            reduce = copyreg.dispatch_table.get(kind)
            made: Any = value.__reduce_ex__(4) if reduce is None else reduce(value)
            if isinstance(made, str):
                if kind is np.ufunc and getattr(np, made, None) is not value:  # of another library
                    self.suspect(f"the ufunc {made}")
                return named.reference(self, getattr(value, "__module__", None) or kind.__module__, made)
            parts: Any = (*made, None, None, None, None)[:6]
            maker, arguments, state, items, pairs, setter = parts
            filled = list(items or ()), list(pairs or ())
        except Exception as error:  # of the user's classes, or what cannot be pickled
            return self.unknowable(f"holds a {kind.__qualname__}, which cannot be pickled ({type(error).__name__})")
        made_of = self.encoded(maker), self.sequence(b"arguments", arguments), self._state(state), self.encoded(setter)
        return b"d" + digest(*made_of, self.sequence(b"items", filled[0]), self.sequence(b"pairs", filled[1]))

    def _state(self, state: Any) -> bytes:
        if isinstance(state, dict):
            return self.by_name(b"state", state)
        is_slotted = isinstance(state, tuple) and len(state) == 2 and all(isinstance(one, dict | None) for one in state)
        if is_slotted and any(state):
            return digest(*(self.by_name(b"state", one or {}) for one in state))
        return self.encoded(state)


def _set(walk: Walk, value: Iterable[Any]) -> bytes:
    return b"d" + digest(type(value).__name__.encode(), *sorted(map(walk.encoded, value)))


def _dict(walk: Walk, value: Mapping[Any, Any]) -> bytes:
    """In its order: whoever goes through it sees that."""
    return b"d" + walk.sequence(b"dict", (part for pair in value.items() for part in pair))


def _listed(walk: Walk, value: Iterable[Any]) -> bytes:
    return b"d" + walk.sequence(type(value).__name__.encode(), value)


def _builtin(walk: Walk, value: types.BuiltinFunctionType) -> bytes:
    held = value.__self__
    if held is None or isinstance(held, types.ModuleType):
        return named.reference(walk, value.__module__ or "builtins", value.__qualname__)
    walk.reads((value.__name__,), (), ())
    return b"d" + walk.sequence(b"method", (value.__name__, held))


def _type_variable(walk: Walk, value: Any) -> bytes:
    names = "__bound__", "__constraints__", "__covariant__", "__contravariant__", "__supertype__", "__default__"
    return b"d" + walk.sequence(b"type variable", (value.__name__, *(getattr(value, name, None) for name in names)))


def _cell(walk: Walk, value: types.CellType) -> bytes:
    try:
        return b"d" + walk.sequence(b"cell", (value.cell_contents,))
    except ValueError:  # not bound yet
        return b"d" + digest(b"empty cell")


_KINDS: dict[type, Callable[[Walk, Any], bytes]] = {
    list: _listed,
    tuple: _listed,
    dict: _dict,
    types.MappingProxyType: _dict,
    set: _set,
    frozenset: _set,
    type({}.keys()): _listed,
    type({}.values()): _listed,
    type({}.items()): _listed,
    types.FunctionType: functions.of_function,
    types.MethodType: lambda walk, value: b"d" + walk.sequence(b"method", (value.__func__, value.__self__)),
    types.BuiltinFunctionType: _builtin,
    types.ModuleType: named.of_module,
    types.CodeType: lambda walk, value: b"d" + code_facts(value).digest,
    types.CellType: _cell,
    types.MemberDescriptorType: lambda walk, value: b"d" + of_names("slot", value.__name__),
    types.GetSetDescriptorType: lambda walk, value: b"d" + of_names("slot", value.__name__),
    property: lambda walk, value: b"d" + walk.sequence(b"property", (value.fget, value.fset, value.fdel)),
    staticmethod: lambda walk, value: b"d" + walk.sequence(b"static method", (value.__func__,)),
    classmethod: lambda walk, value: b"d" + walk.sequence(b"class method", (value.__func__,)),
    functools.cached_property: lambda walk, value: b"d" + walk.sequence(b"cached property", (value.func,)),
    **dict.fromkeys((typing.TypeVar, typing.ParamSpec, typing.TypeVarTuple, typing.NewType), _type_variable),
    type(functools.lru_cache(draws)): lambda walk, value: b"d" + walk.sequence(b"cache", (value.__wrapped__,)),
}
