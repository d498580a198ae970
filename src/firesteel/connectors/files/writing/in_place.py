"""Publishing: a directory that is renamed into its place (``Renamed``), and changes inside of one that stays (``InPlace``): files come in,
files and folders go out, and a dead job's half is taken back.

What will be changed is noted in the staging directory before the first move. The note goes when nothing may be taken back any
more; so a note whose job is dead says that its changes are not complete, or that other sinks of the job were not published.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath
from typing import Any, TypedDict

import pyarrow as pa
import pyarrow.fs as pafs

from firesteel.connectors.files.paths import Location, first_line, is_local, why
from firesteel.errors import FiresteelError
from firesteel.results.storage.filesystem import retried
from firesteel.results.storage.store import StorageError

_NOTE = "_changes.json"
_EMPTIED = "_emptied"
"""Is there once all that is replaced has gone, where what comes may have the same names."""
SUCCESS = "_SUCCESS"


@dataclass(frozen=True, slots=True)
class Change:
    """``added``: where each file lies, and its name in the directory, which no other file ever had, but where it ``empties`` the directory.
    ``replaced``: names of files and folders there that go. ``by_folder``: whole folders come and go, each by one rename. ``empties``: all
    that is replaced goes before anything comes."""

    added: Sequence[tuple[str, str]]
    replaced: Sequence[str] = ()
    by_folder: bool = False
    empties: bool = False


class _Note(TypedDict):
    """All that was to be done when the first move was made. ``marked``: the directory was complete; ``hides``: it does not look so meanwhile;
    ``makes``: there was no directory."""

    added: list[str]
    replaced: list[str]
    by_folder: bool
    empties: bool
    marked: bool
    hides: bool
    makes: bool


class InPlace:
    """Changes of ``target`` by the job whose staging directory this is."""

    def __init__(self, target: Location, staging: str) -> None:
        self._target = target
        self._files: Any = target.filesystem
        self._staging = staging
        self._note, self._emptied = f"{staging}/{_NOTE}", f"{staging}/{_EMPTIED}"

    def make(self, change: Change, moves: Moves) -> None:
        """Folder by folder, what is replaced goes before what is added comes. Elsewhere than on a local file system the mark of
        completeness is away meanwhile. Raises OSError."""
        note = self._noted(change)
        self._put(self._note, json.dumps(note).encode())
        self._carry_out({name: source for source, name in change.added}, note, moves)

    def go_on(self, added: Sequence[tuple[str, str]], moves: Moves) -> None:
        """Makes a change that is open, of the same files, whatever the process that died had done of it. Raises OSError, FileNotFoundError
        where files are gone."""
        note = self._read()
        assert note is not None, "it is open"
        self._carry_out({name: source for source, name in added}, note, moves)

    def _noted(self, change: Change) -> _Note:
        marked = self._kind(self._in_target(SUCCESS)) is pafs.FileType.File
        replaced = [name for name in change.replaced if name != SUCCESS]
        hides = marked and bool(replaced or change.empties) and not is_local(self._files)
        return {
            "added": [name for _, name in change.added],
            "replaced": [*replaced, *([SUCCESS] if hides else [])],
            "by_folder": change.by_folder,
            "empties": change.empties,
            "marked": marked,
            "hides": hides,
            "makes": self._kind(self._target.path) is pafs.FileType.NotFound,
        }

    def _carry_out(self, sources: Mapping[str, str], note: _Note, moves: Moves) -> None:
        emptied = self._kind(self._emptied) is pafs.FileType.File
        moves.make_dir(self._target.path)
        if note["makes"]:
            moves.on_undo(lambda: moves.remove_if_empty(self._target.path))
        if note["hides"]:
            self._move_aside(SUCCESS, emptied, moves)
        coming = self._in_folders(sources, moves) if note["by_folder"] else dict(sources)
        order = _all_at_once if note["empties"] else str if note["by_folder"] else _parent
        steps = [(order(name), False, name) for name in note["replaced"] if name != SUCCESS]
        steps += [(order(name), True, name) for name in coming]
        is_empty = False
        for _, comes, name in sorted(steps):
            if not comes:
                self._move_aside(name, emptied, moves)
                continue
            if note["empties"] and not is_empty:
                self._put(self._emptied, b"")
                moves.on_undo(lambda: self._files.delete_file(self._emptied))
                is_empty = True
            source = coming[name]
            if source is None:
                moves.was_made(f"{self._staging}/new/{name}", self._in_target(name))
            else:
                moves.move(source, self._in_target(name))
        if note["hides"] or not note["marked"]:
            self._put(self._in_target(SUCCESS), b"")
            moves.on_undo(lambda: self._files.delete_file(self._in_target(SUCCESS)))

    def _move_aside(self, name: str, emptied: bool, moves: Moves) -> None:
        """``emptied``: all that is replaced has gone, and what has its name now came in its place."""
        source, aside = self._in_target(name), self._aside(name)
        gone = emptied or (is_local(self._files) and self._kind(aside) is not pafs.FileType.NotFound)
        moves.was_made(source, aside) if gone else moves.move(source, aside)

    @property
    def is_open(self) -> bool:
        """Changes have begun, or were about to, and are not complete."""
        return self._read() is not None

    def complete(self) -> None:
        """From here on nothing is taken back."""
        remove_note(self._files, self._note)

    def take_back(self) -> None:
        """Undoes what a job that is dead had changed. May be called again where that failed. Raises OSError."""
        note = self._read()
        if note is None:
            return
        if not note.get("empties") or self._kind(self._emptied) is pafs.FileType.File:
            back = {name for name in note["replaced"] if self._kind(self._aside(name)) is pafs.FileType.NotFound}
            for name in note["added"]:
                if name not in back and self._kind(self._in_target(name)) is pafs.FileType.File:
                    self._files.delete_file(self._in_target(name))
        if note.get("empties") and not note["marked"]:
            with suppress(FileNotFoundError):
                self._files.delete_file(self._in_target(SUCCESS))
        self._remove_empty(note["added"], itself=note.get("makes", False))
        for name in note["replaced"]:
            self._bring_back(name)
        self.complete()

    def _read(self) -> _Note | None:
        """None, too, where it died as it wrote it, before the first move."""
        if self._kind(self._note) is not pafs.FileType.File:
            return None
        with self._files.open_input_stream(self._note) as stream:
            text = stream.read()
        try:
            return json.loads(text)
        except ValueError:
            return None

    def _in_folders(self, sources: Mapping[str, str], moves: Moves) -> dict[str, str | None]:
        """The folders to come, made ready: where each lies, by its name in the target; None: it is there already."""
        found: dict[str, str | None] = {}
        for name, source in sources.items():
            folder, ready = _parent(name), f"{self._staging}/new/{name}"
            if self._kind(self._in_target(name)) is pafs.FileType.File:
                moves.was_made(source, ready)
                found[folder] = None
            else:
                moves.move(source, ready)
                found[folder] = f"{self._staging}/new/{folder}"
        return found

    def _bring_back(self, name: str) -> None:
        aside, place = self._aside(name), self._in_target(name)
        if self._kind(aside) is pafs.FileType.Directory and self._kind(place) is pafs.FileType.Directory:
            for info in self._files.get_file_info(pafs.FileSelector(aside)):  # another job wrote there meanwhile
                self._bring_back(f"{name}/{PurePosixPath(info.path).name}")
        elif self._kind(aside) is not pafs.FileType.NotFound:
            self._files.create_dir(str(PurePosixPath(place).parent), recursive=True)
            self._files.move(aside, place)

    def _remove_empty(self, names: Iterable[str], *, itself: bool) -> None:
        """Folders that were made for these files; ``itself``: the directory, too."""
        folders = {str(folder) for name in names for folder in PurePosixPath(name).parents} - {"."}
        paths = [self._in_target(folder) for folder in sorted(folders, key=len, reverse=True)]
        for path in [*paths, *([self._target.path] if itself else [])]:
            if self._kind(path) is pafs.FileType.Directory and not self._files.get_file_info(pafs.FileSelector(path)):
                self._files.delete_dir(path)

    def _aside(self, name: str) -> str:
        return f"{self._staging}/aside/{name}"

    def _in_target(self, name: str) -> str:
        return f"{self._target.path}/{name}"

    def _kind(self, path: str) -> pafs.FileType:
        return self._files.get_file_info(path).type

    def _put(self, path: str, data: bytes) -> None:
        with self._files.open_output_stream(path) as stream:
            stream.write(data)


def remove_note(files: Any, note: str) -> None:
    """Succeeds, too, where the note is gone already. Raises OSError."""
    with suppress(FileNotFoundError):
        retried(lambda: files.delete_file(note))


def _parent(name: str) -> str:
    return str(PurePosixPath(name).parent)


def _all_at_once(name: str) -> str:
    return ""


class Moves:
    """Moves that are undone, the last first, when the block around them fails.

    ``again``: some may have been made before, by a process that died: what lies at its end already was moved, and is undone with the rest.
    ``inside``: a directory that is there, or was taken away by who goes on with these moves; ``is_ours``: nobody does. Else nothing is undone.
    """

    def __init__(
        self,
        filesystem: pafs.FileSystem,
        *,
        again: bool = False,
        inside: str = "/",
        is_ours: Callable[[], bool] = lambda: True,
    ) -> None:
        self._filesystem = filesystem
        self._again = again
        self._is_ours = is_ours
        self._undo: list[Callable[[], Any]] = []
        self._known_dirs = {inside}

    def move(self, source: str, target: str) -> None:
        """Raises OSError."""
        if self._again and self._kind(source) is pafs.FileType.NotFound:
            if self._kind(target) is pafs.FileType.NotFound:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
        else:
            self.make_dir(str(PurePosixPath(target).parent))
            self._filesystem.move(source, target)
        self.was_made(source, target)

    def was_made(self, source: str, target: str) -> None:
        """This move is undone, too."""
        self._undo.append(partial(self._filesystem.move, target, source))

    def make_dir(self, path: str) -> None:
        missing: list[str] = []
        for folder in map(str, (PurePosixPath(path), *PurePosixPath(path).parents)):
            if folder in (*self._known_dirs, ".", "/"):
                break
            self._known_dirs.add(folder)
            if self._kind(folder) is not pafs.FileType.NotFound:
                break
            missing.append(folder)
        if missing:
            for folder in reversed(missing):
                self._filesystem.create_dir(folder, recursive=False)
                self._undo.append(partial(self.remove_if_empty, folder))

    def remove_if_empty(self, path: str) -> None:
        """Another job may have put files there meanwhile."""
        exists = self._kind(path) is not pafs.FileType.NotFound
        if exists and not self._filesystem.get_file_info(pafs.FileSelector(path)):
            self._filesystem.delete_dir(path)

    def _kind(self, path: str) -> pafs.FileType:
        return self._filesystem.get_file_info(path).type

    def on_undo(self, step: Callable[[], Any]) -> None:
        self._undo.append(step)

    def keep(self) -> None:
        """All steps so far stay."""
        self._undo.clear()

    def undo(self) -> None:
        """Takes every step, the last first, then raises the first OSError there was. Raises OSError, too, where others go on with them."""
        if self._undo and not self._is_ours():
            self.keep()
            raise OSError(errno.EBUSY, "another driver of the job has taken this over")
        failed: list[OSError] = []
        while self._undo:
            try:
                self._undo.pop()()
            except OSError as error:
                failed.append(error)
        if failed:
            raise failed[0]

    def __enter__(self) -> Moves:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            with suppress(OSError):
                self.undo()


@contextmanager
def storage_errors(label: str) -> Generator[None]:
    """Turns what the operating system or Arrow says while writing to ``label`` into a sentence."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        code = getattr(error, "errno", None)
        said, hint = _WHY_NOT.get(code or 0) or why(label, error, "")
        if code in _IN_ITS_WORDS:
            said = f"{said} ({first_line(error)})"
        raise StorageError(f"{label} cannot be written: {said}.", hint=hint or None, errno=code) from error


_FREE = "Free some space there or write elsewhere."
_IN_ITS_WORDS = {errno.EACCES, errno.EPERM, errno.ENOENT}
_WHY_NOT = {
    errno.ENOSPC: ("no space is left on the device", _FREE),
    errno.EDQUOT: ("the disk quota is used up", _FREE),
    errno.EFBIG: (
        "the file would be larger than files may be there",
        "Raise that limit, or write more and smaller files.",
    ),
    errno.EROFS: ("the file system is read-only", "Write elsewhere, or have it mounted for writing."),
    errno.EACCES: ("permission denied", "Check your access rights."),
    errno.EPERM: ("permission denied", "Check your access rights."),
    errno.ENOENT: (
        "its directory is gone",
        "Does every executor see this path, and does nothing else remove files there?",
    ),
}


_RENAMED_NOTE = "_renamed.json"


class Renamed:
    """The new contents of ``target`` by the job whose staging directory this is."""

    def __init__(self, target: Location, staging: str) -> None:
        self._target = target
        self._files: Any = target.filesystem
        self._staging = staging
        self._ready, self._old, self._note = f"{staging}/new", f"{staging}/old", f"{staging}/{_RENAMED_NOTE}"

    @property
    def is_open(self) -> bool:
        """It has begun."""
        return self._exists(self._note)

    def make(self, added: Sequence[tuple[str, str]], moves: Moves, *, overwrites: bool) -> None:
        """``added``: the place of each file, and its name in the directory. May be called again, with the same files, where the process died.

        Raises FiresteelError where something is there that may not be overwritten, OSError.
        """
        made = self.is_open and not self._exists(self._ready)
        if not made:
            self._files.create_dir(self._ready, recursive=False)
            self._put(self._note)
        for source, name in added:
            ready = f"{self._ready}/{name}"
            moves.was_made(source, ready) if made else moves.move(source, ready)
        if self._exists(self._old):
            moves.was_made(self._target.path, self._old)
        if made:
            moves.was_made(self._ready, self._target.path)
            return
        self._put(f"{self._ready}/{SUCCESS}")
        if self._exists(self._target.path):
            self._put_aside(moves, overwrites=overwrites)
        moves.move(self._ready, self._target.path)

    def complete(self) -> None:
        """From here on nothing is taken back."""
        remove_note(self._files, self._note)

    def take_back(self) -> None:
        """The old contents go back where nothing has come in their place. Raises OSError."""
        if self._exists(self._old) and not self._exists(self._target.path):
            self._files.move(self._old, self._target.path)

    def _put_aside(self, moves: Moves, *, overwrites: bool) -> None:
        if not overwrites:
            raise FiresteelError(
                f"Nothing was published: {self._target.label} was created by another program while the job was running.",
                hint="Write to another path, or with mode='overwrite'.",
            )
        places = (f"{self._old}{number or ''}" for number in range(1000))  # others write there, too
        moves.move(self._target.path, next(place for place in places if not self._exists(place)))

    def _exists(self, path: str) -> bool:
        return self._files.get_file_info(path).type is not pafs.FileType.NotFound

    def _put(self, path: str) -> None:
        with self._files.open_output_stream(path):
            pass
