"""Heavy keys as producers find them: which, with what share, of which types, and when nothing is looked at."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from firesteel.model.heavy_keys import MOST_KEYS, decode_heavy_keys
from firesteel.results import writer as module
from firesteel.results.hashing import hash_columns, subpartition_of
from firesteel.results.storage.store import ResultStore, object_name
from firesteel.results.writer import KeySampler, ResultWriter

SUBPARTITIONS = 256
ROWS = 60_000


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes a table as one producer; returns its heavy keys as (values, share of its bytes, subpartition)."""
    monkeypatch.setattr(module, "BYTES_PER_LOOK", 200 << 10)
    store = ResultStore(str(tmp_path / "job"))
    store.create()
    written = iter(range(100))

    def write_table(table, keys=("k",), *, subpartitions=SUBPARTITIONS, budget=64 << 20, batch=10_000, looks=True):
        sampler = KeySampler() if looks else None
        name = object_name(0, next(written), 0, 0)
        writer = ResultWriter(store, name, table.schema, subpartitions, keys, memory_budget=budget, heavy_keys=sampler)
        for piece in table.to_batches(max_chunksize=batch):
            writer.write(piece)
        summary = writer.finish()
        total = int(summary.bytes.sum())
        told = decode_heavy_keys(summary.heavy_keys)
        assert all(key.weight <= 1.1 * summary.bytes[key.subpartition] for key in told)
        return [(key.values, round(key.weight / total, 3), key.subpartition) for key in told]

    return write_table


def numbers(*, share=0.6, rows=ROWS, distinct=1_000_000, seed=3):
    rng = np.random.default_rng(seed)
    return np.where(rng.random(rows) < share, 7, rng.integers(100, 100 + distinct, rows))


def table(keys, **more):
    return pa.table({"k": keys, "v": np.arange(len(keys)), **more})


def test_a_heavy_key_is_named_with_its_share_and_its_subpartition(write):
    keys = numbers()
    ((values, share, subpartition),) = write(table(keys))
    assert values == ("7",)
    assert abs(share - (keys == 7).mean()) < 0.01
    assert subpartition == subpartition_of(hash_columns([pa.array([7])]), SUBPARTITIONS)[0]


def test_without_skew_nothing_is_told_and_nothing_looked_at(write, monkeypatch):
    monkeypatch.setattr(module, "_spread", None)
    assert write(table(numbers(share=0.0))) == []
    assert write(table(numbers(share=0.002))) == []
    assert write(table(numbers(share=0.2)), subpartitions=2) == []  # 60 % are nothing special there
    assert write(table(numbers(share=0.0, distinct=40))) == []  # few keys, but all alike
    assert write(table(numbers(rows=5_000))) == []  # it is not worth it


def test_what_is_off_tells_nothing(write):
    assert write(table(numbers()), looks=False) == []


HEAVY = {
    "string": ("Zürich", "'Zürich'"),
    "binary": (b"\x01\xfe", "0x01fe"),
    "large_string": ("a" * 100, f"'{'a' * 43}…'"),
    "float64": (2.5, "2.5"),
    "float32": (float("nan"), "nan"),
    "bool_": (True, "True"),
    "int8": (-3, "-3"),
    "date32": (dt.date(2026, 2, 3), "2026-02-03"),
    "null": (None, "null"),
}
KINDS = {name: getattr(pa, name)() for name in HEAVY} | {
    "timestamp": pa.timestamp("us"),
    "dictionary": pa.dictionary(pa.int8(), pa.string()),
    "decimal": pa.decimal128(9, 2),
    "day before time": pa.timestamp("s"),
}
HEAVY |= {
    "timestamp": (dt.datetime(2026, 2, 3, 4, 5), "2026-02-03 04:05:00"),
    "dictionary": ("b", "'b'"),
    "decimal": (Decimal("12.50"), "12.50"),
    "day before time": (-(1 << 50), "?"),
}


@pytest.mark.parametrize("kind", HEAVY)
def test_keys_of_any_plain_type_have_names(write, kind):
    value, name = HEAVY[kind]
    nulls = np.random.default_rng(8).random(ROWS) < 0.3
    column = pa.array([value], KINDS[kind]).take(pa.array(np.zeros(ROWS, np.int64), mask=nulls))
    ((values, share, _),) = write(table(column))
    assert values == (name,) and share > 0.69


def test_a_null_key_may_be_heavy_too(write):
    keys = numbers(share=0.1)
    nulls = np.random.default_rng(8).random(ROWS) < 0.3
    assert [values for values, _, _ in write(table(pa.array(keys, mask=nulls)))] == [("null",), ("7",)]


def test_a_key_of_several_columns_has_all_their_values(write):
    keys = numbers()
    day = np.where(keys == 7, 3, keys % 365)
    text = [f"customer {key:7}" for key in keys.tolist()]
    ((values, share, _),) = write(table(text, day=day), ("day", "k"))
    assert values == ("3", "'customer       7'") and abs(share - 0.6) < 0.02


def test_several_heavy_keys_the_heaviest_first_and_no_more_than_a_report_has(write):
    rng = np.random.default_rng(1)
    some = rng.choice(np.arange(12), ROWS, p=np.arange(1, 13) / 78)
    keys = np.where(rng.random(ROWS) < 0.8, some, rng.integers(100, 1_000_000, ROWS))
    told = write(table(keys))
    assert [values for values, _, _ in told] == [(str(key),) for key in range(11, 11 - MOST_KEYS, -1)]
    assert all(abs(share - (keys == int(values[0])).mean()) < 0.01 for values, share, _ in told)


def test_shares_are_of_bytes_not_of_rows(write):
    keys = numbers(share=0.02)
    text = ["x" * (2_000 if key == 7 else 10) for key in keys.tolist()]
    ((values, share, _),) = write(table(keys, text=text))
    own = (keys == 7).sum() * 2_020
    assert values == ("7",) and abs(share - own / (own + (keys != 7).sum() * 30)) < 0.05


def test_flushes_add_up_and_one_report_is_made_of_them(write):
    """A small budget: some thirty flushes, of which only some are looked at."""
    told = write(table(numbers(rows=200_000)), budget=300_000)
    assert [(values, round(share, 1)) for values, share, _ in told] == [(("7",), 0.6)]


def test_the_same_rows_give_the_same_report(write):
    rows = table(numbers(distinct=20))
    assert write(rows) == write(rows)


def test_keys_in_turns_are_told_apart(write):
    """Of 61 rows that follow each other 30 have one key, again and again."""
    keys = np.where(np.arange(ROWS) % 61 < 30, 7, np.arange(ROWS) + 1_000)
    ((values, share, _),) = write(table(keys))
    assert values == ("7",) and abs(share - 30 / 61) < 0.02


@pytest.mark.parametrize(
    "keys",
    [
        pa.array([["a", "b"]]).take(pa.array(np.zeros(ROWS, np.int64))),
        pa.array([{"a": 1}]).take(pa.array(np.zeros(ROWS, np.int64))),
        pa.array(["long " * 60]).take(pa.array(np.zeros(ROWS, np.int64))),
    ],
    ids=["list", "struct", "long"],
)
def test_keys_that_cost_too_much_are_not_looked_at(write, keys):
    assert write(table(keys)) == []
