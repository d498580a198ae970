"""Interpreters with only some of our packages."""

from __future__ import annotations

import re
import sys
import sysconfig
from pathlib import Path


def bare_python(folder: Path, *packages: str) -> Path:
    """An interpreter that has the standard library and these packages, by links; and what spark-submit puts in its path."""
    there = Path(sysconfig.get_paths()["purelib"])
    links = folder / f"packages-{'-'.join(packages)}"
    links.mkdir()
    for found in there.iterdir():
        name = re.split(r"[.-]", found.name.lstrip("_").removeprefix("adbc_driver_"))[
            0
        ]  # DuckDB lies in several places
        if name in packages:
            (links / found.name).symlink_to(found)
    wrapper = folder / f"python-{'-'.join(packages)}"
    wrapper.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{links}" exec "{sys.executable}" -S "$@"\n')
    wrapper.chmod(0o755)
    return wrapper
