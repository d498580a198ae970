"""Which folders of tests a change touches, by the paths that it changes.

The change: all since the commit that it shares with the main branch of the remote, else the last commit; and whatever is not
committed. A path that no rule names touches nothing here; the default tests have run anyway.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

QUICK = ("tests/unit", "tests/property")
SPARK = (*QUICK, "tests/jobs", "tests/spark")
ALL = (*SPARK, "tests/cluster")
BROWSER = "tests/browser"
RULES: tuple[tuple[str, tuple[str, ...]], ...] = (
    *((f"src/firesteel/{room}/", QUICK) for room in ("scheduler", "simulation", "journal", "report", "cli", "view")),
    *((f"src/firesteel/{room}/", SPARK) for room in ("api", "compile", "connectors", "control", "results")),
    ("src/firesteel/ui/", (*QUICK, BROWSER)),
    ("src/", ALL),  # the data plane, and what every room uses
    ("tests/unit/", ("tests/unit",)),
    ("tests/property/", ("tests/property",)),
    ("tests/jobs/", ("tests/jobs",)),
    ("tests/plane/", ("tests/jobs",)),
    ("tests/simulation/", QUICK),
    ("tests/browser/", (BROWSER,)),
    ("tests/spark/", ("tests/spark",)),
    ("tests/cluster/", ("tests/cluster",)),
    ("tests/", ALL),
    ("tools/", ALL),
    ("pyproject.toml", ALL),
    ("requirements.lock", ALL),
    ("docs/", ("tests/unit", "tests/spark")),
    ("README.md", ("tests/unit", "tests/spark")),
    ("examples/", ("tests/spark",)),
)
"""How a changed path begins, to the folders whose tests may answer otherwise. The first that fits counts."""


def tests_of(root: Path, say: Callable[[str], None]) -> list[str]:
    """Folders of tests that the last change touches; none where that cannot be told, which is said."""
    changed = changed_paths(root)
    if changed is None:
        say("What this change touches cannot be told (no git history here): only the default tests count.")
        return []
    folders = folders_of(changed)
    say(f"{len(changed)} changed paths touch: {', '.join(folders) or 'no tests'}.")
    return [folder for folder in folders if (root / folder).is_dir()]


def folders_of(changed: list[str]) -> list[str]:
    """In the order in which tests are run."""
    found = {folder for path in changed for folder in _rule(path)}
    return [folder for folder in (*ALL, BROWSER) if folder in found]


def changed_paths(root: Path) -> list[str] | None:
    """None without a history of at least two commits."""
    head = _git(root, "rev-parse", "HEAD")
    base = _git(root, "merge-base", "HEAD", "origin/HEAD") or _git(root, "merge-base", "HEAD", "origin/main")
    if base is None or base == head:
        base = _git(root, "rev-parse", "--verify", "--quiet", "HEAD~1")
    told = _git(root, "-c", "core.quotePath=false", "diff", "--name-only", "--no-renames", base) if base else None
    return None if told is None else told.splitlines()


def _rule(path: str) -> tuple[str, ...]:
    return next((folders for start, folders in RULES if path.startswith(start)), ())


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
