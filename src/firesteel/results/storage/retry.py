"""Requests to a storage that may be retried: what passes by itself is given a few moments to do so.

Only requests that change nothing, or whose second run undoes the first one's half, are repeated. A write in the middle of a large object
is not: its attempt fails, and the scheduler starts another.
"""

from __future__ import annotations

import errno
import random
import time
from collections.abc import Callable
from typing import TypeVar

PAUSES = (0.1, 0.4, 1.6)
"""Seconds before each further try, give or take half of it: tasks that failed together do not come back together."""
_PASSING = {
    getattr(errno, name)
    for name in (
        *("EAGAIN", "EBUSY", "EINTR", "EIO", "EREMOTEIO", "ESTALE", "ETIMEDOUT", "EPIPE", "EMFILE", "ENFILE"),
        *("ECONNABORTED", "ECONNREFUSED", "ECONNRESET", "EHOSTDOWN", "EHOSTUNREACH", "ENETDOWN", "ENETUNREACH"),
    )
    if hasattr(errno, name)
}
_T = TypeVar("_T")


def passes(error: OSError) -> bool:
    """Returns True if the error may be gone a second later, as also one without a number: clients of object stores often give none."""
    if isinstance(error, FileNotFoundError):
        return False
    return error.errno is None or error.errno in _PASSING


def retried(
    ask: Callable[[], _T], again: Callable[[], _T] | None = None, noted: Callable[[], None] | None = None
) -> _T:
    """Returns what ``ask`` returns; after an error that may pass, what ``again`` (None: ``ask``) returns, up to three times more.

    ``noted`` is called before each further try. Raises the last error; one that does not pass at once.
    """
    for pause in PAUSES:
        try:
            return ask()
        except OSError as error:
            if not passes(error):
                raise
        if noted is not None:
            noted()
        rest(pause)
        ask = again or ask
    return ask()


def rest(pause: float) -> None:
    time.sleep(pause * random.uniform(0.5, 1.5))
