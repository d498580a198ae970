"""Folders whose names have blanks, umlauts, and characters that mean something in a URL, a shell or a glob."""

from __future__ import annotations

import glob

import pytest

from odd_paths_kit import ODD, TABLE, WANTED, environment_in, rows

FORMATS = ("parquet", "csv", "json", "arrow")


@pytest.fixture(params=[pytest.param(name, marks=() if name == ODD[-1] else pytest.mark.full) for name in ODD])
def folder(request, tmp_path):
    place = tmp_path / request.param
    place.mkdir()
    return place


@pytest.fixture
def there(session, folder):
    return environment_in(session, folder)


def test_every_format_is_written_and_read(there, folder):
    stream = there.from_arrow(TABLE).rebalance()
    for kind in FORMATS:
        getattr(stream, f"write_{kind}")(folder / f"a {kind}")
    stream.select("s").write_text(folder / "a text")
    there.execute("odd")
    for kind in FORMATS:
        given = folder / f"a {kind}"
        for path in (given, given.as_uri(), f"{glob.escape(str(folder))}/a?{kind}/part-*"):
            assert rows(getattr(there, f"read_{kind}")(path).select("k", "s")) == WANTED, path
    for path in (folder / "a text", (folder / "a text").as_uri()):
        assert [value for (value,) in rows(there.read_text(path))] == sorted(TABLE["s"].to_pylist()), path
