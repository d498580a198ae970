"""Places of journals, and which one is meant. Imports little: commands and completion begin here."""

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
    """Returns the directories in which journals may lie, the preferred one first."""
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


def slug(name: str) -> str:
    """The name of a job as it stands in the names of files."""
    plain = unicodedata.normalize("NFKD", name.replace("ß", "ss")).encode("ascii", "ignore").decode()
    return re.sub(r"[^A-Za-z0-9]+", "-", plain).strip("-").lower()[:40] or "job"
