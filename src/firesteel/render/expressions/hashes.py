"""Hashes of rows, and the number of different values that Spark estimates by them. ``engine.hashes`` computes the hashes.

``approx_count_distinct`` is HyperLogLog++: a value's hash chooses a register, and a register keeps the highest rank of its values. The estimate
follows from the different (register, rank) codes of the rows, whatever their order is, so these are collected as any set is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from operator import add
from typing import TYPE_CHECKING, Any

from firesteel.engine.hashes import RANKS, SEED
from firesteel.plan.coercion import array_of
from firesteel.plan.expr import Expr, Unsupported
from firesteel.plan.functions import said_function
from firesteel.plan.types import element_of, engine_type, fields_of, said
from firesteel.render.expressions.texts import left_to_spark, once

if TYPE_CHECKING:
    from firesteel.render.expressions.translator import Expressions


def _hash(function: str, x: Expressions, n: Expr) -> str:
    if n["seed"] != SEED:
        raise Unsupported(f"{said_function(n)} with another seed is not taken over")
    return f"{function}({', '.join(_typed(x, one) for one in n['children'])})"


def _typed(x: Expressions, node: Expr) -> str:
    """A value in exactly its type, by which it is hashed."""
    if not _is_hashed(node.type):
        raise Unsupported(f"a hash of {said(node.type)} is not taken over")
    return f"CAST({x.text(node)} AS {engine_type(node.type)})"


def _is_hashed(kind: Any) -> bool:
    """Maps are not: they are equal in any order."""
    inside = [element_of(kind)] if element_of(kind) is not None else [part for _, part in fields_of(kind) or []]
    return all(map(_is_hashed, inside)) if inside else not isinstance(kind, dict)


def _crc32(x: Expressions, n: Expr) -> str:
    if n["child"].type != "binary":
        raise Unsupported(f"{said_function(n)} of {said(n['child'].type)} is not taken over")
    return f"fs_crc32({x.text(n['child'])})"


RULES: dict[str, Callable[[Expressions, Expr], str]] = {
    "Murmur3Hash": partial(_hash, "fs_hash"),
    "XxHash64": partial(_hash, "fs_xxhash64"),
    "Crc32": _crc32,
}

# --- different values -------------------------------------------------------------------------------------------------

CODES = array_of("integer")
_FINEST = 18
"""Bits of a register's number at most: a group has up to 64 codes a register."""
_EXACT = 31
"""Ranks from here on count otherwise in some versions of Spark. One value of two billions has such a rank."""


def codes(x: Expressions, function: Expr) -> str:
    """The code of a row's value."""
    if function["precision"] > _FINEST:
        raise Unsupported(f"{said_function(function)} as exact as this is not taken over")
    return f"fs_code({_typed(x, function['child'])}, {function['precision']})"


def estimate(function: Expr, found: str) -> str:
    """The number of different values. ``found``: a list of the different codes of their rows."""

    def last(v: str) -> str:
        return f"list_filter({v}, lambda c, i: i = len({v}) OR {v}[i + 1] // {RANKS} <> c // {RANKS})"

    return once(once(f"list_sort({found})", last), partial(_of_registers, function))


def _of_registers(function: Expr, codes: str) -> str:
    """``codes``: of each register that has a value the highest one."""
    registers = 1 << function["precision"]
    ranks = f"list_transform({codes}, lambda c: c % {RANKS})"
    other = left_to_spark("a value with a rare hash", "long")
    total = f"({registers} - len({codes}) + coalesce(list_sum(list_transform({ranks}, lambda r: pow(2, -r))), 0))"

    def rounded(estimate: str) -> str:
        empty = f"({registers} - len({codes}))"
        linear = f"({registers} * ln({registers} / {empty}))"
        corrected = f"({estimate} - CASE WHEN {estimate} < {5 * registers} THEN {_bias(function, estimate)} ELSE 0 END)"
        few = f"{empty} > 0 AND ({linear} <= {function['threshold']} OR {estimate} <= {2.5 * registers})"
        chosen = f"CASE WHEN {few} THEN {linear} ELSE {corrected} END"
        return f"CAST(floor({chosen} + 0.5) AS BIGINT)"

    known = once(f"(CAST('{_scale(function['precision'])!r}' AS DOUBLE) / {total})", rounded)
    return f"(CASE WHEN list_max({ranks}) >= {_EXACT} THEN {other} ELSE {known} END)"


def _scale(precision: int) -> float:
    registers = 1 << precision
    alpha = {4: 0.673, 5: 0.697, 6: 0.709}.get(precision) or 0.7213 / (1.0 + 1.079 / registers)
    return alpha * registers * registers


_NEIGHBOURS = 6


def _bias(function: Expr, estimate: str) -> str:
    """The mean bias of the nearest of Spark's measured estimates: it changes at the middle between the first of them and the one after them."""
    ends, means = steps(function["estimates"], function["biases"])
    behind = f"list_filter(CAST('{ends}' AS DOUBLE[]), lambda last: {estimate} > last)"
    return f"CAST('{means}' AS DOUBLE[])[len({behind}) + 1]"


def steps(known: list[float], biases: list[float]) -> tuple[list[float], list[float]]:
    """The estimates after which another bias begins, and all biases. Only five estimates are nearest to what is larger than all."""
    k = _NEIGHBOURS
    ends = [min((known[i] + known[i + k]) / 2, known[i + k - 1]) for i in range(len(known) - k)]
    parts = [biases[i : i + k] for i in range(len(ends) + 2)]
    return [*ends, known[-1]], [reduce(add, part) / len(part) for part in parts]
