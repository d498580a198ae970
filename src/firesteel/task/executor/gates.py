"""Encoded gates as a worker process has them: decoded ones in memory, large ones as blobs on the executor's disk."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from firesteel.model.descriptors import GateColumns, decode_gate
from firesteel.task.executor.blobs import BlobCache
from firesteel.task.executor.information import JobInformation, cache
from firesteel.task.executor.scratch import local_directory, make_in_place

_blobs: dict[str, BlobCache] = {}
_told_dropped: tuple[bytes, ...] = ()


def gate_columns(job: JobInformation, digest: bytes, inline: bytes | None) -> GateColumns:
    """Decoded once per worker process, as long as it is remembered; fetched once per executor. Raises StorageError."""
    gate: GateColumns | None = cache.get(digest)
    if gate is None:
        gate = decode_gate(inline if inline is not None else _blobs_of(job).get(digest))
        cache.put(digest, gate, gate.nbytes)
    return gate


def _blobs_of(job: JobInformation) -> BlobCache:
    """The executor's blobs of this job. Raises StorageError when the job is over."""
    known = _blobs.get(job.job_id)
    if known is None:
        _blobs.clear()
        if job.scratch is not None:
            root = Path(job.scratch) / "blobs"
            make_in_place(root)
        else:
            root = Path(local_directory()) / "firesteel-blobs"
            with suppress(OSError):  # then each task fetches for itself
                root.mkdir(parents=True, exist_ok=True)
        known = _blobs[job.job_id] = BlobCache(root, job.job_id, job.store, job.blob_cache_bytes)
        known.forget_idle_jobs()
    return known


def evict(job: JobInformation, dropped: tuple[bytes, ...]) -> None:
    """Drops the decoded gates that the driver says nobody will read again."""
    global _told_dropped  # noqa: PLW0603
    if dropped == _told_dropped:
        return
    _told_dropped = dropped
    for digest in dropped:
        cache.drop(digest)
    if dropped:
        _blobs_of(job).drop(dropped)
