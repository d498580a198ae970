"""Code objects: a digest of what they do, and the names that they read.

Instructions count with their constants, names and variables, and docstrings count, not the file, lines, or the place of a constant in its table.
"""

from __future__ import annotations

import dis
import marshal
import re
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from firesteel.compile.identity.facts import digest
from firesteel.compile.identity.pure import texts_that_matter

_CONST = frozenset(dis.hasconst)
_EXTENDED = dis.opmap["EXTENDED_ARG"]
_IDLE = frozenset((dis.opmap["CACHE"], dis.opmap["NOP"]))
_GLOBALS = {dis.opmap[n] for n in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS") if n in dis.opmap}
_ATTRIBUTES = {dis.opmap[n] for n in ("LOAD_ATTR", "LOAD_METHOD") if n in dis.opmap}
_SUPER = dis.opmap.get("LOAD_SUPER_ATTR", -1)
_STORE_NAME, _IMPORT, _IMPORT_FROM = (dis.opmap[n] for n in ("STORE_NAME", "IMPORT_NAME", "IMPORT_FROM"))
_SHIFTED = {dis.opmap["LOAD_GLOBAL"]: 1}
"""Bits behind the number of a name."""
if sys.version_info >= (3, 12):
    _SHIFTED |= {dis.opmap["LOAD_ATTR"]: 1, dis.opmap["LOAD_SUPER_ATTR"]: 2}
_NAMED = frozenset(dis.hasname)
_SMALL_INT = dis.opmap.get("LOAD_SMALL_INT", -1)
_LINE = "__firstlineno__"
"""Set in the body of a class to the constant before."""
_STORES_NAME = (_STORE_NAME, dis.opmap["STORE_GLOBAL"])
_VARIABLES = {
    opcode: re.findall("(LOAD|STORE)_(FAST|DEREF|CLASSDEREF|FROM_DICT_OR_DEREF)", name)
    for name, opcode in dis.opmap.items()
    if name.startswith(("LOAD_", "STORE_"))
}
"""What an instruction does to variables: from Python 3.13 on some do two things at once."""
_WITHIN_IMPORT = frozenset(
    [
        *(_IMPORT, _IMPORT_FROM, *_STORES_NAME, dis.opmap["SWAP"], dis.opmap["POP_TOP"]),
        *(opcode for opcode, does in _VARIABLES.items() if "STORE" in dict(does)),
    ]
)


@dataclass(frozen=True, slots=True)
class Import:
    """``import module`` or, with ``names``, ``from module import names``, in ``level`` dots."""

    module: str
    names: tuple[str, ...]
    level: int


Read = tuple[str, tuple[str, ...]]
"""A name, and the attributes that follow: ``np.random.rand`` is ("np", ("random", "rand"))."""


@dataclass(frozen=True, slots=True)
class CodeFacts:
    """``reads``: globals, or builtins. ``borrowed``: modules that functions import, each with what is read of it (empty: itself). ``free``:
    variables of the code around it. ``attributes``: all names of attributes that are read of anything. ``texts``: constants that may matter
    (``pure.texts_that_matter``)."""

    digest: bytes
    reads: tuple[Read, ...]
    imports: tuple[Import, ...]
    borrowed: frozenset[Read]
    free: frozenset[Read]
    attributes: frozenset[str]
    texts: frozenset[str]


@lru_cache(maxsize=4096)
def _facts_of(key: _ByIdentity) -> CodeFacts:
    return _looked_into(key.code)


class _ByIdentity:
    """A code object as a key of a cache: two that are equal may hold constants that are not the same."""

    __slots__ = ("code",)

    def __init__(self, code: types.CodeType) -> None:
        self.code = code

    def __hash__(self) -> int:
        return id(self.code)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByIdentity) and other.code is self.code


def code_facts(code: types.CodeType) -> CodeFacts:
    """With all code within it."""
    return _facts_of(_ByIdentity(code))


def _looked_into(code: types.CodeType) -> CodeFacts:
    parts: list[bytes] = []
    inner: list[CodeFacts] = []
    reads: dict[Read, None] = {}
    imports: dict[Import, None] = {}
    attributes: set[str] = set()
    texts: set[str] = set()
    begun: tuple[str, ...] = ()
    """The global that was read just now, and its attributes."""
    loaded: list[Any] = []
    """The constants of the instructions just before."""
    for opcode, argument in _instructions(code.co_code):
        name = code.co_names[argument >> _SHIFTED.get(opcode, 0)] if opcode in _NAMED else ""
        if begun and opcode not in _ATTRIBUTES:
            reads[begun[0], begun[1:]] = None
        if opcode in _GLOBALS:
            begun = (name,)
        elif opcode in _ATTRIBUTES:
            attributes.add(name)
            begun = (*begun, name) if begun else ()
        else:
            begun = ()
        if opcode == _SUPER:
            attributes.add(name)
        if opcode == _IMPORT:
            imports[_import(name, loaded)] = None
        elif opcode == _STORE_NAME and name == _LINE and loaded:
            parts.pop()
            continue
        if opcode in _CONST:
            constant = code.co_consts[argument]
            loaded = [*loaded[-1:], constant]
            texts |= set(texts_that_matter((constant,)))
            inner += [code_facts(constant)] if isinstance(constant, types.CodeType) else []
            parts.append(bytes((opcode,)) + _constant(constant))
        else:
            loaded = [*loaded[-1:], argument] if opcode == _SMALL_INT else []
            bits = argument & ((1 << _SHIFTED.get(opcode, 0)) - 1) if name else argument
            parts.append(bytes((opcode,)) + bits.to_bytes(4, "little") + name.encode())
    borrowed, free = _variables(code, inner) if imports or code.co_freevars or inner else (set[Read](), set[Read]())
    for one in inner:
        reads |= dict.fromkeys(one.reads)
        imports |= dict.fromkeys(one.imports)
        borrowed |= one.borrowed
        attributes |= one.attributes
        texts |= one.texts
    return CodeFacts(
        digest(*parts, *_signature(code)),
        *(tuple(reads), tuple(imports)),
        *(frozenset(borrowed), frozenset(free), frozenset(attributes), frozenset(texts)),
    )


def _variables(code: types.CodeType, inner: list[CodeFacts]) -> tuple[set[Read], set[Read]]:
    """What is read of modules that the code imports, and of variables of the code around it."""
    variables = (
        *code.co_varnames,
        *(name for name in code.co_cellvars if name not in code.co_varnames),
        *code.co_freevars,
    )
    cells = {*code.co_cellvars, *code.co_freevars}
    held: dict[str, set[Read]] = {}
    reads = {read for one in inner for read in one.free}
    borrowed: set[Read] = set()
    module, is_from, brought = "", False, None
    loaded: list[Any] = []
    begun: tuple[str, ...] = ()
    for opcode, argument in _instructions(code.co_code):
        name = code.co_names[argument >> _SHIFTED.get(opcode, 0)] if opcode in _NAMED else ""
        if begun and opcode in _ATTRIBUTES:
            begun = (*begun, name)
            continue
        if begun:
            reads.add((begun[0], begun[1:]))
        begun = ()
        if opcode == _IMPORT:
            found = _import(name, loaded)
            module, is_from = name, bool(found.names)
            top = name if is_from else name.partition(".")[0]
            brought = None if found.level else (top, ())  # the user's own are looked into as such
        elif opcode == _IMPORT_FROM and brought is not None:
            brought = (module, (name,) if is_from else ())
        elif opcode in _STORES_NAME and brought is not None and code.co_name != "<module>":
            borrowed.add(brought)
        numbers = (argument >> 4, argument & 15) if len(_VARIABLES.get(opcode, ())) == 2 else (argument,)
        for (what, kind), number in zip(_VARIABLES.get(opcode, ()), numbers, strict=False):
            variable = variables[number]
            if what == "STORE" and brought is not None:
                held.setdefault(variable, set()).add(brought)
            elif what == "LOAD" and not (kind == "FAST" and variable in cells):  # which makes a closure
                if begun:
                    reads.add((begun[0], ()))
                begun = (variable,)
        if opcode not in _WITHIN_IMPORT:
            brought = None
            constant = code.co_consts[argument] if opcode in _CONST else argument
            loaded = [*loaded[-1:], constant]
    for variable, modules in held.items():
        paths = [path for read, path in reads if read == variable] or [()]
        borrowed |= {(module, (*base, *path)) for module, base in modules for path in paths}
    return borrowed, {read for read in reads if read[0] in code.co_freevars}


def _instructions(code: bytes) -> Iterator[tuple[int, int]]:
    extended = 0
    for place in range(0, len(code), 2):
        opcode, argument = code[place], code[place + 1] | extended
        if opcode == _EXTENDED:
            extended = argument << 8
        elif opcode not in _IDLE:
            extended = 0
            yield opcode, argument


def _import(module: str, loaded: list[Any]) -> Import:
    """``loaded``: level and names, as the compiler puts them."""
    level, names = loaded if len(loaded) == 2 else (0, None)
    return Import(module, tuple(names) if isinstance(names, tuple) else (), level if isinstance(level, int) else 0)


def _signature(code: types.CodeType) -> Iterator[bytes]:
    names = code.co_varnames, code.co_freevars, code.co_cellvars
    counts = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags
    docstring = [one for one in code.co_consts[:1] if isinstance(one, str)]
    yield marshal.dumps((code.co_name, names, counts, docstring), 2)
    yield code.co_exceptiontable


def _constant(value: Any) -> bytes:
    """Exact: 1, 1.0 and True are three."""
    match value:
        case types.CodeType():
            return b"c" + code_facts(value).digest
        case tuple():
            return b"t" + digest(*map(_constant, value))
        case frozenset():
            return b"s" + digest(*sorted(map(_constant, value)))
        case slice():  # from Python 3.14 on
            return b"l" + digest(*map(_constant, (value.start, value.stop, value.step)))
        case _ if value is Ellipsis:
            return b"e" * (1 + 16)
        case _:
            return b"v" + digest(marshal.dumps(value, 2))
