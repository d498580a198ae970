"""Finds the journal that a user means: by path, id, name, or as the last one."""

from __future__ import annotations

import os
from pathlib import Path

from firesteel.errors import UsageError
from firesteel.journal.listing import listed
from firesteel.journal.places import SUFFIX, id_of, journal_directories, journals, name_of, slug
from firesteel.options import Options


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
    # names without a letter of ASCII all look alike in names of files
    alike = [path for path in known if name_of(path) == wanted]
    return next((each.path for each in listed(alike) if each.name == job), None)


def _names(paths: list[Path]) -> str:
    return ", ".join(f"{id_of(path)} ({name})" if (name := name_of(path)) else id_of(path) for path in paths[:-6:-1])
