"""Jobs that did not finish, found by their names: where their results lie, and the script that they were of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firesteel.errors import UsageError
from firesteel.journal.file import read
from firesteel.journal.lookup import find
from firesteel.journal.places import id_of
from firesteel.options import STORAGE_DIR, Options
from firesteel.options.registry import ON_COMMAND_LINE
from firesteel.recovery.takeover import find_job
from firesteel.scheduler.kernel.records import JobPlanned
from firesteel.spark.storage.directories import kept_folder
from firesteel.spark.storage.reaching import told_of


@dataclass(frozen=True, slots=True)
class ScriptOfJob:
    """``script``: its path, called with ``arguments``; empty: it was typed in. ``options``: those of its command line (-O), by their keys, and where its results
    were found."""

    job_id: str
    script: str
    arguments: tuple[str, ...]
    options: Mapping[str, Any]


def left_by(job: str, options: Options) -> ScriptOfJob:
    """``job``: as journals are named, or a whole id below the storage that the options name. Raises UsageError where nothing is left of it."""
    directory, job_id, planned = options[STORAGE_DIR], job, None
    try:
        path = find(job, options)
        job_id = id_of(path)  # of a journal that is damaged
        planned = next((one for one in read(path) if isinstance(one, JobPlanned)), None)
    except UsageError:
        if directory is None:
            raise
    if planned is not None:
        job_id, directory = planned.job_id, directory or planned.options.get(STORAGE_DIR.key)
    if directory is None:
        raise UsageError(
            f"Job {job_id} has left nothing to go on with, for its results had no place that lasts.",
            hint=f"Set {STORAGE_DIR.key} to a directory before you run a job that is to be resumed.",
        )
    root = directory if "://" in directory else str(Path(directory).expanduser().absolute())
    with told_of(root):
        header = find_job(kept_folder(root), job_id).header
    planned = header.plan
    said = {key: value for key, value in planned.options.items() if planned.origins.get(key) == ON_COMMAND_LINE.where}
    return ScriptOfJob(job_id, header.script, tuple(header.arguments), {**said, STORAGE_DIR.key: root})
