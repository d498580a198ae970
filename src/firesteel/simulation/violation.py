"""Violations of the scheduler: the simulated cluster checks each command and stops at the first that must never be given."""

from __future__ import annotations


class ViolationError(AssertionError):
    """The scheduler asked for something that must never be asked: a fault of Firesteel's."""


def check(holds: bool, complaint: str) -> None:
    if not holds:
        raise ViolationError(complaint)
