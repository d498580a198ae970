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
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from firesteel.compile.compiled import CompiledJob
from firesteel.compile.identity import facts
from firesteel.compile.identity.facts import VertexPrint
from firesteel.compile.identity.prints import JobPrints
from firesteel.errors import FiresteelError
from firesteel.model.job_graph import JobGraph
from firesteel.options import RESULTS_PURE, Options
from firesteel.scheduler.recovery.records import FORMAT, LogHeader, decode_records, encode_records
from firesteel.scheduler.topology.planned import planned
from firesteel.spark.driver.serialise import dumps_splits
from firesteel.spark.storage.directories import Place

_LIBRARIES = ("firesteel", "numpy", "pyarrow", "pyspark")
_NO_MATTER = (
    *("firesteel.progress", "firesteel.ui.", "rest.", "firesteel.journal.", "firesteel.recovery."),
    *("firesteel.results.retain", "firesteel.results.reuse", "firesteel.results.pure"),
)
"""Options that change neither rows nor decisions."""
_log = logging.getLogger("firesteel.recovery")
_process = uuid.uuid4().hex[:12]
_ordinals = itertools.count()


@dataclass(frozen=True, slots=True)
class Before:
    """All that a job has of earlier ones. ``at``: where its clock begins; ``after``: the job that it goes on from; ``uses``: those whose results it uses;
    empty: none."""

    at: float = 0.0
    after: str = ""
    uses: tuple[str, ...] = ()


FROM_NOTHING = Before()


def main_script() -> str:
    """Returns the path of the script that this process runs; empty: none, as in a notebook."""
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    return str(Path(script).absolute()) if script else ""


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
        return cls(main_script(), tuple(sys.argv[1:]), _process, next(_ordinals))

    def place(self, graph: JobGraph) -> Place:
        """Among the runs of its script and the jobs of its process. What is typed in is of no script."""
        here = _name_of(self.run, graph.name, *(vertex.name for vertex in graph.vertices))
        of_script = _name_of(self.script, *self.arguments, str(self.ordinal), graph.name)
        return Place(of_script if self.script else here, here)

    def is_of_script(self, header: LogHeader) -> bool:
        """Returns whether the header's job is of the same script, called with the same arguments."""
        return bool(self.script) and (header.script, tuple(header.arguments)) == (self.script, self.arguments)


def _name_of(*parts: str) -> str:
    return hashlib.blake2b("\0".join(parts).encode(errors="replace"), digest_size=12).hexdigest()


def header_of(
    compiled: CompiledJob,
    options: Options,
    job_id: str,
    identity: JobIdentity,
    *,
    given: bytes,
    prints: list[Any],
    before: Before = FROM_NOTHING,
) -> LogHeader:
    return LogHeader(
        format=FORMAT,
        firesteel=_version("firesteel"),
        versions=_versions(),
        job_id=job_id,
        job_name=compiled.job_graph.name,
        run=identity.run,
        ordinal=identity.ordinal,
        script=identity.script,
        arguments=list(identity.arguments),
        plan=planned(compiled.job_graph, job_id, options, at=before.at, after=before.after, uses=before.uses),
        graph_digest=graph_digest(compiled.job_graph),
        given=given,
        prints=prints,
    )


@dataclass(frozen=True, slots=True)
class Prints:
    """``plain``: the fingerprint of each vertex as plain data, with a digest of its splits as they are pickled: for inputs of which nobody
    can say more. ``job``: gives those of programs that are made later; None: nobody could look at all of them."""

    plain: list[Any]
    job: JobPrints | None


NO_PRINTS = Prints([], None)


def prints_of(compiled: CompiledJob, options: Options) -> Prints:
    """Taken before sinks begin. Raises UsageError for a source whose ``fingerprint()`` does not work."""
    job = _job_prints(compiled, options)
    unlike = [VertexPrint(secrets.token_bytes(16), None, {}) for _ in compiled.job_graph.vertices]
    found: list[Any] = []
    for vertex, print_ in enumerate(unlike if job is None else job.vertices):
        splits = hashlib.blake2b(dumps_splits(compiled.splits.get(vertex, ())), digest_size=16).digest()
        found.append([msgspec.to_builtins(print_, builtin_types=(bytes,)), splits])
    return Prints(found, job)


def _job_prints(compiled: CompiledJob, options: Options) -> JobPrints | None:
    try:
        return JobPrints(compiled, pure=options[RESULTS_PURE] or ())
    except FiresteelError:
        raise
    except Exception:  # an object of the user's that cannot be looked at: the job runs, and is equal to no other
        _log.debug("'%s' has no fingerprints", compiled.job_graph.name, exc_info=True)
        return None


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
    found = _changed_versions(then, {"firesteel": now.firesteel, **now.versions})
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


def other_versions(then: LogHeader) -> list[str]:
    """Returns in which this process is not as the log's was, whatever its job is, in sentences."""
    here = {"firesteel": _version("firesteel"), **_versions()}
    return _changed_versions(then, here)


def _changed_versions(then: LogHeader, now: Mapping[str, str]) -> list[str]:
    before = {"firesteel": then.firesteel, **then.versions}
    return [
        f"{name} {before.get(name, 'none')} then, {other} now"
        for name, other in now.items()
        if other != before.get(name)
    ]


def _versions() -> dict[str, str]:
    """Of Python and the libraries that matter."""
    return {"python": platform.python_version(), **{name: _version(name) for name in _LIBRARIES[1:]}}


def _as_read(header: LogHeader) -> LogHeader:
    """The header as it would be read again, with lists for tuples."""
    (read,) = decode_records(encode_records([header]))
    assert isinstance(read, LogHeader)
    return read


def _shown(options: Mapping[str, Any], key: str) -> str:
    return "unset" if key not in options else repr(options[key])


def _version(package: str) -> str:
    try:
        return _installed_version(package)
    except PackageNotFoundError:  # it may be installed while the process runs
        return ""


_installed_version = cache(version)
"""Reading a package's metadata takes milliseconds, of each of them for each job."""
