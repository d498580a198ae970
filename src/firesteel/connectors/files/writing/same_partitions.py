"""Finds the folders of a partitioned directory that hold given partitions, whatever names their values have there."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePosixPath
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs

from firesteel.connectors.files.partitions import NULL_NAME, escape, format_values, parse_values
from firesteel.connectors.files.paths import Location

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
