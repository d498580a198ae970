"""Changes inside of a directory that stays: files come in, files and folders go out, and a dead job's half is taken back.

What will be changed is noted in the staging directory before the first move. The note goes when nothing may be taken back any
more; so a note whose job is dead says that its changes are not complete, or that other sinks of the job were not published.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, TypedDict

import pyarrow.fs as pafs

from firesteel.connectors.files.paths import Location, is_local
from firesteel.connectors.files.writing.moves import Moves
from firesteel.results.storage.retry import retried

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
