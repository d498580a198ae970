"""The contents of a streaming query's checkpoint: batches planned and committed, their settings, its stateful operators.

Read, and where a repartition broke off mended, through Hadoop's FileSystem in the JVM, as the engine does, so that any URL
Spark can write to will do. ``offsets/N`` is written before batch N runs and ``commits/N`` after it; batch N reads state of version
N and writes version N + 1, whose files are ``state/<operator>/<partition>[/<store>]/<N + 1>.*``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from firesteel.errors import UsageError

SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
STATE_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
_METADATA = "_metadata"
_BY_CHECKSUM = ("ChecksumException", "OutOfMemoryError", "NegativeArraySizeException", "ArithmeticException")
"""What Hadoop raises where a file's checksum is another, or is not a checksum."""


@dataclass(frozen=True, slots=True)
class StatefulOperator:
    """As the checkpoint's metadata of states tells of it. ``name``: Spark's own, as "stateStoreSave"."""

    id: int
    name: str
    stores: tuple[str, ...]
    partitions: int


@dataclass(frozen=True, slots=True)
class CheckpointState:
    """The newest of a checkpoint. Batch ids are -1 where there is none."""

    location: str
    planned: int = -1
    """The last batch in ``offsets``."""
    committed: int = -1
    """The last batch in ``commits``."""
    settings: dict[str, str] | None = None
    """Of the last committed batch, or of a first one that is pending; None: no batch yet, or settings were not written."""
    pending_settings: dict[str, str] | None = None
    """Of the pending batch."""
    state_format: int = 1
    """Version of the state store checkpoints, by the last commit."""
    operators: tuple[StatefulOperator, ...] = ()

    @property
    def pending(self) -> int | None:
        """The batch that was planned and not committed."""
        return self.planned if self.planned > self.committed else None

    @property
    def parallelism(self) -> int | None:
        """State partitions, as pinned by the last committed batch (or a first one that is pending); None: not pinned."""
        return _partitions(self.settings)

    @property
    def unfinished(self) -> int | None:
        """Partitions that a repartition was to come to which did not end; None: there is no such."""
        if self.pending is None or self.committed < 0:
            return None
        wanted = _partitions(self.pending_settings)
        return wanted if wanted is not None and wanted != self.parallelism else None

    @property
    def provider(self) -> str:
        """Class of the state store; empty: not written."""
        return (self.settings or {}).get(PROVIDER, "")


class CheckpointFiles:
    """The files below ``location``, a path or URL. Raises UsageError where they cannot be read or are not a checkpoint."""

    def __init__(self, spark: Any, location: str) -> None:
        self._jvm = spark._jvm
        self.location = location
        hadoop = spark._jsparkSession.sessionState().newHadoopConf()
        try:
            root = self._jvm.org.apache.hadoop.fs.Path(location)
            self._fs = root.getFileSystem(hadoop)
            self._root = self._fs.makeQualified(root).toString().rstrip("/")
        except Exception as error:
            raise _unreadable(location, error) from error

    @property
    def local(self) -> str | None:
        """The directory on this machine; None: it lies elsewhere."""
        return self._root.removeprefix("file:") if self._root.startswith("file:/") else None

    def read(self) -> CheckpointState:
        """The newest state; that of an empty checkpoint if nothing is there."""
        offsets, commits = self._numbers("offsets"), self._numbers("commits")
        planned, committed = max(offsets, default=-1), max(commits, default=-1)
        if planned < 0 and committed < 0:
            return CheckpointState(self.location)
        if committed > planned:
            raise UsageError(
                f"The checkpoint at {self.location} is damaged: batch {committed} was committed and is not in its offsets.",
                hint="Bring back the files of 'offsets' from a backup, or begin with another checkpoint.",
            )
        if planned > 0 and planned - 1 not in offsets:
            raise UsageError(
                f"The checkpoint at {self.location} is damaged: offsets/{planned - 1} is missing, from which batch {planned} goes on.",
                hint="Bring back the files of 'offsets' from a backup, or begin with another checkpoint.",
            )
        known = committed if committed >= 0 else planned
        return CheckpointState(
            self.location,
            planned,
            committed,
            self._settings(known),
            self._settings(planned) if planned > committed else None,
            self._state_format(committed) if committed >= 0 else 1,
            self._operators(known),
        )

    def query_id(self) -> str | None:
        """Id of the query that this checkpoint belongs to; None: not begun."""
        text = self._text("metadata")
        return None if text is None else str(_json(self.location, "metadata", text).get("id", ""))

    def delete_batch(self, batch: int) -> None:
        """Takes back a batch that was planned: first what it left in the state, then its entry in ``offsets``.

        In that order a crash on the way leaves it planned, and the next start takes it back again. The local file system's
        checksum of the entry goes before the entry: one left alone would be in the way of the batch that comes in its place.
        """
        version = batch + 1
        for operator in self._list("state"):
            if operator.isdigit():
                self._delete_version(f"state/{operator}", version)
                self._delete(f"state/{operator}/{_METADATA}/v2/{batch}")
        self._delete(f"offsets/.{batch}.crc")
        self._delete(f"offsets/{batch}")

    def _delete_version(self, operator: str, version: int) -> None:
        for partition in self._list(operator):
            if not partition.isdigit():
                continue
            folder = f"{operator}/{partition}"
            names = self._list(folder)
            self._delete_files(folder, names, version)
            for store in names:
                if store[:1].isalpha() and store != "SSTs" and "." not in store:
                    self._delete_files(f"{folder}/{store}", self._list(f"{folder}/{store}"), version)

    def _delete_files(self, folder: str, names: Iterable[str], version: int) -> None:
        for name in names:
            if name.startswith((f"{version}.", f"{version}_")):
                self._delete(f"{folder}/{name}")

    def _settings(self, batch: int) -> dict[str, str] | None:
        name = f"offsets/{batch}"
        text = self._text(name)
        if text is None:
            return None
        lines = text.splitlines()
        if len(lines) < 2 or not lines[0].startswith("v"):
            raise _not_a_log(self.location, name)
        return _json(self.location, name, lines[1]).get("conf") if lines[1].strip() else None

    def _state_format(self, batch: int) -> int:
        name = f"commits/{batch}"
        lines = (self._text(name) or "v1").splitlines()
        if len(lines) < 2:
            return 1
        return 2 if _json(self.location, name, lines[1]).get("stateUniqueIds") else 1

    def _operators(self, batch: int) -> tuple[StatefulOperator, ...]:
        found: list[StatefulOperator] = []
        for name in sorted((n for n in self._list("state") if n.isdigit()), key=int):
            folder = f"state/{name}/{_METADATA}"
            files = self._list(folder)
            if "v2" in files:
                batches = [b for b in self._numbers(f"{folder}/v2") if b <= batch]
                path = f"{folder}/v2/{max(batches, default=0)}"
            else:
                path = f"{folder}/metadata"
            text = self._text(path)
            if text is not None:
                found.append(_operator(_json(self.location, path, text.partition("\n")[2])))
        return tuple(found)

    def _numbers(self, folder: str) -> list[int]:
        return [int(name) for name in self._list(folder) if name.isdigit()]

    def _list(self, folder: str) -> list[str]:
        """Names in a directory; none where there is no such directory. Three calls to the JVM, however many names."""
        path = f"{self._root}/{folder}"
        try:
            found = self._fs.listStatus(self._path(path))
            paths = self._jvm.org.apache.hadoop.fs.FileUtil.stat2Paths(found)
            text = self._jvm.org.apache.commons.lang3.ArrayUtils.toString(paths)
        except Exception as error:
            if _is_missing(error):
                return []
            raise _unreadable(self.location, error) from error
        return [part.removesuffix(",") for part in text[1:-1].split(f"{path}/")[1:]]

    def _text(self, name: str) -> str | None:
        try:
            stream = self._fs.open(self._path(f"{self._root}/{name}"))
            try:
                return bytes(stream.readAllBytes()).decode()
            finally:
                stream.close()
        except Exception as error:
            if _is_missing(error):
                return None
            raise self._unsound(name, error) or _unreadable(self.location, error) from error

    def _unsound(self, name: str, error: Exception) -> UsageError | None:
        """Of a file that does not fit the checksum which the local file system keeps next to it; None: that is not the reason.

        Hadoop takes the size of an array from that file, whatever is written there."""
        folder, _, last = name.rpartition("/")
        checksum = f"{folder}/.{last}.crc".lstrip("/")
        if told(error).partition(":")[0] not in _BY_CHECKSUM or not self._fs.exists(
            self._path(f"{self._root}/{checksum}")
        ):
            return None
        return UsageError(
            f"The checkpoint at {self.location} cannot be read: {name} and its checksum, {checksum}, do not fit each other.",
            hint="If only the checksum is damaged, remove it. Otherwise bring both files back from a backup.",
        )

    def _delete(self, name: str) -> None:
        path = self._path(f"{self._root}/{name}")
        try:
            gone = self._fs.delete(path, True) or not self._fs.exists(path)
        except Exception as error:
            raise _unreadable(self.location, error) from error
        if not gone:
            raise UsageError(f"{self._root}/{name} could not be removed.", hint="Check your rights on the checkpoint.")

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(name)


def _operator(metadata: dict[str, Any]) -> StatefulOperator:
    operator, stores = metadata.get("operatorInfo", {}), metadata.get("stateStoreInfo", [])
    return StatefulOperator(
        int(operator.get("operatorId", 0)),
        str(operator.get("operatorName", "")),
        tuple(str(s.get("storeName", "")) for s in stores),
        max((int(s.get("numPartitions", 0)) for s in stores), default=0),
    )


def _partitions(settings: dict[str, str] | None) -> int | None:
    text = (settings or {}).get(SHUFFLE_PARTITIONS)
    return int(text) if text is not None else None


def _json(location: str, name: str, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise _not_a_log(location, name) from error
    if not isinstance(found, dict):
        raise _not_a_log(location, name)
    return found


def _not_a_log(location: str, name: str) -> UsageError:
    return UsageError(
        f"The checkpoint at {location} cannot be used: {name} is not what Spark writes there.",
        hint="If the directory holds something else, name another; if the file is damaged, bring it back from a backup.",
    )


def _is_missing(error: Exception) -> bool:
    java = java_exception(error)
    return java is not None and java.getClass().getSimpleName() in ("FileNotFoundException", "NoSuchFileException")


def java_exception(error: BaseException) -> Any:
    """The JVM's exception behind one that PySpark or py4j raised; None: there is none."""
    return getattr(error, "java_exception", None) or getattr(error, "_origin", None)


def told(error: BaseException) -> str:
    """The innermost cause in a line, without its stack."""
    java = java_exception(error)
    if java is None:
        return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
    while java.getCause() is not None:
        java = java.getCause()
    text = (java.getMessage() or "").strip().partition("\n")[0]
    return f"{java.getClass().getSimpleName()}: {text}" if text else str(java.getClass().getSimpleName())


def _unreadable(location: str, error: Exception) -> UsageError:
    return UsageError(
        f"The checkpoint at {location} cannot be read or changed: {told(error)}",
        hint="Check the path, the credentials, and that Spark has the connector of that storage.",
    )
