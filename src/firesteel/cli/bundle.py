"""``firesteel bundle``: the package as one zip, for ``spark-submit --py-files``."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from firesteel.cli.shared import show
from firesteel.errors import UsageError
from firesteel.humanize import format_bytes
from firesteel.package_files import contents, write_zip

SUFFIXES = (".py", ".typed", ".properties", ".xml", ".html", ".css", ".js", ".svg")
DRIVER = ("pyspark", "pyarrow", "numpy", "duckdb", "msgspec")
"""Packages that the driver's Python needs; the command line needs more, which a script under spark-submit does not use."""
WORKERS = ("pyarrow", "numpy")
"""Packages that the Python workers of executors need beside PySpark."""


def bundle(
    output: Annotated[Path, typer.Option("--output", "-o", help="The zip to write, over one that is there.")] = Path(
        "firesteel.zip"
    ),
) -> None:
    """Write Firesteel as a zip for spark-submit --py-files."""
    size = write_bundle(output)
    show(
        f"{output} ({format_bytes(size)}): spark-submit --py-files {shlex.quote(str(output))} SCRIPT.py\n"
        f"The driver's Python needs {', '.join(DRIVER)}; that of the executors {', '.join(WORKERS)}, "
        "and pandas where a step has pandas in its name."
    )


def write_bundle(output: Path) -> int:
    """Writes the zip, as a whole or not at all. Its size in bytes. Raises UsageError where it cannot lie."""
    if output.suffix != ".zip":
        raise UsageError(f"'{output}' does not end in .zip, and spark-submit --py-files would not take it.")
    partial = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        try:
            write_zip(contents(SUFFIXES), partial)
            partial.replace(output)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"The zip cannot be written to '{output}': {error.strerror or error}.") from None
    return output.stat().st_size
