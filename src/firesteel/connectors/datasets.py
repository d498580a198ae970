"""The names of data sets, as OpenLineage gives them: a namespace (the storage) and a name in it. Without credentials."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from firesteel.connectors.files.paths import Location

DatasetName = tuple[str, str]
"""``("file", "/data/sales")``, ``("s3://bucket", "sales/2024")``."""

MOST = 20
"""Places of one source that are named one by one; more are named by the folder that they are in."""
_SCHEMES = {"s3": "s3", "gcs": "gs", "abfs": "abfss", "hdfs": "hdfs"}
"""By the names that ``pyarrow.fs`` gives filesystems."""
_SAME = {"s3a": "s3", "s3n": "s3", "abfs": "abfss", "wasb": "wasbs"}


def dataset_of(place: Location) -> DatasetName:
    """Of a directory or file."""
    kind = place.filesystem.type_name
    if kind == "subtree":
        inner: Any = place.filesystem
        return dataset_of(
            Location(inner.base_fs, f"{inner.base_path.rstrip('/')}/{place.path.lstrip('/')}", place.prefix)
        )
    scheme = _SCHEMES.get(kind)
    if kind == "local" or scheme is None:
        return ("file" if kind == "local" else kind, place.path)
    if scheme == "hdfs":
        return (place.prefix.removesuffix("://") or scheme, place.path)
    bucket, _, name = place.path.lstrip("/").partition("/")
    return (f"{scheme}://{bucket}", name or "/")


def dataset_of_url(url: str) -> DatasetName:
    """Of a path or URL as Spark opens it."""
    parts = urlsplit(url)
    scheme = _SAME.get(parts.scheme, parts.scheme)
    if scheme in ("", "file"):
        return ("file", unquote(parts.path).rstrip("/") or "/")
    authority = parts.netloc if scheme in ("abfss", "wasbs") else parts.netloc.rpartition("@")[2]
    return (f"{scheme}://{authority}", unquote(parts.path).strip("/") or "/")


def datasets_of(places: Iterable[Location]) -> list[DatasetName]:
    """Of several; very many by what they have in common."""
    found = list(places)
    if len(found) > MOST:
        parts = [PurePosixPath(place.path).parts for place in found]
        shared = [names[0] for names in zip(*parts, strict=False) if len(set(names)) == 1]
        prefix = next((n for n, names in enumerate(zip(*parts, strict=False)) if len(set(names)) > 1), len(shared))
        found = [found[0].at(str(PurePosixPath(*shared[:prefix])))]
    return list(dict.fromkeys(map(dataset_of, found)))
