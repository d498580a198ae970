"""The files that belong to the project: what else lies in a clone is its user's."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("src", "tests", "docs", "tools", "examples", "benchmarks", "typings", ".ci")


def tracked_files(under: str = "", root: Path = ROOT) -> list[Path]:
    """The files below this folder of ``root`` that git tracks, sorted.

    Where git cannot say (a source distribution, no git, a clone of another user): all files of the project's folders, and those
    directly in ``root``.
    """
    return sorted(path for path in _listed(root) if path.is_file() and path.is_relative_to(root / under))


def _listed(root: Path) -> list[Path]:
    if (root / ".git").exists():  # else the folder may lie in another clone
        try:
            listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError):
            pass
        else:
            return [root / name for name in listed.decode(errors="surrogateescape").split("\0") if name]
    return [path for folder in FOLDERS for path in (root / folder).rglob("*")] + [*root.glob("*")]
