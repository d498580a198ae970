"""Every code block of every page runs, each page from top to bottom, in a folder and a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from tests.docs_run import blocks
from tests.tracked_files import tracked_files

from firesteel.control.places import RUNTIME_VARIABLE

PATIENCE_SECONDS = 1800
pytestmark = [pytest.mark.spark, pytest.mark.full, pytest.mark.patience(PATIENCE_SECONDS + 60)]
ROOT = Path(__file__).resolve().parents[2]
ELSEWHERE = ("own-connectors.md", "architecture.md")
"""test_own_connectors_spark.py and test_architecture_page.py run these and look at their answers."""
PAGES = [
    page
    for page in (ROOT / "README.md", *(path for path in tracked_files("docs") if path.suffix == ".md"))
    if page.name not in ELSEWHERE and any(blocks(page))
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_all_blocks_of_a_page_run(page, tmp_path):
    runtime = tempfile.mkdtemp(prefix="run-")  # the path of a socket in tmp_path may be too long for one
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        RUNTIME_VARIABLE: runtime,  # else `stream list` shows other processes' streams
        "PYTHONWARNINGS": "default",
    }
    folder = tmp_path / "reader"
    folder.mkdir()
    with subprocess.Popen(
        [sys.executable, ROOT / "tests" / "docs_run.py", page, folder],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as ended:
        try:
            told, _ = ended.communicate(timeout=PATIENCE_SECONDS)
        finally:
            with suppress(ProcessLookupError):  # the page's streams are in its group, and must not outlive it
                os.killpg(ended.pid, signal.SIGKILL)
    assert ended.returncode == 0, told[-6000:]
