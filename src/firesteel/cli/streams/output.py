"""Output that several stream commands print: sentences and JSON."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from firesteel.errors import FiresteelError

if TYPE_CHECKING:
    from firesteel.control.messages import StreamStatus
    from firesteel.control.names import StreamEntry


def as_json_text(status: StreamStatus) -> str:
    import msgspec

    return msgspec.json.encode(status).decode()


def ended(entry: StreamEntry) -> str:
    """Returns the sentence that it has ended, and where it can be started again. Raises FiresteelError if it failed."""
    from firesteel.report.fold import how_it_ended

    end = how_it_ended(entry.journal)
    if end is not None and end.status == "FAILED":
        raise FiresteelError(f"{entry.name}: it failed: {end.cause}")
    return f"{entry.name}: it has ended; its checkpoint is '{entry.checkpoint}'."


def is_terminal() -> bool:
    from firesteel.view.screen import is_live

    return sys.stdout is not None and is_live(sys.stdout)
