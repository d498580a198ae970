"""The engine's text of quotients of decimals, held to Python's decimals."""

from __future__ import annotations

import random
from decimal import ROUND_HALF_UP, Decimal, localcontext
from itertools import pairwise

import duckdb
import pytest

from firesteel.engine.connection import connect
from firesteel.render.expressions.arithmetic import decimal_quotient
from firesteel.render.expressions.texts import scaled


@pytest.fixture(scope="module")
def engine():
    with connect() as made:
        yield made


def values_of(engine, text, a="NULL", b="NULL"):
    return engine.sql(f"SELECT {text} FROM (SELECT {a} AS a, {b} AS b)").fetchall()[0][0]


@pytest.mark.parametrize(("digits", "places", "wide"), [(17, 2, 20), (38, 6, 6), (20, 10, 11), (35, 0, 3)])
def test_a_quotient_is_exact_and_half_up(engine, digits, places, wide):
    """``wide``: decimal places of the quotient."""
    chosen = random.Random(places)
    kind = f"decimal({digits},{places})"
    text = decimal_quotient("a", kind, "b", kind, f"decimal(38,{wide})")
    for _ in range(40):
        a, b = (Decimal(chosen.randint(-(10**7), 10**7)).scaleb(-places) for _ in range(2))
        if not b:
            continue
        with localcontext(prec=76):
            expected = (a / b).quantize(Decimal(1).scaleb(-wide), ROUND_HALF_UP)
        assert values_of(engine, text, f"{a:f}::{kind}", f"{b:f}::{kind}") == expected
    assert values_of(engine, text) is None


@pytest.mark.parametrize("scale", [0, 1, 20, 38])
def test_a_decimal_is_what_its_digits_say(engine, scale):
    for digits in (0, 7, -5, 10**38 - 1, 1 - 10**38):
        found = values_of(engine, scaled(f"{digits}::HUGEINT", 38, scale))
        sign, shown, exponent = Decimal(found).as_tuple()
        assert exponent == -scale and int("".join(map(str, shown))) * (-1) ** sign == digits
    precision = min(scale + 1, 38)
    with pytest.raises(duckdb.Error):
        values_of(engine, scaled(f"{10**precision}::HUGEINT", precision, scale))


@pytest.mark.parametrize(("left", "expected"), [(True, 1), (False, 2)])
def test_quotients_of_quotients_are_written_once(engine, left, expected):
    """A text that each level doubled took the engine seconds to plan. ``left``: 64 / 2 / 2 ..., else 64 / (64 / (64 ... / 2))."""
    kind, text, lengths = "decimal(18,6)", "a" if left else "b", []
    for _ in range(6):
        operands = (text, kind, "b", kind) if left else ("a", kind, text, kind)
        text = f"CAST({decimal_quotient(*operands, 'decimal(38,20)')} AS DECIMAL(18,6))"
        lengths.append(len(text))
    growth = [after - before for before, after in pairwise(lengths)]
    assert max(growth) < 2 * min(growth)
    assert values_of(engine, text, "64.0::decimal(18,6)", "2.0::decimal(18,6)") == expected
