"""A vertex' program as named facts with digests of 16 bytes, and differences between two programs in words."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

SIZE = 16


def digest(*parts: bytes | memoryview) -> bytes:
    """Of the parts in order: no two lists of parts have one."""
    made = hashlib.blake2b(digest_size=SIZE)
    for part in parts:
        made.update(len(part).to_bytes(8, "little"))
        made.update(part)
    return made.digest()


def of_data(data: bytes | memoryview) -> bytes:
    """Of much data: processors have instructions for this one, 2 GB/s."""
    return hashlib.sha256(data).digest()[:SIZE]


def of_names(*names: str) -> bytes:
    return digest(*(name.encode(errors="surrogatepass") for name in names))


def never() -> bytes:
    """Equal to no other: of what cannot be looked into."""
    return os.urandom(SIZE)


MOST = 200
"""Facts of one vertex that have a name of their own."""
OTHERS = "something beyond its first facts"


@dataclass(frozen=True, slots=True)
class Fact:
    """``shown``: the value, where anybody may see it; of text and data only how much it is. Empty: nothing to show."""

    digest: bytes
    shown: str = ""


@dataclass(frozen=True, slots=True)
class VertexPrint:
    """Plain data. Two vertices of equal ``program`` do the same to the same rows.

    ``input``: of all that a source reads, its splits in order; empty: it is no source; None: nobody can tell whether it is the same.
    ``facts``: parts of the program, by name: ``"global RATE"``, ``"code of parse"``. ``unprovable``: why the vertex may give other rows
    all the same, in words that follow its name: ``"uses open in parse, which Firesteel does not know to be pure"``; such a vertex is not answered from another run.
    """

    program: bytes
    input: bytes | None
    facts: Mapping[str, Fact]
    unprovable: tuple[str, ...] = ()


def limited(facts: Mapping[str, Fact]) -> dict[str, Fact]:
    """The first of them, and all others as one."""
    if len(facts) <= MOST:
        return dict(facts)
    names = list(facts)
    rest = b"".join(digest(name.encode(), facts[name].digest) for name in sorted(names[MOST - 1 :]))
    return {name: facts[name] for name in names[: MOST - 1]} | {OTHERS: Fact(digest(rest))}


def differences(old: VertexPrint, new: VertexPrint) -> list[str]:
    """The differences that make the new vertex another one than the old, as sentences that follow its name: ``"reads global RATE, 0.19 then, 0.2
    now"``. Empty: nothing."""
    found = list(_differences(old.facts, new.facts)) if old.program != new.program else []
    if old.program != new.program and not found:
        found = ["its program has changed"]
    if old.input is not None and new.input is not None and old.input != new.input:
        found.append("its input has changed, or is cut otherwise")
    return found


def _differences(old: Mapping[str, Fact], new: Mapping[str, Fact]) -> Iterator[str]:
    changed = [name for name in (*old, *(name for name in new if name not in old)) if old.get(name) != new.get(name)]
    for name in sorted(changed, key=_rank):
        yield _sentence(name, old.get(name), new.get(name))


_VERBS = {"global": "reads ", "captured": "holds ", "library": "uses "}


def _rank(name: str) -> tuple[bool, str]:
    """The more it says, the earlier: a step as a whole says least."""
    return name.startswith("step "), name


def _sentence(name: str, old: Fact | None, new: Fact | None) -> str:
    words = f"{_VERBS.get(name.partition(' ')[0], '')}{name}"
    if old is None or new is None:
        return f"{words}, {'which is new' if old is None else 'which is gone now'}"
    if old.shown != new.shown:
        return f"{words}, {old.shown or 'something else'} then, {new.shown or 'something else'} now"
    return f"{words}, which has changed"
