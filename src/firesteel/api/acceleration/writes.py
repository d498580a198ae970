"""``DataFrame.write`` and ``writeTo``: our tasks compute the rows, and Spark's own writer writes them.

PySpark's method runs as it is, on a stand-in for the Java writer: all settings go to that one, and where the method ends by writing, the same
settings write the staged rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from firesteel.api.acceleration.hooks import Action, sparks
from firesteel.errors import UsageError

if TYPE_CHECKING:
    from firesteel.api.acceleration.takeover import Takeover


Check = Callable[[Sequence[str]], None]
"""Takes the files that the query reads. Raises UsageError with the reason why the write is Spark's."""

_FORMATS = ("parquet", "csv", "json", "orc", "text", "xml")
_ENDS = ("save", "saveAsTable", "insertInto", "jdbc", *_FORMATS)
_ENDS_V2 = ("create",)
_SPARKS_V2 = ("append", "overwrite", "overwritePartitions", "replace", "createOrReplace")
"""Only tables of other catalogs than the session's own take them, each by rules of its own."""
_SETTINGS = {
    *("source", "curmode", "extraOptions", "partitioningColumns", "bucketColumnNames", "numBuckets", "sortColumnNames")
}
_SETTINGS_V2 = {"provider", "options", "properties", "partitioning"}
_LATER = {"clusteringColumns", "clustering", "_withSchemaEvolution"}
"""Settings that only newer Sparks have."""
_CALLED = {"mode": "curmode"}
"""Settings under the names of Spark 3.5."""
_OWN = {"df", "ds", "sparkSession", "tableName", "logicalPlan"}
"""Fields that a writer has of its DataFrame and its table."""


class _StandIn:
    """Passes everything on to a Java writer, but the end of a write."""

    def __init__(self, writer: Any, ends: Sequence[str], end: Callable[..., Any]) -> None:
        self._writer, self._ends, self._end = writer, ends, end

    def __getattr__(self, name: str) -> Any:
        def called(*args: Any) -> Any:
            if name in self._ends:
                return self._end(name, *args)
            getattr(self._writer, name)(*args)
            return self

        return called


def _written(java_writer: str, ends: Sequence[str], end: Callable[..., Any]) -> Action:
    """``java_writer``: the attribute that holds it; ``end``: takes what is active, both writers, and the method that ends the write with its arguments."""

    def write(active: Takeover, original: Action, writer: Any, *args: Any, **kwargs: Any) -> Any:
        java = getattr(writer, java_writer)
        setattr(writer, java_writer, _StandIn(java, ends, partial(end, active, writer, java)))
        try:
            return original(writer, *args, **kwargs)
        finally:
            setattr(writer, java_writer, java)

    return write


def _end(active: Takeover, writer: Any, java: Any, method: str, *given: Any) -> Any:
    def check(read: Sequence[str]) -> None:
        _known(java, _SETTINGS)
        _check(writer._spark, java, method, given, read)

    with active.staged(lambda: writer._df, f"write.{method}", check) as rows:
        return getattr(java if rows is None else _over(rows._jdf.write(), java), method)(*given)


def _end_v2(active: Takeover, writer: Any, java: Any, method: str, *given: Any) -> Any:
    table = ".".join(f"`{part.replace('`', '``')}`" for part in _parts(java))

    def check(read: Sequence[str]) -> None:
        _known(java, _SETTINGS_V2)
        check_table(writer._spark, table, "ErrorIfExists", read)

    with active.staged(lambda: writer._df, f"writeTo.{method}", check) as rows:
        return getattr(java if rows is None else _over(rows._jdf.writeTo(table), java), method)(*given)


def _check(session: Any, java: Any, method: str, given: Sequence[Any], read: Sequence[str]) -> None:
    mode, source = str(_setting(java, "curmode").toString()), str(_setting(java, "source"))
    if method == "insertInto":  # appends in each other mode
        check_table(session, given[0], mode if mode == OVERWRITE else APPEND, read, must_exist=True)
        return
    if method == "saveAsTable":
        check_table(session, given[0], mode, read)
        return
    if method == "jdbc":
        return
    named = _setting(java, "extraOptions").get("path")
    path = given[0] if given else named.get() if named.isDefined() else None
    if method in _FORMATS or source.lower() in _FORMATS:
        if path is None:
            raise UsageError("it says no path")
        check_path(session, path, mode, read)
    elif path is not None:
        raise UsageError(f"writing {source} to a path is Spark's")


# --- Java's writers ---------------------------------------------------------------------------------------------------------


def _fields(java: Any) -> dict[str, Any]:
    """The fields of a Java object, by name, made readable."""
    found: dict[str, Any] = {}
    kind = java.getClass()
    while kind is not None and kind.getName() != "java.lang.Object":
        for field in kind.getDeclaredFields():
            field.setAccessible(True)
            name = str(field.getName())
            found[_CALLED.get(name, name)] = field
        kind = kind.getSuperclass()
    return found


def _setting(java: Any, name: str) -> Any:
    return _fields(java)[name].get(java)


def _known(java: Any, settings: set[str]) -> None:
    if set(_fields(java)) - _OWN - _LATER != settings:
        raise UsageError("the writer of this Spark has other settings than are known")


def _over(fresh: Any, java: Any) -> Any:
    """A new writer with the settings of another one."""
    for name, field in _fields(java).items():
        if name not in _OWN:
            field.set(fresh, field.get(java))
    return fresh


def _parts(java: Any) -> list[str]:
    name = _setting(java, "tableName")
    return [str(name.apply(i)) for i in range(name.size())]


WRITES: dict[str, Action] = dict.fromkeys(_ENDS, _written("_jwrite", _ENDS, _end))
WRITES_TO: dict[str, Action] = {
    **dict.fromkeys(_ENDS_V2, _written("_jwriter", _ENDS_V2, _end_v2)),
    **{name: sparks(f"writeTo.{name}") for name in _SPARKS_V2},
}


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
