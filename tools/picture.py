"""The README's pictures: what ``explain`` and the page show of a real run of examples/word_count.py, taken from that run's journal.

``./dev python tools/picture.py [FILES]`` runs the example (on the Python packages of the environment unless files are named), keeps
its journal as docs/explain.jsonl, draws docs/explain.svg, and photographs the job's page as docs/pictures/job.png with a Chromium
(``apt install chromium``). ``--page`` takes the photograph again, without a run. ``./dev docs`` draws the SVG from the journal.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import textwrap
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

from firesteel.journal.file import read
from firesteel.report.explain import explain

ROOT = Path(__file__).resolve().parent.parent
JOURNAL = ROOT / "docs" / "explain.jsonl"
SVG = ROOT / "docs" / "explain.svg"
PAGE = ROOT / "docs" / "pictures" / "job.png"
COLUMNS = 112
_INDENT = 17
"""Columns of a label."""


def picture() -> str:
    """The SVG."""
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True, color_system="truecolor")
    for line in explain(read(JOURNAL)).splitlines():
        for part in textwrap.wrap(line, COLUMNS, subsequent_indent=" " * _INDENT, drop_whitespace=True) or [""]:
            console.print(_styled(part), soft_wrap=True)
    svg = console.export_svg(title="firesteel explain last", unique_id="explain")
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.S)  # nothing is loaded from elsewhere


def _styled(line: str) -> Text:
    text = Text(line)
    text.highlight_regex(r"^\[\d+\].*", "bold cyan")
    text.highlight_regex(r"^    [a-z][a-z ]{0,12}", "green")
    return text


def record(files: list[str]) -> None:
    """Runs the example and keeps its journal. Raises CalledProcessError."""
    with tempfile.TemporaryDirectory(prefix="firesteel-picture-") as folder:
        (Path(folder) / "packages").symlink_to(sysconfig.get_path("purelib"))
        command = [
            sys.executable,
            "-m",
            "firesteel",
            "run",
            "-O",
            "data-volume-per-task=2m",
            ROOT / "examples" / "word_count.py",
        ]
        subprocess.run([*command, *(files or ["packages/**/*.py"])], cwd=folder, check=True)
        (journal,) = Path(folder, ".firesteel", "journal").glob("*.jsonl")
        shutil.copy(journal, JOURNAL)


def photograph() -> None:
    """Takes the job's page from the journal that is kept."""
    from playwright.sync_api import sync_playwright
    from tests.browser.conftest import CHROMIUM
    from tests.browser.kit import served

    if CHROMIUM is None:
        raise SystemExit(f"There is no Chromium on this machine, so {PAGE.relative_to(ROOT)} stays as it was.")
    with tempfile.TemporaryDirectory(prefix="firesteel-picture-") as folder, sync_playwright() as playwright:
        shutil.copy2(JOURNAL, folder)
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--force-color-profile=srgb"]
        )
        page = browser.new_page(
            viewport={"width": 1280, "height": 720}, timezone_id="UTC", locale="en-GB", color_scheme="light"
        )
        with served(Path(folder)) as address:
            page.goto(f"{address}/jobs/{next(iter(read(JOURNAL))).job_id}")
            page.screenshot(path=PAGE)
        browser.close()


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    if sys.argv[1:] != ["--page"]:
        record(sys.argv[1:])
        SVG.write_text(picture())
    photograph()
