"""The page of this process: begun with its first job that wants one, told of each job and stream; a no-op where it is off."""

from __future__ import annotations

import threading
import warnings
from typing import TYPE_CHECKING

from firesteel.errors import FiresteelError, UsageError
from firesteel.extras import missing
from firesteel.options import UI_ENABLED, Options
from firesteel.ui.begun import Begun
from firesteel.users_line import caller_level

if TYPE_CHECKING:
    from firesteel.journal.file import Instrument
    from firesteel.scheduler.kernel.records import JournalRecord
    from firesteel.ui.server.beside import Beside


class NoUi:
    """Stands for a page that is switched off or cannot be served, and for the page's instruments."""

    url = None

    def instrument(self) -> Instrument:
        return self

    def began(self, instrument: Instrument, begun: Begun) -> None:
        pass

    def record(self, record: JournalRecord) -> None:
        pass

    def close(self) -> None:
        pass


NO_UI = NoUi()
_lock = threading.Lock()
_begun: list[Beside] = []
"""The one of this process, from its first job that wanted one to the process' end."""


def ui_of(options: Options) -> Beside | NoUi:
    """The page of this process, which begins now if it has not yet and the options want it.

    Raises UsageError where the extra is missing, and for a token file that cannot be used. Where it cannot be served otherwise, a
    warning says so, and jobs run without.
    """
    if not options[UI_ENABLED]:
        return NO_UI
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
                return NO_UI
        return _begun[0]


def page_of(id: str) -> str:
    """The address of the job's or stream's page, if this process has shown it; empty: there is none."""
    return _begun[0].page_of(id) if _begun else ""


def missing_extra(error: ImportError) -> UsageError:
    """``error``: of importing what the extra brings. Any other is raised as it is."""
    packages = ("starlette", "uvicorn", "jinja2", "markupsafe", "h11", "anyio")
    return missing(error, "ui", "The page with its REST interface", *packages)
