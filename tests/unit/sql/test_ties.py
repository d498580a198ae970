"""Each place where a function of the engine stands for Spark's rounding, cast or comparison, held to exact arithmetic.

One row of ``PLACES`` for each. The values are ties and their neighbours, limits of types, and random ones, at every width that the engine
stores a decimal in (4, 9, 18 and 38 digits). The expected values are those of Python's integers, decimals and fractions.
"""

from __future__ import annotations

import math
import operator
import random
import struct
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal, localcontext
from fractions import Fraction
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from firesteel.plan.expr import Expr
from firesteel.plan.types import arrow_type, decimal_of, engine_type
from firesteel.render.expressions.translator import Expressions
from sql_engine_kit import tried, trying_engine

BITS = {"byte": 7, "short": 15, "integer": 31, "long": 63}
WIDTHS = ("decimal(4,2)", "decimal(9,4)", "decimal(18,9)", "decimal(38,19)")
"""One for each of the engine's ways to store a decimal."""
LEFT = object()
"""Expected where the fragment is to end: Spark then raises, or knows the answer."""


class Place(NamedTuple):
    """``made``: the expression of columns of these ``kinds``; ``expected``: of their values, or LEFT."""

    name: str
    kinds: tuple[str, ...]
    made: Callable[..., Expr]
    expected: Callable[..., Any]
    given: Callable[..., list[tuple[Any, ...]]] | None = None
    may_end: bool = False
    """The fragment may end, too, where an operand takes more than 38 digits on the way."""


# --- values ---------------------------------------------------------------------------------------------------------------


def decimals(kind: str) -> list[Decimal]:
    digits, scale = decimal_of(kind)  # type: ignore[misc]
    chosen = random.Random(digits * 100 + scale)
    found = {0, 1, -1, 10**digits - 1, 1 - 10**digits}
    for up in range(1, min(scale + 3, digits)):  # ties of each place
        for whole in (0, 1, 2, chosen.randrange(10 ** (digits - up)), 10 ** (digits - up) - 1):
            for beside in (-1, 0, 1):
                found |= {whole * 10**up + 5 * 10 ** (up - 1) + beside}
    found |= {chosen.randrange(10 ** chosen.randint(1, digits)) for _ in range(20)}
    return [scaled(sign * n, scale) for n in sorted(found) if abs(n) < 10**digits for sign in (1, -1)]


def scaled(n: int, scale: int) -> Decimal:
    with localcontext(prec=120):
        return Decimal(n).scaleb(-scale)


def whole(kind: str) -> list[int]:
    most = 2 ** BITS[kind]
    near = {0, 1, 5, 15, 25, 49, 50, 51, 149, 150, 2**53, 2**53 + 1, 2**53 + 3, 2**24 + 1, 10**18, most - 1, most // 2}
    near |= {sign * (n + beside) for n in near for beside in (-1, 0, 1) for sign in (1, -1)} | {-most}
    return sorted(n for n in near if -most <= n < most)


def doubles(kind: str) -> list[float]:
    found = [
        0.0,
        0.5,
        1.5,
        2.5,
        0.125,
        1.005,
        2.675,
        0.285,
        1e-7,
        5e-7,
        1.25e-5,
        4.9999999e-7,
        123456789.125,
        0.1,
        1e14,
    ]
    found += [
        127.5,
        128.0,
        32767.9,
        2.0**31 - 0.5,
        2.0**31,
        2.0**53 + 2,
        2.0**63 - 1024,
        2.0**63,
        1e19,
        1e300,
        16777217.0,
    ]
    return [sign * one for one in found for sign in (1, -1)] + [math.nan, math.inf]


def values(kind: str) -> list[Any]:
    if decimal_of(kind):
        return decimals(kind)
    if kind in BITS:
        return whole(kind)
    return {"double": doubles, "string": texts, "timestamp": times}[kind](kind)


def texts(kind: str) -> list[str]:
    digits = (
        "0",
        "9",
        "0.5",
        "2.5",
        "2.45",
        "2.449",
        "2.4499999999999999",
        "2.5000000000000001",
        "99.995",
        "99.994",
        "999999999999999999",
    )
    numbers = (
        "9007199254740993",
        "16777217",
        "1.00000005960464478",
        "1.000000059604644",
        "0.000000000000000001",
        "127",
        "128",
    )
    return [sign + one for one in (*digits, *numbers) for sign in ("", "-", "+")]


def times(kind: str) -> list[int]:
    return [
        0,
        1,
        -1,
        999_999,
        -999_999,
        1_000_000,
        -1_000_000,
        -1_000_001,
        1_700_000_000_123_456,
        -62_135_596_800_000_000,
    ]


def each(*kinds: str) -> list[tuple[Any, ...]]:
    """Every value of one column; of two some pairs."""
    if len(kinds) == 1:
        return [(value,) for value in values(kinds[0])]
    a, b = map(values, kinds)
    chosen = random.Random(1)
    return [(one, chosen.choice(b)) for one in a for _ in range(4)]


def quotients(a_kind: str, b_kind: str) -> list[tuple[Any, ...]]:
    """Dividends and divisors whose quotient is a tie, or next to one."""
    (p1, s1), (p2, s2) = map(decimal_of, (a_kind, b_kind))  # type: ignore[misc]
    _, s = decimal_of(quotient_type(a_kind, b_kind))  # type: ignore[misc]
    up, chosen, found = s + s2 - s1, random.Random(p1 + p2), []
    for _ in range(1500):
        a = chosen.randrange(10 ** chosen.randint(1, p1))
        k = chosen.choice([0, 1, 2, 3, chosen.randrange(10 ** chosen.randint(1, 20))])
        divisors = (
            2 * a * 10**up // (2 * k + 1) + chosen.choice([-1, 0, 1]),
            2 ** chosen.randint(1, 60),
            5 ** chosen.randint(1, 20),
        )
        b = chosen.choice(divisors)
        if 0 < b < 10**p2:
            signs = chosen.choice([1, -1]), chosen.choice([1, -1])
            found.append((scaled(a * signs[0], s1), scaled(b * signs[1], s2)))
    return found


# --- expressions ------------------------------------------------------------------------------------------------------------


def cast(to: str, mode: str = "ANSI") -> Callable[..., Expr]:
    return lambda a: Expr("Cast", {"child": a, "evalMode": mode, "timeZoneId": "UTC"}, to)


def of(cls: str, to: str, places: int | None = None) -> Callable[..., Expr]:
    fields = {} if places is None else {"scale": Expr("Literal", {"value": places}, "integer")}
    return lambda a: Expr(cls, {"child": a, **fields}, to)


def both(cls: str, to: str) -> Callable[..., Expr]:
    return lambda a, b: Expr(cls, {"left": a, "right": b, "evalMode": "LEGACY"}, to)


# --- what is expected -------------------------------------------------------------------------------------------------------


def near(value: Decimal, to: str, how: str = ROUND_HALF_UP, places: int | None = None) -> Any:
    digits, scale = decimal_of(to)  # type: ignore[misc]
    with localcontext(prec=120):
        found = value.quantize(Decimal(1).scaleb(-scale if places is None else -places), how)
        return LEFT if abs(found) >= Decimal(10) ** (digits - scale) else found.quantize(Decimal(1).scaleb(-scale))


def within(value: int, kind: str) -> Any:
    return value if -(2 ** BITS[kind]) <= value < 2 ** BITS[kind] else LEFT


def quotient_type(a: str, b: str) -> str:
    """Spark's, where a loss of digits is allowed."""
    (p1, s1), (p2, s2) = map(decimal_of, (a, b))  # type: ignore[misc]
    scale = max(6, s1 + p2 + 1)
    return adjusted(p1 - s1 + s2 + scale, scale)


def product_type(a: str, b: str) -> str:
    (p1, s1), (p2, s2) = map(decimal_of, (a, b))  # type: ignore[misc]
    return adjusted(p1 + p2 + 1, s1 + s2)


def adjusted(digits: int, scale: int) -> str:
    if digits > 38:
        digits, scale = 38, max(38 - (digits - scale), min(scale, 6))
    return f"decimal({digits},{scale})"


def exact(function: Callable[[Any, Any], Any], to: str) -> Callable[..., Any]:
    """Of two decimals, half up. None: of zero."""

    def expected(a: Decimal, b: Decimal) -> Any:
        with localcontext(prec=120):
            return near(function(a, b), to) if b or function is not divided else None

    return expected


def divided(a: Decimal, b: Decimal) -> Decimal:
    return a / b


def remainder(a: Decimal, b: Decimal) -> Decimal:
    return a % b


def single(value: Fraction | int) -> float:
    """The nearest FLOAT, the even one of two."""
    if not value:
        return 0.0
    exponent = math.floor(math.log2(abs(value))) - 23
    while abs(value) >= Fraction(2) ** (exponent + 24):
        exponent += 1
    while abs(value) < Fraction(2) ** (exponent + 23):
        exponent -= 1
    return float(round(Fraction(value) / Fraction(2) ** exponent) * Fraction(2) ** exponent)


def short(value: float, to: str) -> Any:
    """By the shortest digits, half up; LEFT for more than 15."""
    if not math.isfinite(value) or abs(value) >= 10.0 ** (15 - decimal_of(to)[1]):  # type: ignore[index]
        return LEFT
    return near(Decimal(repr(value)), to)


def rounded(value: float, places: int) -> Any:
    if not math.isfinite(value):
        return value
    found = short(value, f"decimal({15 + places},{places})")
    return found if found is LEFT else float(found) + 0.0  # a BigDecimal has one zero


def truncated(value: float, kind: str) -> Any:
    return within(int(value), kind) if math.isfinite(value) else LEFT


PLACES = [
    *(
        Place("decimal to decimal", (kind,), cast(to), lambda v, to=to: near(v, to))
        for kind in WIDTHS
        for to in ("decimal(4,0)", "decimal(4,1)", "decimal(9,3)", "decimal(18,8)", "decimal(18,0)", "decimal(38,18)", "decimal(38,0)", "decimal(38,30)")
    ),
    *(Place("decimal to integer", (kind,), cast(to), lambda v, to=to, kind=kind: within(int(v if to == "long" or kind != WIDTHS[-1] else float(v)), to))
      for kind in WIDTHS for to in BITS),  # Spark takes the double of a wide one
    *(Place("decimal to double", (kind,), cast("double"), lambda v: float(Fraction(v))) for kind in WIDTHS),
    *(Place("integer to decimal", (kind,), cast(to), lambda v, to=to: near(Decimal(v), to)) for kind in BITS for to in ("decimal(4,1)", "decimal(9,0)", "decimal(18,2)", "decimal(38,19)")),
    *(Place("integer to integer", (kind,), cast(to), lambda v, to=to: within(v, to)) for kind in BITS for to in BITS if kind != to),
    *(Place("integer to double", (kind,), cast("double"), float) for kind in BITS),
    *(Place("integer to float", (kind,), cast("float"), single) for kind in BITS),
    *(Place("double to integer", ("double",), cast(to), lambda v, to=to: truncated(v, to)) for to in BITS),
    *(Place("double to decimal", ("double",), cast(to), lambda v, to=to: short(v, to)) for to in ("decimal(4,2)", "decimal(9,6)", "decimal(18,3)", "decimal(38,14)")),
    *(Place("text to decimal", ("string",), cast(to), lambda v, to=to: near(Decimal(v), to)) for to in ("decimal(4,1)", "decimal(9,2)", "decimal(18,0)", "decimal(38,17)")),
    Place("text to double", ("string",), cast("double"), float),
    Place("text to float", ("string",), cast("float"), lambda v: math.copysign(single(Fraction(v)), float(v))),
    *(Place("quotient", (a, b), both("Divide", quotient_type(a, b)), exact(divided, quotient_type(a, b)), quotients, "38" in a)
      for a in ("decimal(4,0)", "decimal(9,2)", "decimal(15,2)", "decimal(18,9)", "decimal(38,6)", "decimal(38,18)") for b in ("decimal(4,0)", "decimal(9,2)", "decimal(18,0)", "decimal(20,0)", "decimal(38,6)")),
    *(Place("product", (a, b), both("Multiply", product_type(a, b)), exact(Decimal.__mul__, product_type(a, b)), may_end="38" in a)
      for a in WIDTHS for b in ("decimal(4,2)", "decimal(9,4)", "decimal(18,9)")),
    *(Place("remainder", (a, b), both("Remainder", a), exact(remainder, a), lambda *k: [(a, b) for a, b in each(*k) if b]) for a in WIDTHS for b in WIDTHS[:1]),
    *(Place(cls, (kind,), of(cls, f"decimal({38 if decimal_of(kind)[0] == 38 else decimal_of(kind)[0] - decimal_of(kind)[1] + 1},0)"), lambda v, how=how: near(v, "decimal(38,0)", how))
      for kind in WIDTHS for cls, how in (("Ceil", ROUND_CEILING), ("Floor", ROUND_FLOOR))),
    *(Place(f"{cls} to {places}", (kind,), of(cls, to, places), lambda v, how=how, places=places, to=to: near(v, to, how, places))
      for kind in WIDTHS for cls, how in (("Round", ROUND_HALF_UP), ("BRound", ROUND_HALF_EVEN), ("RoundCeil", ROUND_CEILING), ("RoundFloor", ROUND_FLOOR))
      for places, to in ((1, f"decimal({min(38, decimal_of(kind)[0] - decimal_of(kind)[1] + 2)},1)"), (-1, f"decimal({decimal_of(kind)[0] - decimal_of(kind)[1] + 1},0)"))),
    *(Place(f"{cls} of an integer", (kind,), of(cls, kind, -1), lambda v, how=how, kind=kind: within(int(Decimal(v).quantize(Decimal("1E1"), how)), kind))
      for kind in BITS for cls, how in (("Round", ROUND_HALF_UP), ("BRound", ROUND_HALF_EVEN), ("RoundCeil", ROUND_CEILING), ("RoundFloor", ROUND_FLOOR))),
    *(Place(f"{cls} of a bigint", ("long",), of(cls, "long"), int) for cls in ("Ceil", "Floor")),
    *(Place(f"{cls} of a double", ("double",), of(cls, "long"), lambda v, how=how: within(how(v), "long") if math.isfinite(v) else LEFT) for cls, how in (("Ceil", math.ceil), ("Floor", math.floor))),
    *(Place(f"Round of a double to {places}", ("double",), of("Round", "double", places), lambda v, places=places: rounded(v, places)) for places in (0, 1, 2, 6)),
    Place("timestamp to double", ("timestamp",), cast("double"), lambda v: v / 1e6),
    Place("timestamp to integer", ("timestamp",), cast("long"), lambda v: v // 10**6),
]  # fmt: skip


@pytest.fixture(scope="module")
def engine():
    with trying_engine() as made:
        yield made


def alike(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or struct.pack("d", a) == struct.pack("d", b)
    return a == b


@pytest.mark.parametrize("name", dict.fromkeys(place.name for place in PLACES))
def test_the_engine_rounds_casts_and_compares_exactly(engine, name):
    for place in PLACES:
        if place.name == name:
            _held(engine, place)


def _held(engine: Any, place: Place) -> None:
    columns = [Expr("AttributeReference", {"exprId": i, "name": "x"}, kind) for i, kind in enumerate(place.kinds)]
    node = place.made(*columns)
    text = f"CAST({Expressions().text(node)} AS {engine_type(node.type)})"
    rows = (place.given or each)(*place.kinds)
    arrays = [
        pa.array(values, arrow_type(kind)) for values, kind in zip(zip(*rows, strict=True), place.kinds, strict=True)
    ]
    engine.register("rows", pa.table(arrays, [column.id for column in columns]))
    values = engine.sql(f"SELECT TRY({{'v': {tried(text)}}}) AS t FROM rows").to_arrow_table()["t"].to_pylist()
    found = [LEFT if one is None else one["v"] for one in values]
    wanted = [place.expected(*row) for row in rows]
    wrong = [
        (row, mine, other)
        for row, mine, other in zip(rows, found, wanted, strict=True)
        if not alike(mine, other) and not (place.may_end and mine is LEFT)
    ]
    assert wrong == [], f"{len(wrong)} of {len(rows)} by {text}"
    assert sum(one is not LEFT for one in found) > len(rows) // 20


@pytest.mark.parametrize(
    "place",
    [one for one in PLACES if len(one.kinds) == 1 and not one.may_end],
    ids=lambda one: f"{one.name} of {one.kinds[0]}",
)
def test_the_engine_moves_no_cast_from_a_column_to_the_constant(engine, place):
    """That would compare other values, where the cast of the column rounds."""
    column = Expr("AttributeReference", {"exprId": 0, "name": "x"}, place.kinds[0])
    node = place.made(column)
    text = f"CAST({Expressions().text(node)} AS {engine_type(node.type)})"
    known = [
        (value, wanted)
        for (value,) in each(*place.kinds)
        if (wanted := place.expected(value)) is not LEFT and wanted == wanted
    ]
    engine.register(
        "rows", pa.table([pa.array([value for value, _ in known], arrow_type(place.kinds[0]))], [column.id])
    )
    constant = random.Random(3).choice(known)[1]
    literal = f"CAST('{constant}' AS {engine_type(node.type)})"
    for sign, compared in (("=", operator.eq), ("<", operator.lt)):
        found = engine.sql(f"SELECT count(*) FROM rows WHERE {text} {sign} {literal}").fetchall()[0][0]
        assert found == sum(compared(wanted, constant) for _, wanted in known), (sign, literal)
