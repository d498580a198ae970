"""From what a user writes (paths, globs, directories, URLs, lists of these) to files on a ``pyarrow.fs`` filesystem.

Everything is resolved on the driver: relative local paths become absolute here, because executors have another working
directory. What counts as hidden follows Spark: in a directory, names that begin with ``.`` or ``_`` are skipped. A glob
is more exact, so it may match ``__init__.py``; it skips ``.names`` (unless the pattern begins with a dot) and the marks
that writers leave (``_SUCCESS``, ``_temporary``, ...).
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.fs as pafs

from firesteel.errors import UsageError

PathLike = str | os.PathLike[str]

_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.\-]+):/")
_MAGIC = re.compile(r"[*?\[]")
_URL_MAGIC = re.compile(r"[*\[]")
_SPARK_SCHEMES = {
    *("s3a", "s3n", "dbfs", "wasb", "wasbs", "adl", "oss", "cosn", "o3fs", "ofs", "hdfs", "viewfs", "http", "https"),
}
_MARKS = r"_SUCCESS|_temporary|_metadata|_common_metadata|_spark_metadata|_delta_log|_committed_[^/]*|_started_[^/]*"
_VISIBLE = rf"(?!\.|(?:{_MARKS})(?:/|$))"
"""In front of a path component: not hidden from a wildcard."""


@dataclass(frozen=True, slots=True)
class Location:
    """One path on one filesystem. ``prefix + path`` is how a message names it (never with credentials)."""

    filesystem: pafs.FileSystem
    path: str
    prefix: str = ""

    @property
    def label(self) -> str:
        return self.prefix + self.path

    def at(self, path: str) -> Location:
        return Location(self.filesystem, path, self.prefix)

    def kind(self) -> pafs.FileType:
        """Asks the filesystem. Raises OSError."""
        return self.filesystem.get_file_info(self.path).type


WRITTEN_ONCE = "written once"
"""The version of a file that never changes: of a table's data."""


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file to read; ``root``: the path or glob base through which it was found. ``version``: tells its contents from others of the same path
    and size, as the storage says it: the time of its last change (ns), or WRITTEN_ONCE; empty: it says nothing."""

    path: str
    size: int
    root: str
    version: str = ""


@dataclass(frozen=True, slots=True)
class InputFiles:
    """All files of a source, each once, in the order of the paths given and sorted within each."""

    filesystem: pafs.FileSystem
    prefix: str
    files: tuple[InputFile, ...]
    folders: tuple[str, ...] = ()
    """The directories that were given as such: what lies in them at any time belongs to the source."""

    def label(self, path: str) -> str:
        return self.prefix + path


def find_files(paths: PathLike | Iterable[PathLike], filesystem: pafs.FileSystem | None = None) -> InputFiles:
    """Lists what ``paths`` name. Raises UsageError for a missing path, an empty glob or directory, an unknown scheme."""
    given = as_paths(paths)
    found: dict[str, InputFile] = {}
    folders: dict[str, None] = {}
    first: Location | None = None
    for text in given:
        location, pattern = _parse(text, filesystem)
        if first is None:
            first = location
        elif not location.filesystem.equals(first.filesystem):
            raise UsageError(
                f"The paths of one source must lie in one place, but {first.label} and {location.label} do not.",
                hint="Make a source of each and join them with union().",
            )
        try:
            for file in _files_of(location, pattern):
                found.setdefault(file.path, file)
                if not pattern and file.path != file.root:
                    folders[file.root] = None
        except (OSError, pa.ArrowException) as error:
            said, hint = why(location.label, error, "Check the path and your access rights.")
            raise UsageError(f"{location.label} cannot be listed: {said}.", hint=hint) from None
    assert first is not None
    return InputFiles(first.filesystem, first.prefix, tuple(found.values()), tuple(folders))


def find_target(path: PathLike | Any, filesystem: pafs.FileSystem | None = None) -> Location:
    """The place that a sink writes to. Globs mean nothing here; trailing slashes are dropped. Raises UsageError."""
    if not isinstance(path, str | os.PathLike):
        raise UsageError(f"{path!r} is not a path.", hint="Give the path or URL of a directory to write to.")
    text = os.fspath(path)
    if not text.strip():
        raise UsageError("An output path is empty.", hint="Name a directory to write to.")
    location = _locate(text, filesystem)
    local = local_path(location) if filesystem is None else None
    if local is not None and local.is_symlink():  # write where it points, keep the link
        location = location.at(str(local.resolve()))
    if not PurePosixPath(location.path).name:
        raise UsageError(
            f"{location.label} is the root of a filesystem and cannot be an output.", hint="Name a directory in it."
        )
    return location


def as_paths(paths: PathLike | Iterable[PathLike]) -> list[str]:
    """The texts of one path or several. Raises UsageError when there is none or one is no path."""
    several: list[Any] = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    for path in several:
        if not isinstance(path, str | os.PathLike) or not os.fspath(path):
            raise UsageError(f"{path!r} is not a path.", hint="Give a path, a glob, a URL, or a list of these.")
    if not several:
        raise UsageError("The list of paths to read is empty.", hint="Give at least one path, glob or URL.")
    return [os.fspath(path) for path in several]


def only_spark_opens(path: PathLike, filesystem: pafs.FileSystem | None = None) -> bool:
    """True if the path is a URL that Hadoop has a filesystem for, but pyarrow, as it is here, none."""
    if filesystem is not None or not isinstance(path, str | os.PathLike):  # pyright: ignore[reportUnnecessaryIsInstance]
        return False
    text = os.fspath(path)
    match = _SCHEME.match(text)
    if match is None or match[1].lower() not in _SPARK_SCHEMES - {"http", "https"}:
        return False
    try:
        pafs.FileSystem.from_uri(_MAGIC.split(text, maxsplit=1)[0])
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError):
        return True
    return False


def short_name(paths: PathLike | Iterable[PathLike]) -> str:
    """The paths as a source's name shows them: the end of the first, and how many more there are."""
    texts = as_paths(paths)
    text = texts[0].split("?")[0] if _SCHEME.match(texts[0]) else texts[0]
    parts = [part for part in text.split("/") if part]
    tail = "/".join(parts[-2:] if _MAGIC.search(text) else parts[-1:])
    return tail if len(texts) == 1 else f"{tail} and {len(texts) - 1} more"


def is_local(filesystem: pafs.FileSystem) -> bool:
    """True if it is this machine's filesystem, where renaming a directory is one atomic step."""
    if isinstance(filesystem, pafs.SubTreeFileSystem):
        return is_local(filesystem.base_fs)
    return isinstance(filesystem, pafs.LocalFileSystem)


def local_path(location: Location) -> Path | None:
    """The path as the operating system knows it; None where the filesystem is not a local one."""
    filesystem, path = location.filesystem, location.path
    while isinstance(filesystem, pafs.SubTreeFileSystem):
        filesystem, path = filesystem.base_fs, filesystem.base_path + path.lstrip("/")
    return Path(path) if isinstance(filesystem, pafs.LocalFileSystem) else None


# --- from text to a place ------------------------------------------------------------------------------------


def _parse(text: str, filesystem: pafs.FileSystem | None) -> tuple[Location, tuple[str, ...]]:
    """The place before the first wildcard, and the components of the pattern after it (none: an exact path)."""
    is_url = filesystem is None and _SCHEME.match(text) is not None
    base, query = text, ""
    if is_url and "?" in text:
        base, query = text.split("?", 1)
    magic = _URL_MAGIC if is_url else _MAGIC
    if not magic.search(base):
        return _locate(text, filesystem), ()
    if not is_url:
        exact = _locate(text, filesystem)
        if exact.kind() is not pafs.FileType.NotFound:  # a file whose name really has brackets or stars
            return exact, ()
    parts = base.split("/")
    first = next(i for i, part in enumerate(parts) if magic.search(part))
    head = "/".join(parts[:first]) or ("/" if base.startswith("/") else "" if filesystem is not None else ".")
    pattern = tuple(unquote(part) if is_url else part for part in parts[first:] if part)
    return _locate(head + (f"?{query}" if query else ""), filesystem), pattern


def _locate(text: str, filesystem: pafs.FileSystem | None) -> Location:
    if filesystem is not None:
        return Location(filesystem, text.rstrip("/") or text)
    match = _SCHEME.match(text)
    if match is None:
        return Location(pafs.LocalFileSystem(), str(Path(os.path.abspath(Path(text).expanduser()))))  # noqa: PTH100 (resolve() would follow links)
    scheme = match[1].lower()
    try:
        opened, path = pafs.FileSystem.from_uri(text)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        raise UsageError(_cannot_open(text, scheme, error), hint=_WAY_OUT) from None
    return Location(opened, path.rstrip("/") or path, "" if scheme == "file" else f"{scheme}://")


_WAY_OUT = (
    "Read it with Spark, env.from_dataframe(spark.read...), and write it with stream.to_dataframe().write...; "
    "or use a URL that pyarrow.fs opens (file, s3, gs, abfss)."
)


def _cannot_open(text: str, scheme: str, error: Exception) -> str:
    where = text.split("?", maxsplit=1)[0]
    where = re.sub(r"//[^/@]*:[^/@]*@", "//", where)  # never print credentials
    if scheme in _SPARK_SCHEMES or "Unrecognized filesystem" in str(error):
        return f"{where} cannot be opened: pyarrow knows no usable '{scheme}' filesystem here."
    return f"{where} cannot be opened: {first_line(error)}."


# --- listing -------------------------------------------------------------------------------------------------


def _files_of(location: Location, pattern: tuple[str, ...]) -> Iterator[InputFile]:
    if pattern:
        return _glob(location, pattern)
    info = location.filesystem.get_file_info(location.path)
    if info.type is pafs.FileType.NotFound:
        raise UsageError(f"There is no {location.label}.", hint=_did_you_mean(location))
    if info.type is pafs.FileType.Directory:
        return _files_under(location)
    return iter([_listed(info, location.path)])


def _files_under(location: Location) -> Iterator[InputFile]:
    files = _visible_files(location)
    if not files:
        hint = "Files whose names begin with . or _ are skipped; name them one by one, or by a glob, to read them."
        raise UsageError(f"The directory {location.label} has no files to read.", hint=hint)
    return iter(files)


def _visible_files(location: Location) -> list[InputFile]:
    infos = location.filesystem.get_file_info(pafs.FileSelector(location.path, recursive=True))
    files = [info for info in infos if info.type is not pafs.FileType.Directory]
    shown = [info for info in files if not any(map(is_hidden, _relative(info.path, location.path)))]
    return sorted((_listed(info, location.path) for info in shown), key=attrgetter("path"))


def _glob(location: Location, pattern: tuple[str, ...]) -> Iterator[InputFile]:
    whole = location.at("/".join([location.path.rstrip("/"), *pattern]))
    if location.kind() is pafs.FileType.NotFound:
        raise UsageError(f"Nothing matches {whole.label}: there is no {location.label}.", hint=_did_you_mean(location))
    matched = sorted(_expand(location, pattern), key=attrgetter("path"))
    found: dict[str, InputFile] = {}
    for info in matched:
        if info.type is not pafs.FileType.Directory:
            found.setdefault(info.path, _listed(info, location.path))
    if not found or not any("**" in part for part in pattern):  # a ** has seen what is inside already
        for info in matched:
            for file in _visible_files(location.at(info.path)) if info.type is pafs.FileType.Directory else []:
                found.setdefault(file.path, file)
    if not found:
        raise UsageError(
            f"Nothing matches {whole.label}.", hint=f"The directory {location.label} exists; check the pattern."
        )
    return iter(found.values())


def _expand(location: Location, pattern: tuple[str, ...]) -> Iterator[Any]:
    """FileInfos that match, level by level; from a ``**`` on, one recursive listing and one regular expression."""
    here, rest = pattern[0], pattern[1:]
    if "**" in pattern[0]:
        regex = re.compile(_regex(pattern))
        infos = location.filesystem.get_file_info(pafs.FileSelector(location.path, recursive=True))
        yield from (i for i in infos if regex.match("/".join(_relative(i.path, location.path))))
        return
    regex = re.compile(_regex((here,)))
    for info in location.filesystem.get_file_info(pafs.FileSelector(location.path, recursive=False)):
        if not regex.match(_name(info.path)):
            continue
        if not rest:
            yield info
        elif info.type is pafs.FileType.Directory:
            yield from _expand(location.at(info.path), rest)


def _regex(pattern: tuple[str, ...]) -> str:
    """``**`` stands for any number of directories; names with a dot in front and writers' marks never match a wildcard."""
    out = ""
    for i, part in enumerate(pattern):
        last = i == len(pattern) - 1
        if part == "**":
            out += rf"(?:{_VISIBLE}[^/]+/)*" if not last else rf"(?:{_VISIBLE}[^/]+/)*{_VISIBLE}[^/]+"
        else:
            out += ("" if part.startswith(".") else _VISIBLE) + _component(part) + ("" if last else "/")
    return out + r"\Z"


def _component(part: str) -> str:
    out, i = "", 0
    while i < len(part):
        char = part[i]
        close = part.find("]", i + 2) if char == "[" else -1
        if char == "*":
            out += "[^/]*"
        elif char == "?":
            out += "[^/]"
        elif close > 0:
            inner = part[i + 1 : close].replace("\\", r"\\").replace("[", r"\[")
            out += f"[{'^' + inner[1:] if inner[0] in '!^' else inner}]"
            i = close
        else:
            out += re.escape(char)
        i += 1
    return out


def is_hidden(name: str) -> bool:
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def _relative(path: str, root: str) -> list[str]:
    return [part for part in path[len(root) :].split("/") if part]


def _name(path: str) -> str:
    return path.rstrip("/").rsplit("/", 1)[-1]


def _listed(info: Any, root: str) -> InputFile:
    version = "" if info.mtime_ns is None else str(info.mtime_ns)
    return InputFile(info.path, int(info.size or 0), root, version)


def _did_you_mean(location: Location) -> str:
    """Looks at the first part of the path that is missing, and for names like it in the directory that is there."""
    path = PurePosixPath(location.path)
    while path.parent != path and str(path.parent) not in ("", "."):
        if location.at(str(path.parent)).kind() is pafs.FileType.Directory:
            break
        path = path.parent
    parent = location.at(str(path.parent))
    if location.prefix and str(path.parent) == ".":
        return f"There is no bucket '{path.name}'."
    try:
        names = [_name(i.path) for i in parent.filesystem.get_file_info(pafs.FileSelector(parent.path))]
    except OSError:
        return "Check the path."
    close = difflib.get_close_matches(path.name, names, n=1, cutoff=0.6)
    if close:
        return f"Did you mean {parent.at(str(path.parent / close[0])).label}?"
    return f"The directory {parent.label} has no '{path.name}'."


def as_filesystem(filesystem: Any) -> pafs.FileSystem | None:
    """A ``pyarrow.fs`` filesystem of one that a user gave, which may be of fsspec. Raises UsageError."""
    if filesystem is None or isinstance(filesystem, pafs.FileSystem):
        return filesystem
    if callable(getattr(filesystem, "find", None)) and getattr(filesystem, "protocol", None) is not None:
        return pafs.PyFileSystem(pafs.FSSpecHandler(filesystem))
    raise UsageError(
        f"{filesystem!r} is not a filesystem.", hint="Give a pyarrow.fs.FileSystem, or a filesystem of fsspec."
    )


DatasetName = tuple[str, str]
"""``("file", "/data/sales")``, ``("s3://bucket", "sales/2024")``."""

MOST = 20
"""Places of one source that are named one by one; more are named by the folder that they are in."""
_DATASET_SCHEMES = {"s3": "s3", "gcs": "gs", "abfs": "abfss", "hdfs": "hdfs"}
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
    scheme = _DATASET_SCHEMES.get(kind)
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


_WHERE = "the driver and every executor need them"
_CREDENTIALS = {
    "s3": (
        "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or give the machines a role "
        f"({_WHERE}); s3://anonymous@bucket/... reads what is public."
    ),
    "gs": (
        "Set GOOGLE_APPLICATION_CREDENTIALS to a key file, or run 'gcloud auth application-default login' "
        f"({_WHERE}); gs://anonymous@bucket/... reads what is public."
    ),
    "abfs": f"Set AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET, or run 'az login' ({_WHERE}).",
}
_ENDPOINT = {
    "s3": (
        "Set AWS_REGION, and for a store that is not Amazon's AWS_ENDPOINT_URL, or write them into the URL: "
        "s3://bucket/path?region=...&endpoint_override=host:port&scheme=http."
    ),
    "gs": "For a store that is not Google's write gs://bucket/path?endpoint_override=host:port&scheme=http.",
    "abfs": "Is the account's name in the URL right? It is abfs://container@account.dfs.core.windows.net/path.",
}
_REFUSED = re.compile(
    r"ACCESS_DENIED|AccessDenied|INVALID_ACCESS_KEY_ID|InvalidAccessKeyId|SIGNATURE_DOES_NOT_MATCH|SignatureDoesNotMatch|"
    r"INVALID_CLIENT_TOKEN_ID|EXPIRED_TOKEN|ExpiredToken|UNRECOGNIZED_CLIENT|HTTP status 40[13]|PERMISSION_DENIED|"
    r"UNAUTHENTICATED|AuthorizationFailure|AuthenticationFailed"
)
_NO_TOKEN = re.compile(r"OAuth2 access token|Failed to get token|AuthenticationException|DefaultAzureCredential")
_UNREACHED = re.compile(
    r"NETWORK_CONNECTION|[Cc]ould(?: not|n't) (?:connect|resolve)|ENDPOINT_RESOLUTION_FAILURE|[Cc]onnection refused|UNAVAILABLE"
)
_ELSEWHERE = re.compile(r"PERMANENT_REDIRECT|HTTP status 301|wrong region|AuthorizationHeaderMalformed")
_NO_BUCKET = re.compile(r"Bucket '([^']+)' not found|NoSuchBucket|NO_SUCH_BUCKET|ContainerNotFound")
_SCHEMES = {"s3": "s3", "gs": "gs", "gcs": "gs", "abfs": "abfs", "abfss": "abfs"}


def refusal(label: str, error: BaseException) -> tuple[str, str] | None:
    """The meaning of ``error``, from the store of ``label`` (a URL), as (what is wrong with it, hint); None where it is not known."""
    scheme = _SCHEMES.get(label.partition("://")[0])
    if scheme is None:
        return None
    bucket, text = bucket_of(label), str(error)
    meanings = (  # the first that is found is meant: a client that found no credentials says that nothing is available, too
        (_NO_BUCKET, f"there is no bucket '{bucket}'", "Check its name, or make it first."),
        (_NO_TOKEN, "no credentials were found", _CREDENTIALS[scheme]),
        (_REFUSED, "the store refuses these credentials, or there are none", _CREDENTIALS[scheme]),
        (_ELSEWHERE, f"the bucket '{bucket}' lies in another region", _ENDPOINT[scheme]),
        (_UNREACHED, "the store cannot be reached", _ENDPOINT[scheme]),
    )
    return next(((wrong, hint) for pattern, wrong, hint in meanings if pattern.search(text)), None)


def why(label: str, error: BaseException, hint: str) -> tuple[str, str]:
    """As :func:`refusal`; else the first line of what was said, with ``hint``."""
    return refusal(label, error) or (first_line(error), hint)


def first_line(error: BaseException) -> str:
    """The first line of an error's text, without a full stop: Arrow's messages go on with stacks and details."""
    text = str(error).strip()
    return (text.splitlines()[0].rstrip(". ") if text else "") or type(error).__name__


def bucket_of(label: str) -> str:
    return label.partition("://")[2].partition("/")[0]


def require_bucket(filesystem: Any, label: str) -> None:
    """Raises UsageError when the store says that there is no bucket as in ``label``; one that nobody may look at passes."""
    if _SCHEMES.get(label.partition("://")[0]) is None:
        return
    bucket = bucket_of(label)
    try:
        kind = filesystem.get_file_info(bucket).type
    except (OSError, pa.ArrowException):
        return
    if kind is pafs.FileType.NotFound:
        raise UsageError(
            f"{label} cannot be written: there is no bucket '{bucket}'.", hint="Check its name, or make it first."
        )
