import pickle

import pyarrow as pa
import pyarrow.fs as pafs
import pytest

from connectors_kit import context, read_all
from firesteel.connectors.formats.text import TextSink, TextSource
from firesteel.errors import FiresteelError, UsageError


def lines_of(source, data_volume=64 << 20):
    return read_all(source, data_volume).column("value").to_pylist()


@pytest.mark.parametrize("volume", [1, 2, 3, 7, 1 << 20])
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a", ["a"]),
        (b"a\nb", ["a", "b"]),
        (b"a\nb\n", ["a", "b"]),
        (b"a\n\nb\n\n", ["a", "", "b", ""]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\rb\rc", ["a", "b", "c"]),
        (b"a\r", ["a"]),
        (b"a\n\rb", ["a", "", "b"]),
        (b"a\r\r\nb", ["a", "", "b"]),
        (b"\xef\xbb\xbfhead\nrow", ["head", "row"]),
        (b"\xef\xbb\xbf", []),
        ("grün\n日本\n".encode(), ["grün", "日本"]),
        (b"ok\nb\xffd\n\xe2\x82\nend", ["ok", "b�d", "�", "end"]),
    ],
)
def test_lines_do_not_depend_on_where_splits_fall(tmp_path, content, expected, volume):
    (tmp_path / "a.txt").write_bytes(content)
    assert lines_of(TextSource(tmp_path / "a.txt"), volume) == expected


def test_lines_longer_than_a_block_and_than_a_split(tmp_path):
    lines = ["x" * 3_000_000, "", "y" * (1 << 20), "z"]
    (tmp_path / "a.txt").write_text("\n".join(lines))
    source = TextSource(tmp_path / "a.txt")
    assert lines_of(source, 1 << 20) == lines
    assert lines_of(source) == lines


def test_carriage_return_and_newline_on_two_blocks(tmp_path):
    lines = ["a" * ((1 << 20) - 1), "b" * ((1 << 20) - 2), "c"]
    (tmp_path / "a.txt").write_bytes("\r\n".join(lines).encode())
    assert lines_of(TextSource(tmp_path / "a.txt")) == lines


def test_batches_are_bounded(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\n" * 3_000_000)
    source = TextSource(tmp_path / "a.txt")
    (split,) = source.list_splits(1 << 30)
    batches = list(source.read(split.payload, context()))
    assert sum(batch.num_rows for batch in batches) == 3_000_000
    assert max(batch.num_rows for batch in batches) <= 65536


def test_large_files_are_cut_and_small_ones_packed(tmp_path):
    (tmp_path / "large.txt").write_bytes(b"0123456\n" * (1 << 20))
    for i in range(1000):
        (tmp_path / f"small-{i:04}.txt").write_text(f"{i}\n")
    source = TextSource(tmp_path)
    splits = source.list_splits(4 << 20)
    assert len(splits) == 9
    assert sum(split.bytes for split in splits) == (8 << 20) + sum(len(f"{i}\n") for i in range(1000))
    assert splits[1].description == f"{tmp_path}/large.txt, bytes 1048576-2097152"
    assert splits[8].description == f"{tmp_path}/small-0000.txt to {tmp_path}/small-0999.txt (1000 files)"
    assert lines_of(source, 4 << 20)[-1000:] == [str(i) for i in range(1000)]


def test_many_small_files_become_few_batches(tmp_path):
    for i in range(500):
        (tmp_path / f"{i:03}.txt").write_text("a\nb")
    source = TextSource(tmp_path)
    (split,) = source.list_splits(64 << 20)
    (batch,) = source.read(split.payload, context())
    assert batch.num_rows == 1000


def test_path_column_names_each_lines_file(tmp_path):
    (tmp_path / "a.py").write_text("1\n2\n")
    (tmp_path / "b.py").write_text("")
    (tmp_path / "c.py").write_bytes(b"\xff3")
    table = read_all(TextSource(f"{tmp_path}/*.py", path_column="path"))
    assert table.schema == pa.schema([("value", pa.string()), ("path", pa.string())])
    assert table.to_pydict() == {
        "value": ["1", "2", "�3"],
        "path": [f"{tmp_path}/a.py", f"{tmp_path}/a.py", f"{tmp_path}/c.py"],
    }


def test_place_says_what_a_batch_is_made_of(tmp_path):
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text("1\n")
    (tmp_path / "d.txt").write_bytes(b"0123456\n" * (1 << 18))
    source, ctx = TextSource(tmp_path), context()
    places = [[ctx.place for _ in source.read(s.payload, ctx)] for s in source.list_splits(4 << 20)]
    assert places == [
        [f"{tmp_path}/a.txt to {tmp_path}/c.txt (3 files)"],
        [f"{tmp_path}/d.txt, bytes 0-1048576"] * 2,
        [f"{tmp_path}/d.txt, bytes 1048576-2097152"] * 2,
    ]


def test_strict_names_the_file_and_the_line(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"fine\n")
    (tmp_path / "b.txt").write_bytes(b"fine\ncaf\xe9 au lait\nfine")
    with pytest.raises(FiresteelError, match=r"b\.txt has bytes that are not UTF-8, in the line b'caf\\xe9 au lait'"):
        read_all(TextSource(tmp_path, errors="strict"))
    assert lines_of(TextSource(tmp_path, errors="ignore")) == ["fine", "fine", "caf au lait", "fine"]


def test_bad_arguments(tmp_path):
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(UsageError, match="errors='repalce'"):
        TextSource(tmp_path, errors="repalce")
    with pytest.raises(UsageError, match="path_column='value'"):
        TextSource(tmp_path, path_column="value")
    (tmp_path / "b.txt.xz").write_bytes(b"\x1f\x8b")
    with pytest.raises(UsageError, match=r"b\.txt\.xz is compressed with xz"):
        TextSource(tmp_path)


def test_a_file_that_goes_or_shrinks_is_named(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("one\ntwo\n")
    source = TextSource(path)
    (split,) = source.list_splits(1 << 20)
    path.write_text("one\n")
    with pytest.raises(FiresteelError, match=r"a\.txt became shorter"):
        list(source.read(split.payload, context()))
    path.unlink()
    with pytest.raises(FiresteelError, match=r"a\.txt was there when the job was planned and is gone now"):
        list(source.read(split.payload, context()))


def test_a_file_that_grows_is_read_as_it_was(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("one\ntwo")
    source = TextSource(path)
    path.write_text("one\ntwofold\nthree\n")
    assert lines_of(source) == ["one", "two"]


def test_relative_paths_are_fixed_when_the_source_is_made(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("x\n")
    monkeypatch.chdir(tmp_path)
    source = pickle.loads(pickle.dumps(TextSource("a.txt")))
    splits = TextSource("a.txt").list_splits(1 << 20)
    monkeypatch.chdir("/")
    assert [b.to_pylist() for b in source.read(splits[0].payload, context())] == [[{"value": "x"}]]


def test_another_filesystem_and_a_url(tmp_path):
    (tmp_path / "in put").mkdir()
    (tmp_path / "in put" / "a.txt").write_text("x\ny\n")
    subtree = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem())
    assert lines_of(TextSource("in put/*.txt", filesystem=subtree)) == ["x", "y"]
    assert lines_of(TextSource(f"file://{tmp_path}/in%20put/*.txt")) == ["x", "y"]
    assert lines_of(TextSource(f"file://{tmp_path}/in%20put")) == ["x", "y"]


def test_text_sink_writes_lines_and_reads_back(tmp_path):
    from connectors_kit import run_sink

    schema = pa.schema([("value", pa.string())])
    sink = TextSink(tmp_path / "out")
    shares = [
        [pa.record_batch([pa.array(["a", None, "grün"])], schema=schema).slice(1)],
        [],
        [pa.record_batch([["z"]], schema=schema)],
    ]
    sink.commit(run_sink(sink, shares, schema))
    assert (tmp_path / "out" / "part-00000.txt").read_text() == "\ngrün\n"
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["_SUCCESS", "part-00000.txt", "part-00002.txt"]
    assert lines_of(TextSource(tmp_path / "out")) == ["", "grün", "z"]


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())])
def test_text_sink_takes_every_kind_of_string(tmp_path, kind):
    from connectors_kit import run_sink

    schema = pa.schema([("t", kind)])
    sink = TextSink(tmp_path / "out")
    sink.commit(run_sink(sink, [[pa.record_batch([pa.array(["a", "b"]).cast(kind)], schema=schema)]], schema))
    assert (tmp_path / "out" / "part-00000.txt").read_text() == "a\nb\n"


@pytest.mark.parametrize(
    "schema", [pa.schema([]), pa.schema([("n", pa.int64())]), pa.schema([("a", pa.string()), ("b", pa.string())])]
)
def test_text_sink_needs_one_column_of_strings(tmp_path, schema):
    with pytest.raises(UsageError, match="needs exactly one column of strings"):
        TextSink(tmp_path / "out").check(schema)


def test_empty_text_output_can_be_read(tmp_path):
    from connectors_kit import run_sink

    sink = TextSink(tmp_path / "out")
    sink.commit(run_sink(sink, [[], []], pa.schema([("t", pa.string())])))
    assert lines_of(TextSource(tmp_path / "out")) == []
