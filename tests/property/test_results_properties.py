"""Properties of results: rows in, the same rows out, however they are cut; equal keys, equal hashes."""

from __future__ import annotations

import tempfile
from decimal import Decimal

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import examples

from firesteel.results.hashing import hash_columns, subpartition_of
from firesteel.results.keys import normalise_key
from firesteel.results.reader import GateReader
from firesteel.results.storage.store import ResultStore, object_name
from firesteel.results.writer import ResultWriter

RELAXED = settings(max_examples=examples(60), deadline=None)

rows = st.lists(
    st.fixed_dictionaries(
        {
            "k": st.one_of(st.none(), st.integers(-3, 3)),
            "s": st.one_of(st.none(), st.text(max_size=12), st.just("long " * 60)),
            "l": st.one_of(st.none(), st.lists(st.one_of(st.none(), st.sampled_from(["a", "b"])), max_size=3)),
        }
    ),
    max_size=60,
)
SCHEMA = pa.schema(
    [
        ("k", pa.int32()),
        ("s", pa.dictionary(pa.int32(), pa.string())),
        ("l", pa.list_(pa.string())),
        ("i", pa.int64()),
    ]
)


@RELAXED
@given(
    rows=rows,
    subpartitions=st.sampled_from([1, 2, 5, 64]),
    keyed=st.booleans(),
    budget=st.sampled_from([1, 500, 5000, 1 << 20]),
    codec=st.sampled_from(["lz4", "zstd", "none"]),
    cut=st.integers(1, 20),
    producers=st.integers(1, 3),
    data=st.data(),
)
def test_every_row_is_read_once_in_its_subpartition(rows, subpartitions, keyed, budget, codec, cut, producers, data):
    columns = {name: [row[name] for row in rows] for name in ("k", "s", "l")}
    arrays = [pa.array(columns["k"], pa.int32()), pa.array(columns["s"], pa.string()).dictionary_encode()]
    arrays += [pa.array(columns["l"], pa.list_(pa.string())), pa.array(range(len(rows)), pa.int64())]
    table = pa.table(arrays, schema=SCHEMA)
    keys = ("k", "s") if keyed else ()
    with tempfile.TemporaryDirectory() as place:
        store = ResultStore(place)
        sizes = np.zeros(subpartitions, np.int64)
        for producer in range(producers):
            name = object_name(0, producer, 0, 0)
            writer = ResultWriter(
                store, name, SCHEMA, subpartitions, keys, memory_budget=budget, codec=codec, start=producer
            )
            share = table.filter(pa.array(np.arange(len(table)) % producers == producer))
            for start in range(0, len(share), cut):
                for batch in share.slice(start, cut).combine_chunks().to_batches():
                    writer.write(batch)
            sizes += writer.finish().bytes
        inner = sorted(data.draw(st.lists(st.integers(0, subpartitions), max_size=4)))
        found = []
        for low, high in zip([0, *inner], [*inner, subpartitions], strict=True):
            zeros = np.zeros(producers, np.int64)
            reader = GateReader(store, 0, SCHEMA, subpartitions, zeros, zeros, np.array([[0, producers, low, high]]))
            part = pa.Table.from_batches(list(reader.read()), schema=SCHEMA)
            found += part.to_pylist()
            assert reader.bytes_read == sizes[low:high].sum()
            if keyed and len(part):
                ids = subpartition_of(hash_columns([part.column("k"), part.column("s")]), subpartitions)
                assert low <= ids.min() <= ids.max() < high
    assert sorted(found, key=lambda row: row["i"]) == table.to_pylist()


@RELAXED
@given(
    st.lists(st.one_of(st.none(), st.text(max_size=200), st.text("ab", max_size=20)), max_size=50), st.integers(0, 5)
)
def test_strings_hash_equal_exactly_when_they_are_equal(values, skip):
    array = pa.array(values, pa.string())
    hashes = hash_columns([array.slice(skip)]).tolist()
    by_value = dict(zip(values[skip:], hashes, strict=True))
    assert [by_value[value] for value in values[skip:]] == hashes
    assert len(set(by_value.values())) == len(by_value)


decimals = st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**14), max_value=10**14, places=3)


@RELAXED
@given(st.lists(decimals, min_size=1, max_size=30))
def test_decimals_hash_equal_at_every_scale(values):
    kinds = [pa.decimal128(25, 3), pa.decimal128(38, 20), pa.decimal256(76, 50), pa.decimal64(18, 3)]
    wide = [pa.array(values, kind) for kind in kinds]
    hashes = [hash_columns([array]).tolist() for array in wide]
    assert all(other == hashes[0] for other in hashes)
    assert len(set(hashes[0])) == len({value + Decimal(0) for value in values})


nested = st.one_of(st.none(), st.lists(st.one_of(st.none(), st.integers(-2, 2)), max_size=3))
struct_kind = pa.struct([("a", pa.list_(pa.int32())), ("b", pa.string())])
structs = st.one_of(
    st.none(), st.fixed_dictionaries({"a": nested, "b": st.one_of(st.none(), st.sampled_from(["", "x", "\0", "\x01"]))})
)


@RELAXED
@given(st.lists(structs, min_size=1, max_size=30))
def test_nested_keys_are_equal_exactly_when_their_values_are(values):
    array = pa.array(values, struct_kind)
    texts = [repr(value) for value in array.to_pylist()]
    for codes in (hash_columns([array]).tolist(), normalise_key(array).to_pylist()):
        by_text = dict(zip(texts, codes, strict=True))
        assert [by_text[text] for text in texts] == codes
        assert len(set(by_text.values())) == len(by_text)


@RELAXED
@given(st.lists(st.one_of(st.none(), st.floats(width=32)), min_size=1, max_size=30))
def test_floats_hash_equal_exactly_when_their_keys_are(values):
    narrow, wide = pa.array(values, pa.float32()), pa.array(values, pa.float64())
    hashes = hash_columns([wide]).tolist()
    assert hash_columns([narrow]).tolist() == hashes
    keys = [repr(key) for key in normalise_key(narrow).to_pylist()]
    assert len(set(zip(keys, hashes, strict=True))) == len(set(keys)) == len(set(hashes))
