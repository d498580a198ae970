"""Sinks of files: written aside, published once, all or nothing.

Attempts write into a hidden staging directory beside the target (``.out.firesteel-<job>``), each under a name of its
own. ``commit`` checks that every admitted file is there whole, and then moves: on a local filesystem the finished
directory is renamed into place in one step; elsewhere (object stores cannot rename directories) the files are moved one
by one and moved back if one fails. ``_SUCCESS`` comes last. What a job that died left beside a target is removed by the
next job that writes there.
"""

from __future__ import annotations

import errno
import json
import os
import re
import uuid
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.fs as pafs

from firesteel.connectors.paths import Location, PathLike, find_target, first_line, is_local, local_path
from firesteel.errors import FiresteelError, UsageError
from firesteel.results.owner import is_dead, myself

_MODES = ("error", "overwrite")
_SUCCESS = "_SUCCESS"
_OWNER = "_owner.json"
_REMOVALS = 3


@dataclass(frozen=True, slots=True)
class FileCommit:
    """Commit message of one attempt: the file it wrote in the staging directory; ``name`` None: it had no rows."""

    subtask: int
    name: str | None
    rows: int
    bytes: int


class PartWriter(Protocol):
    """Turns batches into the bytes of one file. ``close`` writes what is still held, ``discard`` gives up on it without
    raising; the stream stays open."""

    def write(self, batch: pa.RecordBatch) -> None: ...
    def close(self) -> None: ...
    def discard(self) -> None: ...


class FileSink:
    """What sinks of files share; a format says which schemas it takes and how batches become bytes.

    ``path``: the directory to make, on any ``pyarrow.fs`` filesystem. ``mode``: ``"error"`` when it exists already, or
    ``"overwrite"``: the old contents stay until the new ones are complete, and are removed last.
    """

    extension = ""
    supports_concurrent_execution_attempts = True

    def __init__(self, path: PathLike, *, mode: str = "error", filesystem: pafs.FileSystem | None = None) -> None:
        if mode not in _MODES:
            raise UsageError(f"mode={mode!r} is not a way to write files.", hint=f"Use one of {', '.join(_MODES)}.")
        self.target: Location = find_target(path, filesystem)
        self.name = f"write {PurePosixPath(self.target.path).name}"
        self.mode = mode
        self._schema: pa.Schema | None = None
        self._staging: str | None = None
        self._made: list[str] = []
        self._held = False
        self._published: _Moves | None = None

    # --- a format's part ---

    def _check_schema(self, schema: pa.Schema) -> None:
        raise NotImplementedError

    def _new_writer(self, stream: Any, schema: pa.Schema) -> PartWriter:
        raise NotImplementedError

    # --- driver, before ---

    def check(self, schema: pa.Schema) -> None:
        self._check_schema(schema)
        self._schema = schema
        with _as_usage(self.target):
            kind = self._kind(self.target.path)
            if kind is pafs.FileType.File or (kind is not pafs.FileType.NotFound and self.mode == "error"):
                what = "a file" if kind is pafs.FileType.File else "a directory"
                hint = (
                    "Choose another path or remove it first."
                    if what == "a file"
                    else "Choose another path, remove it first, or write with mode='overwrite'."
                )
                raise UsageError(f"The output {self.target.label} exists already, as {what}.", hint=hint)
            self._check_parent()

    def _check_parent(self) -> None:
        parent = PurePosixPath(self.target.path).parent
        while self._kind(str(parent)) is pafs.FileType.NotFound and parent.parent != parent:
            parent = parent.parent
        place = self.target.at(str(parent))
        if self._kind(str(parent)) is pafs.FileType.File:
            raise UsageError(f"{self.target.label} cannot be written: {place.label} is a file, not a directory.")
        local = local_path(place)
        if local is not None and not os.access(local, os.W_OK | os.X_OK):
            raise UsageError(
                f"{self.target.label} cannot be written: you may not write in {place.label}.",
                hint="Choose another path.",
            )

    def begin(self, job_id: str) -> None:
        self._remove_leftovers()
        staging = self._sibling(job_id)
        if self._kind(staging) is not pafs.FileType.NotFound:
            raise UsageError(f"Two sinks of this job write to {self.target.label}.", hint="Give each its own path.")
        self._staging = staging
        try:
            with storage_errors(self.target.label):
                self._made = self._missing_parents()
                self.target.filesystem.create_dir(staging, recursive=True)
                self._put(f"{staging}/{_OWNER}", json.dumps(myself()).encode())  # first: else nobody knows whose it is
                self.target.filesystem.create_dir(self._attempts)
        except BaseException:  # a full disk, Ctrl-C: a sink that did not begin is not aborted by anybody else
            self.abort([])
            raise

    def _missing_parents(self) -> list[str]:
        """The directories above the target that ``begin`` makes, the nearest first."""
        missing: list[str] = []
        for parent in PurePosixPath(self.target.path).parents:
            if str(parent) in (".", "/") or self._kind(str(parent)) is not pafs.FileType.NotFound:
                break
            missing.append(str(parent))
        return missing

    # --- executor ---

    def write(self, subtask: int, attempt: int) -> FileWriter:
        assert self._schema is not None and self._staging is not None, "check and begin come before write"
        name = f"part-{subtask:05d}-{attempt}-{uuid.uuid4().hex[:12]}.{self.extension}"
        return FileWriter(self.target.at(f"{self._attempts}/{name}"), subtask, self._schema, self._new_writer)

    # --- driver, after ---

    def commit(self, winners: Sequence[FileCommit]) -> None:
        """Raises FiresteelError with nothing published when a file is missing, damaged or cannot be moved."""
        assert self._schema is not None and self._staging is not None, "check and begin come before commit"
        written = [message for message in winners if message.name is not None]
        self._verify(written)
        with storage_errors(self.target.label):
            if not written:
                written = [self._write_empty()]
            files = [(f"{self._attempts}/{m.name}", f"part-{m.subtask:05d}.{self.extension}") for m in written]
            with _Moves(self.target.filesystem) as moves:
                if is_local(self.target.filesystem):
                    self._publish_directory(files, moves)
                else:
                    self._publish_files(files, moves)
            self._published = moves
            if not self._held:
                self.release()

    def hold(self) -> None:
        """What ``commit`` publishes from now on can be taken back until ``release``; what it replaces is kept so long."""
        self._held = True

    def rollback(self) -> None:
        """Takes back what was committed since ``hold``. Raises FiresteelError if that cannot be done."""
        with storage_errors(self.target.label):
            if self._published is not None:
                self._published.undo()
        self._held, self._published = False, None

    def release(self) -> None:
        """What is published stays; staging goes, and with it what was replaced."""
        self._held, self._published = False, None
        self._forget_staging()

    def abort(self, attempts: Sequence[FileCommit]) -> None:
        if self._staging is None:
            return
        for message in attempts:
            if message.name is not None:
                with suppress(OSError):
                    self.target.filesystem.delete_file(f"{self._attempts}/{message.name}")
        if not attempts:
            self._forget_staging()
            for parent in self._made:
                with suppress(OSError):
                    if not self.target.filesystem.get_file_info(pafs.FileSelector(parent)):
                        self.target.filesystem.delete_dir(parent)

    def _verify(self, written: list[FileCommit]) -> None:
        with storage_errors(self.target.label):
            infos = self.target.filesystem.get_file_info([f"{self._attempts}/{message.name}" for message in written])
        for message, info in zip(written, infos, strict=True):
            if info.type is not pafs.FileType.File or info.size != message.bytes:
                state = (
                    "is gone"
                    if info.type is not pafs.FileType.File
                    else f"has {info.size} bytes instead of {message.bytes}"
                )
                raise FiresteelError(
                    f"Nothing was published to {self.target.label}: the file that subtask {message.subtask} wrote, {info.path}, {state}.",
                    hint="Does every executor see this path, and does nobody else remove files there?",
                )

    def _write_empty(self) -> FileCommit:
        assert self._schema is not None
        writer = self.write(0, 0)
        writer.open()
        return writer.finish()

    def _publish_directory(self, files: list[tuple[str, str]], moves: _Moves) -> None:
        ready, old = f"{self._staging}/new", f"{self._staging}/old"
        self.target.filesystem.create_dir(ready)
        for source, name in files:
            moves.move(source, f"{ready}/{name}")
        self._put(f"{ready}/{_SUCCESS}", b"")
        if self._kind(self.target.path) is not pafs.FileType.NotFound:
            self._refuse_unless_overwriting()
            moves.move(self.target.path, old)
        moves.move(ready, self.target.path)

    def _publish_files(self, files: list[tuple[str, str]], moves: _Moves) -> None:
        target, filesystem = self.target.path, self.target.filesystem
        old = filesystem.get_file_info(pafs.FileSelector(target, recursive=True, allow_not_found=True))
        old_files = [info.path for info in old if info.type is pafs.FileType.File]
        if old_files:
            self._refuse_unless_overwriting()
        marks = [path for path in old_files if PurePosixPath(path).name == _SUCCESS]  # first: incomplete from here on
        for path in [*marks, *(path for path in old_files if path not in marks)]:
            moves.move(path, f"{self._staging}/old/{path[len(target) :].lstrip('/')}")
        moves.make_dir(target)
        for source, name in files:
            moves.move(source, f"{target}/{name}")
        self._put(f"{target}/{_SUCCESS}", b"")
        moves.on_undo(partial(self.target.filesystem.delete_file, f"{target}/{_SUCCESS}"))

    def _refuse_unless_overwriting(self) -> None:
        if self.mode != "overwrite":
            raise FiresteelError(
                f"Nothing was published: somebody made {self.target.label} while the job was running.",
                hint="Write to another path, or with mode='overwrite'.",
            )

    # --- the staging directory ---

    @property
    def _attempts(self) -> str:
        return f"{self._staging}/attempts"

    def _sibling(self, job_id: str) -> str:
        path = PurePosixPath(self.target.path)
        return str(path.with_name(f".{path.name}.firesteel-{job_id}"))

    def _forget_staging(self) -> None:
        assert self._staging is not None
        for _ in range(_REMOVALS):  # an attempt not yet stopped may make a file between listing and removing
            with suppress(OSError):  # what is published stays published, whatever happens here
                self.target.filesystem.delete_dir(self._staging)
                break

    def _remove_leftovers(self) -> None:
        """Staging directories beside the target whose job is dead for certain: same host, no such process."""
        path = PurePosixPath(self.target.path)
        mark = re.compile(rf"^\.{re.escape(path.name)}\.firesteel-")
        with storage_errors(self.target.label):
            beside = self.target.filesystem.get_file_info(pafs.FileSelector(str(path.parent), allow_not_found=True))
        for info in beside:
            if info.type is pafs.FileType.Directory and mark.match(PurePosixPath(info.path).name):
                with suppress(OSError, ValueError):
                    if is_dead(json.loads(self._get(f"{info.path}/{_OWNER}"))):
                        self._rescue_old(info.path)
                        self.target.filesystem.delete_dir(info.path)

    def _rescue_old(self, leftover: str) -> None:
        """A driver that died in the middle of an overwrite had moved the old output aside: it goes back."""
        old = f"{leftover}/old"
        if (
            self._kind(old) is pafs.FileType.NotFound
            or self._kind(f"{self.target.path}/{_SUCCESS}") is pafs.FileType.File
        ):
            return
        if not is_local(self.target.filesystem):
            raise OSError(errno.ENOTSUP, "an old output lies here, half replaced; it is left for people to look at")
        if self._kind(self.target.path) is pafs.FileType.NotFound:
            self.target.filesystem.move(old, self.target.path)

    def _kind(self, path: str) -> pafs.FileType:
        return self.target.filesystem.get_file_info(path).type

    def _put(self, path: str, data: bytes) -> None:
        with self.target.filesystem.open_output_stream(path) as stream:
            stream.write(data)

    def _get(self, path: str) -> bytes:
        with self.target.filesystem.open_input_stream(path) as stream:
            return stream.read()


class FileWriter:
    """Writes one attempt's file, made with its first row. ``finish`` returns a :class:`FileCommit`."""

    def __init__(
        self, place: Location, subtask: int, schema: pa.Schema, new_writer: Callable[[Any, pa.Schema], PartWriter]
    ) -> None:
        self._place = place
        self._subtask = subtask
        self._schema = schema
        self._new_writer = new_writer
        self._stream: Any = None
        self._part: PartWriter | None = None
        self._rows = 0

    def open(self) -> PartWriter:
        with storage_errors(self._place.label):
            self._stream = self._place.filesystem.open_output_stream(self._place.path)
            self._part = self._new_writer(self._stream, self._schema)
        return self._part

    def write(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        part = self._part or self.open()
        with storage_errors(self._place.label):
            part.write(batch)
        self._rows += batch.num_rows

    def finish(self) -> FileCommit:
        if self._part is None:
            return FileCommit(self._subtask, None, 0, 0)
        with storage_errors(self._place.label):
            self._part.close()
            size = self._stream.tell()
            self._stream.close()
        return FileCommit(self._subtask, PurePosixPath(self._place.path).name, self._rows, size)

    def abort(self) -> None:
        if self._stream is None:
            return
        if self._part is not None:
            self._part.discard()
        for step in (self._stream.close, partial(self._place.filesystem.delete_file, self._place.path)):
            with suppress(OSError, pa.ArrowException):
                step()


class _Moves:
    """Moves that are undone, the last first, when the block around them fails."""

    def __init__(self, filesystem: pafs.FileSystem) -> None:
        self._filesystem = filesystem
        self._undo: list[Callable[[], Any]] = []
        self._known_dirs: set[str] = set()

    def move(self, source: str, target: str) -> None:
        self.make_dir(str(PurePosixPath(target).parent))
        self._filesystem.move(source, target)
        self._undo.append(partial(self._filesystem.move, target, source))

    def make_dir(self, path: str) -> None:
        if path in self._known_dirs:
            return
        self._known_dirs.add(path)
        if self._filesystem.get_file_info(path).type is pafs.FileType.NotFound:
            self._filesystem.create_dir(path, recursive=True)
            self._undo.append(partial(self._filesystem.delete_dir, path))

    def on_undo(self, step: Callable[[], Any]) -> None:
        self._undo.append(step)

    def undo(self) -> None:
        """Takes every step, the last first, then raises the first OSError there was."""
        failed: list[OSError] = []
        while self._undo:
            try:
                self._undo.pop()()
            except OSError as error:
                failed.append(error)
        if failed:
            raise failed[0]

    def __enter__(self) -> _Moves:
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
        if code in (errno.ENOSPC, errno.EDQUOT):
            raise FiresteelError(
                f"{label} cannot be written: no space is left on the device.",
                hint="Free some space there or write elsewhere.",
            ) from error
        if code in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise FiresteelError(
                f"{label} cannot be written: permission denied ({first_line(error)}).", hint="Check your access rights."
            ) from error
        if code == errno.ENOENT:
            raise FiresteelError(
                f"{label} cannot be written: its directory is gone ({first_line(error)}).",
                hint="Does every executor see this path, and does nobody else remove files there?",
            ) from error
        raise FiresteelError(f"{label} cannot be written: {first_line(error)}.") from error


@contextmanager
def _as_usage(target: Location) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"{target.label} cannot be looked at: {first_line(error)}.", hint="Check the path and your access rights."
        ) from None
