"""Texts with Spark's results: patterns, parts and letters; what Java and Arrow take differently is refused, or an error of the row."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from firesteel.api.expressions.arithmetic import failing
from firesteel.api.expressions.values import HINT, Value, alike, compared, constant, null
from firesteel.errors import UsageError
from firesteel.plan.expr import Unsupported
from firesteel.render.expressions.regexes import engine_regex
from firesteel.render.expressions.strings import ALIKE

_t = pa.types
_LINE_END = "\\n\\r\\x{85}\\x{2028}\\x{2029}"


def of_text(value: Value, what: str) -> Value:
    """Raises UsageError for a value that is no text."""
    if _t.is_null(value.type):
        return Value(null(pa.string()), pa.string())
    if not _t.is_string(value.type):
        raise UsageError(f"{what} wants text, not {value.type}.", hint='Cast it: c.cast("string").')
    return value


def any_equal(value: Value, options: Sequence[Value], what: str) -> Value:
    """SQL's IN."""
    if not options:
        return Value(pc.scalar(False), pa.bool_())
    value, *options = alike([value, *options], what)
    constants = [option.constant[0] for option in options if option.constant]
    if len(constants) < len(options) or _t.is_floating(value.type) or _t.is_null(value.type):
        found = [compared("=", value, option, what).expression for option in options]
        either = found[0]
        for one in found[1:]:
            either = either | one
        return Value(either, pa.bool_())
    known = pa.array([one for one in constants if one is not None], value.type)
    found = pc.if_else(value.expression.is_valid(), value.expression.isin(known), null(pa.bool_()))
    return Value(found | null(pa.bool_()) if len(known) < len(constants) else found, pa.bool_())


def is_nan(value: Value, text: str) -> pc.Expression:
    if not _t.is_floating(value.type):
        raise UsageError(f"{text} is of fractions, not of {value.type}.", hint='Cast it: c.cast("double").')
    return pc.coalesce(pc.is_nan(value.expression), pc.scalar(False))


# --- patterns -------------------------------------------------------------------------------------------------------


def quoted(text: str) -> str:
    """A pattern of just this text."""
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"A text is wanted there, not {text!r}.", hint="Compare with other columns by F.concat or ==.")
    return "".join(f"\\x{{{ord(letter):X}}}" if not letter.isalnum() else letter for letter in text)


def of_like(pattern: str) -> str:
    """The regular expression of a LIKE."""
    quoted(pattern)
    parts: list[str] = []
    for part in re.findall(r"\\.|.", pattern, re.S):
        if part == "\\" or (part[0] == "\\" and len(part) == 2 and part[1] not in "%_\\"):
            raise UsageError(f"like({pattern!r}): a backslash stands before %, _ or another backslash only.")
        parts.append({"%": "(?s:.*)", "_": "(?s:.)"}.get(part) or quoted(part[-1]))
    return f"\\A{''.join(parts)}\\z"


def of_java(pattern: str) -> str:
    """A regular expression of Java as one of RE2 that matches the same texts. Raises UsageError for what is not surely alike."""
    quoted(pattern)
    at_end = pattern.endswith("$") and not pattern.endswith("\\$")
    try:
        regex = engine_regex(pattern.removesuffix("$") if at_end else pattern)
    except Unsupported:
        regex = None
    if regex is None or regex.on_ascii or regex.at_end:
        raise UsageError(f"rlike({pattern!r}): this pattern may match other texts here than in Java.", hint=HINT)
    return f"{regex.text}(?:\\r\\n|[{_LINE_END}])?\\z" if at_end else regex.text


# --- parts ----------------------------------------------------------------------------------------------------------


def substring(value: Value, start: int, length: int, what: str) -> Value:
    if not isinstance(start, int) or not isinstance(length, int):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"{what} wants whole numbers.", hint=HINT)
    text = of_text(value, what).expression
    begin = start - 1 if start > 0 else start
    end = begin + max(length, 0)
    if length <= 0:
        end = begin
    part = pc.utf8_slice_codeunits(text, begin, None if begin < 0 <= end else end)
    return Value(part, pa.string())


def letters(value: Value, function: str, what: str) -> Value:
    """``upper`` or ``lower``; an error where Java and Arrow change a text's letters differently."""
    text = of_text(value, what).expression
    change = pc.utf8_upper if function == "upper" else pc.utf8_lower
    known = pc.match_substring_regex(text, f"\\A{ALIKE[function]}\\z")
    return Value(failing(~known, text, f"{function}() of these letters is not Spark's", change(text)), pa.string())


def trimmed(value: Value, side: str, what: str) -> Value:
    """Without blanks at the ``left``, the ``right`` or ``both`` sides."""
    text = of_text(value, what).expression
    trim = {"left": pc.utf8_ltrim, "right": pc.utf8_rtrim, "both": pc.utf8_trim}[side]
    return Value(trim(text, characters=" "), pa.string())


def length(value: Value, what: str) -> Value:
    """In characters."""
    return Value(pc.utf8_length(of_text(value, what).expression), pa.int32())


def joined(separator: str | None, values: Sequence[Value], what: str) -> Value:
    """``concat`` (no separator: a null makes all null) or ``concat_ws`` (nulls are left out)."""
    parts = [of_text(value, what).expression for value in values]
    if not parts:
        return constant("")
    if separator is None:
        return Value(_together(parts), pa.string())
    # not with Arrow's null_handling="skip", which gives no value at all for a row of nulls
    pieces = [pc.coalesce(_together([pc.scalar(separator), part]), pc.scalar("")) for part in parts]
    return Value(pc.utf8_slice_codeunits(_together(pieces), len(separator)), pa.string())


def _together(parts: Sequence[pc.Expression]) -> pc.Expression:
    """Null where one of them is."""
    return pc.binary_join_element_wise(*parts, pc.scalar(""), null_handling="emit_null")
