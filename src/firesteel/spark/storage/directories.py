"""Directories of jobs' results: a root directory, in it one directory per job and beside each an owner's mark.

The mark names the machine, since which boot, and the process. A later job finds the directories of drivers that were killed
on this machine and removes them, once they are not kept for a resume any more; those of other machines (and of before a reboot) and of
living drivers are left alone.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.fs as pafs

from firesteel.connectors.files.paths import bucket_of, first_line, require_bucket, why
from firesteel.connectors.files.paths import refusal as refusal_of_store
from firesteel.errors import FiresteelError, UsageError
from firesteel.masking import mask_text
from firesteel.options import STORAGE_DIR, STORAGE_FILESYSTEM, Options
from firesteel.recovery.exclusive import exclusive_put, refusal
from firesteel.recovery.leases import end_own, is_own
from firesteel.recovery.objects import AT_ONCE, ObjectPath
from firesteel.recovery.places import LOG, MARK, SCRATCH, directory_name, job_and_epoch
from firesteel.recovery.retention import (
    BYTES,
    EPOCH,
    FINISHED,
    LINES,
    ORIGINS,
    RETAIN,
    is_kept,
    is_kept_by_mark,
    storage_clock,
)
from firesteel.recovery.uses import Use, begin_use, end_uses, last_use
from firesteel.results.storage.filesystem import PAUSES, inside, mapped, open_location, rest, retried, shown
from firesteel.results.storage.owner import ENDED, is_dead, myself
from firesteel.results.storage.store import ResultStore, StorageError, storage_error
from firesteel.spark.storage.cleaning import quietly

REMOVED = ".removed"
MOST_KEPT = 3
"""Jobs of one place that did not finish, of which results are kept."""
MEASURED_REQUESTS = 3
READER_SECONDS = 60e-6
"""Seconds that a reader spends on one slice where the storage costs next to nothing."""
_PYARROW_REFUSES = ("s3a", "s3n", "dbfs", "wasb", "wasbs", "abfss")
_INSTEAD = {"s3a": "s3", "s3n": "s3", "abfss": "abfs", "wasb": "abfs", "wasbs": "abfs"}


@dataclass(frozen=True, slots=True)
class Place:
    """A job's place among others, as texts that say nothing else. ``in_script``: equal for runs of one script, the same job of each;
    ``in_process``: equal for jobs of one process that look alike."""

    in_script: str
    in_process: str


@dataclass(frozen=True, slots=True)
class Reusable:
    """All by which later jobs find and may use what a job has left. ``lines``: of its vertices (``retention.LINES``); ``origins``: of all
    tokens that its results may have; ``retain``: seconds for which they are kept if it finishes, since they were last of use."""

    lines: tuple[str, ...]
    origins: Mapping[int, str]
    retain: float

    def of_bases(self, bases: Collection[int], job_id: str) -> Reusable:
        """Without the origins of what the job has not used."""
        own = {base: origin for base, origin in self.origins.items() if origin == job_id or base in bases}
        return replace(self, origins=own)

    def entries(self) -> dict[str, Any]:
        """Of the owner's mark."""
        return {LINES: list(self.lines), ORIGINS: {str(base): job_id for base, job_id in self.origins.items()}}


class JobStorage:
    """The storage of one job. ``root``: directory or URL; ``store``: the job's own directory in it. ``epoch``: which driver of the job
    this is; ``retain``: seconds for which the results are kept if it does not finish; ``place``: None:
    of a job of which nothing is kept; ``reusable``: None: its results are not for other jobs."""

    def __init__(
        self,
        root: str,
        job_id: str,
        application: str,
        filesystem: str | None = None,
        *,
        epoch: int = 1,
        retain: float = 0.0,
        place: Place | None = None,
        reusable: Reusable | None = None,
    ) -> None:
        self.root = root
        self.job_id = job_id
        self.epoch = epoch
        self.retain = retain
        self.place = place
        self.reusable = reusable
        self._filesystem = filesystem
        self._name = directory_name(job_id, epoch if ResultStore(root, filesystem).is_local else 1)
        self.store = ResultStore(inside(root, self._name), filesystem)
        self._application = application
        self._fs, self._path = open_root(root, filesystem)
        self._use: Use | None = None

    def create(self) -> None:
        """Makes the mark, then the directories. Raises UsageError or StorageError."""
        self._mark()
        self.store.create()
        self._make_scratch()

    def claim(self) -> None:
        """Marks the directory, which was another driver's, as this one's, and removes what that one's tasks had spilled. Raises StorageError."""
        try:
            tag = retried(self._own_tag)
        except OSError as error:
            raise self._not_marked(error) from error
        if tag is not None:  # else the log tells soon that it is another one's
            self._mark(tag=tag)
        for epoch in range(1, self.epoch if self.store.is_local else 1):
            before = f"{self._path}/{directory_name(self.job_id, epoch)}"
            with suppress(OSError):
                self._fs.delete_file(f"{before}{MARK}")
            if self.store.is_local:
                _remove_scratch(Path(f"{before}{SCRATCH}"))
        self._make_scratch()

    def hold(self, *, finished: bool = True) -> Use | None:
        """Holds the results while others may already use or remove them; the same hold each time. None: nobody ever may, or the job has not
        ``finished``: what was held no longer is."""
        if not finished and self._use is not None:
            self._use.end()
        if self._use is None and finished and self.reusable is not None:
            self._use = begin_use(self.folder)
        return self._use if finished else None

    def keep(self, *, finished: bool = False, bases: Collection[int] = ()) -> bool:
        """Leaves what there is when the job has ended: for a resume, or, if it has ``finished``, for other jobs. ``bases``: of the tokens that it has used
        of others. False: nobody could use it. What another driver has by now, or may have, is left to that one. Never raises."""
        reusable = self.reusable
        retain = self.retain if not finished else reusable.retain if reusable is not None and reusable.lines else 0.0
        with suppress(FiresteelError, OSError):
            folder = self.folder
            if not retain or not (folder / LOG).is_dir():
                return False
            files = files_below(folder) if finished else {}
            size = {FINISHED: True, BYTES: sum(files.values())} if finished else {}
            origins = {} if reusable is None else reusable.of_bases(bases, self.job_id).entries()
            tag = None
            with suppress(OSError):
                tag = self._own_tag()
            if tag is not None:
                self._mark({RETAIN: retain, ENDED: True, **origins, **size}, tag)
            return True
        return False

    def _own_tag(self) -> str | None:
        """The tag of the mark, on an object store, before it was seen that this driver has the job; "": there is none, or none is needed. None: another one has the job. Raises OSError."""
        folder = self.folder
        if not isinstance(folder, ObjectPath):
            return ""
        tag = folder.with_name(self._name + MARK).tag()
        return tag if is_own(folder, self.epoch) else None

    def supersede(self, *, finished: bool) -> None:
        """Removes what jobs have left that had this one's place in the script; if this one did not finish either, only of those, and of those of the
        process that look like it, what is beyond the last few. Never raises."""
        if self.place is not None:
            quietly(lambda: self._supersede(finished))

    def leave_room(self, most: int) -> None:
        """Removes results of this user's finished jobs that are of no more use beside this one's, and, of more than ``most`` bytes, those that were of use
        the longest time ago; never those that somebody uses. Never raises."""
        quietly(lambda: self._leave_room(most))

    def _supersede(self, finished: bool) -> None:
        dead = [(mark, name) for mark, name, _ in self._marks() if is_dead(mark) and FINISHED not in mark]
        left = [(mark, name) for mark, name in dead if self._is_like(mark, finished)]
        last = sorted(left, key=lambda one: -one[0].get("at", 0.0))
        for _, name in last[0 if finished else MOST_KEPT - 1 :]:
            self._remove(name, abandons=True)

    def _leave_room(self, most: int) -> None:
        root = self.folder.parent
        own = ((mark, name) for mark, name, _ in marks_in(self._fs, self._path) if _is_own(root / name))
        kept = {name: mark for mark, name in own if FINISHED in mark and is_dead(mark)}
        for name in superseded(kept, self._name):
            if self._frees(name):
                del kept[name]
        if sum(mark.get(BYTES, 0) for mark in kept.values()) > most:
            space = Space({name: root / name for name in kept})
            space.shrink(most, self._frees)

    def _frees(self, directory: str) -> bool:
        """Removes it unless somebody uses it. False: it is there yet."""
        with suppress(OSError, FiresteelError):
            return self._remove(directory)
        return not self.folder.with_name(directory).is_dir()  # another job may remove it at the same time

    def _is_like(self, mark: dict[str, Any], finished: bool) -> bool:
        assert self.place is not None
        of_script = mark.get("in_script") == self.place.in_script
        return of_script or (not finished and mark.get("in_process") == self.place.in_process)

    def _mark(self, entries: Mapping[str, Any] | None = None, tag: str = "") -> None:
        """``tag``: of the mark on an object store that is written over; that of another driver, which has the job by now, stays. Raises StorageError."""
        mark = {**myself(), "application": self._application, "at": time.time(), EPOCH: self.epoch}
        if self.retain:
            mark[RETAIN] = self.retain
        if self.reusable is not None:
            mark |= self.reusable.entries()
        if self.place is not None and (self.retain or self.reusable is not None):
            mark |= asdict(self.place)
        mark |= entries or {}
        content = json.dumps(mark).encode()

        try:
            if self._goes_over(content, tag):
                retried(lambda: self._write_mark(content))
        except OSError as error:
            raise self._not_marked(error) from error

    def _write_mark(self, content: bytes) -> None:
        self._fs.create_dir(self._path, recursive=True)
        with self._fs.open_output_stream(self._mark_path) as stream:
            stream.write(content)

    def _goes_over(self, content: bytes, tag: str) -> bool:
        """Writes over the mark that has the tag: this driver may have frozen before, and its successor have left a mark meanwhile. True: it is to be written
        without that condition, for there is none, or the store does not take the right tag. Raises OSError.

        A refusal alone does not say that another driver has the job: the one before may have marked its end just now, a store may ask for another try, and some refuse
        whatever they are given.
        """
        same = False
        for pause in (0.0, *PAUSES):
            if not tag:
                return True
            if same:
                rest(pause)
            asked = tag
            if retried(lambda asked=asked: exclusive_put(self.root).replace(self._mark_path, content, asked)):
                return False
            with suppress(FileNotFoundError):
                if retried(lambda: _content(self._fs, self._mark_path)) == content:
                    return False
            found = retried(self._own_tag)
            if found is None:
                return False
            same, tag = found == tag, found
        if tag and not same:
            raise OSError("its owner's mark is written by others again and again")
        return True

    def _not_marked(self, error: OSError) -> StorageError:
        return StorageError(
            f"Results between steps cannot lie at {shown(self.root)}: {str(error).rstrip('.')}.",
            hint=f"Free some space there, check your access rights, or set {STORAGE_DIR.key} to another place.",
            errno=error.errno,
        )

    def _make_scratch(self) -> None:
        if self.scratch is not None:
            Path(self.scratch).mkdir(exist_ok=True)

    @property
    def directory(self) -> Path | None:
        """Returns the job's directory as a path of this machine's file systems; None if it lies elsewhere."""
        return Path(self._path) / self._name if self.store.is_local else None

    @property
    def folder(self) -> Path | ObjectPath:
        """Returns the job's directory as its log is kept in it. Raises UsageError where no log can be."""
        return self.directory or kept_folder(self.root) / self._name

    def request_seconds(self) -> float:
        """Returns the seconds that reading one slice of an object takes: opening it, one request, and the reader's own work.

        Raises StorageError.
        """
        name = "request-time"
        out = self.store.open_output(name)
        out.write(bytes(4096))
        out.close()
        times: list[float] = []
        try:
            for _ in range(MEASURED_REQUESTS):
                begun = time.perf_counter()
                source = self.store.open_input(name)
                source.read_at(0, 4096)
                source.close()
                times.append(time.perf_counter() - begun)
        except OSError as error:
            raise storage_error(error, self.store.url, "cannot be read") from error
        finally:
            self.store.delete([name])
        return min(times) + READER_SECONDS

    @property
    def scratch(self) -> str | None:
        """Returns the directory in which tasks of this machine may spill; None if the root is not on a file system."""
        return f"{self._path}/{self._name}{SCRATCH}" if self.store.is_local else None

    def remove_scratch(self) -> None:
        if self.scratch is not None:
            _remove_scratch(Path(self.scratch))

    def remove(self) -> None:
        """Removes directory and mark, unless another driver has the job by now. Never raises: what cannot go now is found by the next job."""
        self.remove_scratch()
        with suppress(OSError, FiresteelError):
            folder = log_folder(self.root, self._filesystem)
            if isinstance(folder, ObjectPath) and not end_own(folder / self._name, self.epoch):
                return
            self.store.delete_all()
            with suppress(FileNotFoundError):
                retried(lambda: self._fs.delete_file(self._mark_path))

    def remove_late(self) -> None:
        """Another driver has had the job, and has removed all of it, as a missing mark says: so what this one has put there since goes. Never raises."""
        with suppress(OSError, FiresteelError):
            if not self.store.is_local and self._fs.get_file_info(self._mark_path).type is pafs.FileType.NotFound:
                self.store.delete_all()

    def sweep(self) -> list[str]:
        """Removes what drivers that are no more left behind, and what is not kept any more; their job ids. Never raises."""
        removed: list[str] = []
        now = storage_clock(self._fs, self._path)
        with suppress(OSError, pa.ArrowException, FiresteelError):
            left = [found for found in self._marks() if not is_kept_by_mark(found.mark, found.written, now)]
            over = mapped(lambda found: self._is_over(found, now), left, _at_once(self._fs))
            for found in (found for found, is_over in zip(left, over, strict=True) if is_over):
                with suppress(OSError, ValueError):
                    if self._remove(found.directory):
                        removed.append((job_and_epoch(found.directory) or (found.directory, 1))[0])
        return removed

    def _is_over(self, found: FoundMark, now: Callable[[], float]) -> bool:
        """False also where the storage does not answer."""
        with suppress(OSError, ValueError):
            kept = f"{self._path}/{found.directory}"
            return is_dead(found.mark) and not is_kept(self._fs, kept, found.mark, now)
        return False

    def _marks(self) -> Iterator[FoundMark]:
        """Of other jobs. Raises OSError."""
        found = marks_in(self._fs, self._path)
        return (one for one in found if (job_and_epoch(one.directory) or ("",))[0] != self.job_id)

    def _remove(self, directory: str, *, abandons: bool = False) -> bool:
        """Removes the directory of a job that has ended, unless somebody uses it or goes on with the job. ``abandons``: and what it had staged for its sinks.
        Raises OSError, FiresteelError."""
        orphan = ResultStore(inside(self.root, directory), self._filesystem)
        folder = log_folder(self.root, self._filesystem)
        if folder is not None and not end_uses(folder / directory):
            return False
        if folder is not None and abandons:
            abandon_sinks(folder / directory)
        orphan.delete_all()
        if orphan.is_local:
            _remove_scratch(Path(f"{self._path}/{directory}{SCRATCH}"))
        self._fs.delete_file(f"{self._path}/{directory}{MARK}")
        return True

    @property
    def _mark_path(self) -> str:
        return f"{self._path}/{self._name}{MARK}"


class FoundMark(NamedTuple):
    """``mark``: an owner's; ``directory``: the name of the one that it is of; ``written``: by the storage's clock, in seconds since 1970; 0: in a file system, which was
    not asked."""

    mark: dict[str, Any]
    directory: str
    written: float


def marks_in(fs: Any, path: str) -> Iterator[FoundMark]:
    """The owners' marks below the root of results. Raises OSError."""
    found = {name.removesuffix(MARK): written for name, written in _names_in(fs, path) if name.endswith(MARK)}
    directories = [directory for directory in found if job_and_epoch(directory) is not None]

    def read(directory: str) -> Any:
        with suppress(OSError, ValueError):  # being written or being removed just now
            return json.loads(_content(fs, f"{path}/{directory}{MARK}"))

    marks = mapped(read, directories, _at_once(fs))
    for mark, directory in zip(marks, directories, strict=True):
        if isinstance(mark, dict):
            yield FoundMark(mark, directory, found[directory])


def _at_once(fs: Any) -> int:
    """Files that are asked for at the same time."""
    return 1 if isinstance(fs, pafs.LocalFileSystem) else AT_ONCE


def _is_own(directory: Path | ObjectPath) -> bool:
    """Returns whether this user made it: results of others are theirs to remove. Object stores do not tell."""
    if isinstance(directory, ObjectPath):
        return True
    with suppress(OSError):
        return directory.stat().st_uid == os.getuid()
    return False


def _names_in(fs: Any, path: str) -> list[tuple[str, float]]:
    """With the time of the last change, in seconds since 1970; 0: not known."""
    if isinstance(fs, pafs.LocalFileSystem):  # several times as fast: there may be a thousand jobs
        with suppress(FileNotFoundError):
            return [(entry.name, 0.0) for entry in Path(path).iterdir()]
        return []
    infos = fs.get_file_info(pafs.FileSelector(path, allow_not_found=True))
    return [(info.base_name, 0.0 if info.mtime is None else info.mtime.timestamp()) for info in infos]


def _content(fs: Any, path: str) -> bytes:
    if isinstance(fs, pafs.LocalFileSystem):
        return Path(path).read_bytes()
    with fs.open_input_stream(path) as stream:
        return stream.read()


def abandon_sinks(directory: Path | ObjectPath, *, but: Collection[tuple[int, int]] = ()) -> None:
    """Removes what a job had staged for its sinks. ``directory``: its own; ``but``: vertices and places of sinks that somebody takes over."""
    for path in (directory / LOG).glob("sink-*.pkl"):
        vertex, place = map(int, path.name.removesuffix(".pkl").split("-")[1:])
        if (vertex, place) not in but:
            quietly(lambda path=path: pickle.loads(path.read_bytes()).abort([]))


def _remove_scratch(directory: Path) -> None:
    """Moves it aside first: a worker that is only just starting finds no place to make its own directory in."""
    aside = directory.with_name(directory.name + REMOVED)
    with suppress(OSError):
        directory.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)
    shutil.rmtree(directory, ignore_errors=True)


def kept_folder(root: str) -> Path | ObjectPath:
    """The root of results as logs are kept in it. Raises UsageError where no log can be."""
    fs, path = reached_root(root)
    return ObjectPath(fs, path, root, exclusive_put(root)) if "://" in root else Path(path)


def log_folder(root: str, filesystem: str | None = None) -> Path | ObjectPath | None:
    """As ``kept_folder``; None where no log can be."""
    if filesystem is None and urlsplit(root).scheme == "file":
        return Path(open_root(root)[1])
    has_none = filesystem is not None or ("://" in root and refusal(root))
    return None if has_none else kept_folder(root)


def new_job_id() -> str:
    return uuid.uuid4().hex[:12]


def storage_root(options: Options, *, shared: bool) -> str:
    """The root for results. ``shared``: executors are on other machines, so the user must name a place.

    Raises UsageError for a place that pyarrow cannot open, or for none on a cluster.
    """
    directory = options[STORAGE_DIR]
    if directory is None:
        if shared:
            raise UsageError(
                "On a cluster, results between steps need a place that the driver and every executor see.",
                hint=f"Set {STORAGE_DIR.key} to a shared directory or a URL such as s3://bucket/path.",
            )
        return str(private_directory())
    scheme = directory.partition("://")[0] if "://" in directory else directory.partition(":")[0]
    if scheme in _PYARROW_REFUSES and options[STORAGE_FILESYSTEM] is None:
        instead = f" Write '{_INSTEAD[scheme]}://...'." if scheme in _INSTEAD else ""
        raise UsageError(
            f"{STORAGE_DIR.key} = '{directory}': pyarrow cannot open {scheme} paths, and results between steps are read "
            f"and written by it.{instead}",
            hint="Sources and sinks may still use such paths through Spark.",
        )
    return directory if "://" in directory else str(Path(directory).expanduser().absolute())


def reached_storage(options: Options, *, shared: bool) -> tuple[str, str | None]:
    """As ``storage_root``, of a store that answers, and the function that opens it. Raises UsageError."""
    root, filesystem = storage_root(options, shared=shared), options[STORAGE_FILESYSTEM]
    reached_root(root, filesystem)
    return root, filesystem


def private_directory() -> Path:
    """This user's own directory under the machine's temporary directory; refuses one that someone else made."""
    path = Path(tempfile.gettempdir()) / f"firesteel-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    if path.is_symlink() or path.stat().st_uid != os.getuid():
        raise UsageError(
            f"{path} belongs to another user, so results between steps cannot be stored there.",
            hint=f"Remove it, or set {STORAGE_DIR.key} to a directory of your own.",
        )
    return path


def reached_root(root: str, filesystem: str | None = None) -> tuple[Any, str]:
    """As ``open_root``, of a store that answers. Raises UsageError."""
    fs, path = open_root(root, filesystem)
    if filesystem is None:
        require_store(fs, path, root)
    return fs, path


def open_root(root: str, filesystem: str | None = None) -> tuple[Any, str]:
    """(file system, path in it) of a root. Raises UsageError if it cannot be opened."""
    if filesystem is not None:
        return open_location(root, filesystem)
    if "://" not in root:
        return pafs.LocalFileSystem(), str(Path(root).absolute())
    try:
        fs, path = pafs.FileSystem.from_uri(root)
    except (pa.ArrowException, ValueError, OSError) as error:
        raise UsageError(mask_text(f"{STORAGE_DIR.key} = '{root}' cannot be opened: {error}")) from error
    return fs, path.rstrip("/")


_ANOTHER = f"Set {STORAGE_DIR.key} to another place."
_reached: set[str] = set()


def require_store(fs: Any, path: str, root: str) -> None:
    """Raises UsageError where the object store of ``root`` cannot be reached, refuses the credentials or has no such bucket. Of each place it is asked once in a process, and not again
    after an error that is known: its client has tried several times by then, and nothing has been computed yet. Nothing is asked where ``root`` is a directory."""
    if "://" not in root or root in _reached:
        return
    label = f"{root.partition('://')[0]}://{path}"  # pyarrow's path begins with the bucket, also where the URL does not

    def ask() -> Any:
        try:
            return fs.get_file_info(path).type
        except (OSError, pa.ArrowException) as error:
            if refusal_of_store(label, error) is None:  # it may pass
                raise
            raise _refused(root, *why(label, error, _ANOTHER)) from error

    try:
        is_there = retried(ask) is not pafs.FileType.NotFound
    except (OSError, pa.ArrowException) as error:
        raise _refused(root, first_line(error), _ANOTHER) from error
    if not is_there:
        try:
            require_bucket(fs, label)
        except UsageError as error:
            raise _refused(root, f"there is no bucket '{bucket_of(label)}'", error.hint) from None
    _reached.add(root)


def _refused(root: str, why_not: str, hint: str | None) -> UsageError:
    return UsageError(f"Results between steps cannot lie at {mask_text(root)}: {why_not}.", hint=hint)


@contextmanager
def told_of(root: str) -> Generator[None]:
    """Tells an OSError that an object store has given as a StorageError; one of a file system stays as it is."""
    try:
        yield
    except OSError as error:
        if root.partition("://")[0] in (root, "file"):
            raise
        said, hint = why(_plain(root), error, _ANOTHER)
        message = f"The storage for intermediate results at {mask_text(root)} cannot be read: {said}."
        raise StorageError(message, hint=hint, errno=error.errno) from error


def _plain(root: str) -> str:
    """The URL without credentials and settings; of Azure's that name the container before the account, with the container in the account's place."""
    scheme, _, rest = root.partition("://")
    authority, slash, path = rest.partition("?")[0].partition("/")
    before, _, host = authority.rpartition("@")
    container = before.partition(":")[0] if scheme == "abfs" and ".dfs." in host else ""
    return f"{scheme}://{container or host}{slash}{path}"


File = tuple[int, int] | str
"""Device and number on it; or the path on an object store."""


def superseded(kept: Mapping[str, Mapping[str, Any]], newest: str) -> list[str]:
    """Names of the directories that have nothing that the newest has not. ``kept``: the owner's mark of each. Of two jobs that have the same and end at once
    only one is told of the other."""
    own = kept.get(newest, {})
    lines = set(own.get(LINES, ()))

    def is_more(mark: Mapping[str, Any], name: str) -> bool:
        less = lines.difference(mark.get(LINES, ()))
        return bool(less) or (own.get("at", 0.0), newest) > (mark.get("at", 0.0), name)

    others = ((name, mark) for name, mark in kept.items() if name != newest and lines.issuperset(mark.get(LINES, ())))
    return [name for name, mark in others if is_more(mark, name)]


class Space:
    """``directories``: of finished jobs, by name."""

    def __init__(self, directories: Mapping[str, Path | ObjectPath]) -> None:
        at_once = 1 if all(isinstance(one, Path) for one in directories.values()) else AT_ONCE
        self._files = dict(zip(directories, mapped(files_below, directories.values(), at_once), strict=True))
        self._used = dict(zip(directories, mapped(last_use, directories.values(), at_once), strict=True))
        self._holders = Counter(file for files in self._files.values() for file in files)
        self.bytes = sum({file: size for files in self._files.values() for file, size in files.items()}.values())

    def shrink(self, most: int, remove: Callable[[str], bool]) -> None:
        """Removes what was of use the longest time ago, until at most ``most`` bytes are left. What alone has more goes before all others. ``remove``:
        returns False where somebody uses it."""
        for name in sorted(self._files, key=lambda name: self._rank(name, most)):
            if self.bytes <= most:
                return
            if remove(name):
                self._take_off(name)

    def _rank(self, name: str, most: int) -> tuple[bool, float]:
        is_too_large = sum(self._files[name].values()) > most
        return not is_too_large, self._used[name]

    def _take_off(self, name: str) -> None:
        for file, size in self._files[name].items():
            self._holders[file] -= 1
            self.bytes -= 0 if self._holders[file] else size


def files_below(directory: Path | ObjectPath) -> dict[File, int]:
    """The files in it and below, with their sizes in bytes. What goes meanwhile is left out."""
    found: dict[File, int] = {}
    if isinstance(directory, ObjectPath):
        with suppress(OSError):
            found = {place.path: place.size for place in directory.files_below()}
        return found
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                found |= files_below(Path(entry.path))
                continue
            with suppress(OSError):
                stat = entry.stat(follow_symlinks=False)
                found[stat.st_dev, stat.st_ino] = stat.st_size
    return found
