"""Where journals lie, and which one is meant. Imports little: commands and completion begin here."""

from __future__ import annotations

import os
import re
import stat
import tempfile
import unicodedata
from contextlib import suppress
from pathlib import Path

from firesteel.errors import UsageError
from firesteel.options import JOURNAL_DIR, Options

SUFFIX = ".jsonl"
DEFAULT_DIRECTORY = Path(".firesteel/journal")


def id_of(path: Path) -> str:
    """The job's, as the file's name says."""
    return path.stem.split("_", 2)[-1]


def name_of(path: Path) -> str:
    """The job's, as far as the file's name tells it (see ``slug``); empty: the file has another kind of name."""
    parts = path.stem.split("_", 2)
    return parts[1] if len(parts) == 3 else ""


def has_a_journals_name(path: Path) -> bool:
    """Time, name and id of a job, as ``Journal.create`` puts them together."""
    return re.fullmatch(r"\d{8}-\d{6}_[a-z0-9-]+_[^_]+", path.stem) is not None


def journal_directories(options: Options) -> list[Path]:
    """Where journals may lie, the preferred directory first."""
    chosen = options[JOURNAL_DIR]
    if chosen is not None:
        return [Path(chosen).expanduser()]
    user = os.getuid() if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")
    return [DEFAULT_DIRECTORY, Path(tempfile.gettempdir()) / f"firesteel-{user}" / "journal"]


def journals(options: Options) -> list[Path]:
    """All journals of the journal directories, oldest first. Raises UsageError for one that is a file."""
    found: list[tuple[float, Path]] = []
    for directory in journal_directories(options):
        if directory.exists() and not directory.is_dir():
            raise UsageError(
                f"The journal directory '{directory}' is a file.", hint=f"Give {JOURNAL_DIR.key} a directory."
            )
        for path in directory.glob(f"*{SUFFIX}"):
            with suppress(OSError):
                status = path.stat()
                if stat.S_ISREG(status.st_mode):  # opening a pipe would wait for its writer
                    found.append((status.st_mtime, path))
    return [path for _, path in sorted(found)]


def find(job: str, options: Options) -> Path:
    """The journal of a job given by path, by id or its beginning, by the beginning of the file's name, by the job's name (the
    latest one of that name), or as "last".

    Raises UsageError if there is none, or several fit.
    """
    if Path(job).is_file():
        return Path(job)
    known = journals(options)
    is_path = job.endswith(SUFFIX) or os.sep in job
    absent = f"There is no job '{job}'" + (", and no such file." if is_path else ".")
    if not known and is_path:
        raise UsageError(absent, hint="Give the path of a journal.")
    if not known:
        places = " or ".join(f"'{directory}'" for directory in journal_directories(options))
        raise UsageError(f"There is no journal in {places}.", hint="Run a job, or give the path of a journal.")
    if job == "last":
        return known[-1]
    fits = [p for p in known if job and job in (id_of(p), p.stem)] or [
        p for p in known if job and (id_of(p).startswith(job) or p.stem.startswith(job))
    ]
    if len(fits) == 1:
        return fits[0]
    if fits:
        raise UsageError(f"Several jobs begin with '{job}': {_names(fits)}.", hint="Write more of the id.")
    named = _named(job, known)
    if named is not None:
        return named
    raise UsageError(absent, hint=f"The latest ones: {_names(known)}; or say 'last'.")


def _named(job: str, known: list[Path]) -> Path | None:
    """The latest job of this name."""
    wanted = slug(job)
    if wanted != slug(""):
        return next((path for path in reversed(known) if name_of(path) == wanted), None)
    from firesteel.journal.listing import listed  # names without a letter of ASCII all look alike in names of files

    alike = [path for path in known if name_of(path) == wanted]
    return next((each.path for each in listed(alike) if each.name == job), None)


def _names(paths: list[Path]) -> str:
    return ", ".join(f"{id_of(path)} ({name})" if (name := name_of(path)) else id_of(path) for path in paths[:-6:-1])


def slug(name: str) -> str:
    """The name of a job as it stands in the names of files."""
    plain = unicodedata.normalize("NFKD", name.replace("ß", "ss")).encode("ascii", "ignore").decode()
    return re.sub(r"[^A-Za-z0-9]+", "-", plain).strip("-").lower()[:40] or "job"
