"""The one registry of options: key, type, default, doc, deprecated keys. ``docs/options.md`` is generated from it.

Keys of the seed designs are kept word for word; today's Flink keys are aliases; what only Firesteel has is under
``firesteel.``. A short name (the last part of a key) is understood wherever it is unambiguous.
"""

from __future__ import annotations

import difflib
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar, overload

from firesteel.errors import UsageError

T = TypeVar("T")

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
_SIZE_UNITS = {
    "": 1,
    "b": 1,
    "k": KIB,
    "kb": KIB,
    "kib": KIB,
    "m": MIB,
    "mb": MIB,
    "mib": MIB,
    "g": GIB,
    "gb": GIB,
    "gib": GIB,
    "t": GIB << 10,
    "tb": GIB << 10,
    "tib": GIB << 10,
}
_TIME_UNITS = {"": 0.001, "ms": 0.001, "s": 1.0, "sec": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_QUANTITY = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*$")


def parse_size(value: Any) -> int:
    """Bytes of ``"16 MiB"``, ``"1g"``, ``4096`` (KB, MB, GB are binary, as in Flink). Raises ValueError."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = _QUANTITY.match(str(value))
    if match is None or match[2].lower() not in _SIZE_UNITS:
        raise ValueError("a size such as '64 MiB', '1 GiB' or a number of bytes")
    return round(float(match[1]) * _SIZE_UNITS[match[2].lower()])


def parse_seconds(value: Any) -> float:
    """Seconds of ``"1 s"``, ``"500 ms"``, ``"2 min"``; a bare number is milliseconds, as in Flink. Raises ValueError."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    match = _QUANTITY.match(str(value))
    if match is None or match[2].lower() not in _TIME_UNITS:
        raise ValueError("a duration such as '500 ms', '1 s' or '2 min'")
    return float(match[1]) * _TIME_UNITS[match[2].lower()]


def _parse_int(value: Any) -> int:
    if isinstance(value, bool) or not re.fullmatch(r"\s*[+-]?\d+\s*", str(value)):
        raise ValueError("a whole number")
    return int(value)


def _parse_bool(value: Any) -> bool:
    text = str(value).strip().lower()
    if text not in ("true", "false"):
        raise ValueError("true or false")
    return text == "true"


def one_of(*names: str) -> Callable[[Any], str]:
    by_lower = {n.lower(): n for n in names}

    def parse(value: Any) -> str:
        try:
            return by_lower[str(value).strip().lower()]
        except KeyError:
            raise ValueError(f"one of {', '.join(names)}") from None

    return parse


@dataclass(frozen=True)
class Option(Generic[T]):
    """``check`` returns a complaint ("must be at least 1") or None. A default of None means unset."""

    key: str
    parse: Callable[[Any], T]
    default: T
    doc: str
    kind: str
    aliases: tuple[str, ...] = ()
    """Other keys that mean the same, without a warning (today's Flink keys)."""
    deprecated_keys: tuple[str, ...] = ()
    """Older keys that mean the same; using one warns, once in a process."""
    check: Callable[[T], str | None] = lambda _value: None


_REGISTRY: dict[str, Option[Any]] = {}
_NAMES: dict[str, Option[Any]] = {}


def _register(option: Option[T]) -> Option[T]:
    for key in (option.key, *option.aliases, *option.deprecated_keys):
        assert key not in _NAMES, key
        _NAMES[key] = option
    _REGISTRY[option.key] = option
    return option


def _at_least(least: float, text: str | None = None) -> Callable[[Any], str | None]:
    def check(value: Any) -> str | None:
        if value is None or value >= least:
            return None
        return f"must be at least {text or least}" if least else "must not be negative"

    return check


_AB = "jobmanager.adaptive-batch-scheduler."
_AUTO = "execution.batch.adaptive.auto-parallelism."

SCHEDULER = _register(
    Option(
        "jobmanager.scheduler",
        one_of("AdaptiveBatch", "Default", "Adaptive"),
        "AdaptiveBatch",
        "Which scheduler runs a job. AdaptiveBatch decides each step's parallelism from the bytes its inputs produced; Default uses parallelisms known beforehand; Adaptive is for streams.",
        "enum",
    )
)
BATCH_SHUFFLE_MODE = _register(
    Option(
        "execution.batch-shuffle-mode",
        one_of("ALL_EXCHANGES_BLOCKING", "ALL_EXCHANGES_PIPELINED"),
        "ALL_EXCHANGES_BLOCKING",
        "How results travel between steps. ALL_EXCHANGES_BLOCKING stores them, and parallelism is decided from what was stored. ALL_EXCHANGES_PIPELINED, with jobmanager.scheduler = Default only, runs both ends of a forward edge in the same tasks, one pulling the other's batches; any other exchange is refused, for Spark's tasks cannot stream to each other. A forward edge whose reader cannot stream is stored all the same, and explain says why.",
        "enum",
    )
)
MIN_PARALLELISM = _register(
    Option(
        _AB + "min-parallelism",
        _parse_int,
        1,
        "Lower bound of a parallelism that is decided adaptively.",
        "int",
        aliases=(_AUTO + "min-parallelism",),
        check=_at_least(1),
    )
)
MAX_PARALLELISM = _register(
    Option(
        _AB + "max-parallelism",
        _parse_int,
        128,
        "Upper bound of a parallelism that is decided adaptively. Do not set it far above what the cluster can run: every producer writes max-parallelism times firesteel.subpartition-factor subpartitions.",
        "int",
        aliases=(_AUTO + "max-parallelism",),
        check=_at_least(1),
    )
)
DATA_VOLUME_PER_TASK = _register(
    Option(
        _AB + "data-volume-per-task",
        parse_size,
        64 * MIB,
        "Bytes (plain, uncompressed) that a subtask is expected to process.",
        "size",
        aliases=(_AUTO + "avg-data-volume-per-task", _AB + "avg-data-volume-per-task"),
        check=_at_least(1, "1 byte"),
    )
)
DEFAULT_SOURCE_PARALLELISM = _register(
    Option[int | None](
        _AB + "default-source-parallelism",
        _parse_int,
        None,
        "Parallelism of a source that cannot infer its own, and the upper bound of what a source infers. Unset: max-parallelism.",
        "int",
        aliases=(_AUTO + "default-source-parallelism",),
        check=_at_least(1),
    )
)
PARALLELISM_DEFAULT = _register(
    Option[int | None](
        "parallelism.default",
        _parse_int,
        None,
        "Parallelism of every step that sets none, under the Default scheduler. Under AdaptiveBatch it caps the decided parallelism unless max-parallelism is set explicitly, as in Flink.",
        "int",
        check=_at_least(1),
    )
)
CUT = _register(
    Option(
        "firesteel.decider.cut",
        one_of("by-bytes", "by-count"),
        "by-bytes",
        "How a step's input is cut into ranges. by-bytes: contiguous ranges whose largest is as small as can be; by-count: FLIP-187's formula, powers of two, equally many subpartitions each.",
        "enum",
    )
)
MAX_SLICES_PER_SUBTASK = _register(
    Option(
        "firesteel.decider.max-slices-per-subtask",
        _parse_int,
        32768,
        "Upper bound of the (producer, subpartition) slices one subtask reads; more subtasks are made rather than exceed it.",
        "int",
        check=_at_least(1),
    )
)
SUBPARTITION_FACTOR = _register(
    Option(
        "firesteel.subpartition-factor",
        _parse_int,
        2,
        "Subpartitions of a result per possible consumer subtask. More give the balancer finer pieces, at a price: 2 was as even as 4 and about a tenth faster where it was measured.",
        "int",
        check=_at_least(1),
    )
)
CODEC = _register(
    Option(
        "firesteel.results.codec", one_of("lz4", "zstd", "none"), "lz4", "Compression of results between steps.", "enum"
    )
)
STORAGE_DIR = _register(
    Option[str | None](
        "firesteel.storage.directory",
        str,
        None,
        "Where results between steps are stored: a path or a URL that pyarrow can open and every executor sees. Unset: a private directory under the machine's temporary directory, on local masters only.",
        "string",
    )
)
STORAGE_FILESYSTEM = _register(
    Option[str | None](
        "firesteel.storage.filesystem",
        str,
        None,
        "A function, as 'module:function', that opens the storage of results between steps instead of pyarrow: it is given the path in firesteel.storage.directory and returns a pyarrow FileSystem (or one of fsspec). Executors must be able to import it.",
        "string",
    )
)
MERGE_THRESHOLD = _register(
    Option(
        "firesteel.merge.threshold",
        parse_size,
        256 * KIB,
        "Small outputs of producers are merged before they are read where the mean slice that a consumer reads of a producer is smaller, if that saves at least twice what it costs. 0: never.",
        "size",
        check=_at_least(0),
    )
)
MERGE_REQUEST_TIME = _register(
    Option[float | None](
        "firesteel.merge.request-time",
        parse_seconds,
        None,
        "What asking the storage for one slice takes, when it is decided whether merging saves time. Unset: measured when the job starts.",
        "duration",
        check=_at_least(0),
    )
)
MEMORY_PER_TASK = _register(
    Option[int | None](
        "firesteel.memory.per-task",
        parse_size,
        None,
        "Bytes that the readers, operators and writers of one task hold before they spill. Unset: half the memory the machine or container leaves beside the JVM heap, divided by the task slots; never more than 1 GiB.",
        "size",
        check=_at_least(1 * MIB, "1 MiB"),
    )
)
MAX_COLLECT_BYTES = _register(
    Option(
        "firesteel.max-collect-bytes",
        parse_size,
        1 * GIB,
        "Most plain bytes that collect, to_arrow, to_pandas bring to the driver.",
        "size",
        check=_at_least(1),
    )
)
OFFLOAD_THRESHOLD = _register(
    Option(
        "firesteel.deployment.offload-threshold",
        parse_size,
        8 * MIB,
        "The descriptor of a consumed result travels as a blob, fetched once per executor, when its encoded bytes times its consumers reach this. Flink counts partitions times consumers (4,194,304); a partition takes one or two bytes here.",
        "size",
        check=_at_least(1, "1 byte"),
    )
)
BLOB_CACHE_BYTES = _register(
    Option(
        "firesteel.executor.blob-cache-size",
        parse_size,
        256 * MIB,
        "Most bytes of blobs that an executor keeps on its local disk; the least recently used go first.",
        "size",
        check=_at_least(0),
    )
)
RESTART_STRATEGY = _register(
    Option(
        "restart-strategy.type",
        one_of("none", "fixed-delay"),
        "fixed-delay",
        "What happens when an execution fails: none fails the job, fixed-delay tries again.",
        "enum",
        deprecated_keys=("restart-strategy",),
    )
)
RESTART_ATTEMPTS = _register(
    Option(
        "restart-strategy.fixed-delay.attempts",
        _parse_int,
        3,
        "Restarts before the job fails.",
        "int",
        check=_at_least(0),
    )
)
RESTART_DELAY = _register(
    Option(
        "restart-strategy.fixed-delay.delay",
        parse_seconds,
        1.0,
        "Pause before a restart.",
        "duration",
        check=_at_least(0),
    )
)
RELEASE_DURING_JOB_EXECUTION = _register(
    Option(
        "jobmanager.partition.release-during-job-execution",
        _parse_bool,
        True,
        "Delete what a step wrote as soon as the last subtask that reads it has finished. false keeps everything until the job has finished: a restart then repeats less, and the storage holds more.",
        "bool",
    )
)
JOURNAL_DIR = _register(
    Option[str | None](
        "firesteel.journal.directory",
        str,
        None,
        "Where journals are kept, one file per job. Unset: .firesteel/journal under the working directory.",
        "string",
    )
)
PROGRESS = _register(
    Option(
        "firesteel.progress",
        _parse_bool,
        True,
        "Show progress while a job runs (a live view on a terminal, plain lines elsewhere).",
        "bool",
    )
)


class Options(Mapping[str, Any]):
    """Values given by the user over the registry's defaults. Immutable; ``options[OPTION]`` is typed.

    As a mapping it holds what was set, under canonical keys; a value of None means unset. Raises UsageError for an
    unknown key, a bad value, and for one option set twice by different names.
    """

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        self._values: dict[str, Any] = {}
        if isinstance(values, Options):  # parsed already: a duration is seconds by now
            self._values.update(values._values)
            return
        given: dict[str, str] = {}
        for key, value in _pairs(values):
            option = lookup(key)
            _warn_if_deprecated(option, key)
            if value is None:
                continue
            parsed = _parse(option, key, value)
            if self._values.setdefault(option.key, parsed) != parsed:
                raise UsageError(
                    f"Option '{option.key}' is set twice, as '{given[option.key]}' and as '{key}', to different values.",
                    hint="Leave one out.",
                )
            given[option.key] = key

    @overload
    def __getitem__(self, option: Option[T]) -> T: ...
    @overload
    def __getitem__(self, option: str) -> Any: ...
    def __getitem__(self, option: Any) -> Any:
        if not isinstance(option, Option):
            option = lookup(option)
        return self._values.get(option.key, option.default)

    def is_set(self, option: Option[Any]) -> bool:
        return option.key in self._values

    def with_values(self, values: Mapping[str, Any]) -> Options:
        """These and ``values`` over them, by whatever names."""
        merged = Options()
        merged._values = {**self._values, **Options(values)._values}
        return merged

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and lookup(key).key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Options({self._values!r})"


def _pairs(values: Any) -> list[tuple[str, Any]]:
    if not isinstance(values, Mapping | None):
        raise UsageError(
            f"Options are values by key, not a {type(values).__name__}.",
            hint='Write, for example, options={"max-parallelism": 16}.',
        )
    odd = next((key for key in values or () if not isinstance(key, str)), None)
    if odd is not None:
        raise UsageError(f"The key of an option is a string, not {odd!r}.", hint="See docs/options.md for all of them.")
    return list((values or {}).items())


def lookup(key: str) -> Option[Any]:
    """The option of this key, alias, deprecated key or unambiguous short name. Raises UsageError with "did you mean"."""
    if key in _NAMES:
        return _NAMES[key]
    short = {o.key: o for name, o in _NAMES.items() if name.endswith("." + key)}
    if len(short) == 1:
        return next(iter(short.values()))
    if short:
        raise UsageError(
            f"The option name '{key}' is ambiguous: {', '.join(sorted(short))}.", hint="Write the whole key."
        )
    close = difflib.get_close_matches(key, [*_NAMES, *(n.rsplit(".", 1)[-1] for n in _NAMES)], n=1, cutoff=0.6)
    raise UsageError(
        f"There is no option '{key}'.",
        hint=f"Did you mean '{close[0]}'?" if close else "See docs/options.md for all of them.",
    )


_warned: set[str] = set()


def _warn_if_deprecated(option: Option[Any], key: str) -> None:
    if key in option.deprecated_keys and key not in _warned:
        _warned.add(key)
        warnings.warn(f"Option '{key}' is deprecated; write '{option.key}'.", FutureWarning, stacklevel=3)


def _parse(option: Option[T], key: str, value: Any) -> T:
    try:
        parsed = option.parse(value)
    except ValueError as error:
        if _is_negative(option, value):
            raise UsageError(f"Option '{key}' = {value!r} must not be negative.") from None
        raise UsageError(f"Option '{key}' = {value!r} is not {error}.") from None
    complaint = option.check(parsed)
    if complaint is not None:
        raise UsageError(f"Option '{key}' = {value!r} {complaint}.")
    return parsed


def _is_negative(option: Option[Any], value: Any) -> bool:
    """A size or duration with a minus before it."""
    text = str(value).strip()
    if option.kind not in ("size", "duration") or not text.startswith("-"):
        return False
    try:
        option.parse(text[1:])
    except ValueError:
        return False
    return True


def all_options() -> list[Option[Any]]:
    return list(_REGISTRY.values())


def format_value(option: Option[Any], value: Any) -> str:
    """A value as one would write it: ``64 MiB``, ``1 s``, ``true``; ``unset`` for None."""
    if value is None:
        return "unset"
    if option.kind in ("size", "duration") and not value:
        return "0"
    if option.kind == "size":
        unit, name = next((u, n) for u, n in ((GIB, " GiB"), (MIB, " MiB"), (KIB, " KiB"), (1, " B")) if value % u == 0)
        return f"{value // unit}{name}"
    if option.kind == "duration":
        return f"{value * 1000:g} ms" if value < 1 else f"{value:g} s"
    return str(value).lower() if option.kind == "bool" else str(value)
