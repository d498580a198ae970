"""The files of this package, wherever it lies: a folder, or a zip such as ``firesteel bundle`` writes."""

from __future__ import annotations

import zipfile
from pathlib import Path

_PACKAGE = Path(__file__).parent
_EPOCH = (1980, 1, 1, 0, 0, 0)


def contents(suffixes: tuple[str, ...] = (".py",)) -> list[tuple[str, bytes]]:
    """(``firesteel/...``, bytes) of the package's files with these suffixes, in order. Raises OSError if it cannot be read."""
    if _PACKAGE.is_dir():
        files = sorted(path for path in _PACKAGE.rglob("*") if path.suffix in suffixes and path.is_file())
        found = [(path.relative_to(_PACKAGE).as_posix(), path) for path in files if "__pycache__" not in path.parts]
        return [(f"firesteel/{name}", path.read_bytes()) for name, path in found]
    with zipfile.ZipFile(_PACKAGE.parent) as archive:
        names = sorted(n for n in archive.namelist() if n.startswith("firesteel/") and n.endswith(suffixes))
        return [(name, archive.read(name)) for name in names]


def write_zip(files: list[tuple[str, bytes]], path: Path) -> None:
    """Without times: the same files give the same bytes. Raises OSError."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files:
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED)
