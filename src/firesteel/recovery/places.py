"""Names of what a job has on storage: a directory of results per driver that went on with it, beside each an owner's mark."""

from __future__ import annotations

import re

PREFIX = "firesteel-job-"
MARK = ".owner.json"
SCRATCH = ".scratch"
LOG = "log"
"""The directory of a job's log, inside the one of its results."""
USES = "used"
"""The directory of leases on a job's results (``leases``), inside the one of these, on an object store."""
REMOVER = "remover-"
"""Begins the names of objects among the leases by which removers tell of themselves."""
RUN = "run-"
"""Begins the id under which a script's run is kept, which lies there as the results of a job do."""
RUN_PREFIX = f"firesteel-{RUN}"
_NAME = re.compile(rf"(?:{PREFIX}(?P<job>.+?)|firesteel-(?P<run>{RUN}.+?))(?:\.e(?P<epoch>\d+))?")


def directory_name(job_id: str, epoch: int) -> str:
    """Of the results while the driver of this epoch, the first or a later one, has them."""
    name = f"firesteel-{job_id}" if job_id.startswith(RUN) else f"{PREFIX}{job_id}"
    return name + (f".e{epoch}" if epoch > 1 else "")


def job_and_epoch(name: str) -> tuple[str, int] | None:
    """The inverse of ``directory_name``; None for any other name."""
    match = _NAME.fullmatch(name)
    return None if match is None else (match["job"] or match["run"], int(match["epoch"] or 1))
