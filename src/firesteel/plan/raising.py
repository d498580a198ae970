"""Expressions that may raise an error of Spark's: no row may be dropped before they are computed.

An expression counts as one that may raise unless it is known never to raise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from firesteel.plan.expr import Expr, Unsupported, eval_mode
from firesteel.plan.types import FLOATS, INTEGERS, decimal_of, is_interval, is_text


def may_raise(node: Expr) -> bool:
    """Return whether Spark may raise an error for some row when it computes the expression.

    Subqueries do not count, because they are computed apart from the rows.
    """
    if node.cls in ("ScalarSubquery", "TryEval"):
        return False
    if node.cls not in _NEVER:
        rule = _SOMETIMES.get(node.cls)
        if rule is None or rule(node):
            return True
    return any_raises(node.nodes())


def any_raises(nodes: Iterable[Expr]) -> bool:
    return any(map(may_raise, nodes))


def sure(conditions: Iterable[Expr]) -> list[Expr]:
    """Return the conditions by which a row may be dropped before the others are computed. All ``conditions`` are to hold.

    Spark computes a condition unless one before it is false. Only a filter in generated code stops at null, too.
    """
    conditions = list(conditions)
    if not any_raises(conditions):
        return conditions
    known: set[str] = set()
    found: list[Expr] = []
    for one in conditions:
        if may_raise(one):
            break
        if _never_null(one, known):
            found.append(one)
        if one.cls == "IsNotNull" and one["child"].cls == "AttributeReference":
            known.add(one["child"].id)
    return found


def _never_null(node: Expr, known: set[str]) -> bool:
    """``known``: columns that are not null."""
    if node.cls in ("IsNull", "IsNotNull", "EqualNullSafe"):
        return True
    if node.cls == "Literal":
        return node["value"] is not None
    if node.cls == "AttributeReference":
        return node.id in known
    if node.cls == "InSet":
        return _never_null(node["child"], known) and isinstance(node["hset"], list) and None not in node["hset"]
    return node.cls in _NULL_OF_NULLS and all(_never_null(one, known) for one in node.nodes())


_NULL_OF_NULLS = frozenset(
    [
        "EqualTo",
        "LessThan",
        "LessThanOrEqual",
        "GreaterThan",
        "GreaterThanOrEqual",
        "In",
        "StartsWith",
        "EndsWith",
        "Contains",
        "And",
        "Or",
        "Not",
    ]
)
"""Conditions that are null only where an operand is."""


_NAMES = """
AttributeReference Alias Literal NamedLambdaVariable LambdaFunction OuterReference And Or Not IsNull IsNotNull In InSet If
CaseWhen Coalesce EqualTo EqualNullSafe LessThan LessThanOrEqual GreaterThan GreaterThanOrEqual Greatest Least AtLeastNNonNulls IsNaN NaNvl
KnownNotNull KnownNullable KnownFloatingPointNormalized KnownNotContainsNull NormalizeNaNAndZero
Exp Log Log2 Log10 Logarithm Pow Cbrt Sin Cos Tan Cot Sec Csc Asin Acos Atan Atan2 Sinh Cosh Tanh Atanh Log1p Expm1
Murmur3Hash XxHash64 Crc32 HyperLogLogPlusPlus
Sqrt Signum ToDegrees ToRadians Factorial Rint Ceil Floor UnscaledValue Bin BitwiseAnd BitwiseOr BitwiseXor BitwiseNot
BitwiseCount ShiftLeft ShiftRight ShiftRightUnsigned
Ascii BitLength Chr FindInSet FormatNumber FormatString GetJsonObject JsonToStructs Mask SoundEx Concat ConcatWs Contains EndsWith StartsWith Hex InitCap Length Levenshtein Lower Upper Md5
OctetLength Overlay Reverse Sha1 Sha2 StringInstr StringLPad StringLocate StringRPad StringReplace
StringTranslate StringTrim StringTrimLeft StringTrimRight Substring SubstringIndex
Year Quarter Month DayOfMonth DayOfWeek DayOfYear WeekDay WeekOfYear YearOfWeek Hour Minute Second SecondWithFraction
DayName MonthName DateFormatClass LastDay TruncDate TruncTimestamp DateAdd DateSub DateDiff UnixDate UnixMicros UnixMillis
UnixSeconds DateFromUnixDate ExtractANSIIntervalDays ExtractANSIIntervalHours ExtractANSIIntervalMinutes
ExtractANSIIntervalMonths ExtractANSIIntervalSeconds ExtractANSIIntervalYears
CreateArray CreateNamedStruct GetStructField GetArrayStructFields Size ArrayContains ArrayDistinct ArrayExcept ArrayExists
ArrayFilter ArrayForAll ArrayIntersect ArrayJoin ArrayMax ArrayMin ArrayPosition ArrayRemove ArrayTransform ArrayUnion
ArraysOverlap ArraysZip MapKeys MapValues MapEntries MapFilter MapSort
AggregateExpression Complete AnyRow Count Max Min First Last Mode StddevSamp StddevPop VarianceSamp VariancePop CollectList CollectSet
WindowExpression WindowSpecDefinition SortOrder Ascending Descending NullsFirst NullsLast RowFrame
RangeFrame UnboundedPreceding UnboundedFollowing CurrentRow RowNumber Rank DenseRank PercentRank CumeDist NTile Lag Lead
NthValue NumericEvalContext EvalMode ANSI LEGACY TRY
"""
_NEVER = frozenset(_NAMES.split())
"""Columns, constants, choices, and functions of numbers, texts, bytes, times, nested values; aggregates and windows, and what their trees
hold."""


def _is_ansi(node: Expr) -> bool:
    """True also where the mode is not known."""
    try:
        return eval_mode(node) == "ANSI"
    except Unsupported:
        return True


def _overflows(node: Expr) -> bool:
    """Sums, differences, products: floats never; intervals, and decimals whose type has no room for each digit, in every mode."""
    if node.type in FLOATS:
        return False
    if is_interval(node.type):
        return True
    a, b = decimal_of(node["left"].type), decimal_of(node["right"].type)
    if a is None or b is None:
        return _is_ansi(node)
    (p1, s1), (p2, s2) = a, b
    digits = p1 + p2 + 1 if node.cls == "Multiply" else max(p1 - s1, p2 - s2) + max(s1, s2) + 1
    return digits > 38


def _divides(node: Expr) -> bool:
    """By zero, or a quotient of too many digits."""
    if not _is_ansi(node):
        return False
    by = node["right"]
    if by.cls != "Literal" or by["value"] is None or float(by["value"]) == 0:
        return True
    if node.cls == "IntegralDivide":  # the least number by -1
        return float(by["value"]) == -1
    a, b = decimal_of(node["left"].type), decimal_of(by.type)
    if node.cls != "Divide" or a is None or b is None:
        return False
    (p1, s1), (p2, s2) = a, b
    return p1 - s1 + s2 + max(6, s1 + p2 + 1) > 38


KEPT_DIGITS = 34
"""Digits to which Spark rounds a decimal when it changes its sign."""


def _negates(node: Expr) -> bool:
    """The least integer has no opposite. A decimal that is rounded may need one more digit than its type has."""
    kind = node["child"].type
    found = decimal_of(kind)
    if kind in FLOATS or found is not None:
        return found is not None and found[0] > KEPT_DIGITS
    if is_interval(kind):
        return True
    mode = node.get("failOnError")
    return mode is not False if isinstance(mode, bool) else _is_ansi(node)


def _rounds(node: Expr) -> bool:
    """Integers to tens, hundreds, and decimals that may get one digit more than there is room for."""
    kind = node["child"].type
    if kind in INTEGERS:
        scale = node["scale"]
        return scale.cls != "Literal" or scale["value"] is None or int(scale["value"]) < 0
    found = decimal_of(kind)
    return found is not None and found[0] > 37


def _casts(node: Expr) -> bool:
    kind = node["child"].type
    if decimal_of(node.type) and node["child"].cls == "Divide" and _of_digits(node["child"]["left"], "Average"):
        return False  # an average of short decimals fits in their type, and Spark casts it to one with four digits more
    if is_interval(node.type) and kind in INTEGERS:
        return True
    if node.type in ("timestamp", "timestamp_ntz") and kind in ("date", "timestamp", "timestamp_ntz"):
        return True  # beyond the year 294247, in every mode
    return _is_ansi(node) and not _fits(kind, node.type)


def _is_moved(node: Expr) -> bool:
    """A window's frame: a range adds its bound to the value of each row."""
    ends = (node["lower"], node["upper"])
    return node["frameType"].cls == "RangeFrame" and any(end.cls == "Literal" for end in ends)


def _fits(kind: Any, to: Any) -> bool:  # noqa: PLR0911 - one for each family
    """Return whether each value of a type has one of the other."""
    if kind == to or (to == "string" and isinstance(kind, str)):
        return True
    if not isinstance(kind, str) or not isinstance(to, str):
        return False
    wanted, given = decimal_of(to), decimal_of(kind)
    if kind in INTEGERS and to in INTEGERS:
        return INTEGERS.index(kind) <= INTEGERS.index(to)
    if kind in INTEGERS and wanted:
        return wanted[0] - wanted[1] >= _DIGITS[kind]
    if given and wanted:
        carried = 1 if wanted[1] < given[1] else 0
        return wanted[0] - wanted[1] >= given[0] - given[1] + carried
    if to in FLOATS:
        return kind in INTEGERS or kind in FLOATS or given is not None or kind in ("boolean", "timestamp")
    if to == "boolean":
        return not is_text(kind)
    if kind == "boolean":
        return to in INTEGERS
    return (kind, to) in (("timestamp", "date"), ("timestamp_ntz", "date"), ("timestamp", "long"), ("string", "binary"))


_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 19}


def _adds_up(node: Expr) -> bool:
    """Sums and averages: of integers below 64 bits no table has enough rows, nor of decimals whose sums have ten digits more."""
    kind = node["child"].type
    if kind in FLOATS:
        return False
    if kind in INTEGERS:
        return node.cls == "Sum" and kind == "long" and _is_ansi(node) and node["child"].cls != "UnscaledValue"
    found = decimal_of(kind)
    return found is None or found[0] > 28


def _makes_decimals(node: Expr) -> bool:
    """Spark adds up the digits of decimals of at most eight, and the type of the sum has ten more."""
    return not _of_digits(node["child"], "Sum")


def _of_digits(node: Expr, name: str) -> bool:
    """Return whether this is the aggregate ``name`` of the digits of decimals."""
    inner = node["windowFunction"] if node.cls == "WindowExpression" else node
    function = inner["aggregateFunction"] if inner.cls == "AggregateExpression" else None
    return function is not None and function.cls == name and function["child"].cls == "UnscaledValue"


def _fails_on_error(node: Expr) -> bool:
    return node.get("failOnError") is not False


def _reads_a_pattern(*names: str) -> Callable[[Expr], bool]:
    """One of the row may be wrong."""
    return lambda node: any(node[name].cls != "Literal" for name in names)


_SOMETIMES: dict[str, Callable[[Expr], bool]] = {
    "Add": _overflows,
    "Subtract": _overflows,
    "Multiply": _overflows,
    "Divide": _divides,
    "IntegralDivide": _divides,
    "Remainder": _divides,
    "Pmod": _divides,
    "UnaryMinus": _negates,
    "Abs": _negates,
    "Round": _rounds,
    "BRound": _rounds,
    "RoundCeil": _rounds,
    "RoundFloor": _rounds,
    "Cast": _casts,
    "Sum": _adds_up,
    "Average": _adds_up,
    "MakeDecimal": _makes_decimals,
    "GetArrayItem": _fails_on_error,
    "SpecifiedWindowFrame": _is_moved,
    **dict.fromkeys(("Like", "RLike"), _reads_a_pattern("right")),
    **dict.fromkeys(("RegExpExtract", "RegExpExtractAll", "RegExpInStr"), _reads_a_pattern("regexp")),
    "RegExpReplace": _reads_a_pattern("regexp", "rep"),
    "StringSplit": _reads_a_pattern("regex"),
}
