"""The header of a job's log: all by which a later driver knows whether it has the same job before it, and what else its scheduler was made with."""

from __future__ import annotations

import hashlib
import itertools
import logging
import platform
import secrets
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from firesteel.compile.compiled import CompiledJob
from firesteel.compile.identity import facts
from firesteel.compile.identity.facts import VertexPrint
from firesteel.compile.identity.prints import job_prints
from firesteel.errors import FiresteelError
from firesteel.model.job_graph import JobGraph
from firesteel.options import Options
from firesteel.scheduler.recovery.records import FORMAT, LogHeader, decode_records, encode_records
from firesteel.scheduler.topology.planned import planned
from firesteel.spark.driver.serialise import dumps_splits

_LIBRARIES = ("firesteel", "numpy", "pyarrow", "pyspark")
_NO_MATTER = ("firesteel.progress", "firesteel.journal.", "firesteel.recovery.", "firesteel.results.retain")
"""Options that change neither rows nor decisions."""
_log = logging.getLogger("firesteel.recovery")
_process = uuid.uuid4().hex[:12]
_ordinals = itertools.count()


@dataclass(frozen=True, slots=True)
class JobIdentity:
    """A job's place in its script. ``run``: the process; ``ordinal``: of its jobs, from 0."""

    script: str
    arguments: tuple[str, ...]
    run: str
    ordinal: int

    @classmethod
    def of_next_job(cls) -> JobIdentity:
        """Counts the jobs of this process."""
        script = getattr(sys.modules.get("__main__"), "__file__", None)
        return cls(str(Path(script).absolute()) if script else "", tuple(sys.argv[1:]), _process, next(_ordinals))

    def is_of_script(self, header: LogHeader) -> bool:
        """Returns whether the header's job is of the same script, called with the same arguments."""
        return bool(self.script) and (header.script, tuple(header.arguments)) == (self.script, self.arguments)


def header_of(
    compiled: CompiledJob, options: Options, job_id: str, identity: JobIdentity, *, given: bytes, prints: list[Any]
) -> LogHeader:
    return LogHeader(
        format=FORMAT,
        firesteel=_version("firesteel"),
        versions={"python": platform.python_version(), **{name: _version(name) for name in _LIBRARIES[1:]}},
        job_id=job_id,
        job_name=compiled.job_graph.name,
        run=identity.run,
        ordinal=identity.ordinal,
        script=identity.script,
        arguments=list(identity.arguments),
        generation=1,
        plan=planned(compiled.job_graph, job_id, options),
        graph_digest=graph_digest(compiled.job_graph),
        given=given,
        prints=prints,
    )


def prints_of(compiled: CompiledJob) -> list[Any]:
    """The fingerprint of each vertex as plain data, with a digest of its splits as they are pickled: for inputs of which nobody can say
    more. Taken before sinks begin. Raises UsageError for a source whose ``fingerprint()`` does not work."""
    found: list[Any] = []
    for vertex, print_ in enumerate(_job_prints(compiled)):
        splits = hashlib.blake2b(dumps_splits(compiled.splits.get(vertex, ())), digest_size=16).digest()
        found.append([msgspec.to_builtins(print_, builtin_types=(bytes,)), splits])
    return found


def _job_prints(compiled: CompiledJob) -> list[VertexPrint]:
    try:
        return job_prints(compiled)
    except FiresteelError:
        raise
    except Exception:  # an object of the user's that cannot be looked at: the job runs, and is equal to no other
        _log.debug("'%s' has no fingerprints", compiled.job_graph.name, exc_info=True)
        return [VertexPrint(secrets.token_bytes(16), None, {}) for _ in compiled.job_graph.vertices]


def _changed(name: str, then: Any, now: Any) -> list[str]:
    """In which a vertex is not what it was, in sentences."""
    (old, old_splits), (new, new_splits) = then, now
    before, after = (msgspec.convert(print_, VertexPrint, builtin_types=(bytes,)) for print_ in (old, new))
    found = [f"'{name}' {sentence}" for sentence in facts.differences(before, after)]
    if not found and None in (before.input, after.input) and old_splits != new_splits:
        found.append(f"'{name}' reads something else")
    return found


def graph_digest(graph: JobGraph) -> bytes:
    """Of all that the scheduler reads of the job graph: everything but the programs."""
    plain = _plain(graph)
    return hashlib.blake2b(msgspec.msgpack.encode(plain, order="sorted"), digest_size=16).digest()


def _plain(value: Any) -> Any:
    match value:
        case Enum():
            plain: Any = [type(value).__name__, value.name]
        case np.ndarray():
            plain = [str(value.dtype), list(value.shape), value.tobytes()]
        case Mapping():
            plain = {str(key): _plain(inner) for key, inner in value.items()}
        case list() | tuple():
            plain = list(map(_plain, value))
        case set() | frozenset():
            plain = sorted(map(_plain, value))
        case None | str() | bytes() | int() | float():
            plain = value
        case _ if is_dataclass(value):
            named = [(one.name, getattr(value, one.name)) for one in fields(value) if one.name != "program"]
            plain = [type(value).__name__, *([name, _plain(inner)] for name, inner in named)]
        case _:  # if this differs from process to process, the job begins anew
            plain = [type(value).__name__, repr(value)]
    return plain


def differences(then: LogHeader, now: LogHeader) -> list[str]:
    """Returns in which the present job is not the one of the log, in sentences; empty: it is the same."""
    now = _as_read(now)
    found = [
        f"{name} {then.versions.get(name, 'none')} then, {other} now"
        for name, other in {"firesteel": now.firesteel, **now.versions}.items()
        if other != {"firesteel": then.firesteel, **then.versions}.get(name)
    ]
    before, after = then.plan.options, now.plan.options
    found += [
        f"{key} = {_shown(before, key)} then, {_shown(after, key)} now"
        for key in sorted({*before, *after})
        if before.get(key) != after.get(key) and not key.startswith(_NO_MATTER)
    ]
    if len(then.prints) == len(now.prints):
        pairs = zip(now.plan.vertices, then.prints, now.prints, strict=True)
        found += [sentence for vertex, *prints in pairs for sentence in _changed(vertex["name"], *prints)]
    if then.graph_digest != now.graph_digest and not found:
        found.append("it has other steps, or its sources have grown or shrunk")
    return found


def _as_read(header: LogHeader) -> LogHeader:
    """The header as it would be read again, with lists for tuples."""
    (read,) = decode_records(encode_records([header]))
    assert isinstance(read, LogHeader)
    return read


def _shown(options: Mapping[str, Any], key: str) -> str:
    return "unset" if key not in options else repr(options[key])


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
