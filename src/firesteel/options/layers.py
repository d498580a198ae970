"""The layers of options beside the program: environment variables, Spark's configuration, files; and their order.

The order, highest first: what is set on a step; ``options=``; the command line; environment variables ``FIRESTEEL_...``;
``spark.firesteel.<key>``; YAML files; defaults. ``Options.merged`` keeps it.
"""

from __future__ import annotations

import difflib
import os
import re
import warnings
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from firesteel.errors import UsageError
from firesteel.options import Layer, Options, Origin, lookup
from firesteel.options.registry import families, names_of_options
from firesteel.users_line import caller_level

PREFIX = "FIRESTEEL_"
CONFIG_VARIABLE = "FIRESTEEL_CONFIG"
SPARK_PREFIX = "spark.firesteel."
_OTHERS = frozenset(
    {
        CONFIG_VARIABLE,
        "FIRESTEEL_DEV",
        "FIRESTEEL_EXAMPLES",
        "FIRESTEEL_EXECUTOR_MEMORY",  # an executor's own, which may differ from machine to machine
        "FIRESTEEL_RUNTIME_DIRECTORY",
        "FIRESTEEL_SLOT_THREADS",
        "FIRESTEEL_STANDALONE_CLUSTER",
    }
)
"""Variables that are not options."""
_FOR_TESTS = ("FIRESTEEL_TEST", "FIRESTEEL_BENCH")
_PART = re.compile(r"<\w+>")
_warned: set[str] = set()


def variable_of(key: str) -> str:
    """The environment variable of an option's key: ``FIRESTEEL_RESULTS_CODEC`` for ``firesteel.results.codec``.

    In capitals, with ``_`` for every dot and dash, after ``FIRESTEEL_``; a leading ``firesteel.`` is left out.
    """
    return PREFIX + re.sub(r"[^A-Z0-9]", "_", key.removeprefix("firesteel.").upper())


def surroundings(environ: Mapping[str, str] | None = None, configs: Iterable[str] = ()) -> Options:
    """The options of every program started here: the environment over the files ``configs``, a later one over an earlier,
    over the file that FIRESTEEL_CONFIG names. Raises UsageError, naming the place, for what is wrong in one."""
    environ = os.environ if environ is None else environ
    found = read_environment(environ)
    named = environ.get(CONFIG_VARIABLE)
    files = [*([(named, CONFIG_VARIABLE)] if named else []), *((path, "--config") for path in configs)]
    for path, said in files:
        from firesteel.options.files import read_options  # YAML takes a while to load

        found = found.merged(read_options(path, said))
    return found


def read_environment(environ: Mapping[str, str]) -> Options:
    """Options of the variables ``FIRESTEEL_...``; an empty one is unset, one that names no option is warned of, once."""
    values: dict[str, str] = {}
    origins: dict[str, Origin] = {}
    for variable in sorted(environ):
        if not variable.startswith(PREFIX) or variable in _OTHERS or variable.startswith(_FOR_TESTS):
            continue
        key = _keys_by_variable().get(variable) or _member(variable)
        if key is None:
            _warn_unknown(f"environment variable '{variable}'", variable, _keys_by_variable())
        elif environ[variable].strip():
            if values.get(key, environ[variable]) != environ[variable]:
                raise UsageError(
                    f"'{origins[key].where}' and '{variable}' set the option '{key}' to different values.",
                    hint="Unset one of them.",
                )
            values[key] = environ[variable]
            origins[key] = Origin(Layer.ENVIRONMENT, variable)
    return Options(values, origins=origins)


@cache
def _keys_by_variable() -> dict[str, str]:
    """Of every name of an option whose variable no other option has; whole keys go over short ones."""
    named = names_of_options()
    found: dict[str, set[str]] = {}
    for name, option in named.items():
        found.setdefault(variable_of(name), set()).add(option.key)
    keys = {variable: next(iter(keys)) for variable, keys in found.items() if len(keys) == 1}
    # A deprecated key is kept, so that it is warned of.
    keys |= {variable_of(old): old for option in named.values() for old in option.deprecated_keys}
    return keys | {variable_of(option.key): option.key for option in named.values()}


def _member(variable: str) -> str | None:
    """The key of a family that a variable stands for: names in it are in small letters."""
    for family in families():
        first, *others = _PART.split(family.key)
        pattern = (
            variable_of(first) + "(.+)" + "([^_].*)".join(variable_of(text).removeprefix(PREFIX) for text in others)
        )
        match = re.fullmatch(pattern, variable)
        if match is not None:
            names = list(match.groups())
            return _PART.sub(lambda _, names=names: names.pop(0).lower(), family.key)
    return None


def read_spark_conf(pairs: Iterable[tuple[str, str]]) -> Options:
    """Options of ``spark.firesteel.<key>`` in Spark's configuration; one that names no option is warned of, once."""
    values: dict[str, Any] = {}
    origins: dict[str, Origin] = {}
    for name, value in sorted(pairs):
        if not name.startswith(SPARK_PREFIX):
            continue
        key = name.removeprefix(SPARK_PREFIX)
        try:
            lookup(key)
        except UsageError as error:
            _warn(f"There is no option '{key}', which Spark's configuration sets ('{name}'). {error.hint}", name)
            continue
        values[key] = value
        origins[key] = Origin(Layer.SPARK, name)
    return Options(values, origins=origins)


def _warn_unknown(what: str, name: str, known: Iterable[str]) -> None:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    hint = f"Did you mean '{close[0]}'?" if close else "'firesteel options' lists all of them."
    _warn(f"The {what} is not an option. {hint}", name)


def _warn(text: str, name: str) -> None:
    if name not in _warned:
        _warned.add(name)
        warnings.warn(text, UserWarning, stacklevel=caller_level())
