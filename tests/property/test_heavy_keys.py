"""Heavy keys of random data: the shares that producers find and the driver adds up, beside exact counts."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import examples

from firesteel.model.heavy_keys import MOST_BYTES, MOST_KEYS, HeavyKeys, decode_heavy_keys, least_share
from firesteel.results import writer as module
from firesteel.results.hashing import hash_columns, subpartition_of
from firesteel.results.messages import Before
from firesteel.results.writer import ALL_SAMPLES, MOST_SAMPLES, KeySampler


def error(heavy: int) -> float:
    """Five deviations of the share of a subpartition that a key has by its samples, where so many are heavy."""
    return 5 * 0.5 / min(MOST_SAMPLES, ALL_SAMPLES / max(min(heavy, MOST_KEYS), 1)) ** 0.5


@pytest.fixture(autouse=True, scope="module")
def _looks():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BYTES_PER_LOOK", 1)
        yield


@st.composite
def distributions(draw):
    """Keys to choose from, and the chance of each."""
    rng = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    keys = rng.permutation(draw(st.sampled_from([3, 40, 1_000, 20_000])))
    kind = draw(st.sampled_from(["even", "one", "few", "zipf", "geometric"]))
    chances = np.ones(len(keys))
    if kind == "one":
        chances[0] = len(keys) * draw(st.sampled_from([0.02, 0.5, 3.0]))
    elif kind == "few":
        chances[:5] = len(keys) * rng.random(min(5, len(keys)))
    elif kind == "zipf":
        chances = 1.0 / np.arange(1, len(keys) + 1) ** draw(st.sampled_from([0.8, 1.2, 2.0]))
    elif kind == "geometric":
        chances = 0.7 ** np.arange(len(keys))
    return keys, chances / chances.sum(), rng


def flush(sampler, keys, widths, subpartitions):
    """As the writer does. Returns the subpartition of each row."""
    ids = subpartition_of(hash_columns([pa.array(keys)]), subpartitions)
    order = np.argsort(ids, kind="stable")
    bounds = np.append(0, np.cumsum(np.bincount(ids, minlength=subpartitions)))
    before = Before(None, 16) if widths is None else Before(widths[order], 16)
    sampler.flush([pa.array(keys)], order, bounds, before)
    return ids


@given(distributions(), st.sampled_from([16, 64, 256]), st.integers(1, 6), st.booleans(), st.booleans())
@settings(max_examples=examples(200), deadline=None)
def test_shares_are_within_the_error_of_the_samples(distribution, subpartitions, producers, in_order, varying):
    keys, chances, rng = distribution
    held, exact, of_subpartition = HeavyKeys(), np.zeros(len(keys)), np.zeros(subpartitions)
    most_heavy = 0
    for _ in range(producers):
        sampler = KeySampler()
        for _ in range(int(rng.integers(1, 3))):
            rows = rng.choice(keys, int(rng.integers(3_000, 12_000)), p=chances)
            rows = np.sort(rows) if in_order else rows
            widths = rng.integers(0, 60, len(rows)) if varying else None
            ids = flush(sampler, rows, widths, subpartitions)
            sizes = np.full(len(rows), 16) if widths is None else widths + 16
            exact += np.bincount(rows, sizes, len(keys))
            here = np.bincount(ids, sizes, subpartitions)
            of_subpartition += here
            most_heavy = max(most_heavy, (here >= least_share(np.count_nonzero(here)) * here.sum()).sum())
        report = sampler.finish()
        assert len(report) <= MOST_BYTES
        held.add(decode_heavy_keys(report))
    total, filled = exact.sum(), int(np.count_nonzero(of_subpartition))
    least = least_share(filled)
    told = {int(key.values[0]): key for key in held.heavy(int(total), filled)}
    assert not told or most_heavy
    of_all = error(int(most_heavy))
    for name, key in told.items():
        off = of_all * of_subpartition[key.subpartition]
        assert exact[name] - off - least * total <= key.weight <= exact[name] + off
    if most_heavy <= MOST_KEYS and len(told) < MOST_KEYS:
        homes = subpartition_of(hash_columns([pa.array(np.arange(len(keys)))]), subpartitions)
        sure = np.flatnonzero(exact >= 2 * least * total + of_all * of_subpartition[homes])
        assert set(sure.tolist()) <= told.keys()
