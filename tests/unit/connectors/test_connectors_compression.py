"""How many plain bytes a compressed file holds, as far as it says so or its beginning shows."""

import bz2
import gzip

import numpy as np
import pyarrow as pa
import pytest

from firesteel.connectors.files.compression import plain_sizes
from firesteel.connectors.files.paths import find_files
from firesteel.connectors.formats.text import TextSource
from firesteel.errors import FiresteelError, UsageError

DATA = b"".join(b"%08d\n" % number for number in np.random.default_rng(0).integers(0, 1000, 100_000))


def streamed(codec):
    out = pa.BufferOutputStream()
    with pa.CompressedOutputStream(out, codec) as stream:
        stream.write(DATA)
    return out.getvalue().to_pybytes()


CASES = {
    "trailer.gz": (gzip.compress(DATA, 1), 1.0),
    "two streams.gz": (gzip.compress(DATA, 1) + gzip.compress(b"x", 1), 1.5),
    "header.zst": (pa.compress(DATA, "zstd", asbytes=True), 1.0),
    "no header.zst": (streamed("zstd"), 1.5),
    "frame.lz4": (streamed("lz4"), 1.5),
    "blocks.bz2": (bz2.compress(DATA, 1), 1.5),
    "plain.txt": (DATA, 1.0),
}


@pytest.mark.parametrize("name", CASES)
def test_plain_bytes_are_known_or_seen(tmp_path, name):
    content, factor = CASES[name]
    (tmp_path / name).write_bytes(content)
    found = find_files([tmp_path])
    (size,) = plain_sizes(found, found.files, None)
    assert len(DATA) / factor <= size <= len(DATA) * factor


def test_lines_of_compressed_files(tmp_path):
    for name, (content, _) in CASES.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "named otherwise").write_bytes(CASES["trailer.gz"][0])
    with pytest.raises(FiresteelError, match=r"blocks\.bz2 cannot be read: .*not compressed that way"):
        count(TextSource(tmp_path, compression="gzip"))
    (tmp_path / "named otherwise").unlink()
    assert count(TextSource(tmp_path)) == 700_001
    assert len(TextSource(tmp_path).list_splits(1 << 20)) >= len(CASES)


def count(source):
    context = type("Context", (), {"place": ""})()
    return sum(b.num_rows for s in source.list_splits(64 << 20) for b in source.read(s.payload, context))


def test_what_cannot_be_read_is_said(tmp_path):
    (tmp_path / "a.txt.snappy").write_bytes(b"x")
    with pytest.raises(UsageError, match=r"a\.txt\.snappy is compressed with snappy, which read_text does not read"):
        TextSource(tmp_path)
    with pytest.raises(
        UsageError, match=r"compression=.snappy. is not one that read_text has\. Use gzip, bz2, zstd, lz4"
    ):
        TextSource(tmp_path, compression="snappy")
    assert count(TextSource(tmp_path, compression="none")) == 1
    (tmp_path / "a.txt.snappy").unlink()
    (tmp_path / "cut.gz").write_bytes(CASES["trailer.gz"][0][:-100])
    with pytest.raises(FiresteelError, match=r"cut\.gz cannot be read: Truncated compressed stream.*damaged"):
        count(TextSource(tmp_path))
