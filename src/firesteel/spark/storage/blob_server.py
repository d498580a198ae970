"""The driver's half of blobs: puts them into the job's storage, and says how a deployment carries each gate.

Uploads and deletions run one after another in a thread of their own. A deployment waits for its blobs in its own thread,
never in the job's; a blob that cannot be stored, or not soon, travels in the deployment after all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from msgspec import to_builtins

from firesteel.scheduler.kernel.commands import GateDescriptor
from firesteel.scheduler.kernel.decisions import NotStored
from firesteel.scheduler.kernel.records import Decision
from firesteel.spark.storage.cleaning import Cleaner, quietly
from firesteel.task.executor.blobs import blob_name, put_blob

UPLOAD_SECONDS = 30.0
"""Seconds that a deployment waits for a blob before it goes without."""
REMEMBERED = 64
"""Digests dropped last, which every deployment tells executors."""


class _Upload:
    def __init__(self) -> None:
        self.done = threading.Event()
        self.error: Exception | None = None


@dataclass(frozen=True, slots=True)
class BlobFailed:
    """A blob could not be stored."""

    digest: bytes
    error: Exception

    def as_decision(self, at: float) -> Decision:
        return Decision(
            at=at,
            what="offload",
            inputs=to_builtins(NotStored(blob=self.digest.hex(), error=str(self.error))),
            rule="not stored",
            result="inline",
        )


class BlobServer:
    """Of one job. ``report`` is called, in any thread, when a blob cannot be stored."""

    def __init__(self, store: Any, job_id: str, report: Callable[[BlobFailed], None]) -> None:
        self._store = store
        self._report = report
        self._worker = Cleaner(store, job_id, "blobs")
        self._uploads: dict[bytes, _Upload] = {}
        self.dropped: tuple[bytes, ...] = ()
        """Blobs that executors need not keep any more, oldest first."""

    def store(self, digest: bytes, data: bytes) -> None:
        """Returns at once."""
        upload = self._uploads[digest] = _Upload()
        self.dropped = tuple(d for d in self.dropped if d != digest)
        self._worker.call(lambda: self._put(digest, data, upload))

    def drop(self, digests: Iterable[bytes]) -> None:
        digests = list(digests)
        for digest in digests:
            self._uploads.pop(digest, None)
        self.dropped = (*self.dropped, *digests)[-REMEMBERED:]
        self._worker.delete([blob_name(digest) for digest in digests])

    def carry(self, gate: GateDescriptor) -> tuple[bytes, bytes | None]:
        """(digest, encoded gate, or None where executors fetch it). Waits for the upload: not in the job's thread."""
        encoded = gate.encoded
        return encoded.digest, None if gate.offloaded and self._is_stored(encoded.digest) else encoded.data

    def close(self) -> None:
        """Uploads that have not begun are let be; nothing is written when this returns."""
        self._uploads.clear()
        self._worker.close()

    def _is_stored(self, digest: bytes) -> bool:
        upload = self._uploads.get(digest)
        return upload is not None and upload.done.wait(UPLOAD_SECONDS) and upload.error is None

    def _put(self, digest: bytes, data: bytes, upload: _Upload) -> None:
        try:
            if self._uploads.get(digest) is not upload:
                upload.error = LookupError("dropped before it was stored")
                return
            put_blob(self._store, digest, data)
        except Exception as error:  # the gates travel inline then; what else needs the storage will tell
            upload.error = error
            quietly(lambda: self._store.delete([blob_name(digest)]))
            self._report(BlobFailed(digest, error))
        finally:
            upload.done.set()
