"""Logs on a store, as drivers write them, and drivers that take one job over at once."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager

import pyarrow.fs as pafs

from firesteel.errors import UsageError
from firesteel.recovery.exclusive import exclusive_put
from firesteel.recovery.files import open_log
from firesteel.recovery.frames import frame
from firesteel.recovery.objects import ObjectPath
from firesteel.recovery.takeover import FoundJob, take_over
from firesteel.scheduler.kernel.records import JobPlanned
from firesteel.scheduler.recovery.records import Alive, DriverBegan, LogHeader, encode_records
from s3_server import new_bucket, s3_server


class LocalPut:
    """On a disk, where an exclusive create is to be had for nothing."""

    def create(self, path, data):
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            return False
        os.write(descriptor, data)
        os.close(descriptor)
        return True


@contextmanager
def store_of(kind, folder, monkeypatch):
    """The root of results on a "disk" that is asked as an object store is, or on a server that speaks "s3"."""
    if kind == "disk":
        yield ObjectPath(pafs.LocalFileSystem(), str(folder), str(folder), LocalPut())
        return
    with s3_server() as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        url = f"s3://{new_bucket()[0]}/results"
        fs, path = pafs.FileSystem.from_uri(url)
        yield ObjectPath(fs, path, url, exclusive_put(url))
        exclusive_put.cache_clear()


def entry(*records):
    return frame([encode_records(list(records))])


def begun(root, job_id="j", *, moments=()):
    """A job's log as a driver writes it. ``moments``: of later records."""
    root.fs.create_dir((root / f"firesteel-job-{job_id}" / "log").path)
    log = open_log(root / f"firesteel-job-{job_id}" / "log", 1, {})
    plan = JobPlanned(at=0.0, job_id=job_id, job_name="job", vertices=[], datasets=[], options={})
    log.append(entry(DriverBegan(1, 7, "far", 11, "s", "app", 1.0, 0.0)))
    log.append(entry(LogHeader(1, "1", {}, job_id, "job", "run", 0, "job.py", [], plan, b"", b"", [])))
    for at in moments:
        log.append(entry(Alive(at)))
    return log


def contended(found: FoundJob, drivers: int = 8) -> list[int | str]:
    """What each of them got: its epoch, or what it was told. In one process they are all the same driver but for the time."""
    start, outcomes = threading.Barrier(drivers), list[int | str]()

    def contend() -> None:
        start.wait()
        try:
            outcomes.append(take_over(found).epoch)
        except UsageError as error:
            outcomes.append(error.message)

    threads = [threading.Thread(target=contend) for _ in range(drivers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes
