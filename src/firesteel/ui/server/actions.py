"""The pages' forms: the changes of REST, by fields of a form."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from firesteel.errors import UsageError
from firesteel.ui.catalog.source import Source

Fields = Mapping[str, str]


def _number(fields: Fields, name: str) -> int | None:
    """None: left out."""
    text = fields.get(name, "").strip()
    if not text:
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > 9:
        raise UsageError(f"'{text[:40]}' is no whole number.")
    return int(text)


ACTIONS: Mapping[str, Callable[[Source, str, Fields], None]] = {
    "cancel": lambda source, id, fields: source.cancel(id),
    "stop": lambda source, id, fields: source.stop(id),
    "rescale": lambda source, id, fields: source.rescale(id, _number(fields, "parallelism")),
    "requirements": lambda source, id, fields: source.update_requirements(
        id, _number(fields, "lower"), _number(fields, "upper")
    ),
}
"""By the last part of the address that a form is sent to."""
