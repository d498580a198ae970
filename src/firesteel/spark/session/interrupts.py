"""Silences the traces that py4j logs when Ctrl-C finds it talking to the JVM: on a console or below a notebook's cell."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager

_LOGGERS = ("", "py4j.clientserver", "py4j.java_gateway")
"""py4j's loggers of these; the root logger takes some of them."""
_SAID = (
    "KeyboardInterrupt while sending command",
    "Exception while sending command",
    "Exception occurred while shutting",
)


class _AfterAnInterrupt(logging.Filter):
    """Leaves out what py4j says of an interrupt, and of the connections that break off after it."""

    def __init__(self) -> None:
        super().__init__()
        self.interrupted = False

    def filter(self, record: logging.LogRecord) -> bool:
        if not str(record.msg).startswith(_SAID):
            return True
        error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        self.interrupted = self.interrupted or _is_interrupt(error)
        return not self.interrupted


def _is_interrupt(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


@contextmanager
def without_py4j_traces() -> Generator[None]:
    """Meanwhile an interrupt leaves nothing but itself, and no handler at the root logger, which py4j's words would put there."""
    listening = _AfterAnInterrupt()
    root = logging.getLogger()
    before = list(root.handlers)
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(listening)
    try:
        yield
    finally:
        for name in _LOGGERS:
            logging.getLogger(name).removeFilter(listening)
        if listening.interrupted and not before:
            for handler in list(root.handlers):
                root.removeHandler(handler)
