"""Bytes: their texts, hashes and codes; and functions that Spark calls by their names in Java."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from firesteel.plan.expr import Expr, Unsupported
from firesteel.plan.functions import said_function
from firesteel.plan.types import is_text, said
from firesteel.render.expressions import json
from firesteel.render.expressions.strings import padded
from firesteel.render.expressions.texts import all_shared, constant, left_to_spark, once

if TYPE_CHECKING:
    from firesteel.render.expressions.translator import Expressions


def _hex(x: Expressions, n: Expr) -> str:
    kind = n["child"].type
    if not is_text(kind) and kind not in ("binary", "long"):
        raise Unsupported(f"hex of {said(kind)} is not taken over")
    return f"upper(hex({x.text(n['child'])}))"


def _of_form(text: str, form: str, found: Callable[[str], str]) -> str:
    other = left_to_spark("a code of another form", "binary")
    return once(
        text, lambda t: f"(CASE WHEN {t} IS NULL OR regexp_full_match({t}, '{form}') THEN {found(t)} ELSE {other} END)"
    )


def _unhex(x: Expressions, n: Expr) -> str:
    return _of_form(x.text(n["child"]), "([0-9A-Fa-f]{2})*", lambda t: f"unhex({t})")


def _unbase64(x: Expressions, n: Expr) -> str:
    last = "[A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]="
    return _of_form(x.text(n["child"]), f"([A-Za-z0-9+/]{{4}})*({last})?", lambda t: f"from_base64({t})")


def _hash(function: str, x: Expressions, n: Expr) -> str:
    """The hexadecimal digits."""
    if n["child"].type != "binary":
        raise Unsupported(f"{said_function(n)} of {said(n['child'].type)} is not taken over")
    return f"{function}({x.text(n['child'])})"


def _sha2(x: Expressions, n: Expr) -> str:
    if constant(n["right"], "a number of bits") not in (0, 256) or n["left"].type != "binary":
        raise Unsupported("a hash of this many bits is not taken over")
    return f"sha256({x.text(n['left'])})"


# --- functions by their names in Java ------------------------------------------------------------------------------------


def _base64(x: Expressions, arguments: list[Expr]) -> str:
    """Of up to 57 bytes: beyond them Spark breaks lines."""
    other = left_to_spark("a code of several lines", "string")
    return once(
        x.text(arguments[0]),
        lambda b: f"(CASE WHEN {b} IS NULL OR octet_length({b}) <= 57 THEN to_base64({b}) ELSE {other} END)",
    )


_ASCII = ("US-ASCII", "ISO-8859-1")
"""Charsets in which letters of ASCII are as in UTF-8."""


def _in_charset(function: str, x: Expressions, arguments: list[Expr]) -> str:
    """In UTF-8, or in a charset that writes these letters alike. Bytes that are not UTF-8 end the fragment."""
    value, charset = arguments[:2]
    if charset.cls == "Literal":
        name = str(charset["value"]).upper()
        if name == "UTF-8":
            return f"{function}({x.text(value)})"
        if name not in _ASCII:
            raise Unsupported("texts in this charset are not taken over")
    plain = "strlen({0}) = length({0})" if function == "encode" else "regexp_full_match(hex({0}), '([0-7].)*')"
    other = left_to_spark("a text in this charset", "binary" if function == "encode" else "string")

    def of(t: str, c: str) -> str:
        known = f"upper({c}) = 'UTF-8' OR (upper({c}) IN {_ASCII} AND {plain.format(t)})"
        return f"(CASE WHEN {t} IS NULL OR {c} IS NULL THEN NULL WHEN {known} THEN {function}({t}) ELSE {other} END)"

    return all_shared(x.texts([value, charset]), of)


def _padded(x: Expressions, arguments: list[Expr]) -> str:
    """A CHAR, with spaces up to its length."""
    size = int(constant(arguments[1], "a length"))
    return once(
        x.text(arguments[0]), lambda t: f"(CASE WHEN length({t}) < {size} THEN rpad({t}, {size}, ' ') ELSE {t} END)"
    )


def _encoded(x: Expressions, arguments: list[Expr]) -> str:
    """As forms are: ``+`` for a blank, and ``*`` as it is."""
    return f"replace(replace(replace(url_encode({x.text(arguments[0])}), '%20', '+'), '~', '%7E'), '%2A', '*')"


_NEXT = "%[89ab][0-9a-f]"
_CODES = (
    "%0[1-9a-f]|%[1-7][0-9a-f]|%(?:c[2-9a-f]|d[0-9a-f])N|%e0%[ab][0-9a-f]N|%e[1-9a-cef]NN|%ed%[89][0-9a-f]N"
    "|%f0%[9ab][0-9a-f]NN|%f[1-3]NNN|%f4%8[0-9a-f]NN"
).replace("N", _NEXT)
"""Of UTF-8, without a NUL."""


def _decoded(x: Expressions, arguments: list[Expr]) -> str:
    """``+`` is a blank. A wrong code gives null in the function that raises no error."""
    other = left_to_spark("a code of another form", "string")
    wrong = "(?is)%(?:.?\\z|[0-9a-f]?[g-z])"

    def of(t: str) -> str:
        null = f" OR regexp_matches({t}, '{wrong}')" if arguments[1].get("value") is False else ""
        known = f"regexp_full_match({t}, '(?is)(?:[^%]|{_CODES})*')"
        return f"(CASE WHEN {t} IS NULL{null} THEN NULL WHEN {known} THEN url_decode(replace({t}, '+', ' ')) ELSE {other} END)"

    return once(x.text(arguments[0]), of)


def _by_bytes(text: str) -> str:
    return f"regexp_replace(hex({text}), '(..)', '\\1 ', 'g')"


def _of_two(function: str, x: Expressions, arguments: list[Expr]) -> str:
    return f"{function}({', '.join(map(_by_bytes, x.texts(arguments)))})"


def _filled(function: str, x: Expressions, arguments: list[Expr]) -> str:
    text, size, pad = x.texts(arguments)
    other = left_to_spark("padding of this length", "integer")
    twice = once(size, lambda s: f"(CASE WHEN {s} < 0 OR {s} > 5000 THEN {other} ELSE 2 * {s} END)")
    return f"unhex({padded(function, f'hex({text})', twice, f'hex({pad})')})"


_CALLED: dict[tuple[str, str], Callable[[Expressions, list[Expr]], str]] = {
    ("Base64", "encode"): _base64,
    ("Encode", "encode"): partial(_in_charset, "encode"),
    ("StringDecode", "decode"): partial(_in_charset, "decode"),
    ("UrlCodec$", "encode"): _encoded,
    ("UrlCodec$", "decode"): _decoded,
    ("array.ByteArrayMethods", "contains"): partial(_of_two, "contains"),
    ("array.ByteArrayMethods", "startsWith"): partial(_of_two, "starts_with"),
    ("array.ByteArrayMethods", "endsWith"): partial(_of_two, "ends_with"),
    ("types.ByteArray", "lpad"): partial(_filled, "lpad"),
    ("types.ByteArray", "rpad"): partial(_filled, "rpad"),
    ("json.JsonExpressionUtils", "lengthOfJsonArray"): lambda x, arguments: json.length(x.text(arguments[0])),
    ("json.JsonExpressionUtils", "jsonObjectKeys"): lambda x, arguments: json.keys(x.text(arguments[0])),
    ("CharVarcharCodegenUtils", "readSidePadding"): _padded,
}
_PACKAGES = (
    "org.apache.spark.sql.catalyst.expressions.",
    "org.apache.spark.sql.catalyst.util.",
    "org.apache.spark.unsafe.",
)


def _with(rule: Callable[[Expressions, list[Expr]], str], *fields: str) -> Callable[[Expressions, Expr], str]:
    """The rule for a class of its own, which it is in Spark 3.5."""
    return lambda x, n: rule(x, [n[field] for field in fields])


def _called(x: Expressions, n: Expr) -> str:
    full = str(n["staticObject"])
    name = next((full.removeprefix(package) for package in _PACKAGES if full.startswith(package)), full)
    rule = _CALLED.get((name, n["functionName"]))
    if rule is None:
        raise Unsupported(f"{said_function(n)} is not taken over")
    return rule(x, n["arguments"])


RULES: dict[str, Callable[[Expressions, Expr], str]] = {
    "Hex": _hex,
    "Unhex": _unhex,
    "UnBase64": _unbase64,
    "Md5": partial(_hash, "md5"),
    "Sha1": partial(_hash, "sha1"),
    "Sha2": _sha2,
    "StaticInvoke": _called,
    "Encode": _with(partial(_in_charset, "encode"), "value", "charset"),
    "StringDecode": _with(partial(_in_charset, "decode"), "bin", "charset"),
}
