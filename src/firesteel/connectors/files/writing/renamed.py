"""A directory made ready in the staging directory and renamed into its place, on file systems where that is one step.

A note is written before the first file is moved. So where there is a note and nothing ready, the rename has been made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow.fs as pafs

from firesteel.connectors.files.paths import Location
from firesteel.connectors.files.writing.in_place import SUCCESS, remove_note
from firesteel.connectors.files.writing.moves import Moves
from firesteel.errors import FiresteelError

_NOTE = "_renamed.json"


class Renamed:
    """The new contents of ``target`` by the job whose staging directory this is."""

    def __init__(self, target: Location, staging: str) -> None:
        self._target = target
        self._files: Any = target.filesystem
        self._staging = staging
        self._ready, self._old, self._note = f"{staging}/new", f"{staging}/old", f"{staging}/{_NOTE}"

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
