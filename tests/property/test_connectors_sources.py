"""What a source reads does not depend on how it is cut; what a filter keeps does not depend on pruning."""

import re
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import examples

from connectors_kit import read_all
from firesteel.connectors.files.reading import lines as lines_module
from firesteel.connectors.files.reading import source
from firesteel.connectors.formats.parquet import ParquetSource
from firesteel.connectors.formats.text import TextSource
from firesteel.connectors.memory import TableSource

quick = settings(max_examples=examples(150), deadline=None)

pieces = st.sampled_from(
    [b"a", b"bc", b"\n", b"\r", b"\r\n", b"", b"\xff", b"\xe2\x82", "é".encode(), b"\n\n", b"0123456789"]
)
contents = st.lists(pieces, max_size=40).map(b"".join)


def lines(data):
    """Spark's lines, said simply."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    found = re.split(b"\r\n|\r|\n", data)
    return [line.decode(errors="replace") for line in (found[:-1] if found[-1] == b"" else found)]


@quick
@given(
    files=st.lists(contents, min_size=1, max_size=4),
    volume=st.integers(1, 60),
    block=st.integers(3, 40),
    scan=st.integers(1, 5),
)
def test_text_is_the_same_however_it_is_cut(files, volume, block, scan):
    saved = lines_module.BLOCK, lines_module._SCAN
    with tempfile.TemporaryDirectory() as root:
        for i, content in enumerate(files):
            (Path(root) / f"{i}.txt").write_bytes(content)
        try:
            lines_module.BLOCK, lines_module._SCAN = block, scan
            table = read_all(TextSource(root, path_column="path"), volume)
        finally:
            lines_module.BLOCK, lines_module._SCAN = saved
        expected = [(line, f"{root}/{i}.txt") for i, content in enumerate(files) for line in lines(content)]
        assert list(zip(table["value"].to_pylist(), table["path"].to_pylist(), strict=True)) == expected


numbers = st.one_of(st.none(), st.integers(-5, 5))
floats = st.sampled_from([None, float("nan"), -0.0, 0.0, 1.5, float("inf")])
atoms = st.one_of(
    st.builds(lambda v: pc.field("n") > v, st.integers(-5, 5)),
    st.builds(lambda v: pc.field("n") == v, st.integers(-5, 5)),
    st.builds(lambda v: pc.field("f") <= v, st.sampled_from([0.0, 1.5])),
    st.builds(lambda v: pc.field("f") != v, st.sampled_from([0.0, 1.5])),
    st.builds(lambda v: pc.field("s") < v, st.sampled_from(["a", "b", "c"])),
    st.just(pc.field("n").is_null()),
    st.just(pc.field("s").is_valid()),
)
conditions = st.recursive(
    atoms,
    lambda c: st.one_of(
        st.builds(lambda x: ~x, c), st.builds(lambda x, y: x & y, c, c), st.builds(lambda x, y: x | y, c, c)
    ),
    max_leaves=4,
)
tables = st.lists(st.tuples(numbers, floats, st.sampled_from([None, "a", "b", "c"])), max_size=30).map(
    lambda rows: pa.table(
        {
            "n": pa.array([r[0] for r in rows], pa.int64()),
            "f": pa.array([r[1] for r in rows], pa.float64()),
            "s": pa.array([r[2] for r in rows], pa.string()),
        }
    )
)


@quick
@given(
    table=tables,
    group=st.integers(1, 8),
    filters=st.lists(conditions, min_size=1, max_size=2),
    columns=st.permutations(["n", "f", "s"]),
    volume=st.integers(1, 500),
)
def test_pushed_filters_keep_exactly_the_same_rows(table, group, filters, columns, volume):
    with tempfile.TemporaryDirectory() as root:
        pq.write_table(table, f"{root}/a.parquet", row_group_size=group)
        source, wanted = ParquetSource(root), table
        for condition in filters:
            source, wanted = source.push_down(None, condition), wanted.filter(condition)
        source, wanted = source.push_down(columns[:2], None), wanted.select(columns[:2])
        got = read_all(source, volume)
        assert [str(row) for row in got.to_pylist()] == [str(row) for row in wanted.to_pylist()]


@quick
@given(table=tables, volume=st.integers(1, 500))
def test_tables_are_the_same_however_they_are_cut(table, volume):
    assert str(read_all(TableSource(table), volume).to_pylist()) == str(table.to_pylist())


@quick
@given(sizes=st.lists(st.integers(0, 50), max_size=30), target=st.integers(1, 60))
def test_packing_keeps_order_and_size(sizes, target):
    groups = source.pack(list(enumerate(sizes)), sizes, target)
    assert [item for group, _ in groups for item in group] == list(enumerate(sizes))
    for group, total in groups:
        assert total == sum(size for _, size in group) and (len(group) == 1 or total <= target)
