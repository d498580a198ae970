"""Each type of Arrow's on its way into the engine and out of it: the same values come back, or the statement is refused."""

from __future__ import annotations

from datetime import date, time
from decimal import Decimal

import pyarrow as pa
import pytest

from firesteel.engine.connection import EngineSettings, run
from firesteel.engine.convert import carried, carrier
from firesteel.errors import EngineStop, Stop

MOST = 2**63 - 1
DAY, TIME = [date(1, 1, 1), date(9999, 12, 31)], [time(0, 0), time(23, 59, 59)]
HALF = [Decimal("-0.50"), Decimal("99999.99")]
TEXTS, BYTES = ["", "ÄB\0", "x" * 40], [b"", b"\0\xff", b"x" * 40]

SAME = {
    **{kind: [-(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1] for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
    **{kind: [0, 2**kind.bit_width - 1] for kind in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())},
    pa.bool_(): [True, False],
    pa.null(): [None],
    pa.float32(): [-0.0, 1.5, float("inf")],
    pa.float64(): [-0.0, 1e300, float("-inf")],
    pa.decimal128(7, 2): HALF,
    pa.decimal128(18, 2): HALF,
    pa.decimal128(38, 2): [Decimal("9" * 36 + ".99"), *HALF],
    pa.string(): TEXTS,
    pa.binary(): BYTES,
    pa.date32(): DAY,
    pa.time64("us"): TIME,
    pa.time64("ns"): [0, 86_399_999_999_999],
    pa.timestamp("us"): [-(2**62), 2**62],
    pa.timestamp("us", "UTC"): [-(2**62), 2**62],
    pa.timestamp("ns"): [-MOST + 1, MOST - 1],
    pa.timestamp("ns", "UTC"): [-MOST + 1, MOST - 1],
    pa.month_day_nano_interval(): [(1, -2, 3000)],
    pa.list_(pa.int8()): [[1, None], []],
    pa.list_(pa.int8(), 2): [[1, None]],
    pa.struct([("a", pa.int8()), ("b c", pa.string())]): [{"a": 1, "b c": None}],
    pa.map_(pa.string(), pa.int8()): [[("k", None)], []],
}  # fmt: skip
"""Types that the engine takes as they are."""
CAST = {
    pa.decimal32(7, 2): HALF,
    pa.decimal64(18, 2): HALF,
    pa.large_string(): TEXTS,
    pa.string_view(): TEXTS,
    pa.large_binary(): BYTES,
    pa.binary_view(): BYTES,
    pa.binary(2): [b"ab"],
    pa.date64(): DAY,
    pa.time32("s"): TIME,
    pa.time32("ms"): TIME,
    **{pa.duration(unit): [-MOST, 1, MOST] for unit in ("s", "ms", "us", "ns")},
    **{pa.timestamp(unit, zone): [-(10**12), 10**12] for unit in ("s", "ms") for zone in (None, "UTC", "Asia/Tokyo")},
    **{pa.timestamp(unit, "Asia/Tokyo"): [-(10**12), 10**12] for unit in ("us", "ns")},
    pa.large_list(pa.int8()): [[1, None], []],
    pa.dictionary(pa.int8(), pa.string()): ["a", "b", "a"],
    pa.list_(pa.duration("ns")): [[1, None]],
    pa.struct([("d", pa.duration("s")), ("t", pa.large_string())]): [{"d": 1, "t": "x"}],
    pa.map_(pa.large_string(), pa.duration("ns")): [[("k", 1)]],
}
"""Those that go in, and come back, as another one."""
RUN_ENDS = pa.run_end_encoded(pa.int32(), pa.int64())
NONE = (
    pa.float16(),
    pa.decimal256(10, 2),
    pa.dense_union([pa.field("a", pa.int8())]),
    pa.sparse_union([pa.field("a", pa.int8())]),
    pa.list_view(pa.int8()),
    pa.large_list_view(pa.int8()),
    pa.uuid(),
    pa.list_(pa.float16()),
)


def through(tmp_path, values: pa.Array, back: pa.DataType) -> pa.Array:
    """The values that a statement hands through, of a batch and of a table."""
    rows = pa.record_batch({"c0": values})
    schema = pa.schema({"c0": back})
    settings = EngineSettings(tmp_path / "engine", 64 << 20)
    text = "SELECT c0 FROM input UNION ALL SELECT c0 FROM side"
    found = list(run(text, {"input": (rows.schema, iter([rows]))}, {"side": pa.table(rows)}, schema, settings))
    assert all(batch.schema == schema for batch in found)
    return pa.chunked_array([batch["c0"] for batch in found], back)


@pytest.mark.parametrize(("kind", "values"), [*SAME.items(), *CAST.items()], ids=str)
def test_a_value_comes_back_as_it_was(tmp_path, kind, values):
    given = pa.array([*values, None], kind)
    assert through(tmp_path, given, kind).equals(pa.chunked_array([given, given]))
    assert (carrier(kind) == kind) is (kind in SAME)


def test_run_ends_come_back_as_plain_values(tmp_path):
    given = pa.array([7, 7, None], RUN_ENDS)
    assert carrier(RUN_ENDS) == pa.int64()
    assert through(tmp_path, given, pa.int64()).to_pylist() == [7, 7, None] * 2


@pytest.mark.parametrize("kind", NONE, ids=str)
def test_a_type_that_the_engine_has_not_is_refused(kind):
    with pytest.raises(EngineStop, match="takes no values of type") as stopped:
        carried(pa.schema({"c0": kind}))
    assert stopped.value.kind is Stop.INPUT


def test_all_types_are_looked_at():
    ids = {kind.id for kind in (*SAME, *CAST, RUN_ENDS, *NONE)}
    known = {value for name, value in vars(pa.lib).items() if name.startswith("Type_") and isinstance(value, int)}
    assert known - ids <= {pa.lib.Type_INTERVAL_MONTHS, pa.lib.Type_INTERVAL_DAY_TIME}


@pytest.mark.parametrize("end", [2**31 - 1, -(2**31) + 1])
@pytest.mark.parametrize(
    "around",
    [
        lambda days: days,
        lambda days: pa.ListArray.from_arrays([0, 1], days),
        lambda days: pa.StructArray.from_arrays([days], ["d"]),
        lambda days: pa.MapArray.from_arrays([0, 1], pa.array(["k"]), pa.ListArray.from_arrays([0, 1], days)),
    ],
    ids=["plain", "list", "struct", "map"],
)
def test_a_day_at_the_end_of_its_type_is_refused(tmp_path, around, end):
    """To the engine it is infinite, so that one day more or less is the same day."""
    days = pa.array([end], pa.int32()).cast(pa.date32())
    with pytest.raises(EngineStop, match="A time at the end of its type") as stopped:
        through(tmp_path, around(days), around(days).type)
    assert stopped.value.kind is Stop.VALUE
    near = pa.array([end + (1 if end < 0 else -1)], pa.int32()).cast(pa.date32())
    assert through(tmp_path, around(near), around(near).type).cast(around(near.cast(pa.int32())).type).to_pylist()
