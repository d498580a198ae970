"""The page of this process: begun with its first job that wants one, told of each job and stream; none where it is off."""

from __future__ import annotations

import threading
import warnings
from typing import TYPE_CHECKING

from firesteel.errors import FiresteelError, UsageError
from firesteel.extras import missing
from firesteel.options import UI_ENABLED, Options
from firesteel.users_line import caller_level

if TYPE_CHECKING:
    from firesteel.ui.server.beside import Beside


_lock = threading.Lock()
_begun: list[Beside] = []
"""The one of this process, from its first job that wanted one to the process' end."""


def ui_of(options: Options) -> Beside | None:
    """The page of this process, which begins now if it has not yet and the options want it; None: there is none.

    Raises UsageError where the extra is missing, and for a token file that cannot be used. Where it cannot be served otherwise, a
    warning says so, and jobs run without.
    """
    if not options[UI_ENABLED]:
        return None
    with _lock:
        if not _begun:
            try:
                from firesteel.ui.server.beside import Beside
            except ImportError as error:
                raise missing_extra(error) from None
            try:
                _begun.append(Beside(options))
            except UsageError:
                raise
            except FiresteelError as error:
                warnings.warn(f"{error} Jobs run without.", UserWarning, stacklevel=caller_level())
                return None
        return _begun[0]


def page_of(id: str) -> str:
    """The address of the job's or stream's page, if this process has shown it; empty: there is none."""
    return _begun[0].page_of(id) if _begun else ""


def missing_extra(error: ImportError) -> UsageError:
    """``error``: of importing what the extra brings. Any other is raised as it is."""
    packages = ("starlette", "uvicorn", "jinja2", "markupsafe", "h11", "anyio")
    return missing(error, "ui", "The page with its REST interface", *packages)
