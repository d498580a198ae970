"""Properties of merging: who reads merged objects finds the same rows, in the same order within a subpartition."""

from __future__ import annotations

import tempfile
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import examples

from firesteel.results import merging, messages
from firesteel.results.merging import MergeInput, merge_objects
from firesteel.results.reader import GateReader
from firesteel.results.storage.store import ResultStore, merged_name, object_name
from firesteel.results.writer import ResultWriter

SCHEMA = pa.schema(
    [("k", pa.int32()), ("s", pa.dictionary(pa.int32(), pa.string())), ("l", pa.list_(pa.string())), ("i", pa.int64())]
)


def rows_of(rng, count, width, start):
    words = ["", "a", None, "word " * width]
    strings = pa.array([words[w] for w in rng.integers(0, len(words), count)], pa.string())
    lists = [None, [], ["x"], ["y", None]]
    return pa.record_batch(
        [
            pa.array(rng.integers(0, 50, count), pa.int32()),
            strings.dictionary_encode(),
            pa.array([lists[w] for w in rng.integers(0, len(lists), count)], pa.list_(pa.string())),
            pa.array(np.arange(start, start + count), pa.int64()),
        ],
        schema=SCHEMA,
    )


def by_subpartition(reader, low, high):
    return {s: [row for batch in reader.read(s, s + 1) for row in batch.to_pylist()] for s in range(low, high)}


@settings(max_examples=examples(20), deadline=None)
@given(
    seed=st.integers(0, 1 << 30),
    counts=st.lists(st.integers(0, 60), min_size=1, max_size=5),
    subpartitions=st.sampled_from([1, 2, 5, 16]),
    keyed=st.booleans(),
    writing=st.sampled_from([1, 2000, 1 << 22]),
    codec=st.sampled_from(["lz4", "zstd", "none"]),
    small=st.booleans(),
    data=st.data(),
)
def test_merged_objects_hold_the_same_rows(seed, counts, subpartitions, keyed, writing, codec, small, data):
    rng = np.random.default_rng(seed)
    producers = len(counts)
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        if small:  # so that little data copies messages, fills windows and streams large subpartitions
            patch.setattr(messages, "MESSAGE_MIN_BYTES", 200)
            patch.setattr(messages, "MESSAGE_MAX_BYTES", 1000)
            patch.setattr(merging, "MESSAGE_MAX_BYTES", 1000)
            patch.setattr(merging, "COPY_BYTES", 100)
            patch.setattr(merging, "FEWEST_BUDGET", 1)
        store = ResultStore(place)
        tokens = rng.integers(0, 100, producers)
        attempts = rng.integers(0, 3, producers)
        for p, count in enumerate(counts):
            name = object_name(0, p, int(attempts[p]), int(tokens[p]))
            keys = ("k",) if keyed else ()
            writer = ResultWriter(
                store, name, SCHEMA, subpartitions, keys, memory_budget=writing, codec=codec, start=p % subpartitions
            )
            writer.write(rows_of(rng, count, int(rng.integers(1, 30)), 1000 * p))
            writer.finish()
        cuts = sorted(data.draw(st.sets(st.integers(0, producers), max_size=4)))
        bounds = [pair for pair in pairwise(cuts) if data.draw(st.booleans())]
        budget = data.draw(st.sampled_from([1, 20_000, 1 << 24]))
        for first, end in bounds:
            given_input = MergeInput(0, SCHEMA, subpartitions, attempts, tokens, first, end)
            name = merged_name(0, first, end, 9)
            size = merge_objects(store, given_input, name, memory_budget=budget, codec=codec)
            assert size == store.open_input(name).size
        merged = (np.array([b[0] for b in bounds]), np.array([b[1] for b in bounds]), np.full(len(bounds), 9))
        low, high = sorted(data.draw(st.tuples(st.integers(0, subpartitions), st.integers(0, subpartitions))))
        begin, end = sorted(data.draw(st.tuples(st.integers(0, producers), st.integers(0, producers))))
        for rect in ([0, producers, 0, subpartitions], [begin, end, low, high]):
            arguments = (store, 0, SCHEMA, subpartitions, attempts, tokens, np.array([rect]))
            plain, through = GateReader(*arguments), GateReader(*arguments, merged=merged)
            assert by_subpartition(plain, rect[2], rect[3]) == by_subpartition(through, rect[2], rect[3])
            assert plain.bytes_read == through.bytes_read
            sizes = [reader.bytes_per_subpartition()[1].tolist() for reader in (plain, through)]
            assert sizes[0] == sizes[1]
            whole = [
                sorted(row["i"] for batch in reader.read() for row in batch.to_pylist()) for reader in (plain, through)
            ]
            assert whole[0] == whole[1]
