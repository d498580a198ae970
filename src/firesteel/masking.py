"""Takes out of text what must not lie about in a file: passwords, tokens, keys, signed queries, the user's home directory.

Stdlib only. What is masked is a guess from names and shapes, made to err on the side of hiding; what has neither a telling
name nor a telling shape is found only where the same value was seen under such a name before (``Masker``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

MASK = "***"
_LEAST = 6
"""Characters of a value from which on it is looked for elsewhere: a shorter one is in too many words."""
_NAME = (
    r"(?:pass(?:word|wd|phrase)?|pwd|secret|token|credentials?|signature|auth|"
    r"(?:api|access|account|private|shared|secret|encryption|client)[-_. ]?key)"
)
_SECRET_KEY = re.compile(
    rf"(?:^|[^a-z]){_NAME}s?(?:$|[^a-z])|(?:password|passwd|secret|token|apikey|accesskey|accountkey|secretkey|privatekey)(?:id)?$",
    re.I,
)
_ACCOUNTS = ("abfs", "abfss", "wasb", "wasbs")
"""Schemes whose URLs have a container, no user, before the @."""
# No name is longer than these bounds, and with them a long text takes time in proportion to its length, no more.
_USER = re.compile(r"\b([a-z][a-z0-9+.-]{0,31})(://)([^\s/'\"?#]+(?:/[^\s'\"@?#/]*)?)@", re.I)
_ORACLE = re.compile(r"(jdbc:oracle:\w{1,16}:)[^/\s@]{1,256}/[^@\s]{1,256}@", re.I)
_QUERY = re.compile(
    r"([?&;](?:sig|sign|code|key|[\w.%-]{0,64}(?:signature|credential|token|secret|password|passwd|pwd|[-_]key|apikey|accountkey))"
    r"=)([^&;\s'\"#]+)",
    re.I,
)
_QUOTED = r"\"(?:\\.|[^\"\\])*(?:\"|$)|'(?:\\.|[^'\\])*(?:'|$)"
_PAIR = re.compile(
    r"\b([\w.-]{0,80}(?:password|passwd|passphrase|pwd|secret|token|credentials?|(?<![a-z])(?:pass|auth)(?!\w)|"
    r"(?:api|access|account|private|shared|encryption|client)[-_.]?key)"
    rf"[\w.-]{{0,64}}['\"]?\s*(?:=>|[=:])\s*[\[(]?)({_QUOTED}|[^\s,;&\"'}})\]]+)",
    re.I | re.S,
)
_SPOKEN = re.compile(rf"\b((?:password|passwd|identified by)\s+)({_QUOTED})", re.I | re.S)
"""As in SQL."""
_FLAG = re.compile(r"((?<![\w-])--?[\w-]{0,64}(?:password|passwd|token|secret)[\w-]{0,64}\s+)(?!-)([^\s'\"]+)", re.I)
_HEADER = re.compile(
    r"\b(bearer\s+|authorization['\"]?\s*[:=]\s*['\"]?(?:basic|bearer|negotiate)\s+)[A-Za-z0-9._~+/=-]{6,}", re.I
)
_SHAPES = re.compile(
    r"\b(?:A[KS]IA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|xox[abprs]-[\w-]{10,}|sk-[\w-]{20,}"
    r"|dapi[0-9a-f]{32}|glpat-[\w-]{20,}|hf_[A-Za-z0-9]{30,}|npm_[A-Za-z0-9]{36}|AIza[\w-]{35}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]+)"
)
_KEY_BLOCK = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)", re.S)


def looks_secret(name: str) -> bool:
    """Is this the name of something whose value nobody should see?"""
    return _SECRET_KEY.search(name) is not None


def mask_text(text: str, home: str | None = None, found: Callable[[str], None] | None = None) -> str:
    """The text without what looks secret in it; the home directory as ``~``. ``found`` is told of each secret."""
    tell: Callable[[str], None] = found or (lambda _secret: None)

    def second(match: re.Match[str]) -> str:
        tell(match[2].strip("'\""))
        return f"{match[1]}{MASK}"

    def user(match: re.Match[str]) -> str:
        if match[1].lower() in _ACCOUNTS:
            return match[0]
        tell(match[3].split(":", 1)[-1])
        return f"{match[1]}{match[2]}{MASK}@"

    def whole(match: re.Match[str]) -> str:
        tell(match[0])
        return MASK

    if "@" in text:
        text = _ORACLE.sub(rf"\1{MASK}@", _USER.sub(user, text))
    if "=" in text or ":" in text:
        text = _PAIR.sub(second, _QUERY.sub(second, text))
    text = _SHAPES.sub(whole, _HEADER.sub(rf"\1{MASK}", _FLAG.sub(second, _SPOKEN.sub(second, text))))
    if "-----BEGIN" in text:
        text = _KEY_BLOCK.sub(MASK, text)
    return _without_home(text, _home() if home is None else home)


def _without_home(text: str, home: str) -> str:
    if len(home) < 3 or home not in text:
        return text
    return re.sub(rf"{re.escape(home)}(?=[/\\'\"\s,;:)\]]|$)", "~", text)


def _home() -> str:
    try:
        return str(Path.home())
    except RuntimeError:
        return ""


def mask_value(key: str, value: Any) -> Any:
    """A value under a name: ``***`` where the name is of a secret, else without what looks secret in it."""
    if isinstance(value, str):
        return MASK if value and looks_secret(key) else mask_text(value)
    return value


class Masker:
    """Masks whole records, and remembers the secrets it met: where one turns up again, in whatever words, it is masked too.

    Those of the environment (``AWS_SECRET_ACCESS_KEY``, ``DB_PASSWORD``) it knows from the start. ``home``: the user's
    directory, else that of the system; empty: it is not masked.
    """

    def __init__(self, environ: Mapping[str, str] | None = None, home: str | None = None) -> None:
        self._home = _home() if home is None else home
        self._known: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        for name, value in (os.environ if environ is None else environ).items():
            if looks_secret(name) and not value.startswith(("/", "~", ".")):
                self._remember(value)

    def _remember(self, secret: str) -> None:
        fresh = {form for form in (secret, unquote(secret)) if len(form) >= _LEAST} - self._known
        if fresh - {MASK}:
            self._known |= fresh
            longest_first = sorted(self._known, key=len, reverse=True)
            self._pattern = re.compile("|".join(map(re.escape, longest_first)))

    def text(self, text: str) -> str:
        masked = mask_text(text, self._home, self._remember)
        return masked if self._pattern is None else self._pattern.sub(MASK, masked)

    def _key(self, key: Any) -> Any:
        """Plain names stay, whatever password somebody has: readers look for them."""
        return key if isinstance(key, str) and key.isidentifier() else self.value(key)

    def value(self, value: Any, key: str = "") -> Any:
        """Of text, and of what lists and mappings hold; numbers and whatever else is there stay as they are."""
        if isinstance(value, str):
            if value and key and looks_secret(key):
                self._remember(value)
                return MASK
            return self.text(value)
        if isinstance(value, dict):
            items: dict[Any, Any] = value
            return {self._key(k): self.value(v, str(k)) for k, v in items.items()}
        if isinstance(value, list | tuple) and value and not isinstance(value[0], int | float):
            entries: list[Any] = list(value)
            return [self.value(entry, key) for entry in entries]
        return self.text(str(value)) if isinstance(value, os.PathLike) else value
