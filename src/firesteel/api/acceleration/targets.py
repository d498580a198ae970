"""Targets of writes, as far as Spark looks at them before it runs the query: one exists already, or the query reads it.

Each check raises UsageError with the reason why the write is Spark's; it then says, or does, what is due.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote

from firesteel.errors import UsageError

APPEND, OVERWRITE = "Append", "Overwrite"
"""Modes by the names of Spark's ``SaveMode``; the others end, in one way or another, where something exists already."""
_EXISTS = "what it writes to exists already: Spark looks at that first"


def check_path(session: Any, path: str, mode: str, read: Sequence[str]) -> None:
    """``read``: the files of the query."""
    place = session._jvm.org.apache.hadoop.fs.Path(path)
    system = place.getFileSystem(session._jsparkSession.sessionState().newHadoopConf())
    if mode not in (APPEND, OVERWRITE) and system.exists(place):
        raise UsageError(_EXISTS)
    if mode == OVERWRITE:
        check_overlap(str(system.makeQualified(place).toString()), read)


def check_table(session: Any, name: str, mode: str, read: Sequence[str], *, must_exist: bool = False) -> None:
    """A table of the session's own catalog."""
    state = session._jsparkSession.sessionState()
    if state.catalogManager().currentCatalog().name() != "spark_catalog":
        raise UsageError("tables of this catalog are Spark's")
    identifier = state.sqlParser().parseTableIdentifier(name)
    exists = bool(state.catalog().tableExists(identifier))
    if must_exist and not exists:
        raise UsageError("the table does not exist")
    if exists and mode not in (APPEND, OVERWRITE):
        raise UsageError(_EXISTS)
    if exists and mode == OVERWRITE:
        check_overlap(str(state.catalog().getTableMetadata(identifier).location().toString()), read)


def check_overlap(place: str, read: Sequence[str]) -> None:
    """A path as Hadoop or a URI has it: nothing that the query reads may lie there."""
    plain = _plain(place)
    if any(_plain(file).startswith(plain) or plain.startswith(_plain(file)) for file in read):
        raise UsageError("it overwrites what it reads")


def _plain(place: str) -> str:
    """Without escapes and with one form of ``file:``; a folder ends with a slash."""
    scheme, colon, rest = unquote(place).partition(":")
    path = f"{scheme}:{rest.lstrip('/')}" if colon and scheme == "file" else unquote(place)
    return f"{path.rstrip('/')}/"
