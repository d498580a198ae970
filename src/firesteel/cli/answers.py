"""``firesteel decide``: answers requests, one JSON object a line, or one written over several lines."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import BinaryIO

import msgspec

from firesteel.api.deciding import decide_request
from firesteel.errors import FiresteelError, UsageError
from firesteel.options import Options

_BOM = b"\xef\xbb\xbf"


def answer_file(path: str, defaults: Options) -> Iterator[tuple[bytes, bool]]:
    """Each answer (JSON, without a line's end) and whether it is one: else it says what was wrong. ``-``: what is piped in.

    Raises UsageError for a file that cannot be read or holds no request.
    """
    if path == "-":
        if sys.stdin is None:  # closed by who started us
            raise UsageError("There is no input to read.", hint="Give the path of a file.")
        yield from answers(sys.stdin.buffer, defaults, "what was piped in")
        return
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - a path as the user wrote it, /dev/fd/63 too
            yield from answers(file, defaults, f"'{path}'")
    except FileNotFoundError:
        raise UsageError(
            f"There is no file '{path}'.", hint="Give a file of requests, or '-' for what is piped in."
        ) from None
    except OSError as error:
        raise UsageError(f"'{path}' cannot be read: {error.strerror}.") from None


def answers(file: BinaryIO, defaults: Options, name: str) -> Iterator[tuple[bytes, bool]]:
    """Line by line, as they come; all at once where the first line only begins an object that the lines are together."""
    lines = (line for line in map(bytes.strip, _without_bom(file)) if line)
    first = next(lines, None)
    if first is None:
        raise UsageError(f"There is no request in {name}.", hint="See 'firesteel decide --help'.")
    requests: Iterable[bytes] = chain([first], lines)
    if _is_cut_off(first):
        gathered = [first, *lines]
        whole = b"\n".join(gathered)
        requests = gathered if not _is_request(whole) and any(map(_is_request, gathered)) else [whole]
    for request in requests:
        yield answer(request, defaults)


def answer(request: bytes, defaults: Options) -> tuple[bytes, bool]:
    """The answer to one request, and whether it could be met."""
    try:
        decided = decide_request(_parsed(request), defaults)
    except FiresteelError as error:
        return msgspec.json.encode({"error": str(error)}), False
    return msgspec.json.encode(decided.as_dict()), True


def _parsed(request: bytes) -> object:
    try:
        return msgspec.json.decode(request)
    except RecursionError:
        raise UsageError("This JSON is nested too deeply.") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UsageError(f"This is not JSON: {str(error).removeprefix('JSON is malformed: ')}.") from None


def _is_request(text: bytes) -> bool:
    try:
        return isinstance(_parsed(text), dict)
    except UsageError:
        return False


def _is_cut_off(line: bytes) -> bool:
    try:
        msgspec.json.decode(line)
    except msgspec.DecodeError as error:
        return "truncated" in str(error)
    except (RecursionError, UnicodeDecodeError):
        pass
    return False


def _without_bom(file: BinaryIO) -> Iterator[bytes]:
    for number, line in enumerate(file):
        yield line.removeprefix(_BOM) if number == 0 else line
