"""The pages out of a zip, as ``firesteel bundle`` writes it for spark-submit."""

from __future__ import annotations

import subprocess
import sys

from firesteel.cli.bundle import write_bundle

CODE = """
import firesteel.ui.pages.pages as pages
from firesteel.ui.pages.templates import Asked
assert ".zip" in pages.__file__, pages.__file__
assert all(pages.file(name) for name in pages.FILES)
print(pages.error_page(Asked(), 404, "There is no such page."))
"""


def test_pages_are_in_the_bundle(tmp_path):
    write_bundle(tmp_path / "firesteel.zip")
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path / 'firesteel.zip')!r})\n{CODE}"]
    shown = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert shown.returncode == 0, shown.stderr
    assert "There is no such page." in shown.stdout
