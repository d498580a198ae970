"""Transactions on a table's log that others write to as well: tried again on top of what came between."""

from __future__ import annotations

from collections.abc import Callable

from firesteel.errors import FiresteelError
from firesteel.results.storage.retry import rest

_PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 3.2, 3.2)
"""Seconds before each further try, give or take half."""


class Conflict(Exception):
    """Somebody else's transaction came between: ours was not written."""


class NotKnown(Exception):
    """Ours may have been written."""


def transact(attempt: Callable[[], None], label: str) -> None:
    """``attempt`` looks at the table ``label`` anew each time. Raises FiresteelError; NotKnown as it comes."""
    for pause in _PAUSES:
        try:
            return attempt()
        except Conflict:
            rest(pause)
    try:
        return attempt()
    except Conflict as conflict:
        raise FiresteelError(
            f"Nothing was published to the table {label}: {len(_PAUSES) + 1} times another transaction came between ({conflict}).",
            hint="Run the job again when fewer programs write to the table.",
        ) from conflict
