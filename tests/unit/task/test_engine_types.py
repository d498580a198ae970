"""Each type of Arrow's on its way into the engine and out of it: the same values come back, or the statement is refused."""

from __future__ import annotations

from datetime import date, time
from decimal import Decimal

import pyarrow as pa
import pytest

from firesteel.engine.connection import EngineSettings, run
from firesteel.engine.convert import carried, carrier, conformed, opaque
from firesteel.errors import EngineStop, Stop
from firesteel.task.operators.fragments import SqlFragment
from operators_support import context

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


def through(tmp_path, values: pa.Array, back: pa.DataType, taken=carrier) -> pa.Array:
    """The values that a statement hands through, of a batch and of a table."""
    rows = conformed(pa.record_batch({"c0": values}), pa.schema({"c0": taken(values.type)}))
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


HANDED_ON = {
    pa.float16(): [1.5, float("-inf")],
    pa.decimal256(60, 2): [Decimal("1" * 50 + ".25")],
    pa.uuid(): [b"0123456789abcdef"],
    pa.list_(pa.float16()): [[1.5, None]],
    pa.dictionary(pa.int8(), pa.large_string(), ordered=True): ["b", "a"],
    pa.month_day_nano_interval(): [(1, -2, 3)],
    pa.date64(): [date(9999, 12, 31)],
    pa.date32(): [2**31 - 1, -(2**31)],
    **{kind: [MOST, -(2**63)] for kind in (pa.timestamp("s"), pa.timestamp("us", "UTC"), pa.timestamp("ns", "Asia/Tokyo"), pa.duration("s"))},
}  # fmt: skip
"""Of these it computes nothing, or not the right thing."""


@pytest.mark.parametrize(("kind", "values"), [*SAME.items(), *CAST.items(), *HANDED_ON.items()], ids=str)
def test_values_of_any_type_are_handed_on(tmp_path, kind, values):
    given = pa.array([*values, None], kind)
    found = through(tmp_path, given, kind, opaque)
    assert found.type == kind
    if pa.types.is_dictionary(kind):
        found, given = found.cast(kind.value_type), given.cast(kind.value_type)
    assert found.equals(pa.chunked_array([given, given]))


def test_texts_are_handed_on_that_are_none(tmp_path):
    given = pa.array([b"\xff\xfe"]).view(pa.string())
    [found] = through(tmp_path, given, pa.string(), opaque).chunks[:1]
    assert found.view(pa.binary()).to_pylist() == [b"\xff\xfe"]


def test_run_ends_are_handed_on(tmp_path):
    given = pa.RunEndEncodedArray.from_arrays([2, 3], [7, None], RUN_ENDS)
    assert through(tmp_path, given, RUN_ENDS, opaque).to_pylist() == [7, 7, None] * 2


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
    days, near = (around(pa.array([n], pa.int32()).cast(pa.date32())) for n in (end, end + (1 if end < 0 else -1)))
    schema = pa.schema({"c0": days.type})
    step, ctx = SqlFragment("sql", "SELECT c0 FROM input", schema, schema), context(tmp_path)
    with pytest.raises(EngineStop, match="date or time at the end of its type") as stopped:
        list(step.apply(iter([pa.record_batch({"c0": days})]), ctx))
    assert stopped.value.kind is Stop.VALUE
    [found] = step.apply(iter([pa.record_batch({"c0": near})]), ctx)
    assert found["c0"].equals(near)
