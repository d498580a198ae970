"""Options from a YAML file: dotted keys, nested mappings, or both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import yaml

from firesteel.errors import UsageError
from firesteel.options import Layer, Options, Origin

_NULL = "tag:yaml.org,2002:null"


def read_options(path: str, said: str = "--config") -> Options:
    """Options of a YAML file. Values mean what they mean behind -O (``off`` is not a boolean); nothing or null: unset. ``said``: what
    named the file.

    Raises UsageError, with the line, for a file that cannot be read, is not YAML or no mapping, for a key that is there
    twice or is not an option, and for a bad value.
    """
    values: dict[str, str | None] = {}
    origins: dict[str, Origin] = {}
    lines: dict[str, int] = {}
    root = _root(path, said)
    for key, node in () if root is None else _leaves(path, root):
        line = node.start_mark.line + 1
        if key in lines:
            raise UsageError(f"{path}, line {line}: '{key}' is in line {lines[key]} already.", hint="Leave one out.")
        values[key], lines[key] = _value(path, key, node), line
        origins[key] = Origin(Layer.FILE, f"{path}, line {line}")
        _options({key: values[key]}, f"{path}, line {line}", origins)
    return _options(values, path, origins)


def _options(values: dict[str, str | None], where: str, origins: dict[str, Origin]) -> Options:
    try:
        return Options(values, origins=origins)
    except UsageError as error:
        raise UsageError(f"{where}: {error.message}", hint=error.hint) from None


def _root(path: str, said: str) -> yaml.MappingNode | None:
    """None: the file is empty."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(f"There is no file '{path}'.", hint=f"Give {said} the path of a YAML file.") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not text in UTF-8.", hint=f"Give {said} the path of a YAML file.") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from None
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = "" if mark is None else f", line {mark.line + 1}, column {mark.column + 1}"
        what = ", ".join(part for part in (error.context, error.problem) if part)
        raise UsageError(f"{path}{line}: this is not YAML: {what}.") from None
    except yaml.YAMLError as error:
        raise UsageError(f"{path} is not YAML: {str(error).splitlines()[0]}.") from None
    if root is None or isinstance(root, yaml.MappingNode):
        return root
    raise UsageError(
        f"{path}, line {root.start_mark.line + 1}: options are values by key, not a {_kind(root)}.",
        hint="Write lines such as 'max-parallelism: 16'.",
    )


def _leaves(
    path: str, node: yaml.MappingNode, prefix: str = "", above: tuple[yaml.Node, ...] = ()
) -> Iterator[tuple[str, yaml.Node]]:
    """The dotted key of every value that is not a mapping."""
    pairs: list[tuple[yaml.Node, yaml.Node]] = node.value
    for name, value in pairs:
        line = name.start_mark.line + 1
        if not isinstance(name, yaml.ScalarNode) or not name.value:
            raise UsageError(f"{path}, line {line}: the key of an option is text, not a {_kind(name)}.")
        key = f"{prefix}{name.value}"
        if value in above or value is node:
            raise UsageError(f"{path}, line {line}: '{key}' holds itself.")
        if isinstance(value, yaml.MappingNode):
            yield from _leaves(path, value, f"{key}.", (*above, node))
        else:
            yield key, value


def _value(path: str, key: str, node: yaml.Node) -> str | None:
    if isinstance(node, yaml.ScalarNode):
        return None if node.tag == _NULL else str(node.value)
    raise UsageError(
        f"{path}, line {node.start_mark.line + 1}: '{key}' has a {_kind(node)}, but an option has one value."
    )


def _kind(node: yaml.Node) -> str:
    if isinstance(node, yaml.SequenceNode):
        return "list"
    return "mapping" if isinstance(node, yaml.MappingNode) else "single value"
