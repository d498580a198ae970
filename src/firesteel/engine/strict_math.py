"""Java's ``StrictMath`` over arrays of doubles: ``exp``, ``expm1``, ``log``, ``log10``, ``log1p`` and ``pow``, with its very bits.

``StrictMath`` is defined as fdlibm 5.3, the Freely Distributable Math Library (Copyright (C) 1993, 2004 by Sun Microsystems, Inc. All rights reserved.
Developed at SunPro, a Sun Microsystems, Inc. business. Permission to use, copy, modify, and distribute this software is freely granted, provided
that this notice is preserved). Its constants and the order of its operations give the last bit, so both are kept; each branch of it is computed
for all rows here, and the right one is chosen. Spark calls ``StrictMath`` for these functions. For others it calls ``Math``, whose last bits each JVM chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from firesteel.results.plain import fixed_values, made_of, one_chunk

Doubles = NDArray[np.float64]
Ints = NDArray[np.int64]

_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
"""The logarithm of 2 in two parts. The first has so few bits that its product with an exponent is exact."""
_INVERSE_LN2 = 1.44269504088896338700
_MOST, _LEAST = 7.09782712893383973096e02, -7.45133219101941108420e02
"""Beyond these, powers of e are infinite, and 0."""
_HUGE = float.fromhex("0x1.00000ffffffffp31")
_BELOW_ONE, _ABOVE_ONE = float.fromhex("0x1.fffff00000000p-1"), float.fromhex("0x1.00000ffffffffp0")
"""Powers by exponents beyond the first are infinite or 0, but for numbers between the other two."""
_LOG = (
    6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01, 2.222219843214978396e-01,
    1.818357216161805012e-01, 1.531383769920937332e-01, 1.479819860511658591e-01,
)  # fmt: skip
_EXP = (
    1.66666666666666019037e-01,
    -2.77777777770155933842e-03,
    6.61375632143793436117e-05,
    -1.65339022054652515390e-06,
    4.13813679705723846039e-08,
)
_EXPM1 = (1.0, -3.33333333333331316428e-02, 1.58730158725481460165e-03, -7.93650757867487942473e-05, 4.00821782732936239552e-06, -2.01099218183624371326e-07)  # fmt: skip
_POW = (5.99999999999994648725e-01, 4.28571428578550184252e-01, 3.33333329818377432918e-01, 2.72728123808534006489e-01, 2.30660745775561754067e-01, 2.06975017800338417784e-01)  # fmt: skip


def log(x: Doubles) -> Doubles:
    y, k = _normal(x, 54)
    high = _high(y)
    k += (high >> 20) - 1023
    high &= 0xFFFFF
    upper = (high + 0x95F64) & 0x100000  # at least the root of 2: halved
    f = _with_high(y, high | (upper ^ 0x3FF00000)) - 1.0
    n = (k + (upper >> 20)).astype(np.float64)
    s = f / (2.0 + f)
    z = s * s
    w = z * z
    r = z * _polynomial(_LOG[::2], w) + w * _polynomial(_LOG[1::2], w)
    half = 0.5 * f * f
    near_one, middle = (0xFFFFF & (2 + high)) < 3, ((high - 0x6147A) | (0x6B851 - high)) > 0
    less = np.where(
        near_one,
        f * f * (0.5 - 0.33333333333333333 * f) - n * _LN2_LOW,
        np.where(middle, half - (s * (half + r) + n * _LN2_LOW), s * (f - r) - n * _LN2_LOW),
    )
    found = n * _LN2_HIGH - (less - f)
    return _of_positive(x, found)


def log10(x: Doubles) -> Doubles:
    y, k = _normal(x, 54)
    high = _high(y)
    k += (high >> 20) - 1023
    negative = (k < 0).astype(np.int64)
    reduced = _with_high(y, (high & 0xFFFFF) | ((0x3FF - negative) << 20))
    n = (k + negative).astype(np.float64)
    z = n * 3.69423907715893078616e-13 + 4.34294481903251816668e-01 * log(reduced)
    return _of_positive(x, z + n * 3.01029995663611771306e-01)


def _of_positive(x: Doubles, found: Doubles) -> Doubles:
    """``found`` is of finite numbers above 0. The logarithms of others are the same with each base."""
    return np.where(x > 0, np.where(x < np.inf, found, x), np.where(x == 0, -np.inf, np.nan))


def log1p(x: Doubles) -> Doubles:
    high = _high(x)
    alone = (high < 0x3FDA827A) & ((high > 0) | (high <= -0x402D413D))  # needs no power of 2
    u = np.where(high < 0x43400000, 1.0 + x, x)
    whole = _high(u)
    k = (whole >> 20) - 1023
    c = np.where(high < 0x43400000, np.where(k > 0, 1.0 - (u - x), x - (u - 1.0)) / u, 0.0)
    whole &= 0xFFFFF
    lower = whole < 0x6A09E
    f = np.where(alone, x, _with_high(u, whole | np.where(lower, 0x3FF00000, 0x3FE00000)) - 1.0)
    n = np.where(alone, 0, np.where(lower, k, k + 1)).astype(np.float64)
    c = np.where(n == 0, 0.0, c)
    near_one = ~alone & (np.where(lower, whole, (0x100000 - whole) >> 2) == 0)
    half = 0.5 * f * f
    s = f / (2.0 + f)
    z = s * s
    r = z * _polynomial(_LOG, z)
    rest = n * _LN2_LOW + c
    less = np.where(near_one, half * (1.0 - 0.66666666666666666 * f) - rest, half - (s * (half + r) + rest))
    found = n * _LN2_HIGH - (less - f)
    tiny = (high & 0x7FFFFFFF) < 0x3E200000
    found = np.where(tiny, np.where((high & 0x7FFFFFFF) < 0x3C900000, x, x - x * x * 0.5), found)
    return np.where(x > -1, np.where(x < np.inf, found, x), np.where(x == -1, -np.inf, np.nan))


def atanh(x: Doubles) -> Doubles:
    """As Spark has it, by :func:`log1p`."""
    return 0.5 * (log1p(x) - log1p(-x))


def exp(x: Doubles) -> Doubles:
    k, above, below, _ = _reduced(x)
    r = above - below
    t = r * r
    c = r - t * _polynomial(_EXP, t)
    found = _scaled(1.0 - ((below - (r * c) / (2.0 - c)) - above), k)
    found = np.where(np.abs(x) < 2.0**-28, 1.0 + x, found)
    return np.where(x > _MOST, np.inf, np.where(x < _LEAST, 0.0, found))


def expm1(x: Doubles) -> Doubles:
    k, above, below, size = _reduced(x)
    r = above - below
    c = np.where(k == 0, 0.0, (above - r) - below)
    half = 0.5 * r
    t = r * half
    r1 = _polynomial(_EXPM1, t)
    q = 3.0 - r1 * half
    e = t * ((r1 - q) / (6.0 - r * q))
    unscaled = r - (r * e - t)
    e = (r * (e - c) - c) - t
    small = (k <= -2) | (k > 56)
    shift = np.clip(k, 0, 63)
    early = _with_high(np.zeros_like(x), 0x3FF00000 - (0x200000 >> shift)) - (e - r)
    late = (r - (e + _with_high(np.zeros_like(x), (0x3FF - shift) << 20))) + 1.0
    powers = _plus_exponent(np.where(small, 1.0 - (e - r), np.where(k < 20, early, late)), k)
    ones = np.where(r < -0.25, -2.0 * (e - (r + 0.5)), 1.0 + 2.0 * (r - e))
    found = np.where(small, powers - 1.0, powers)
    found = np.where(k == 0, unscaled, np.where(k == -1, 0.5 * (r - e) - 0.5, np.where(k == 1, ones, found)))
    found = np.where(size < 0x3C900000, x, found)
    return np.where(x > _MOST, np.inf, np.where((size >= 0x4043687A) & (x < 0), -1.0, found))


def _reduced(x: Doubles) -> tuple[Ints, Doubles, Doubles, Ints]:
    """``k``, and ``x - k * log(2)`` as the difference of two doubles; the upper 32 bits of ``x`` without its sign."""
    size = _high(x) & 0x7FFFFFFF
    sign = np.where(np.signbit(x), -1.0, 1.0)
    bound = np.clip(x, -800.0, 800.0)  # what is beyond is not computed
    n = np.where(size < 0x3FF0A2B2, sign, np.trunc(_INVERSE_LN2 * bound + 0.5 * sign))
    n = np.where((size > 0x3FD62E42) & ~np.isnan(x), n, 0.0)
    return n.astype(np.int64), x - n * _LN2_HIGH, n * _LN2_LOW, size


def pow(x: Doubles, y: Doubles) -> Doubles:
    size = np.abs(x)
    whole, odd = np.floor(y) == y, np.fmod(y, 2.0) != 0
    sign = np.where(np.signbit(x) & whole & odd, -1.0, 1.0)
    first, second = _log2(size)
    huge = np.abs(y) > _HUGE
    if huge.any():
        near_first, near_second = _log2_near_one(size)
        first, second = np.where(huge, near_first, first), np.where(huge, near_second, second)

    upper = _cut(y)
    low = (y - upper) * first + y * second
    top = upper * first
    z = low + top
    infinite = (z > 1024.0) | ((z == 1024.0) & (low + 8.0085662595372944372e-17 > z - top))
    nothing = (z < -1075.0) | ((z == -1075.0) & (low <= z - top))
    if huge.any():
        less, more = huge & (size < _BELOW_ONE), huge & (size > _ABOVE_ONE)
        infinite = np.where(less, y < 0, np.where(more, y > 0, infinite))
        nothing = np.where(less, y > 0, np.where(more, y < 0, nothing))
    z = np.where(infinite | nothing, 0.0, z)
    n = np.where((_high(z) & 0x7FFFFFFF) > 0x3FE00000, np.copysign(np.floor(np.abs(z) + 0.5), z), 0.0)
    top = top - n
    t = _cut(low + top)
    u = t * 6.93147182464599609375e-01
    v = (low - (t - top)) * 6.93147180559945286227e-01 + t * -1.90465429995776804525e-09
    z = u + v
    w = v - (z - u)
    t = z * z
    t1 = z - t * _polynomial(_EXP, t)
    z = 1.0 - ((z * t1) / (t1 - 2.0) - (w + z * w) - z)
    found = sign * np.where(
        infinite, np.inf, np.where(nothing, 0.0, np.ldexp(z, np.where(np.isfinite(n), n, 0).astype(np.int32)))
    )
    found = np.where((x < 0) & ~whole, np.nan, found)

    simple = (x == 0) | np.isinf(x) | (size == 1)
    plain = np.where(y < 0, 1.0 / size, size)
    found = np.where(simple, np.where((x == -1) & ~whole, np.nan, sign * plain), found)
    return _known_powers(x, y, size, found)


def _known_powers(x: Doubles, y: Doubles, size: Doubles, found: Doubles) -> Doubles:
    """What is found, but for powers that Java computes by rules of their own: exponents of 0, 1, -1, 2, one half, infinity and NaN."""
    steep = np.where(size == 1, np.nan, np.where((size > 1) == (y > 0), np.inf, 0.0))
    found = np.where(np.isinf(y), steep, found)
    found = np.where((y == 0.5) & (x > -np.inf), np.sqrt(x + 0.0), found)
    found = np.where(y == 2, x * x, np.where(y == 1, x, np.where(y == -1, 1.0 / x, found)))
    return np.where(y == 0, 1.0, np.where(np.isnan(x) | np.isnan(y), np.nan, found))


def _log2(size: Doubles) -> tuple[Doubles, Doubles]:
    """The logarithm with base 2 of finite numbers above 0, as the sum of two doubles; the first has 21 bits less."""
    a, n = _normal(size, 53)
    high = _high(a)
    n += (high >> 20) - 0x3FF
    j = high & 0xFFFFF
    middle = (j > 0x3988E) & (j < 0xBB67A)
    last = j >= 0xBB67A
    n += last
    high = (j | 0x3FF00000) - (last.astype(np.int64) << 20)
    a = _with_high(a, high)
    base = np.where(middle, 1.5, 1.0)
    u = a - base
    v = 1.0 / (a + base)
    s = u * v
    s_high = _cut(s)
    t_high = _with_high(np.zeros_like(a), ((high >> 1) | 0x20000000) + 0x00080000 + (middle.astype(np.int64) << 18))
    s_low = v * ((u - s_high * t_high) - s_high * (a - (t_high - base)))
    s2 = s * s
    r = s2 * s2 * _polynomial(_POW, s2) + s_low * (s_high + s)
    s2 = s_high * s_high
    t_high = _cut(3.0 + s2 + r)
    t_low = r - ((t_high - 3.0) - s2)
    u = s_high * t_high
    v = s_low * t_high + t_low * s
    p_high = _cut(u + v)
    p_low = v - (p_high - u)
    z_high = 9.61796700954437255859e-01 * p_high
    z_low = (
        -7.02846165095275826516e-09 * p_high
        + p_low * 9.61796693925975554329e-01
        + np.where(middle, 1.35003920212974897128e-08, 0.0)
    )
    whole, part = n.astype(np.float64), np.where(middle, 5.84962487220764160156e-01, 0.0)
    first = _cut(((z_high + z_low) + part) + whole)
    return first, z_low - (((first - whole) - part) - z_high)


def _log2_near_one(size: Doubles) -> tuple[Doubles, Doubles]:
    """As :func:`_log2`, where the number is so near 1 that a few terms are enough."""
    t = size - 1.0
    w = (t * t) * (0.5 - t * (0.3333333333333333333333 - t * 0.25))
    u = float.fromhex("0x1.715476p0") * t
    v = t * float.fromhex("0x1.4ae0bf85ddf44p-26") - w * _INVERSE_LN2
    first = _cut(u + v)
    return first, v - (first - u)


# --- the engine's functions --------------------------------------------------------------------------------------------


_FUNCTIONS: tuple[tuple[Callable[..., Doubles], int, float | None], ...] = (
    (exp, 1, None),
    (expm1, 1, None),
    (log, 1, 0.0),
    (log10, 1, 0.0),
    (log1p, 1, -1.0),
    (atanh, 1, None),
    (pow, 2, None),
)
"""Each with its number of arguments, and the number up to which Spark gives null."""


def register(connection: Any) -> None:
    """Makes them functions of the engine: ``fs_exp`` and so on, of doubles. They are null where an argument is."""
    for of, arguments, bound in _FUNCTIONS:
        made, types = _for_engine(of, arguments, bound), ["DOUBLE"] * arguments
        connection.create_function(f"fs_{of.__name__}", made, types, "DOUBLE", type="arrow", null_handling="special")


def _for_engine(of: Callable[..., Doubles], arguments: int, bound: float | None) -> Callable[..., pa.Array]:
    def found(*columns: Any) -> pa.Array:
        arrays = list(map(one_chunk, columns))
        given = [fixed_values(one, np.float64) for one in arrays]
        with np.errstate(all="ignore"):
            values = of(*given)
        known = reduce(np.logical_and, (np.asarray(one.is_valid()) for one in arrays))
        if bound is not None:
            known &= ~(given[0] <= bound)
        return made_of(pa.float64(), values, known)

    def of_one(x: Any) -> pa.Array:  # the engine counts parameters
        return found(x)

    def of_two(x: Any, y: Any) -> pa.Array:
        return found(x, y)

    return of_two if arguments == 2 else of_one


# --- bits ---------------------------------------------------------------------------------------------------------------


def _polynomial(factors: Sequence[float], x: Doubles) -> Any:
    """``factors[0] + x * (factors[1] + x * ...)``."""
    return reduce(lambda sum_, factor: factor + x * sum_, reversed(factors[:-1]), factors[-1])


def _high(x: Doubles) -> Ints:
    """The upper 32 bits, with their sign."""
    return x.view(np.int64) >> 32


def _with_high(x: Doubles, high: Ints) -> Doubles:
    return ((x.view(np.int64) & 0xFFFFFFFF) | (high << 32)).view(np.float64)


def _cut(x: Doubles) -> Doubles:
    return (x.view(np.int64) & ~0xFFFFFFFF).view(np.float64)


def _normal(x: Doubles, bits: int) -> tuple[Doubles, Ints]:
    """Numbers below the normal ones times ``2 ** bits``; what to add to their exponents."""
    small = x < 2.0**-1022
    return np.where(small, x * 2.0**bits, x), np.where(small, -bits, 0)


def _plus_exponent(x: Doubles, k: Ints) -> Doubles:
    return (x.view(np.int64) + (k << 52)).view(np.float64)


def _scaled(x: Doubles, k: Ints) -> Doubles:
    return np.where(k >= -1021, _plus_exponent(x, k), _plus_exponent(x, k + 1000) * 2.0**-1000)
