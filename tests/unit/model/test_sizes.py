"""Packed rows of sizes: shapes that must be small, and what is no row."""

from __future__ import annotations

import numpy as np
import pytest

from firesteel.model import sizes
from firesteel.model.sizes import MAX_PACKED_BYTES, counts_of, fold, pack, unfold, unpack

N = 10_000
RANDOM = np.random.default_rng(1)


def of_10_000(kind):
    return {
        "zeros": lambda: np.zeros(N, np.int64),
        "equal": lambda: np.full(N, 1 << 40),
        "one huge": lambda: np.where(np.arange(N) == 77, 1 << 45, RANDOM.integers(0, 200, N)),
        "one small": lambda: np.where(np.arange(N) == 77, 0, RANDOM.integers(1 << 40, (1 << 40) + 200, N)),
        "few not zero": lambda: np.where(np.arange(N) % 100 == 0, 1 << 40, 0),
        "bytes": lambda: RANDOM.integers(0, 256, N),
        "slices": lambda: RANDOM.integers(0, 1 << 16, N),
    }[kind]()


@pytest.mark.parametrize(
    ("kind", "most"),
    [
        ("zeros", 16),
        ("equal", 16),
        ("one huge", N + 28),
        ("one small", N + 28),
        ("few not zero", 16 + 100 * 12),
        ("bytes", N + 16),
        ("slices", 2 * N + 16),
    ],
)
def test_rows_take_what_they_need_and_stay_exact(kind, most):
    given = of_10_000(kind)
    row = pack(given)
    assert len(row) <= most and (unpack(row) == given).all()


@pytest.mark.parametrize("largest", [1 << 17, 100 << 20, 1 << 50])
def test_wide_rows_are_rounded_by_the_smallest_step_that_fits(largest):
    given = RANDOM.integers(largest // 10, largest, N)
    row = pack(given)
    assert len(row) <= MAX_PACKED_BYTES
    off = np.abs(unpack(row) - given).max()
    step = 1 << int(largest - largest // 10).bit_length() - 16
    assert 0 < off <= step // 2
    # Halves of the values need half the step: it was the smallest.
    assert np.abs(unpack(pack(given // 2)) - given // 2).max() <= max(step // 4, 1)


def test_a_few_outliers_do_not_blur_the_others():
    given = RANDOM.integers(0, 60_000, N)
    given[::50] = 1 << 50
    assert (unpack(pack(given)) == given).all()


def test_small_rows_are_small():
    assert len(pack(np.array([5]))) == 16 and len(pack(np.arange(64))) <= 16 + 64
    assert unpack(pack(np.zeros(0, np.int64))).tolist() == []


@pytest.mark.parametrize("damage", [lambda r: r[:-1], lambda r: r[:5], lambda r: b"", lambda r: r + b"x"])
def test_what_is_no_row_is_told_from_one(damage):
    good = pack(np.arange(300))
    assert counts_of([good, damage(good), good]).tolist() == [300, -1, 300]
    with pytest.raises(ValueError, match="not a packed row"):
        unpack(damage(good))


def test_many_rows_do_not_overflow(monkeypatch):
    monkeypatch.setattr(sizes, "_MOST_ROWS", 3)
    rows, into = [pack(np.array([0, 65_535]))] * 10 + [pack(np.array([1 << 62, 0]))], np.zeros(2, np.int64)
    fold(rows, into)
    assert into.tolist() == [1 << 62, 655_350]


@pytest.mark.parametrize("seed", range(30))
def test_rows_add_up_the_same_one_by_one_and_together(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 3000))
    rows = [pack(rng.integers(0, 1 << int(rng.integers(1, 40)), n)) for _ in range(3)]
    rows.append(pack(np.where(np.arange(n) == n // 2, 1 << 41, rng.integers(0, 9, n))))
    together, single = np.zeros((2, n), np.int64)
    fold(rows, together)
    for row in rows:
        fold([row], single)
    assert np.array_equal(together, single)
    unfold(rows[:1], single)
    fold(rows[:1], together, sign=-1)
    assert np.array_equal(together, single)
    broken = [rows[0][:5], rows[0] + b"x", b"", rows[0][:4] + b"\x03" + rows[0][5:]]
    assert [int(counts_of([row])[0]) for row in rows + broken] == counts_of(rows + broken).tolist()
