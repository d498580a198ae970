"""Names of folders that mean something in a URL, a shell or a glob, and a table to keep there."""

from __future__ import annotations

import pyarrow as pa

from firesteel import ExecutionEnvironment

ODD = ("my work ü", "100%20 of #1 + [a]b*c?{d,e}", "back\\slash k=v 'q\" a:b;c&d 日本😀")
TABLE = pa.table({"k": [1, 2, 3, 4], "s": ["a", "ü", "c d", "%20"]})
WANTED = sorted(zip(*TABLE.to_pydict().values(), strict=True))


def environment_in(session, folder):
    """Returns an environment that keeps journals and intermediate results in that folder too."""
    options = {
        "firesteel.progress": False,
        "firesteel.journal.directory": str(folder / "journal"),
        "firesteel.storage.directory": str(folder / "storage"),
    }
    return ExecutionEnvironment(spark=session, options=options)


def rows(stream):
    return sorted(tuple(row.values()) for row in stream.collect())
