"""Every benchmark can be imported and has what ``python -m benchmarks`` calls."""

import importlib
from pathlib import Path

import pytest
from benchmarks.__main__ import MODULES
from tests.tracked_files import tracked_files

ROOT = Path(__file__).resolve().parents[3]
FOUND = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in tracked_files("benchmarks")
    if path.suffix == ".py"
)


@pytest.mark.parametrize("module", FOUND)
def test_is_imported(module):
    importlib.import_module(module)


@pytest.mark.parametrize("name", MODULES)
def test_has_a_main(name):
    assert callable(importlib.import_module(MODULES[name]).main)
