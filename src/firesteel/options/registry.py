"""The registry: options are kept, looked up, given values and printed. The syntax of values (sizes, durations, numbers, names) is here, too."""

from __future__ import annotations

import difflib
import math
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum, IntEnum
from typing import Any, Generic, TypeVar, overload

from firesteel.errors import UsageError

T = TypeVar("T")

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
_MOST = 1 << 63
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
        return _no_more_than_eib(value)
    match = _QUANTITY.match(str(value))
    if match is None or match[2].lower() not in _SIZE_UNITS:
        raise ValueError("a size such as '64 MiB', '1 GiB' or a number of bytes")
    unit = _SIZE_UNITS[match[2].lower()]
    # A float has 53 bits: whole numbers are taken as they are.
    return _no_more_than_eib(int(match[1]) * unit if match[1].isdigit() else round(min(float(match[1]), _MOST) * unit))


class TooLargeError(ValueError):
    """A size of so many bytes is more than any counter of ours holds."""

    def __init__(self, size: int) -> None:
        super().__init__("a size below 8 EiB")
        self.size = size


def _no_more_than_eib(size: int) -> int:
    if size >= _MOST:
        raise TooLargeError(size)
    return size


def parse_seconds(value: Any) -> float:
    """Seconds of ``"1 s"``, ``"500 ms"``, ``"2 min"``; a bare number is milliseconds, as in Flink. Raises ValueError."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    match = _QUANTITY.match(str(value))
    if match is None or match[2].lower() not in _TIME_UNITS:
        raise ValueError("a duration such as '500 ms', '1 s' or '2 min'")
    return float(match[1]) * _TIME_UNITS[match[2].lower()]


def parse_wait(value: Any) -> float:
    """Seconds; whatever is negative is -1: without limit."""
    text = str(value).strip()
    if text.startswith("-"):
        parse_seconds(text[1:])
        return -1.0
    return parse_seconds(value)


def parse_int(value: Any) -> int:
    if isinstance(value, bool) or not re.fullmatch(r"\s*[+-]?\d+\s*", str(value)):
        raise ValueError("a whole number")
    try:
        return int(value)
    except ValueError:  # Python refuses to read thousands of digits
        raise ValueError("a whole number of fewer digits") from None


def parse_number(value: Any) -> float:
    """``0.75``, ``"75%"``. Raises ValueError."""
    text = str(value).strip()
    try:
        number = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise ValueError("a number") from None
    if not math.isfinite(number):
        raise ValueError("a finite number")
    return number


def parse_bool(value: Any) -> bool:
    text = str(value).strip().lower()
    if text not in ("true", "false"):
        raise ValueError("true or false")
    return text == "true"


def parse_names(value: Any) -> tuple[str, ...]:
    """Dotted names out of ``"a.b, c"``, or of a list of them. Raises ValueError."""
    given: Any = value if isinstance(value, tuple | list) else str(value).split(",")
    names = tuple(name for one in given if (name := str(one).strip()))
    if not all(part.isidentifier() for name in names for part in name.split(".")):
        raise ValueError("names of modules or functions with commas between them")
    return names


class Scope(Enum):
    """Kinds of jobs in which an option has an effect."""

    BATCH = "batch jobs"
    STREAMS = "streams"
    BOTH = "batch jobs and streams"


_KINDS: dict[Callable[[Any], Any], str] = {
    parse_int: "int",
    parse_number: "float",
    parse_bool: "bool",
    parse_size: "size",
    parse_seconds: "duration",
    parse_wait: "duration",
    parse_names: "string",
    str: "string",
}


@dataclass(frozen=True)
class Option(Generic[T]):
    """``check`` returns a complaint ("must be at least 1") or None. A default of None means unset."""

    key: str
    parse: Callable[[Any], T]
    default: T
    doc: str
    aliases: tuple[str, ...] = ()
    """Other keys that mean the same, without a warning (today's Flink keys)."""
    deprecated_keys: tuple[str, ...] = ()
    """Older keys that mean the same; using one warns, once in a process."""
    check: Callable[[T], str | None] = lambda _value: None
    scope: Scope = Scope.BATCH
    streams_have: str = ""
    """The option for streams in the place of this one, which is for batch jobs."""

    @property
    def kind(self) -> str:
        """``int``, ``float``, ``bool``, ``size``, ``duration``, ``string``, or ``enum``: one of some names."""
        return _KINDS.get(self.parse, "enum")


def at_least(least: float, text: str | None = None) -> Callable[[Any], str | None]:
    def check(value: Any) -> str | None:
        if value is None or value >= least:
            return None
        return f"must be at least {text or least}" if least else "must not be negative"

    return check


def is_share(value: float) -> str | None:
    return None if 0 <= value <= 1 else "must be between 0 and 1"


Default = TypeVar("Default")

_REGISTRY: dict[str, Option[Any]] = {}
_NAMES: dict[str, Option[Any]] = {}
_FAMILIES: list[Option[Any]] = []
"""Options of which there is one for each ``<name>`` that a user puts into the key."""
REMOVED: dict[str, str] = {}
"""By the key of an option that there was once, what to do now. Setting it warns, once in a process."""
_PART = re.compile(r"<\w+>")


def register(option: Option[T]) -> Option[T]:
    """Its key and other names must be new. A key with ``<name>`` stands for as many options as there are names."""
    if _PART.search(option.key):
        _FAMILIES.append(option)
        _FAMILIES.sort(key=lambda family: -len(_PART.findall(family.key)))
        _REGISTRY[option.key] = option
        return option
    for key in (option.key, *option.aliases, *option.deprecated_keys):
        assert key not in _NAMES, key
        _NAMES[key] = option
    _REGISTRY[option.key] = option
    return option


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """Makes options whose values ``parse`` reads, for jobs of this ``scope``."""

    parse: Callable[[Any], T]
    scope: Scope = Scope.BATCH

    def of(self, scope: Scope) -> Kind[T]:
        return Kind(self.parse, scope)

    def __call__(
        self,
        key: str,
        default: Default,
        doc: str,
        *,
        aliases: tuple[str, ...] = (),
        deprecated_keys: tuple[str, ...] = (),
        check: Callable[[Any], str | None] = lambda _value: None,
        streams_have: str = "",
    ) -> Option[T | Default]:
        """Registers a new option; its fields are those of ``Option``."""
        return register(
            Option[T | Default](
                key, self.parse, default, doc, aliases, deprecated_keys, check, self.scope, streams_have
            )
        )


switch, whole, number = Kind(parse_bool), Kind(parse_int), Kind(parse_number)
size, seconds, text, names = Kind(parse_size), Kind(parse_seconds), Kind(str), Kind(parse_names)


def one_of(*names: str, also: Mapping[str, str] | None = None) -> Kind[str]:
    """One of these names, whatever its case; ``also``: other words (in lower case) for some of them."""
    by_lower = {n.lower(): n for n in names} | dict(also or {})

    def parse(value: Any) -> str:
        try:
            return by_lower[str(value).strip().lower()]
        except KeyError:
            raise ValueError(f"one of {', '.join(names)}") from None

    return Kind(parse)


def remove(key: str, instead: str) -> None:
    """``instead``: what to do now, a sentence."""
    REMOVED[key] = instead
    _NAMES[key] = Option(key, str, "", instead)


class Layer(IntEnum):
    """The layers that a value can come from; the higher goes over the lower. (What is set on a single step goes over all.)"""

    DEFAULT = 0
    FILE = 1
    """A YAML file."""
    SPARK = 2
    """``spark.firesteel.<key>`` in Spark's configuration."""
    ENVIRONMENT = 3
    """``FIRESTEEL_...``."""
    COMMAND = 4
    """``-O`` and other flags of the command line."""
    PROGRAM = 5
    """``options=``."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of one value: ``where`` in words, such as "firesteel.yaml, line 3" or "FIRESTEEL_MAX_PARALLELISM"."""

    layer: Layer
    where: str

    def named(self) -> str:
        """For a message about the value: " (from ...)"; nothing where the message stands beside the value anyway."""
        return f" (from {self.where})" if self.layer in (Layer.SPARK, Layer.ENVIRONMENT) else ""


IN_PROGRAM = Origin(Layer.PROGRAM, "options=")
ON_COMMAND_LINE = Origin(Layer.COMMAND, "-O")
BY_DEFAULT = Origin(Layer.DEFAULT, "default")


class Options(Mapping[str, Any]):
    """Values given by the user over the registry's defaults. Immutable; ``options[OPTION]`` is typed.

    As a mapping it holds what was set, under canonical keys; a value of None means unset. Each value knows its
    ``origin``: of all that are given at once, ``origin``, or that of its key (as given) in ``origins``. Raises UsageError for
    an unknown key, a bad value, and for one option set twice by different names.
    """

    def __init__(
        self,
        values: Mapping[str, Any] | None = None,
        origin: Origin = IN_PROGRAM,
        *,
        origins: Mapping[str, Origin] | None = None,
    ) -> None:
        self._values: dict[str, Any] = {}
        self._origins: dict[str, Origin] = {}
        if isinstance(values, Options):  # parsed already: a duration is seconds by now
            self._values.update(values._values)
            self._origins.update(values._origins)
            return
        given: dict[str, str] = {}
        for key, value in _pairs(values):
            option = lookup(key)
            _warn_if_old(option, key)
            if value is None or option.key in REMOVED:
                continue
            own = origin if origins is None else origins.get(key, origin)
            parsed = _parse(option, key, value, own)
            if self._values.setdefault(option.key, parsed) != parsed:
                raise UsageError(
                    f"Option '{option.key}' is set twice, as '{given[option.key]}' and as '{key}', to different values.",
                    hint="Leave one out.",
                )
            self._origins.setdefault(option.key, own)
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
        """Returns these options and ``values`` over them, by any of their names."""
        over = Options(values)
        merged = Options()
        merged._values = {**self._values, **over._values}
        merged._origins = {**self._origins, **over._origins}
        return merged

    def merged(self, other: Options) -> Options:
        """Returns these options and ``other``: of an option that both have, the value of the higher layer; of one layer, that of ``other``."""
        wins = {k for k, o in other._origins.items() if k not in self._origins or o.layer >= self._origins[k].layer}
        merged = Options(self)
        merged._values.update((key, other._values[key]) for key in wins)
        merged._origins.update((key, other._origins[key]) for key in wins)
        return merged

    def without(self, keys: Iterable[str]) -> Options:
        """Returns these options, with those of ``keys`` left unset."""
        left = Options(self)
        for key in map(lookup, keys):
            left._values.pop(key.key, None)
            left._origins.pop(key.key, None)
        return left

    def origin(self, option: Option[Any] | str) -> Origin:
        """Returns the origin of an option's value."""
        key = option.key if isinstance(option, Option) else lookup(option).key
        return self._origins.get(key, BY_DEFAULT)

    def members(self, family: Option[T]) -> dict[tuple[str, ...], T]:
        """The values set of a family of options, by the texts in the place of its ``<name>`` parts."""
        found = ((parts_of(family, key), value) for key, value in self._values.items() if lookup_family(key) is family)
        return {parts: value for parts, value in found if parts is not None}

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
        raise UsageError(
            f"The key of an option is a string, not {odd!r}.", hint="'firesteel options' lists all of them."
        )
    return list((values or {}).items())


def lookup(key: str) -> Option[Any]:
    """The option of this key, alias, deprecated key or unambiguous short name. Raises UsageError with "did you mean"."""
    if key in _NAMES:
        return _NAMES[key]
    family = lookup_family(key)
    if family is not None:
        return replace(family, key=key)
    short = {o.key: o for name, o in _NAMES.items() if name.endswith("." + key)}
    if len(short) == 1:
        return next(iter(short.values()))
    if short:
        raise UsageError(
            f"The option name '{key}' is ambiguous: {', '.join(sorted(short))}.", hint="Write the whole key."
        )
    close = _members_like(key) or difflib.get_close_matches(
        key, [*_NAMES, *(n.rsplit(".", 1)[-1] for n in _NAMES)], n=1, cutoff=0.6
    )
    raise UsageError(
        f"There is no option '{key}'.",
        hint=f"Did you mean '{close[0]}'?" if close else "'firesteel options' lists all of them.",
    )


def lookup_family(key: str) -> Option[Any] | None:
    """The family that an option of this key belongs to; of several the one with more parts."""
    return next((family for family in _FAMILIES if parts_of(family, key) is not None), None)


def parts_of(family: Option[Any], key: str) -> tuple[str, ...] | None:
    """The texts in ``key`` in the place of the ``<name>`` parts of the family's key (only the first may hold dots); None: no member."""
    if key == family.key:
        return None
    first, *others = _PART.split(family.key)
    pattern = re.escape(first) + "(.+)" + "([^.]+)".join(re.escape(text) for text in others)
    match = re.fullmatch(pattern, key)
    return None if match is None else match.groups()


def _members_like(key: str) -> list[str]:
    """The member of a family that may be meant by a key that is none."""
    head, _, rest = key.partition(".")
    first, _, last = rest.rpartition(".")
    candidates: list[str] = []
    for family in _FAMILIES:
        if key == family.key.rsplit(".", 1)[-1]:
            return [family.key]
        known = difflib.get_close_matches(head, [family.key.split(".", 1)[0]], cutoff=0.8)
        names = [name for name in (first.split(".", 1)[0] or last, last if "." in first else "") if name]
        if known and rest and len(_PART.findall(family.key)) <= len(names):
            candidates.append(_PART.sub(lambda _, names=names: names.pop(0), family.key))
    return difflib.get_close_matches(key, candidates, n=1, cutoff=0.0)


_warned: set[str] = set()


def _warn_if_old(option: Option[Any], key: str) -> None:
    if key in _warned or not (key in option.deprecated_keys or option.key in REMOVED):
        return
    _warned.add(key)
    said = (
        f"is deprecated; write '{option.key}'."
        if option.key not in REMOVED
        else f"has no effect any more. {option.doc}"
    )
    warnings.warn(f"Option '{key}' {said}", FutureWarning, stacklevel=3)


def _parse(option: Option[T], key: str, value: Any, origin: Origin) -> T:
    said = f"Option '{key}' = {value!r}{origin.named()}"
    try:
        parsed = option.parse(value)
    except ValueError as error:
        if _is_negative(option, value):
            raise UsageError(f"{said} must not be negative.") from None
        raise UsageError(f"{said} is not {error}.") from None
    complaint = option.check(parsed)
    if complaint is not None:
        raise UsageError(f"{said} {complaint}.")
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


def names_of_options() -> dict[str, Option[Any]]:
    """Every key, alias, deprecated key and unambiguous short name (the last part of a key) of an option; no families."""
    short: dict[str, set[str]] = {}
    for name, option in _NAMES.items():
        if option.key in REMOVED:
            continue
        short.setdefault(name.rsplit(".", 1)[-1], set()).add(option.key)
    found = {name: _REGISTRY[next(iter(keys))] for name, keys in short.items() if len(keys) == 1}
    return found | _NAMES


def families() -> list[Option[Any]]:
    """Options with ``<name>`` in their keys, those with more parts first."""
    return list(_FAMILIES)


def all_options() -> list[Option[Any]]:
    return list(_REGISTRY.values())


def format_value(option: Option[Any], value: Any) -> str:
    """A value as one would write it: ``64 MiB``, ``1 s``, ``true``; ``unset`` for None."""
    if value is None:
        return "unset"
    if option.kind in ("size", "duration") and not value:
        return "0"
    if isinstance(value, tuple):
        return ",".join(value)
    if option.kind == "size":
        unit, name = next((u, n) for u, n in ((GIB, " GiB"), (MIB, " MiB"), (KIB, " KiB"), (1, " B")) if value % u == 0)
        return f"{value // unit}{name}"
    if option.kind == "duration":
        return f"{value * 1000:g} ms" if value < 1 else f"{value:g} s"
    return str(value).lower() if option.kind == "bool" else str(value)


def written(key: str, value: Any) -> tuple[Option[Any] | None, str]:
    """An option and its value as one would write it; None: this version does not know the option, or cannot read the value."""
    try:
        option = lookup(key)
        return option, format_value(option, option.parse(value) if isinstance(value, str) else value)
    except (UsageError, TypeError, ValueError):
        return None, str(value)
