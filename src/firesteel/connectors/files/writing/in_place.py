"""Changes inside of a directory that stays: files come in, files and folders go out, and a dead job's half is taken back.

What will be changed is noted in the staging directory before the first move. The note goes when nothing may be taken back any
more; so a note whose job is dead says that its changes are not complete, or that other sinks of the job were not published.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import pyarrow.fs as pafs

from firesteel.connectors.files.paths import Location, is_local
from firesteel.connectors.files.writing.moves import Moves
from firesteel.results.storage.retry import retried

_NOTE = "_changes.json"
SUCCESS = "_SUCCESS"


@dataclass(frozen=True, slots=True)
class Change:
    """``added``: where each file lies, and its name in the directory, which no other file ever had. ``replaced``: names of
    files and folders there that go. ``by_folder``: whole folders come and go, each by one rename."""

    added: Sequence[tuple[str, str]]
    replaced: Sequence[str] = ()
    by_folder: bool = False


class InPlace:
    """Changes of ``target`` by the job whose staging directory this is."""

    def __init__(self, target: Location, staging: str) -> None:
        self._target = target
        self._files: Any = target.filesystem
        self._staging = staging

    def make(self, change: Change, moves: Moves) -> None:
        """Folder by folder, what is replaced goes before what is added comes. Elsewhere than on a local file system the mark of
        completeness is away meanwhile."""
        note = {"added": [name for _, name in change.added], "replaced": list(change.replaced)}
        marked = self._kind(self._in_target(SUCCESS)) is pafs.FileType.File
        hides = marked and bool(change.replaced) and not is_local(self._files)
        if hides:
            note["replaced"].append(SUCCESS)
        self._put(self._note, json.dumps(note).encode())
        if hides:
            moves.move(self._in_target(SUCCESS), self._aside(SUCCESS))
        coming = (
            self._in_folders(change, moves) if change.by_folder else {name: source for source, name in change.added}
        )
        steps = [(_folder(name, change), False, name) for name in change.replaced]
        steps += [(_folder(name, change), True, name) for name in coming]
        for _, comes, name in sorted(steps):
            if comes:
                moves.move(coming[name], self._in_target(name))
            else:
                moves.move(self._in_target(name), self._aside(name))
        if hides or not marked:
            self._put(self._in_target(SUCCESS), b"")
            moves.on_undo(lambda: self._files.delete_file(self._in_target(SUCCESS)))

    @property
    def is_open(self) -> bool:
        """Changes have begun, or were about to, and are not complete."""
        return self._kind(self._note) is pafs.FileType.File

    def complete(self) -> None:
        """From here on nothing is taken back."""
        with suppress(FileNotFoundError):
            retried(lambda: self._files.delete_file(self._note))

    def take_back(self) -> None:
        """Undoes what a job that is dead had changed. May be called again where that failed. Raises OSError."""
        if not self.is_open:
            return
        with self._files.open_input_stream(self._note) as stream:
            text = stream.read()
        try:
            note = json.loads(text)
        except ValueError:  # it died as it wrote it, before the first move
            return
        for name in note["added"]:
            if self._kind(self._in_target(name)) is pafs.FileType.File:
                self._files.delete_file(self._in_target(name))
        self._remove_empty(note["added"])
        for name in note["replaced"]:
            self._bring_back(name)
        self.complete()

    def _in_folders(self, change: Change, moves: Moves) -> dict[str, str]:
        """The folders to come, made ready: where each lies, by its name in the target."""
        found: dict[str, str] = {}
        for source, name in change.added:
            moves.move(source, f"{self._staging}/new/{name}")
            folder = str(PurePosixPath(name).parent)
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

    def _remove_empty(self, names: Iterable[str]) -> None:
        """Folders that were made for these files."""
        folders = {str(folder) for name in names for folder in PurePosixPath(name).parents} - {"."}
        for folder in sorted(folders, key=len, reverse=True):
            path = self._in_target(folder)
            if self._kind(path) is pafs.FileType.Directory and not self._files.get_file_info(pafs.FileSelector(path)):
                self._files.delete_dir(path)

    @property
    def _note(self) -> str:
        return f"{self._staging}/{_NOTE}"

    def _aside(self, name: str) -> str:
        return f"{self._staging}/aside/{name}"

    def _in_target(self, name: str) -> str:
        return f"{self._target.path}/{name}"

    def _kind(self, path: str) -> pafs.FileType:
        return self._files.get_file_info(path).type

    def _put(self, path: str, data: bytes) -> None:
        with self._files.open_output_stream(path) as stream:
            stream.write(data)


def _folder(name: str, change: Change) -> str:
    return name if change.by_folder else str(PurePosixPath(name).parent)
