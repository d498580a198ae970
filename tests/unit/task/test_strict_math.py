"""Java's ``StrictMath`` in the engine. The values are those of a JVM (17): edges, and numbers of which numpy's functions give another last bit."""

from __future__ import annotations

from math import inf, nan

import numpy as np
import pyarrow as pa
import pytest

from firesteel.engine.connection import connect

LEAST, MOST = 5e-324, 1.7976931348623157e308
VALUES = {
    "exp": [
        (0.0, 1.0), (1.0, 2.7182818284590455), (-1.0, 0.36787944117144233), (0.1, 1.1051709180756477), (709.782712893384, 1.7976931348622732e308),
        (709.7827128933841, inf), (-745.1332191019411, LEAST), (-745.1332191019412, 0.0), (-708.5, 2.006132305331306e-308), (2.0**-29, 1.0000000018626451),
        (inf, inf), (-inf, 0.0), (nan, nan), (None, None), (-0.18925791577586748, 0.8275730350256458), (-3.868256240261576, 0.020894773140469683),
    ],
    "expm1": [
        (0.0, 0.0), (-0.0, -0.0), (1.0, 1.718281828459045), (-1.0, -0.6321205588285577), (0.3, 0.3498588075760031), (1e-10, 1.00000000005e-10),
        (15.5, 5389697.476283012), (25.0, 72004899336.38588), (40.0, 2.3538526683701997e17), (-38.9, -1.0), (709.79, inf), (-inf, -1.0), (nan, nan),
        (0.40512281691201124, 0.4994866510681924), (6.7189382481399225, 826.9379799517343),
    ],
    "log": [
        (0.0, None), (-1.0, None), (-inf, None), (1.0, 0.0), (2.0, 0.6931471805599453), (LEAST, -744.4400719213812), (1e-310, -713.8013788281542),
        (MOST, 709.782712893384), (1 + 2.0**-52, 2.2204460492503128e-16), (1.000000238418579, 2.384185506798576e-07), (inf, inf), (nan, nan), (None, None),
        (0.09534989426344669, -2.3502020558671397), (6.710942928033297, 1.9037394668981436),
    ],
    "log10": [
        (-0.0, None), (1.0, 0.0), (1000.0, 3.0), (0.001, -3.0), (1e22, 22.0), (LEAST, -323.3062153431158), (MOST, 308.25471555991675), (inf, inf), (nan, nan),
        (1.6518857901804485, 0.21798001731302966), (0.3080712043615444, -0.5113488936055793),
    ],
    "log1p": [
        (-1.0, None), (-2.0, None), (0.0, 0.0), (-0.0, -0.0), (1.0, 0.6931471805599453), (-0.2, -0.22314355131420976), (1e-10, 9.999999999500001e-11),
        (1e-17, 1e-17), (-0.5, -0.6931471805599453), (1e17, 39.14394658089878), (inf, inf), (nan, nan), (0.29322019104567604, 0.25713537999012287),
        (float.fromhex("-0x1.2bec400000001p-2"), -0.3465738602753712),
    ],
    "atanh": [(0.0, 0.0), (1.0, inf), (-1.0, -inf), (2.0, nan), (0.5, 0.5493061443340548), (None, None)],
    "pow": [
        ((2.0, 0.5), 1.4142135623730951), ((10.0, -5.0), 9.999999999999999e-06), ((-2.0, 3.0), -8.0), ((-2.0, 0.5), nan), ((0.0, -1.5), inf), ((-0.0, -3.0), -inf),
        ((-0.0, 3.0), -0.0), ((-0.0, -2.5), inf), ((1.0, inf), nan), ((-1.0, inf), nan), ((0.5, inf), 0.0), ((0.5, -inf), inf), ((1.0, nan), nan), ((nan, 0.0), 1.0),
        ((inf, -0.1), 0.0), ((-inf, 3.0), -inf), ((-inf, 0.5), inf), ((-1.0, 2.0**53), 1.0), ((-1.0, 2.0**53 - 1), -1.0), ((1 + 2.0**-52, 1e17), 4398196873.9457445),
        ((1 - 2.0**-53, 1e17), 1.5078657172714957e-05), ((1.5, 3e9), inf), ((0.5, 3e9), 0.0), ((1.0000001, 4e9), 5.221366480855136e173), ((2.0, 1024.0), inf),
        ((2.0, -1074.5), LEAST), ((2.0, -1075.0), 0.0), ((LEAST, 0.5), 2.2227587494850775e-162), ((LEAST, 1.1), 0.0), ((MOST, 1.01), inf), ((10.0, -323.0), 1e-323),
        ((0.0, 0.0), 1.0), ((None, 0.0), None), ((2.0, None), None), ((0.04868409102840978, -0.062239176728854234), 1.2069685348897408), ((0.012993132239933314, -7.783292514411327), 480304664729254.1),
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def engine():
    with connect() as made:
        yield made


@pytest.mark.parametrize("name", VALUES)
def test_bits_are_javas(engine, name):
    given, expected = zip(*VALUES[name], strict=True)
    columns = list(zip(*given, strict=True)) if name == "pow" else [given]
    rows = pa.table({f"c{place}": pa.array(column, pa.float64()) for place, column in enumerate(columns)})
    assert rows.num_rows == len(given)
    found = engine.sql(f"SELECT fs_{name}({', '.join(rows.column_names)}) AS v FROM rows").to_arrow_table()["v"]
    assert list(map(bits, found.to_pylist())) == list(map(bits, expected))


def bits(value: float | None) -> str:
    return "null" if value is None else "nan" if np.isnan(value) else value.hex()
