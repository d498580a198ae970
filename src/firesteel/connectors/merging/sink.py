"""The sink of a merge: new files come and the files that they replace go, in one change of the folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from firesteel.connectors.base import Recovered
from firesteel.connectors.files.paths import PathLike
from firesteel.connectors.files.writing.moves import storage_errors
from firesteel.connectors.files.writing.part_files import FileCommit, FileWriter, NoWriter
from firesteel.connectors.formats.parquet import ParquetSink
from firesteel.connectors.merging.folder import FILE, listed
from firesteel.errors import FiresteelError


@dataclass(frozen=True, slots=True)
class MergeCommit:
    """Commit message of one attempt. ``replaced``: names, in the folder, of files whose remaining rows are among what was written."""

    files: FileCommit
    replaced: tuple[str, ...]


class MergeSink(ParquetSink):
    """Takes rows with a column :data:`FILE` more, which is null but in those that stand for a file that is replaced.

    ``seen``: the files that the job read, or would have, as :func:`~firesteel.connectors.merging.folder.listed` gives them.
    """

    kind = "merge_parquet"

    def __init__(self, path: PathLike, **options: Any) -> None:
        super().__init__(path, mode="append", **options)
        self.seen: dict[str, tuple[int, int]] = {}
        self._gone: tuple[str, ...] = ()

    @property
    def writes_all_rows(self) -> bool:
        """Some stand for files."""
        return False

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "seen": {}}  # there may be thousands

    def check(self, schema: pa.Schema) -> None:
        super().check(pa.schema([field for field in schema if field.name != FILE]))

    def write(self, subtask: int, attempt: int) -> Any:
        return MergeWriter(super().write(subtask, attempt))

    def state(self) -> dict[str, str]:
        return {**super().state(), "seen": json.dumps(self.seen)}

    def recover(self, job_id: str, winners: Sequence[Any], state: Mapping[str, str], *, step: str) -> Recovered:
        if "seen" in state:  # what is there now may be this job's already
            self.seen = {name: (size, changed) for name, (size, changed) in json.loads(state["seen"]).items()}
        return super().recover(job_id, [winner.files for winner in winners], state, step=step)

    def commit(self, winners: Sequence[Any]) -> None:
        """``winners``: MergeCommit. Raises FiresteelError also where others have changed the folder since the files were listed."""
        if not self.has_begun:
            self._check_unchanged()
        self._gone = tuple(sorted({name.partition("/")[2] for winner in winners for name in winner.replaced}))
        super().commit([winner.files for winner in winners])

    def _check_unchanged(self) -> None:
        with storage_errors(self.target.label):
            now = listed(self.target)
        changed = sorted(name for name in {*now, *self.seen} if now.get(name) != self.seen.get(name))
        if changed:
            what = "is gone" if changed[0] not in now else "is new" if changed[0] not in self.seen else "has changed"
            raise FiresteelError(
                f"Nothing was published to {self.target.label}: another program wrote there while the job was running ({changed[0]} {what}).",
                hint="Run the job again.",
            )

    def abort(self, attempts: Sequence[Any]) -> None:
        super().abort([attempt.files for attempt in attempts])

    def _replaced(self, files: list[tuple[str, str]]) -> list[str]:
        return list(self._gone)

    def _wants_a_file(self, written: Sequence[FileCommit]) -> bool:
        is_new = self.target.kind() is pafs.FileType.NotFound
        return super()._wants_a_file(written) and (is_new or len(self._gone) == len(self.seen))


class MergeWriter:
    """Writes rows, and notes the files that are replaced."""

    def __init__(self, files: FileWriter | NoWriter) -> None:
        self._files = files
        self._replaced: list[str] = []

    def write(self, batch: pa.RecordBatch) -> None:
        marks = batch.column(FILE)
        if marks.null_count < batch.num_rows:
            self._replaced += marks.drop_null().to_pylist()
            batch = batch.filter(marks.is_null())
        self._files.write(batch.drop_columns([FILE]))

    def finish(self) -> MergeCommit:
        return MergeCommit(self._files.finish(), tuple(self._replaced))

    def abort(self) -> None:
        self._files.abort()
