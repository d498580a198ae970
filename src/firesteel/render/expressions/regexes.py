"""Java's regular expressions as the engine's (RE2), where both find the same places and the same groups."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from firesteel.plan.expr import Expr, Unsupported
from firesteel.render.expressions.strings import strings
from firesteel.render.expressions.texts import constant, left_to_spark, literal, once

if TYPE_CHECKING:
    from firesteel.render.expressions.translator import Expressions

_LINE_ENDS = r"\n\r\x{85}\x{2028}\x{2029}"
_BLANKS = r"\t-\r "
_CLASSES = {"d": "0-9", "w": "0-9A-Za-z_", "s": _BLANKS}
_CONTROLS = {"t": r"\t", "n": r"\n", "r": r"\r", "f": r"\f", "a": r"\x{7}", "e": r"\x{1B}"}
_POSIX = {"Lower", "Upper", "ASCII", "Alpha", "Digit", "Alnum", "Punct", "Graph", "Print", "Blank", "Cntrl", "XDigit", "Space"}  # fmt: skip
_FAMILIES = re.compile(r"[LNPSZ]|L[lu]|N[dl]|P[cdefios]|S[ckmo]|Z[slp]")
_MOST = 1000
"""Repetitions that RE2 takes."""


_ATOM = r"""(?:[A-Za-z0-9 _,:;/@#%&=<>!~"'`-]|\\[dwsDWS]|\\[!-/:-@\[-^`{-~]|\.|\[\^?(?:[A-Za-z0-9]-[A-Za-z0-9]|[A-Za-z0-9 _])+\])"""
_TIMES = r"(?:[*+?]|\{[0-9]{1,2}(?:,[0-9]{0,2})?\})"


def _of_some(part: str) -> str:
    """One or several of the parts, each with its times; they match no empty text."""
    return rf"(?:{part}{_TIMES}?)*{part}\+?(?:{part}{_TIMES}?)*"


_GROUP = rf"\((?:\?:)?{_of_some(_ATOM)}(?:\|{_of_some(_ATOM)})*\)"
_PLACED = rf"\^?{_of_some(f'(?:{_ATOM}|{_GROUP})')}\$?"
PLAIN = rf"{_PLACED}(?:\|{_PLACED})*"
"""Patterns that Java and the engine read alike on one line of ASCII: letters, classes, groups without groups inside, repetitions, choices."""
_ONE_LINE = r"[\t -~]*"


@dataclass(frozen=True, slots=True)
class Regex:
    """``text``: the engine's. ``groups``: their number. ``may_be_empty``: it may match an empty text.

    Both agree on texts of ASCII alone if ``on_ascii``, and on texts that end with no line end if ``at_end``. ``column``: in place of the
    text, that of an expression, whose values are left to Spark where they are not ``PLAIN``.
    """

    text: str = ""
    groups: int = 0
    may_be_empty: bool = False
    on_ascii: bool = False
    at_end: bool = False
    column: str = ""

    def found(self, text: str, found: Callable[[str, str], str], kind: Any) -> str:
        """What is found in a text with a pattern. Texts on which Java may find something else are left to Spark."""
        known = [
            r"NOT regexp_matches({0}, '[" + _LINE_ENDS.replace("{", "{{").replace("}", "}}") + r"]\z')"
        ] * self.at_end
        known += ["strlen({0}) = length({0})"] * self.on_ascii
        if self.column:
            forms = (literal(form, "string").replace("{", "{{").replace("}", "}}") for form in (_ONE_LINE, PLAIN))
            known = [f"regexp_full_match({{{i}}}, {form})" for i, form in enumerate(forms)]
        pattern = self.column or literal(self.text, "string")
        if not known:
            return found(text, pattern)
        other = left_to_spark("a regular expression on letters beyond ASCII or on lines", kind)
        judged = " AND ".join(known)

        def of(t: str, p: str) -> str:
            null = f"{t} IS NULL OR {p} IS NULL"
            return f"(CASE WHEN {null} THEN NULL WHEN {judged.format(t, p)} THEN {found(t, p)} ELSE {other} END)"

        return once(text, lambda t: once(pattern, lambda p: of(t, p)) if self.column else of(t, pattern))


def engine_regex(pattern: str) -> Regex:
    """Raises Unsupported where the engine has no pattern that surely finds what Java finds."""
    parser = _Parser(pattern)
    text, empty = parser.pattern()
    return Regex(text, parser.groups, empty, parser.on_ascii, parser.at_end)


def regex_of(x: Expressions, node: Expr) -> Regex:
    return (
        engine_regex(str(constant(node, "a regular expression")))
        if node.cls == "Literal"
        else Regex(column=x.text(node))
    )


@dataclass(slots=True)
class _Parser:
    """Each method takes its part of the pattern, and gives the engine's text of it and whether it may match an empty text."""

    rest: str
    groups: int = 0
    on_ascii: bool = False
    at_end: bool = False
    _flags: str = field(default="", init=False)
    _names: set[str] = field(default_factory=set[str], init=False)

    def pattern(self) -> tuple[str, bool]:
        whole = self.rest
        while flags := self._take(r"\(\?([is]+)\)"):
            self._flags += flags[1]
        if "i" in self._flags:
            self.on_ascii = True
            if not whole.isascii():
                raise self._refused()
        text, empty = self._choice()
        if self.rest:
            raise self._refused()
        return f"(?i){text}" if "i" in self._flags else text, empty

    def _take(self, form: str) -> re.Match[str] | None:
        found = re.match(form, self.rest, re.DOTALL | re.ASCII)
        if found:
            self.rest = self.rest[found.end() :]
        return found

    def _refused(self) -> Unsupported:
        rest = f" from {self.rest[:10]!r} on" if self.rest else ""
        return Unsupported(f"a regular expression is not surely the same in the engine{rest}")

    def _choice(self) -> tuple[str, bool]:
        parts = [self._sequence()]
        while self._take(r"\|"):
            parts.append(self._sequence())
        return "|".join(text for text, _ in parts), any(empty for _, empty in parts)

    def _sequence(self) -> tuple[str, bool]:
        text, empty = "", True
        while self.rest and self.rest[0] not in "|)":
            one, may_be_empty = self._repeated()
            text, empty = text + one, empty and may_be_empty
        return text, empty

    def _repeated(self) -> tuple[str, bool]:
        place = self._take(r"[\^$]|\\[bBAzZ]")
        if place:  # which nothing repeats
            if place[0] in ("\\b", "\\B"):
                self.on_ascii = True
            if place[0] in ("$", "\\Z"):
                self.at_end = True
            text, empty = {"^": r"\A", "$": r"\z", "\\Z": r"\z"}.get(place[0], place[0]), True
        else:
            text, empty = self._one()
        times = self._take(r"([*+?]|\{(\d{1,4})(,(\d{0,4}))?\})\??")
        if times is None:
            if self.rest[:1] in ("*", "+", "?", "{"):
                raise self._refused()
            return text, empty
        low = int(times[2]) if times[2] else 1 if times[1] == "+" else 0
        odd = max(low, int(times[4] or 0)) > _MOST or (times[4] and int(times[4]) < low)
        # of what matches an empty text several times, engines keep different groups
        if place or odd or (empty and times[1] != "?") or self.rest[:1] in ("*", "+", "?", "{"):
            raise self._refused()
        return text + times[0], empty or low == 0

    def _one(self) -> tuple[str, bool]:
        if self._take(r"\("):
            kept = self._take(r"\?:") is None
            if kept:
                name = self._take(r"\?<([A-Za-z][A-Za-z0-9]*)>")  # by which nothing here asks
                if self.rest[:1] == "?" or (name and name[1] in self._names):
                    raise self._refused()
                self._names |= {name[1]} if name else set()
                self.groups += 1
            text, empty = self._choice()
            if not self._take(r"\)"):
                raise self._refused()
            return f"({'' if kept else '?:'}{text})", empty
        if self._take(r"\["):
            return self._class(), False
        if self._take(r"\."):
            return r"(?s:.)" if "s" in self._flags else f"[^{_LINE_ENDS}]", False
        return self._letters(), False

    def _letters(self) -> str:
        """A letter, or an escaped class of them, outside of brackets."""
        if escaped := self._take(r"\\([dwsDWS])"):
            name = escaped[1]
            return f"[{'^' if name.isupper() else ''}{_CLASSES[name.lower()]}]"
        if named := self._named():
            return named if named.startswith("\\") else f"[{named}]"
        return self._letter()

    def _named(self) -> str:
        """A class of letters by its name."""
        named = self._take(r"\\p(?:\{(\w+)\}|([A-Z]))")
        if named is None:
            return ""
        name = named[1] or named[2]
        if "i" in self._flags:
            raise self._refused()
        if name in _POSIX:
            return f"[:{name.lower()}:]"
        if not _FAMILIES.fullmatch(name):
            raise self._refused()
        self.on_ascii = True  # each engine has the letters of another year
        return f"\\p{{{name}}}"

    def _letter(self) -> str:
        """One letter, as RE2 writes it."""
        if code := self._take(r"\\x([0-9A-Fa-f]{2})|\\u([0-9A-Fa-f]{4})"):
            value = int(code[1] or code[2], 16)
            if value == 0 or 0xD800 <= value < 0xE000:
                raise self._refused()
            return self._written(chr(value))
        if control := self._take(r"\\([tnrfae])"):
            return _CONTROLS[control[1]]
        letter = self._take(r"\\([^A-Za-z0-9])") or self._take(r"([^\\\0*+?{|()\[.^$])")
        if letter is None:
            raise self._refused()
        return self._written(letter[1])

    def _written(self, letter: str) -> str:
        if letter.isascii():
            return letter if letter.isalnum() or letter in " _" else f"\\x{{{ord(letter):X}}}"
        if "i" in self._flags:
            raise self._refused()
        return letter

    def _class(self) -> str:
        """In brackets. No classes in classes, of which RE2 has none."""
        parts = ["^"] if self._take(r"\^") else [""]
        while not self._take(r"\]"):
            if self.rest[:1] in ("", "[") or self.rest.startswith(("&&", "--")):
                raise self._refused()
            if escaped := self._take(r"\\([dws])"):
                parts.append(_CLASSES[escaped[1]])
            elif escaped := self._take(r"\\([DW])"):
                parts.append(escaped[0])
            elif named := self._named():
                parts.append(named)
            else:
                parts.append(self._range())
        if len(parts) == 1:  # of no letter: in Java the bracket is one of them
            raise self._refused()
        return f"[{''.join(parts)}]"

    def _range(self) -> str:
        first = self._in_brackets()
        if not self._take(r"-(?!\])"):
            return first
        if self.rest[:1] in ("", "[", "-") or re.match(r"\\[dwsDWSp]|&&", self.rest):
            raise self._refused()
        last = self._in_brackets()
        if _code(first) > _code(last):
            raise self._refused()
        return f"{first}-{last}"

    def _in_brackets(self) -> str:
        plain = self._take(r"([*+?{|().^$-])")
        return self._written(plain[1]) if plain else self._letter()


def _code(letter: str) -> int:
    """Of a letter as it is written."""
    if letter.startswith("\\x{"):
        return int(letter[3:-1], 16)
    return "\t\n\r\f"["tnrf".index(letter[1])].encode()[0] if letter.startswith("\\") else ord(letter)


def _matches(x: Expressions, n: Expr) -> str:
    strings(n["left"], n["right"])
    return regex_of(x, n["right"]).found(x.text(n["left"]), lambda t, p: f"regexp_matches({t}, {p})", "boolean")


def _extract(x: Expressions, n: Expr) -> str:
    return _group(x, n, "regexp_extract", "string")


def _extract_all(x: Expressions, n: Expr) -> str:
    """Each place. A pattern that matches an empty text would find other places in Java."""
    if regex_of(x, n["regexp"]).may_be_empty:
        raise Unsupported("all places of a regular expression that may match an empty text are not taken over")
    return _group(x, n, "regexp_extract_all", n.type)


_NO_GROUPS = r"\\.|\[[^\]]*\]|\(\?:|[^(]"


def _group(x: Expressions, n: Expr, function: str, kind: Any) -> str:
    strings(n["subject"], n["regexp"])
    regex, group = regex_of(x, n["regexp"]), constant(n["idx"], "a group")
    if not isinstance(group, int) or not 0 <= group <= (9 if regex.column else regex.groups):
        raise Unsupported("this group of a regular expression is not taken over")
    other = left_to_spark("a group that a regular expression does not have", kind)

    def of(t: str, p: str) -> str:
        text = f"{function}({t}, {p}, {group})"
        has = f"length(regexp_replace({p}, {literal(_NO_GROUPS, 'string')}, '', 'g')) >= {group}"
        return f"CASE WHEN {has} THEN {text} ELSE {other} END" if regex.column and group else text

    return regex.found(x.text(n["subject"]), of, kind)


def _replace(x: Expressions, n: Expr) -> str:
    """Each place. A pattern that matches an empty text would find other places in Java."""
    strings(n["subject"], n["regexp"], n["rep"])
    regex = regex_of(x, n["regexp"])
    if constant(n["pos"], "a place to begin") != 1 or regex.may_be_empty:
        raise Unsupported("replacing what a regular expression that may match an empty text finds is not taken over")
    by = _replacement(regex, n["rep"]) if n["rep"].cls == "Literal" else once(x.text(n["rep"]), _without_groups)
    return regex.found(x.text(n["subject"]), lambda t, p: f"regexp_replace({t}, {p}, {by}, 'g')", "string")


def _replacement(regex: Regex, node: Expr) -> str:
    new = str(constant(node, "a replacement"))
    groups = [int(group) for group in re.findall(r"\$(\d)", new)]
    if re.search(r"\\|\$(?!\d)|\$\d\d", new) or any(group > regex.groups for group in groups):
        raise Unsupported("this replacement is not taken over")
    return literal(re.sub(r"\$(\d)", r"\\\1", new), "string")


def _without_groups(text: str) -> str:
    other = left_to_spark("a replacement by groups", "string")
    return f"(CASE WHEN regexp_matches({text}, '[$\\\\]') THEN {other} ELSE {text} END)"


def _place(x: Expressions, n: Expr) -> str:
    """The place of the first match, from 1; 0 without a match. Spark ignores the group. Java counts letters beyond 16 bits twice."""
    strings(n["subject"], n["regexp"])
    regex = replace(regex_of(x, n["regexp"]), on_ascii=True)

    def of(t: str, p: str) -> str:
        before = rf"regexp_extract({t}, '\A((?s:.*?))(?:' || {p} || ')', 1)"
        return f"CAST(CASE WHEN regexp_matches({t}, {p}) THEN length({before}) + 1 ELSE 0 END AS INTEGER)"

    return f"(CASE WHEN {x.text(n['idx'])} IS NOT NULL THEN {regex.found(x.text(n['subject']), of, 'integer')} END)"


RULES: dict[str, Callable[[Expressions, Expr], str]] = {
    "RLike": _matches,
    "RegExpExtract": _extract,
    "RegExpExtractAll": _extract_all,
    "RegExpInStr": _place,
    "RegExpReplace": _replace,
}
