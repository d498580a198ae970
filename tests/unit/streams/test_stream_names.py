"""The register of a user's streams: which stream a name means."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from firesteel.control import names, places
from firesteel.control.names import StreamEntry
from firesteel.errors import UsageError


@pytest.fixture(autouse=True)
def runtime(tmp_path, monkeypatch):
    place = tmp_path / "run"
    monkeypatch.setenv(places.RUNTIME_VARIABLE, str(place))
    return place


@pytest.fixture
def add(tmp_path):
    """Writes a stream into the register; one that runs has a socket where somebody listens."""
    listeners: list[socket.socket] = []

    def write(name: str, folder: str, *, live: bool = True, started: float = 1.0, journal: bool = True) -> StreamEntry:
        beside = places.beside(str(tmp_path / folder))
        beside.parent.mkdir(parents=True, exist_ok=True)
        home = places.make_private(beside)
        path = home / "s"
        if live:
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listener.bind(str(path))
            listener.listen()
            listeners.append(listener)
        written = beside.parent / f"{beside.name}.jsonl"
        if journal:
            written.touch()
        entry = StreamEntry(
            name=name,
            checkpoint=str(tmp_path / folder),
            socket=str(path),
            pid=os.getpid(),
            host=socket.gethostname(),
            started=started,
            journal=str(written),
        )
        names.write_entry(entry, home)
        return entry

    yield write
    for listener in listeners:
        listener.close()


def test_a_stream_is_found_by_name_and_by_checkpoint(add, tmp_path, monkeypatch):
    words, other = add("words", "a"), add("other", "b")
    assert names.find_stream("words") == words
    monkeypatch.chdir(tmp_path)
    for checkpoint in ("b", "./b/", str(tmp_path / "b"), f"file:{tmp_path}/b"):
        assert names.find_stream(checkpoint) == other
    assert names.known_streams() == [(words, True), (other, True)]


def test_a_name_that_several_streams_have_is_refused_with_their_folders(add, tmp_path):
    add("words", "a", live=False, started=5)
    second = add("words", "b", started=3)
    with pytest.raises(UsageError, match=r"'words' matches 2 streams\. Give its .*: '.*/a' \(over\), '.*/b' \(runs\)"):
        names.find_stream("words")
    assert names.find_stream(str(tmp_path / "b")) == second


def test_a_path_that_is_there_means_that_path_and_nothing_else(add, tmp_path, monkeypatch):
    """In x1 a stream has ended, or there never was one; in x2 one runs, and is called as that path is."""
    for folder in ("x1", "x2", "x3"):
        (tmp_path / folder / "ckp").mkdir(parents=True)
    ended, running = add("ckp", "x1/ckp", live=False), add("ckp", "x2/ckp")
    for folder, found in (("x1", ended), ("x2", running)):
        monkeypatch.chdir(tmp_path / folder)
        for path in ("ckp", "./ckp", "ckp/", f"../{folder}/ckp", str(tmp_path / folder / "ckp")):
            assert names.find_stream(path) == found
    monkeypatch.chdir(tmp_path / "x3")
    for path in ("ckp", "./ckp", "ckp/", str(tmp_path / "x3/ckp"), "./none", "/none", "s3a://bucket/ckp"):
        with pytest.raises(names.NoStream, match="No stream of yours is known on the checkpoint"):
            names.find_stream(path)
    with pytest.raises(names.NoStream, match=r"elsewhere; say it by its checkpoint: '.*x[12]/ckp', '.*x[12]/ckp'"):
        names.find_stream("ckp")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="matches 2 streams"):
        names.find_stream("ckp")


def test_default_names_differ_and_their_ends_will_do(add, tmp_path, monkeypatch):
    assert names.default_name(str(tmp_path / "x1/ckp")) == "x1/ckp"
    assert names.default_name("s3a://bucket/streams/ckp/") == "streams/ckp"
    assert names.default_name("/ckp") == "ckp"
    entry = add("x1/ckp", "a/x1/ckp")
    assert names.default_name(entry.checkpoint) == "x1/ckp", "its own"
    assert names.default_name(str(tmp_path / "b/x1/ckp")) == "b/x1/ckp", "another is called so"
    other = add("x2/ckp", "a/x2/ckp")
    monkeypatch.chdir(tmp_path / "a/x1" if (tmp_path / "a/x1").exists() else tmp_path)
    assert names.find_stream("x2/ckp") == other
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="matches 2"):
        names.find_stream("ckp")
    named = add("ckp", "c/other")
    assert names.find_stream("ckp") == named, "the whole name"


def test_an_unknown_name_says_which_there_are(add):
    with pytest.raises(UsageError, match=r"no stream 'words'\. No stream of yours runs on this machine"):
        names.find_stream("words")
    add("clicks", "a")
    add("orders", "b")
    with pytest.raises(UsageError, match="There are: clicks, orders; or give"):
        names.find_stream("nothing-like-it")
    with pytest.raises(UsageError, match="Did you mean 'orders'"):
        names.find_stream("order")


def test_stale_entries_are_dropped(add, runtime):
    add("gone", "a", live=False, journal=False)
    kept = add("over", "b", live=False)
    (runtime / "streams" / "rubbish.json").write_text("{")
    assert names.known_streams() == [(kept, False)]
    assert len(list((runtime / "streams").glob("[0-9a-f]*.json"))) == 1


def test_the_register_keeps_the_newest_of_those_that_are_over(add, runtime, monkeypatch):
    monkeypatch.setattr(names, "MAX_ENDED", 2)
    for number in range(4):
        add(f"s{number}", f"c{number}", live=False, started=number)
    assert [each.entry.name for each in names.known_streams()] == ["s3", "s2"]
    assert len(list((runtime / "streams").iterdir())) == 2


def test_the_entry_beside_the_checkpoint_is_enough(add, tmp_path, runtime):
    entry = add("words", "a", live=False)
    for file in (runtime / "streams").iterdir():
        file.unlink()
    assert names.find_stream(str(tmp_path / "a")) == entry


@pytest.mark.parametrize(
    ("checkpoint", "text"),
    [("hdfs://host/a/", "hdfs://host/a"), ("file:///a//b", "/a/b"), ("file:/a/b", "/a/b"), ("/a/./b", "/a/b")],
)
def test_one_checkpoint_has_one_text(checkpoint, text):
    assert places.canonical(checkpoint) == text


def test_a_colon_in_a_name_makes_no_url(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert places.canonical("a/b:c") == str(Path("a/b:c").absolute())


def test_directories_are_searched_whoever_started_the_stream(monkeypatch, tmp_path):
    monkeypatch.delenv(places.RUNTIME_VARIABLE)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    found = places.runtime_directories()
    assert found[0] == tmp_path / "firesteel"
    assert found[-1] == Path(f"/tmp/firesteel-run-{os.getuid()}")
    assert len(found) == len(set(found))
