"""A journal that is not kept: only its fingerprint, by which two stories are compared."""

from __future__ import annotations

import hashlib

from firesteel.journal.file import encode
from firesteel.scheduler.kernel.records import JournalRecord


class JournalDigest:
    """Takes every record as the journal would write it, and keeps a fingerprint: the same story, the same digest."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self.records = 0
        self.bytes = 0

    def record(self, record: JournalRecord) -> None:
        line = encode(record)
        self._hash.update(line)
        self.records += 1
        self.bytes += len(line)

    def close(self) -> None:
        """Nothing is open."""

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()
