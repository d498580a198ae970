"""What commands that run in the process of the tests leave behind."""

from __future__ import annotations

import pytest

from firesteel.api import environment


@pytest.fixture(autouse=True)
def no_defaults_are_left(monkeypatch):
    """``run`` sets the options of all environments of its process."""
    monkeypatch.setattr(environment, "_defaults", environment._Defaults())
