import os

import pyarrow.fs as pafs
import pytest

from firesteel.connectors.files.paths import find_files, find_target, short_name
from firesteel.errors import UsageError


@pytest.fixture
def tree(tmp_path):
    for name in [
        "a.txt", "b.csv", "_note.txt", ".hidden.txt", "_SUCCESS", "d/c.txt", "d/__init__.py", "d/e/f.txt", "d/.git/g.txt",
        "d/_temporary/0/h.txt", "odd[1].txt", "odd1.txt", "k=1/p.txt",
    ]:  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


def names(root, paths, **kwargs):
    return [os.path.relpath(file.path, root) for file in find_files(paths, **kwargs).files]


def test_a_directory_gives_its_visible_files(tree):
    assert names(tree, tree) == ["a.txt", "b.csv", "d/c.txt", "d/e/f.txt", "k=1/p.txt", "odd1.txt", "odd[1].txt"]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.txt", ["_note.txt", "a.txt", "odd1.txt", "odd[1].txt"]),
        (".*.txt", [".hidden.txt"]),
        ("?.*", ["a.txt", "b.csv"]),
        ("[ab].*", ["a.txt", "b.csv"]),
        ("[!a].*", ["b.csv"]),
        ("**/*.txt", ["_note.txt", "a.txt", "d/c.txt", "d/e/f.txt", "k=1/p.txt", "odd1.txt", "odd[1].txt"]),
        ("d/**/*.txt", ["d/c.txt", "d/e/f.txt"]),
        ("d/**", ["d/__init__.py", "d/c.txt", "d/e/f.txt"]),
        ("**/e/*", ["d/e/f.txt"]),
        ("*/*.py", ["d/__init__.py"]),
        ("d*", ["d/c.txt", "d/e/f.txt"]),
        ("*/e", ["d/e/f.txt"]),
        ("**/e", ["d/e/f.txt"]),
        ("odd[1].txt", ["odd[1].txt"]),
        ("./d/../a.txt", ["a.txt"]),
    ],
)
def test_globs(tree, pattern, expected, monkeypatch):
    assert names(tree, f"{tree}/{pattern}") == expected
    monkeypatch.chdir(tree)
    assert names(tree, pattern) == expected
    subtree = pafs.SubTreeFileSystem(str(tree), pafs.LocalFileSystem())
    if not pattern.startswith("."):
        assert [f.path for f in find_files(pattern, subtree).files] == expected


def test_a_file_named_twice_is_read_once_and_order_is_as_given(tree):
    assert names(tree, [tree / "d", f"{tree}/*.txt", f"{tree}/a.txt"]) == [
        "d/c.txt", "d/e/f.txt", "_note.txt", "a.txt", "odd1.txt", "odd[1].txt",
    ]  # fmt: skip


def test_hidden_files_can_be_named(tree):
    assert names(tree, f"{tree}/.hidden.txt") == [".hidden.txt"]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("aa.txt", r"There is no .*/aa\.txt\. Did you mean .*/a\.txt\?"),
        ("dd/c.txt", r"There is no .*/dd/c\.txt\."),
        ("nowhere.txt", r"There is no .*/nowhere\.txt\. .*"),
        ("d/*.parquet", r"Nothing matches .*/d/\*\.parquet\. The directory .*/d exists; check the pattern\."),
        ("dir/*.txt", r"Nothing matches .*/dir/\*\.txt: there is no .*/dir\."),
        ("d/_temporary/0/../", r"has no files to read.*names begin with \. or _"),
        ("a.txt/b.txt", r"There is no .*/a\.txt/b\.txt\."),
    ],
)
def test_what_is_missing_is_named(tree, path, message):
    (tree / "d/_temporary/0/h.txt").rename(tree / "d/_temporary/_h.txt")
    with pytest.raises(UsageError, match=message):
        find_files(f"{tree}/{path}")


def test_an_empty_directory_and_no_path_at_all(tmp_path):
    with pytest.raises(UsageError, match="has no files to read"):
        find_files(tmp_path)
    with pytest.raises(UsageError, match="list of paths to read is empty"):
        find_files([])
    with pytest.raises(UsageError, match="3 is not a path"):
        find_files([3])


@pytest.mark.parametrize("url", ["s3a://bucket/key", "dbfs:/data/x", "wasbs://c@account/x", "nosuch://x/y"])
def test_schemes_that_pyarrow_cannot_open_name_the_way_out(url):
    with pytest.raises(UsageError, match=r"cannot be opened.*env\.from_dataframe\(spark\.read"):
        find_files(url)
    with pytest.raises(UsageError, match="cannot be opened"):
        find_target(url)


def test_credentials_are_never_shown():
    with pytest.raises(UsageError) as caught:
        find_files("nosuch://me:secret@host/x?token=secret")
    assert "secret" not in str(caught.value)


def test_paths_in_two_places_are_refused(tree):
    with pytest.raises(UsageError, match="must lie in one place"):
        find_files([f"{tree}/a.txt", "mock:///x"])


def test_targets(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find_target("out/").path == f"{tmp_path}/out"
    assert find_target(f"file://{tmp_path}/out").path == f"{tmp_path}/out"
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert find_target("link").path == f"{tmp_path}/real"
    for bad in ("", " ", "/"):
        with pytest.raises(UsageError):
            find_target(bad)


def test_short_names():
    assert short_name("/a/b/c/x.txt") == "x.txt"
    assert short_name("/a/b/src/**/*.py") == "**/*.py"
    assert short_name(["x.txt", "y.txt"]) == "x.txt and 1 more"
    assert short_name("s3://b/k/x.parquet?region=q") == "x.parquet"
