"""What py4j logs when it is interrupted, and what stays of it."""

from __future__ import annotations

import logging
from contextlib import contextmanager

from firesteel.spark.session.sessions import without_py4j_traces


@contextmanager
def bare_root():
    """The root logger without handlers and filters, as in a notebook: pytest and other tests have some there."""
    logger = logging.getLogger()
    before, filters = list(logger.handlers), list(logger.filters)
    logger.filters.clear()
    for handler in before:
        logger.removeHandler(handler)
    try:
        yield logger
    finally:
        logger.handlers[:], logger.filters[:] = before, filters


def interrupted_call():
    """As py4j does it."""
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        logging.exception("KeyboardInterrupt while sending command.")
        try:
            raise BrokenPipeError
        except BrokenPipeError:
            logging.getLogger("py4j.clientserver").exception("Exception occurred while shutting down connection")


def test_an_interrupt_leaves_no_traces_and_no_handler(capsys):
    with bare_root() as root:
        with without_py4j_traces():
            interrupted_call()
        assert root.handlers == []
        assert not root.filters
    assert capsys.readouterr().err == ""


def test_other_errors_are_still_said(capsys):
    with bare_root(), without_py4j_traces():
        try:
            raise OSError("the JVM is gone")
        except OSError:
            logging.exception("Exception while sending command.")
        logging.error("something else")
    assert "the JVM is gone" in capsys.readouterr().err
