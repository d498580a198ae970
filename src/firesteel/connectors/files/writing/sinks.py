"""Sinks of files: written aside, published once, all or nothing.

Attempts write into a hidden staging directory beside the target (``.out.firesteel-<job>``), each under names of its own.
``commit`` checks that every admitted file is there whole, and then moves: on a local filesystem the finished directory is
renamed into place in one step; elsewhere (object stores cannot rename directories), and where what is there stays
(``in_place``), files are moved one by one and moved back if one fails. ``_SUCCESS`` comes last. What a job that died left
beside a target is removed by the next job that writes there (``leftovers``).
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs

from firesteel.connectors.base import BEGUN, PUBLISHED, Recovered
from firesteel.connectors.files.compression import CODECS
from firesteel.connectors.files.partitions import (
    NULL_NAME,
    check_partition_columns,
    escape,
    format_values,
    parse_values,
)
from firesteel.connectors.files.paths import (
    DatasetName,
    Location,
    PathLike,
    as_filesystem,
    dataset_of,
    find_target,
    is_hidden,
    is_local,
    local_path,
    require_bucket,
    why,
)
from firesteel.connectors.files.writing.in_place import Change, InPlace, Moves, Renamed, storage_errors
from firesteel.connectors.files.writing.part_files import (
    FileCommit,
    FileWriter,
    Layout,
    NoWriter,
    PartFile,
    PartWriter,
    encoded_bytes,
)
from firesteel.connectors.files.writing.staging import Staging, is_left, remove_leftovers
from firesteel.errors import FiresteelError, OutputExistsError, UsageError

_MODES = ("error", "overwrite", "append", "overwrite_partitions", "ignore")
_IN_PLACE = ("append", "overwrite_partitions")
"""Modes in which what is there stays, but for what the job has rows for."""


class StagedSink:
    """The base of sinks whose attempts write files into a staging directory of the job, next to the place where they are published."""

    target: Location
    mode: str
    supports_concurrent_execution_attempts = True
    _layout: Layout

    def __init__(self) -> None:
        self._schema: pa.Schema | None = None
        self._staging: Staging | None = None
        self._ignored = False
        self._again = False
        """A driver that died may have published a part."""

    @property
    def writes_all_rows(self) -> bool:
        """False: not every row that it is given may be written."""
        return self.mode != "ignore"

    def _new_writer(self, stream: Any, schema: pa.Schema) -> PartWriter:
        raise NotImplementedError

    def _final_name(self, subtask: int, file: PartFile) -> str:
        raise NotImplementedError

    def write(self, subtask: int, attempt: int) -> Any:
        return NoWriter(subtask) if self._ignored else self._writer(subtask, attempt)

    def _writer(self, subtask: int, attempt: int) -> FileWriter:
        assert self._schema is not None and self._staging is not None, "check and begin come before write"
        return FileWriter(self._staging.attempts, (subtask, attempt), self._schema, self._layout, self._new_writer)

    def encoded_bytes(self, batches: Sequence[pa.RecordBatch]) -> int:
        """As ``part_files.encoded_bytes``."""
        assert self._schema is not None, "check comes before"
        return encoded_bytes(batches, self._schema, self._layout, self._new_writer)

    def abort(self, attempts: Sequence[FileCommit]) -> None:
        if self._staging is not None:
            self._staging.abort(attempts)

    def _missing(self, staging: Staging, messages: Sequence[FileCommit], *published: str) -> list[int]:
        """Returns places of the messages of which a file is missing.

        ``published``: directories in which a file may be instead of the staging directory, once publishing has begun.
        """
        left = staging.missing(messages)
        names = [
            (place, file, self._final_name(messages[place].subtask, file)) for place in left for file in left[place]
        ]
        found: set[PartFile] = set()
        for folder in published if self._again else ():
            with storage_errors(self.target.label):
                infos = self.target.filesystem.get_file_info([f"{folder}/{name}" for _, _, name in names])
            found |= {file for (_, file, _), info in zip(names, infos, strict=True) if info.size == file.bytes}
        return [place for place in left if not found.issuperset(left[place])]


class FileSink(StagedSink):
    """The base of all sinks of files; a format adds the schemas it takes and the encoding of batches.

    ``path``: the directory to make, on any ``pyarrow.fs`` filesystem. ``mode``, for a directory that exists: ``"error"``
    (also ``"errorifexists"``); ``"overwrite"``: the old contents stay until the new ones are complete, and are removed
    last; ``"append"``: files with names of their own are added, nothing that is there is touched; ``"overwrite_partitions"``: so
    are they, and partitions that the job has rows for lose what was there; ``"ignore"``: nothing is written. ``partition_by``:
    columns whose values become directories. ``max_file_size``: about so many bytes a file. ``file_size``, of partitions: as evenly as can be.
    ``max_open_files``: how many files of different partitions one subtask keeps open.
    """

    kind = "write"
    extension = ""
    chunk_bytes = 1 << 20

    def __init__(
        self,
        path: PathLike,
        *,
        mode: str = "error",
        filesystem: Any = None,
        partition_by: str | Iterable[str] = (),
        max_file_size: int | None = None,
        file_size: int | None = None,
        max_open_files: int = 64,
    ) -> None:
        mode = "error" if mode == "errorifexists" else mode
        if mode not in _MODES:
            raise UsageError(f"mode={mode!r} is not a way to write files.", hint=f"Use one of {', '.join(_MODES)}.")
        for what, value in (("max_file_size", max_file_size), ("max_open_files", max_open_files)):
            if value is not None and value < 1:
                raise UsageError(f"{what}={value} must be at least 1.")
        columns = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
        if mode == "overwrite_partitions" and not columns:
            raise UsageError(
                "mode='overwrite_partitions' wants partition_by, the columns whose values are replaced.",
                hint="Without partitions, mode='overwrite' replaces all that is there.",
            )
        self.target = find_target(path, as_filesystem(filesystem))
        self.name = f"write {PurePosixPath(self.target.path).name}"
        self.mode = mode
        self._layout = Layout(
            *(self.extension, self.chunk_bytes, columns, max_file_size, max_open_files),
            file_size=file_size if columns else None,
        )
        super().__init__()
        self._job, self._tag = "", ""
        self._held = False
        self._published: Moves | None = None

    def _compress(self, codec: str | None) -> None:
        """Files are compressed whole by this codec."""
        if codec not in (None, "none"):
            self._layout = replace(self._layout, extension=f"{self.extension}.{CODECS[codec]}", codec=codec)

    def datasets(self) -> list[DatasetName]:
        """The directory, as lineage names it."""
        return [dataset_of(self.target)]

    # --- a format's part ---

    def _check_schema(self, schema: pa.Schema) -> None:
        raise NotImplementedError

    # --- driver, before ---

    def check(self, schema: pa.Schema) -> None:
        if self._layout.partition_by:
            given = pa.schema([field for field in schema if field.name != self._layout.bucket])
            what = f"{self.kind} to {self.target.label}"
            check_partition_columns(given, self._layout.partition_by, what)
            unseen = next((name for name in self._layout.partition_by if name.startswith(".")), None)
            if unseen is not None:
                raise UsageError(
                    f"{what}: the directories of the partition column '{unseen}' would begin with a dot, and no reader looks into those.",
                    hint="Rename the column first.",
                )
        written = pa.schema([field for field in schema if field.name not in self._layout.left_out])
        self._check_schema(written)
        self._schema = schema
        with _as_usage(self.target):
            if self._is_there(goes_on=True) and self.mode in _IN_PLACE:
                self._check_same_layout()
                self._check_same_columns(written)
            self._check_parent()

    def _is_there(self, *, goes_on: bool = False) -> bool:
        """Raises UsageError where something is there that the mode does not allow; notes whether nothing is to be done. ``goes_on``: it may be
        this job's, whose driver died as it published it."""
        kind = self.target.kind()
        exists = kind is not pafs.FileType.NotFound
        self._ignored = exists and self.mode == "ignore"
        if kind is pafs.FileType.Directory and self.mode == "error" and goes_on and is_left(self.target):
            return True
        if kind is pafs.FileType.File or (exists and self.mode == "error"):
            what = "a file" if kind is pafs.FileType.File else "a directory"
            hint = (
                "Choose another path or remove it first."
                if what == "a file"
                else "Choose another path, remove it first, or write with mode='overwrite'."
            )
            raise OutputExistsError(f"The output {self.target.label} exists already, as {what}.", hint=hint)
        return exists

    def _check_same_columns(self, schema: pa.Schema) -> None:
        """Raises UsageError where files that are there say that they have other columns; most formats do not say."""

    def _check_same_layout(self) -> None:
        """Raises UsageError where what is there is partitioned in another way, so that nobody could read both. Below the top,
        one folder stands for the others."""
        wanted = self._layout.partition_by
        there: list[str] = []
        folder: str | None = self.target.path
        fits = True
        while folder is not None and fits:
            columns, has_files, below = self._looked_into(folder)
            expected = {escape(name) for name in wanted[len(there) : len(there) + 1]}
            fits = not (expected and has_files) and columns <= expected
            there += sorted(columns)
            folder = below
        if not fits:
            said = f"partitioned by {', '.join(map(unquote, there))}" if there else "not partitioned"
            raise UsageError(
                f"What is in {self.target.label} is {said}, and partition_by is {list(wanted)}.",
                hint="Write with the same partition_by, or to another directory.",
            )

    def _looked_into(self, folder: str) -> tuple[set[str], bool, str | None]:
        """The partition columns of the folders in it, whether there are files of data, and the first of those folders."""
        infos = self.target.filesystem.get_file_info(pafs.FileSelector(folder))
        names = {info.base_name: info for info in infos if not is_hidden(info.base_name)}
        folders = {n: info.path for n, info in names.items() if info.type is pafs.FileType.Directory and "=" in n}
        has_files = any(info.type is pafs.FileType.File for info in names.values())
        return {name.partition("=")[0] for name in folders}, has_files, next(iter(folders.values()), None)

    def _check_parent(self) -> None:
        require_bucket(self.target.filesystem, self.target.label)
        parent = PurePosixPath(self.target.path).parent
        while self.target.at(str(parent)).kind() is pafs.FileType.NotFound and parent.parent != parent:
            parent = parent.parent
        place = self.target.at(str(parent))
        if place.kind() is pafs.FileType.File:
            raise UsageError(f"{self.target.label} cannot be written: {place.label} is a file, not a directory.")
        local = local_path(place)
        if local is not None and not os.access(local, os.W_OK | os.X_OK):
            raise UsageError(
                f"{self.target.label} cannot be written: you may not write in {place.label}.",
                hint="Choose another path.",
            )

    def begin(self, job_id: str) -> None:
        if self._ignored:
            return
        remove_leftovers(self.target, keeps=self.mode in _IN_PLACE)
        self._is_there()  # what a job that died had moved away is back now
        if self._ignored:
            return
        self._job, self._tag = job_id, uuid.uuid4().hex[:12]
        self._staging = Staging(self.target, job_id)
        self._staging.make()

    def state(self) -> dict[str, str]:
        if self._staging is None:
            return {"ignored": "yes"}
        return {"job": self._job, "tag": self._tag, "parents": json.dumps(self._staging.parents)}

    def recover(self, job_id: str, winners: Sequence[FileCommit], state: Mapping[str, str], *, step: str) -> Recovered:
        """Raises UsageError where it cannot say what was published, StorageError."""
        self._ignored = "ignored" in state
        if self._ignored:
            return Recovered(published=step == PUBLISHED)
        staging = Staging.taken_over(self.target, state.get("job", job_id), json.loads(state.get("parents", "[]")))
        if step == BEGUN and (staging is None or "tag" not in state):
            if staging is not None:
                staging.remove()
            self.begin(job_id)
            return Recovered(missing=tuple(range(len(winners))))
        self._job, self._tag, self._staging = state.get("job", job_id), state["tag"], staging
        self._again = step != BEGUN
        if step == PUBLISHED and not self.has_begun:  # it was released, too
            return Recovered(published=True)
        if staging is None:
            raise UsageError(
                f"It is not known what was published to {self.target.label}: its driver died while it did so, and another job that writes there, "
                "or somebody else, has removed or taken back what it left.",
                hint="Look at what is there, and run the script without resuming if it is to be published once more.",
            )
        places = f"{staging.path}/new", self.target.path
        return Recovered(missing=tuple(self._missing(staging, winners, *places)))

    # --- driver, after ---

    def commit(self, winners: Sequence[FileCommit]) -> None:
        """Raises FiresteelError with nothing published when a file is missing, damaged or cannot be moved."""
        if self._ignored:
            return
        assert self._schema is not None and self._staging is not None, "check and begin come before commit"
        written = [message for message in winners if message.files]
        if not self._again:  # else it was looked for, and may have been moved
            self._staging.verify(written)
        with storage_errors(self.target.label):
            if self._wants_a_file(written):
                written = [self._write_empty()]
            files = [
                (self._staging.place(file), self._final_name(message.subtask, file))
                for message in written
                for file in message.files
            ]
            with self._moves() as moves:
                self._publish(files, moves)
                if not self._held:
                    self._changes.complete()
            self._published = moves
            if not self._held:
                self.release()

    def _moves(self) -> Moves:
        assert self._staging is not None
        inside, is_ours = self._staging.path, self._staging.is_ours
        return Moves(self.target.filesystem, again=self._again, inside=inside, is_ours=is_ours)

    @property
    def _changes(self) -> InPlace:
        assert self._staging is not None
        return InPlace(self.target, self._staging.path)

    @property
    def _renamed(self) -> Renamed:
        assert self._staging is not None
        return Renamed(self.target, self._staging.path)

    @property
    def has_begun(self) -> bool:
        """A driver that died has begun to publish, and released nothing yet. Raises StorageError."""
        if not self._again or self._staging is None:
            return False
        with storage_errors(self.target.label):
            return self._changes.is_open or self._renamed.is_open

    def _publish(self, files: list[tuple[str, str]], moves: Moves) -> None:
        """Goes on with what another driver has begun, as it began."""
        local = is_local(self.target.filesystem)
        stays = self.mode in _IN_PLACE and self.target.kind() is not pafs.FileType.NotFound
        if self._again and self._changes.is_open:
            self._changes.go_on(files, moves)
        elif local and (not stays or (self._again and self._renamed.is_open)):
            self._renamed.make(files, moves, overwrites=self.mode == "overwrite")
        elif stays:
            replaced = self._replaced(files)
            if files or replaced:
                by_folder = local and self.mode == "overwrite_partitions"
                self._changes.make(Change(files, replaced, by_folder), moves)
        else:
            self._changes.make(Change(files, self._all_files(), empties=True), moves)

    def _wants_a_file(self, written: Sequence[FileCommit]) -> bool:
        """True if one without rows has to say what columns there are."""
        return not written and not self._layout.partition_by

    def _final_name(self, subtask: int, file: PartFile) -> str:
        """In order of the subtasks and of each one's files; files that are added get names that nobody else has. A bucket's number comes last,
        where Spark looks for it."""
        number = "" if self._layout.is_direct else f"-{file.number:05d}"
        tag = f"-{self._tag}" if self.mode in _IN_PLACE else ""
        folder = f"{file.folder}/" if file.folder else ""
        bucket = "" if file.bucket is None else f"_{file.bucket:05d}"
        return f"{folder}part-{subtask:05d}{number}{tag}{bucket}.{self._layout.extension}"

    def hold(self) -> None:
        """From now on ``commit`` can be taken back until ``release``; replaced files are kept until then."""
        self._held = True

    def rollback(self) -> None:
        """Takes back what was committed since ``hold``. Raises FiresteelError if that cannot be done."""
        with storage_errors(self.target.label):
            if self._published is not None:
                self._published.undo()
        self._held, self._published = False, None

    def release(self) -> None:
        """Makes the published output final: removes staging and the replaced files."""
        self._held, self._published = False, None
        if self._staging is not None:
            with storage_errors(self.target.label):
                self._changes.complete()
                self._renamed.complete()
            self._staging.remove()

    def _write_empty(self) -> FileCommit:
        writer = self._writer(0, 0)
        writer.open()
        return writer.finish()

    def _all_files(self) -> list[str]:
        """Names of all that is there. Raises FiresteelError where it may not be overwritten."""
        path = self.target.path
        there = self.target.filesystem.get_file_info(pafs.FileSelector(path, recursive=True, allow_not_found=True))
        names = [info.path[len(path) :].lstrip("/") for info in there if info.type is pafs.FileType.File]
        if names and self.mode != "overwrite":
            raise FiresteelError(
                f"Nothing was published: {self.target.label} was created by another program while the job was running.",
                hint="Write to another path, or with mode='overwrite'.",
            )
        return names

    def _replaced(self, files: list[tuple[str, str]]) -> list[str]:
        """Names of what goes as these files come."""
        if self.mode != "overwrite_partitions":
            return []
        assert self._schema is not None
        fields = [self._schema.field(name) for name in self._layout.partition_by]
        folders = same_partitions(self.target, fields, {name.rpartition("/")[0] for _, name in files})
        return folders if is_local(self.target.filesystem) else files_in(self.target, folders)


@contextmanager
def _as_usage(target: Location) -> Generator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        said, hint = why(target.label, error, "Check the path and your access rights.")
        raise UsageError(f"{target.label} cannot be looked at: {said}.", hint=hint) from None


_AT_A_TIME = 16


def same_partitions(target: Location, fields: Iterable[pa.Field], folders: Collection[str]) -> list[str]:
    """Names of folders in ``target``. ``folders``: as we name them, ``"year=2024/month=1"``, of these partition columns.

    ``month=01`` of another writer is the same partition where months are numbers, and another one where they are strings.
    """
    found = {"": ""}  # the name there, and ours
    for depth, field in enumerate(fields, 1):
        wanted = {"/".join(folder.split("/")[:depth]) for folder in folders}
        below = _listed(target, found, recursive=False)
        ours = _Names(field)
        found = {
            f"{parent}/{PurePosixPath(info.path).name}".lstrip("/"): name
            for parent, infos in zip(found, below, strict=True)
            for info in infos
            if info.type is pafs.FileType.Directory
            and (name := f"{found[parent]}/{ours.of(PurePosixPath(info.path).name)}".lstrip("/")) in wanted
        }
    return sorted(found)


def files_in(target: Location, folders: Collection[str]) -> list[str]:
    """Names in ``target`` of all files below these folders of it."""
    below = _listed(target, folders, recursive=True)
    start = len(target.path) + 1
    return [info.path[start:] for infos in below for info in infos if info.type is pafs.FileType.File]


def _listed(target: Location, folders: Collection[str], *, recursive: bool) -> list[list[pafs.FileInfo]]:
    def listed(folder: str) -> list[pafs.FileInfo]:
        path = f"{target.path}/{folder}".rstrip("/")
        return target.filesystem.get_file_info(pafs.FileSelector(path, recursive=recursive, allow_not_found=True))

    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        return list(pool.map(listed, folders))


class _Names:
    """Our names for the folders of one partition column."""

    def __init__(self, field: pa.Field) -> None:
        data_type = field.type
        self._type = data_type.value_type if pa.types.is_dictionary(data_type) else data_type
        self._column = escape(field.name)

    def of(self, name: str) -> str:
        """As we would name a folder of this value; the name itself where it is none of the column's."""
        column, equals, text = name.partition("=")
        if column != self._column or not equals:
            return name
        value = None if text == NULL_NAME else unquote(text, errors="surrogateescape")
        try:
            return f"{column}={format_values(parse_values([value], self._type))[0]}"
        except (pa.ArrowException, ValueError):
            return name
