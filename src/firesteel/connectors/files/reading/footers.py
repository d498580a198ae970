"""Sources of files with footers (Parquet, Arrow IPC): footers read on the driver, one schema agreed upon."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa

from firesteel.connectors.files.paths import InputFile, InputFiles, PathLike
from firesteel.connectors.files.reading.evolution import check_merge_schema, merged_schema
from firesteel.connectors.files.reading.source import FileSource, for_each_file
from firesteel.connectors.files.shaping import one_schema


class Footer(Protocol):
    """The parts that the footers of all formats have."""

    @property
    def file(self) -> InputFile: ...
    @property
    def schema(self) -> pa.Schema: ...


_F = TypeVar("_F", bound=Footer)


class FooterSource(FileSource, Generic[_F]):
    """``merge_schema``: the files' schemas may differ as in :mod:`~firesteel.connectors.files.reading.evolution`.

    Footers are read when the source is made (of a partitioned tree without ``merge_schema`` only the first; the others when
    splits are listed, of the partitions that filters leave). They stay on the driver: there may be thousands.
    """

    def __init__(
        self, paths: PathLike | Iterable[PathLike], filesystem: Any, partitions: bool | pa.Schema, merge_schema: bool
    ) -> None:
        self._merges = check_merge_schema(merge_schema, self.kind)
        found, files = self._find(paths, filesystem, partitions)
        numbers = range(len(files)) if merge_schema or self._partitions is None else range(1)
        self._footers: dict[int, _F] = for_each_file(found, numbers, self._footer_reader())
        self._have(self._agreed(found))

    @staticmethod
    @abstractmethod
    def _footer_reader() -> Callable[[InputFiles, InputFile], _F]:
        """A function that reads the footer of a file, on any thread, and raises UsageError for one that is damaged or of another format."""

    def _agreed(self, found: InputFiles) -> pa.Schema:
        """The schema of all footers that were read. Raises UsageError if there is none."""
        footers = [footer for _, footer in sorted(self._footers.items())]
        schemas = [(footer.file.path, footer.schema) for footer in footers]
        return merged_schema(found, schemas) if self._merges else one_schema(found, schemas)

    def _read_other_footers(self) -> None:
        """Reads the footers of all files that are left after filters on partitions."""
        assert self._found is not None, "list_splits is called on the driver"
        missing = [number for number in self._kept if number not in self._footers]
        if not missing:
            return
        self._footers.update(for_each_file(self._found, missing, self._footer_reader()))
        self._agreed(self._found)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_footers": {}}
