"""``firesteel recover``: outputs whose job died while it published them are made what they were before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from firesteel.cli.shared import show
from firesteel.errors import FiresteelError

if TYPE_CHECKING:
    from firesteel.api.jobs.leftovers import Leftover


def recover(
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH...", help="Directories of files or tables that jobs wrote to.")
    ],
    dead: Annotated[
        bool,
        typer.Option("--dead", help="Also of jobs of other machines: you know that they do not run any more."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
) -> None:
    """Take back what killed jobs had published half.

    What mode="overwrite", "overwrite_partitions" or merge_parquet had put aside goes back to its place, and what had come in its place
    is removed. What a running job owns is never touched. The next job that writes there does the same by itself.
    """
    left = [_recovered(path, dead=dead, dry_run=dry_run) for path in paths]
    if any(left):
        raise typer.Exit(1)


def _recovered(path: str, *, dead: bool, dry_run: bool) -> bool:
    """Returns True if something is left there. Raises FiresteelError."""
    from firesteel.api.jobs.leftovers import Owner, unpublished

    label, found = unpublished(path)
    if not found:
        show(f"{label}: nothing is left over.")
    left = False
    for one in found:
        try:
            owner = one.owner()
            may_go = owner is Owner.DEAD or (dead and owner is not Owner.ALIVE)
            if may_go:
                show(f"{label}: {_taken_back(one, dry_run=dry_run)}")
        except OSError as error:
            raise FiresteelError(f"{label}: what job {one.job_id} left cannot be taken back: {error}.") from error
        if not may_go:
            left = True
            hint = (
                ""
                if owner is Owner.ALIVE
                else " Nobody can tell from here whether it runs: if it does not, add --dead."
            )
            show(f"{label}: what job {one.job_id} left is kept: {owner.value}.{hint}")
    return left


def _taken_back(one: Leftover, *, dry_run: bool) -> str:
    """A sentence on what was done. Raises UsageError, OSError."""
    is_half = one.is_half
    if not dry_run:
        one.recover(keeps=True)
    if is_half:
        return f"what job {one.job_id} had changed and not completed {'would be' if dry_run else 'was'} taken back."
    return (
        f"what job {one.job_id} left beside it {'would be' if dry_run else 'was'} removed; the output itself is whole."
    )
