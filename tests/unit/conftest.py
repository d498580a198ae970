"""Programs that unit tests start run as in an installation without extras; with ``--all``, as in this one.

The command line in the tests' own process is built once, not by every call.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest
import typer.main
import typer.testing

typer.main.get_command = typer.testing._get_command = cache(typer.main.get_command)

PLAIN = Path(__file__).parents[1] / "plain"


@pytest.fixture(scope="module", autouse=True)
def plain_programs(request):
    """pyarrow imports pandas wherever there is one, with the first array: more than half the time that a small program takes."""
    with pytest.MonkeyPatch.context() as patch:
        if not request.config.getoption("--all"):
            patch.setenv("PYTHONPATH", str(PLAIN), prepend=os.pathsep)
        yield
