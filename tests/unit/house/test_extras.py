"""Libraries of extras: one that is missing is a sentence, one that is broken raises what it raises."""

from __future__ import annotations

import pytest

from firesteel.errors import UsageError
from firesteel.extras import load, missing


def test_what_is_not_installed_is_told_with_its_extra():
    with pytest.raises(UsageError, match=r"A step needs the package no_such_library, which is not") as told:
        load("no_such_library.inner", "delta", "A step")
    assert told.value.hint == "Run pip install 'deltalake>=1.6,<2'."


def test_a_library_that_is_there_and_cannot_be_loaded_tells_why_itself(tmp_path, monkeypatch):
    (tmp_path / "broken_library.py").write_text("import what_it_wants")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="what_it_wants"):
        load("broken_library", "delta", "A step")


def test_one_of_several_packages_of_an_extra_is_named():
    assert "needs the package h11," in str(missing(ImportError(name="h11.events"), "ui", "The page", "uvicorn", "h11"))
    with pytest.raises(ImportError, match="another"):
        raise missing(ImportError("another", name="another"), "ui", "The page", "uvicorn", "h11")
