"""A source of one's own: compressed access logs of web servers, as columns.

    firesteel run examples/own_source.py /var/log/nginx/access.log*.gz

Lines are in the common log format, which nginx and Apache write; what the combined format adds behind it is left out. A
gzip file can only be read from its beginning, so a split is one or more whole files. docs/own-connectors.md goes through it.
"""

import gzip
import os
import re
import struct
import sys
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import pyarrow as pa

from firesteel import ExecutionEnvironment, Split, col
from firesteel.errors import FiresteelError, UsageError

LINE = re.compile(r'(\S+) \S+ (\S+) \[([^\]]+)\] "(?:(\S+) (\S+)[^"]*|[^"]*)" (\d{3}) (\d+|-)')
COLUMNS = {
    "host": (pa.string(), lambda found: found[1]),
    "user": (pa.string(), lambda found: None if found[2] == "-" else found[2]),
    "time": (pa.timestamp("us", "UTC"), lambda found: datetime.strptime(found[3], "%d/%b/%Y:%H:%M:%S %z")),
    "method": (pa.string(), lambda found: found[4]),
    "path": (pa.string(), lambda found: found[5]),
    "status": (pa.int16(), lambda found: int(found[6])),
    "bytes": (pa.int64(), lambda found: 0 if found[7] == "-" else int(found[7])),
}
ROWS_PER_BATCH = 10_000
SPLITS_PER_VOLUME = 4


@dataclass(frozen=True)
class LogFile:
    """What the driver saw of a file. A task reads it only if it is still the same."""

    path: str
    size: int
    changed: int
    plain_bytes: int


@dataclass(frozen=True)
class AccessLogs:
    """Picklable, and nothing in it is open: it is made on the driver, and read on executors that see the same paths."""

    files: tuple[LogFile, ...]
    columns: tuple[str, ...] = tuple(COLUMNS)
    filter: object = None
    name: str = "access logs"
    supports_concurrent_execution_attempts: bool = True  # reading twice at a time does no harm

    @classmethod
    def of(cls, paths):
        files = sorted({str(Path(path).resolve()) for path in paths})
        if not files:
            raise UsageError("There are no access logs to read.", hint="Give the paths of .gz files.")
        return cls(tuple(looked_at(path) for path in files))

    @property
    def schema(self):
        return pa.schema([(name, COLUMNS[name][0]) for name in self.columns])

    # --- on the driver ---

    def list_splits(self, data_volume):
        """Whole files, small ones together; the largest first, so that no long one is left for the end.

        Parsing a line costs far more than reading it, so a split has a quarter of what a subtask is to process.
        """
        most = data_volume / SPLITS_PER_VOLUME
        splits, packed = [], []
        for file in sorted(self.files, key=lambda file: (-file.plain_bytes, file.path)):
            if packed and sum(each.plain_bytes for each in packed) + file.plain_bytes > most:
                splits.append(split_of(packed))
                packed = []
            packed.append(file)
        return [*splits, split_of(packed)]

    def infer_parallelism(self, upper_bound, data_volume):
        """One subtask a split. Asked after ``list_splits``; None would leave it to Firesteel, which goes by bytes."""
        return min(upper_bound, len(self.list_splits(data_volume)))

    def push_down(self, columns, filter):
        """Only the columns that are wanted are parsed. The filter may name others: ``read`` parses those too."""
        return replace(self, columns=self.columns if columns is None else tuple(columns), filter=filter)

    # --- on executors ---

    def read(self, split, ctx):
        for file in split:
            ctx.place = file.path
            if signature(file.path) != (file.size, file.changed):
                raise FiresteelError(
                    f"{file.path} has changed since the job began.", hint="Read logs that are rotated."
                )
            yield from self.batches(file, ctx)

    def batches(self, file, ctx):
        names = tuple(COLUMNS) if self.filter is not None else self.columns
        with gzip.open(file.path, "rt", encoding="utf-8", errors="replace") as lines:
            rows = []
            for number, line in enumerate(lines, 1):
                found = LINE.match(line)
                if found is None:
                    raise FiresteelError(f"{file.path}, line {number} is not a line of an access log: {line[:80]!r}.")
                rows.append(found)
                if len(rows) == ROWS_PER_BATCH:
                    yield self.batch(rows, names)
                    rows = []
                    ctx.place = f"{file.path}, line {number}"
            if rows:
                yield self.batch(rows, names)

    def batch(self, rows, names):
        arrays = [pa.array([COLUMNS[name][1](row) for row in rows], COLUMNS[name][0]) for name in names]
        schema = pa.schema([(name, COLUMNS[name][0]) for name in names])
        if not names:  # somebody only counts
            return pa.RecordBatch.from_struct_array(pa.array([{}] * len(rows), pa.struct([])))
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        if self.filter is not None:
            batch = batch.filter(self.filter)
        return batch.select(list(self.columns)) if self.columns else batch.select([])


def looked_at(path):
    try:
        size, changed = signature(path)
        return LogFile(path, size, changed, plain_bytes(path, size))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", hint="Give the paths of .gz files.") from None


def signature(path):
    state = Path(path).stat()
    return state.st_size, state.st_mtime_ns


def plain_bytes(path, size):
    """The last four bytes of a gzip file are its plain size modulo 4 GiB; no log shrinks below its packed size."""
    with Path(path).open("rb") as file:
        if file.read(2) != b"\x1f\x8b":
            raise UsageError(f"{path} is not a gzip file.", hint="Give the paths of .gz files.")
        file.seek(-4, os.SEEK_END)
        (plain,) = struct.unpack("<I", file.read(4))
    return max(plain, size)


def split_of(files):
    name = Path(files[0].path).name
    described = name if len(files) == 1 else f"{name} and {len(files) - 1} more"
    return Split(tuple(files), sum(file.plain_bytes for file in files), described)


def main():
    env = ExecutionEnvironment.get_or_create()
    requests = env.from_source(AccessLogs.of(sys.argv[1:]))
    failed = requests.filter(col("status") >= 500).select("path", "bytes")
    worst = failed.key_by("path").aggregate({"failures": ("bytes", "count")})
    worst.top_k(10, ("failures", False), "path").show()


if __name__ == "__main__":
    main()
