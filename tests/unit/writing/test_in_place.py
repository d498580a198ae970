"""Changes inside of a directory: a process that dies before any of its moves leaves what the next one takes back."""

import itertools

import pyarrow.fs as pafs
import pytest

from firesteel.connectors.files.paths import Location
from firesteel.connectors.files.writing.in_place import Change, InPlace, Moves


class Dies(BaseException):
    pass


class DyingMoves(Moves):
    """Dies before the move of this number; nothing is undone."""

    def __init__(self, filesystem, last):
        super().__init__(filesystem)
        self._left = last

    def move(self, source, target):
        if self._left == 0:
            raise Dies
        self._left -= 1
        super().move(source, target)


@pytest.fixture(params=["local", "elsewhere"])
def target(request, tmp_path):
    if request.param == "local":
        return Location(pafs.LocalFileSystem(), str(tmp_path / "out"))
    return Location(pafs._MockFileSystem(), "root/out")


def put(target, *names):
    for name in names:
        target.filesystem.create_dir(f"{target.path}/{name}".rpartition("/")[0])
        with target.filesystem.open_output_stream(f"{target.path}/{name}") as stream:
            stream.write(name.encode())


def files(target):
    infos = target.filesystem.get_file_info(pafs.FileSelector(target.path, recursive=True))
    return sorted(info.path[len(target.path) + 1 :] for info in infos if info.type is pafs.FileType.File)


def change_of(target, staging, by_folder):
    names = ["k=1/new", "k=3/new", "k=4/j=5/new"]
    for name in names:
        put(Location(target.filesystem, staging), f"attempts/{name.replace('/', '-')}")
    added = [(f"{staging}/attempts/{name.replace('/', '-')}", name) for name in names]
    return Change(added, ["k=1", "k=2"] if by_folder else ["k=1/a", "k=2/c"], by_folder)


@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize("by_folder", [True, False])
def test_what_died_anywhere_is_taken_back(target, by_folder, marked):
    if by_folder and not isinstance(target.filesystem, pafs.LocalFileSystem):
        pytest.skip("folders are renamed on local file systems only")
    for last in itertools.count():
        staging = f"{target.path}-{last}"
        put(target, "k=1/a", "k=1/b", "k=2/c", "d", *(["_SUCCESS"] if marked else []))
        before = files(target)
        changes = InPlace(target, staging)
        try:
            changes.make(change_of(target, staging, by_folder), DyingMoves(target.filesystem, last))
            break
        except Dies:
            changes.take_back()
            assert files(target) == before
            changes.take_back()
            assert files(target) == before
    assert last >= 5
    kept = [] if by_folder else ["k=1/b"]
    assert files(target) == sorted(["_SUCCESS", "d", *kept, "k=1/new", "k=3/new", "k=4/j=5/new"])
    changes.take_back()  # it is not complete
    assert set(before) <= set(files(target)) <= {*before, "_SUCCESS"}


def test_taking_back_may_die_too(target):
    """As a rename that is done again, or not yet."""
    put(target, "k=1/a", "k=2/c")
    changes = InPlace(target, f"{target.path}-x")
    changes.make(change_of(target, f"{target.path}-x", False), Moves(target.filesystem))
    target.filesystem.delete_file(f"{target.path}/k=1/new")
    target.filesystem.move(f"{target.path}-x/aside/k=1/a", f"{target.path}/k=1/a")
    changes.take_back()
    assert files(target) == ["_SUCCESS", "k=1/a", "k=2/c"]


def test_what_is_complete_stays(target):
    put(target, "k=1/a", "k=2/c")
    changes = InPlace(target, f"{target.path}-x")
    changes.make(change_of(target, f"{target.path}-x", False), Moves(target.filesystem))
    changes.complete()
    after = files(target)
    changes.take_back()
    assert files(target) == after
