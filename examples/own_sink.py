"""A sink of one's own: a table of a SQLite database, written in two phases and one transaction.

    firesteel run examples/own_sink.py src/**/*.py

Phase one, on executors: each attempt writes its rows to a file of its own in a staging directory beside the database. Phase
two, on the driver: one transaction puts the rows of the winners into the table, and the job's id into a ledger. Whatever dies and
whenever, the table holds all rows of the job or none. docs/own-connectors.md goes through it.
"""

import contextlib
import fcntl
import shutil
import sqlite3
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from firesteel import ExecutionEnvironment
from firesteel.errors import FiresteelError, UsageError

LEDGER = "firesteel_commits"
MODES = ("error", "append", "overwrite")
LOCK_SECONDS = 60.0


@dataclass(frozen=True)
class Staged:
    """The commit message of one attempt: its file in the staging directory, and how many rows it must have."""

    name: str
    rows: int


class SQLiteSink:
    """Writes to ``table`` of the database file ``path``. The driver and all executors must see its directory.

    ``mode``: ``"error"`` if the table exists, ``"append"``, or ``"overwrite"``, which replaces its rows and columns.
    """

    supports_concurrent_execution_attempts = True  # attempts share nothing: each has a file of its own

    def __init__(self, path, table, mode="error"):
        if mode not in MODES:
            raise UsageError(f"mode={mode!r} is not a way to write a table.", hint=f"Use one of {', '.join(MODES)}.")
        self.path, self.table, self.mode = Path(path).absolute(), table, mode
        self.name = f"write {self.path.name}:{table}"
        self.schema = self.job_id = self.staging = self.lock = None

    def __getstate__(self):
        return {**self.__dict__, "lock": None}  # an open file is no thing to pickle

    # --- on the driver, before ---

    def check(self, schema):
        """Changes nothing: whatever is wrong is found before the first row is computed."""
        for field in schema:
            sqlite_type(field)
        if not self.path.parent.is_dir():
            raise UsageError(f"There is no directory {self.path.parent}.", hint="Make it first.")
        self.schema = schema
        if not self.path.exists():
            return
        with self.database(read_only=True) as database:
            columns = columns_of(database, self.table)
        if columns and self.mode == "error":
            hint = "Choose another name, or write with mode='append' or 'overwrite'."
            raise UsageError(f"{self.path} has a table {self.table} already.", hint=hint)
        if columns and self.mode == "append" and columns != schema.names:
            raise UsageError(f"The table {self.table} has the columns {columns}, and the stream {schema.names}.")

    def begin(self, job_id):
        """Makes the staging directory. The lock is held for as long as this process lives: so others know that it does."""
        self.remove_leftovers()
        self.job_id = job_id
        self.staging = self.path.with_name(f"{self.prefix}{job_id}")
        made = self.path.with_name(f".{uuid.uuid4().hex}.firesteel")
        made.mkdir()
        self.lock = locked(made)
        try:
            made.rename(self.staging)  # locked already: nobody takes it for a leftover
        except OSError:
            shutil.rmtree(made)
            raise UsageError(f"Two sinks of this job write to {self.table} of {self.path}.") from None

    @property
    def prefix(self):
        return f".{self.path.name}.{self.table}."

    def remove_leftovers(self):
        """What a killed driver left goes; what a living one is still writing is locked and stays."""
        for leftover in self.path.parent.iterdir():
            lock = locked(leftover) if leftover.name.startswith(self.prefix) else None
            if lock is not None:
                shutil.rmtree(leftover, ignore_errors=True)
                lock.close()

    # --- on executors ---

    def write(self, subtask, attempt):
        """The name is unique: Spark may start an attempt a second time, and the first may still be writing."""
        name = f"{subtask}-{attempt}-{uuid.uuid4().hex}.arrow"
        return StagedWriter(self.staging / name, self.schema)

    # --- on the driver, after ---

    def commit(self, winners):
        """One transaction. Called again after a crash, it finds the job in the ledger and changes nothing."""
        with self.database() as database:
            database.execute("begin immediate")
            try:
                database.execute(f"create table if not exists {LEDGER} (job text primary key, rows integer)")
                if not database.execute(f"select 1 from {LEDGER} where job = ?", [self.ledger_key]).fetchone():
                    self.publish(database, winners)
                    rows = sum(staged.rows for staged in winners)
                    database.execute(f"insert into {LEDGER} values (?, ?)", [self.ledger_key, rows])
                database.execute("commit")
            except BaseException:
                database.execute("rollback")
                raise
        self.forget()

    @property
    def ledger_key(self):
        return f"{self.job_id} {self.table}"

    def publish(self, database, winners):
        table = quoted(self.table)
        if columns_of(database, self.table):
            if self.mode == "error":
                raise FiresteelError(f"Somebody made the table {self.table} while the job was running.")
            if self.mode == "overwrite":
                database.execute(f"drop table {table}")
        columns = ", ".join(f"{quoted(field.name)} {sqlite_type(field)}" for field in self.schema)
        database.execute(f"create table if not exists {table} ({columns})")
        insert = f"insert into {table} values ({', '.join('?' * len(self.schema))})"
        for staged in winners:
            count = 0
            for batch in self.staged_batches(staged):
                database.executemany(insert, rows_of(batch))
                count += batch.num_rows
            if count != staged.rows:
                raise FiresteelError(f"{self.staging / staged.name} has {count} rows instead of {staged.rows}.")

    def staged_batches(self, staged):
        try:
            with pa.OSFile(str(self.staging / staged.name)) as file:
                yield from pa.ipc.open_stream(file)
        except (OSError, pa.ArrowException) as error:
            raise FiresteelError(f"{self.staging / staged.name} cannot be read: {error}.") from error

    def abort(self, attempts):
        """Losers one by one; an empty list means the whole job. It may come late, and more than once."""
        for staged in attempts:
            with contextlib.suppress(OSError):
                (self.staging / staged.name).unlink()
        if not attempts and self.staging is not None:
            self.forget()

    def forget(self):
        shutil.rmtree(self.staging, ignore_errors=True)
        if self.lock is not None:
            self.lock.close()
            self.lock = None

    @contextlib.contextmanager
    def database(self, read_only=False):
        uri = f"{self.path.as_uri()}?mode={'ro' if read_only else 'rwc'}"
        try:
            database = sqlite3.connect(uri, uri=True, timeout=LOCK_SECONDS, isolation_level=None)
            with contextlib.closing(database):
                yield database
        except sqlite3.Error as error:
            kind = UsageError if read_only else FiresteelError
            raise kind(f"{self.path}: {error}.", hint="Is it a SQLite database, and may you write it?") from error


class StagedWriter:
    """One attempt's rows, as an Arrow stream: the file appears under a name that only its commit message tells."""

    def __init__(self, path, schema):
        self.path, self.rows = path, 0
        self.file = pa.OSFile(str(path), "wb")
        self.stream = pa.ipc.new_stream(self.file, schema)

    def write(self, batch):
        self.stream.write_batch(batch)
        self.rows += batch.num_rows

    def finish(self):
        self.stream.close()
        self.file.close()
        return Staged(self.path.name, self.rows)

    def abort(self):
        with contextlib.suppress(OSError, pa.ArrowException):
            self.stream.close()
            self.file.close()
        self.path.unlink(missing_ok=True)


def locked(directory):
    """The open lock of a staging directory, or None while another process, or another sink, holds it."""
    file = (directory / "owner.lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return None
    return file


def sqlite_type(field):
    kinds = pa.types
    if kinds.is_boolean(field.type) or (kinds.is_integer(field.type) and field.type != pa.uint64()):
        return "integer"
    if kinds.is_floating(field.type):
        return "real"
    if kinds.is_string(field.type) or kinds.is_large_string(field.type) or kinds.is_temporal(field.type):
        return "text"
    if kinds.is_binary(field.type) or kinds.is_large_binary(field.type):
        return "blob"
    raise UsageError(f"SQLite cannot hold column '{field.name}' of type {field.type}.", hint="Cast it or drop it.")


def rows_of(batch):
    """Tuples of what sqlite3 takes; times as ISO 8601 text."""
    columns = []
    for column in batch.columns:
        plain = pc.cast(column, pa.string()) if pa.types.is_temporal(column.type) else column
        columns.append(plain.to_pylist())
    return zip(*columns, strict=True)


def columns_of(database, table):
    return [row[1] for row in database.execute(f"pragma table_info({quoted(table)})")]


def quoted(name):
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def main():
    env = ExecutionEnvironment.get_or_create()
    lines = env.read_text(sys.argv[1:] or "src/**/*.py")
    counts = lines.key_by("value").aggregate({"n": ("value", "count")})
    counts.top_k(100, ("n", False), "value").write_to(SQLiteSink("lines.db", "common_lines", mode="overwrite"))
    print(env.execute("common lines").explain())


if __name__ == "__main__":
    main()
