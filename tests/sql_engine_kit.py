"""An engine whose own stops are errors that TRY takes, for tests of many values in one statement."""

from __future__ import annotations

from typing import Any

from firesteel.engine.connection import MACROS, connect


def tried(text: str) -> str:
    """The text with another error in place of ``error``, which TRY does not take."""
    return text.replace("error('", "fs_left('")


def trying_engine() -> Any:
    """The engine of a worker, for texts that ``tried`` gives."""
    engine = connect()
    for macro in MACROS:
        engine.execute(tried(macro).replace("CREATE MACRO", "CREATE OR REPLACE MACRO"))
    engine.execute("CREATE MACRO fs_left(m) AS CAST(CAST(m AS INTEGER) AS VARCHAR)")
    return engine
