"""Detection of notebooks. IPython is never imported to find out."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any


def shell() -> Any:
    """IPython's shell, if this process runs one with a Jupyter kernel; None elsewhere."""
    module = sys.modules.get("IPython")
    with suppress(Exception):
        found = None if module is None else module.get_ipython()
        return found if getattr(found, "kernel", None) is not None else None
    return None


def show_tables() -> None:
    """In a notebook the Arrow tables of a job are shown readably from now on, unless the user has said how Arrow tables are."""
    running = shell()
    if running is None:
        return
    from firesteel.view.notebook.tables import install

    with suppress(Exception):  # a shell of another kind shows them as it likes
        install(running.display_formatter.formatters["text/html"])
