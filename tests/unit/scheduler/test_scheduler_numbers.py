"""Sets of numbers as arrays, compared with numpy's own."""

import numpy as np
import pytest

from firesteel.model.arrays import distinct, is_ascending, union, without


@pytest.mark.parametrize("seed", range(20))
def test_they_agree_with_numpy(seed: int):
    rng = np.random.default_rng(seed)
    many, others = (rng.integers(0, 30, rng.integers(0, 40)) for _ in range(2))
    a, b = np.unique(many), np.unique(others)
    assert distinct(many).tolist() == a.tolist() and distinct(a) is a
    assert union((a, b)).tolist() == np.union1d(a, b).tolist() and union((a,)) is a
    assert without(a, b).tolist() == np.setdiff1d(a, b).tolist()
    assert is_ascending(a) and is_ascending(many) == (many.tolist() == a.tolist())
