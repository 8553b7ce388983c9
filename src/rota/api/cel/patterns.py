"""The patterns of `matches`, as patterns of Python's `re` that mean what they mean to RE2.

A kube-apiserver searches with RE2. Syntax that the two read differently, or that only one of them has, is refused.

`re` backtracks, so a pattern can take exponential time where RE2 never does. All patterns are Rota's own; a test holds
that each one in use takes any text of its field in little time.
"""

from __future__ import annotations

import re
from typing import Final

REPEAT_MAX: Final = 1000
"""Bound on the counts of `a{n,m}`. RE2 has the same."""
_SPACE: Final = r"\t\n\f\r "
"""RE2's `\\s`: Python's also has the vertical tab."""
_PART: Final = re.compile(
    r"""
    (?P<class>\[\^?\]?(?:\\.|\[(?!:)|[^\]\\\[])*\])
  | (?P<escape>\\.)
  | (?P<repeat>(?:[*+?]|\{(?P<low>[0-9]+)(?:,(?P<high>[0-9]*))?\})\??)
  | (?P<open>\((?:\?:)?(?!\?))
  | (?P<plain>[^\\\[\]*+?{}()]|[\]}])
  | (?P<close>\))
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_ESCAPES: Final = {
    r"\A": r"\A", r"\z": r"\Z", r"\d": r"\d", r"\D": r"\D", r"\w": r"\w", r"\W": r"\W", r"\s": f"[{_SPACE}]",
    r"\S": f"[^{_SPACE}]", r"\a": r"\a", r"\f": r"\f", r"\n": r"\n", r"\r": r"\r", r"\t": r"\t", r"\v": r"\v",
}  # fmt: skip
_ITEM: Final = re.compile(r"(\\.|[^\\])(?:-(\\.|[^\\\]]))?", re.DOTALL)


class PatternError(ValueError):
    """The pattern is not in the subset."""


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a pattern. Raises `PatternError` where RE2 would read it differently, or not at all."""
    translated: list[str] = []
    at = 0
    can_repeat = False
    while at < len(pattern):
        match = _PART.match(pattern, at)
        if match is None:
            raise PatternError(f"the subset has no {pattern[at : at + 3]!r}")
        text, kind = match.group(), match.lastgroup
        if kind == "repeat":
            if not can_repeat:
                raise PatternError(f"nothing to repeat before {text!r}")
            _check_counts(match["low"], match["high"])
        translated.append(_translated(kind, text))
        can_repeat = kind in ("class", "escape", "close", "plain") and text not in ("|", "^", "$", r"\A", r"\z")
        at = match.end()
    try:
        return re.compile("".join(translated), re.ASCII)
    except (re.error, OverflowError) as error:
        raise PatternError(str(error)) from None


def _check_counts(low: str | None, high: str | None) -> None:
    counts = [int(count) for count in (low, high) if count]
    if any(count > REPEAT_MAX for count in counts) or counts != sorted(counts):
        raise PatternError(f"a repetition beyond {REPEAT_MAX}, or one that ends before it begins")


def _translated(kind: str | None, text: str) -> str:
    if kind == "class":
        return _class(text)
    if kind == "escape":
        return _escape(text)
    # Python's `$` also stands before a last newline.
    return r"\Z" if text == "$" else text


def _escape(text: str) -> str:
    if text in _ESCAPES:
        return _ESCAPES[text]
    if text[1].isascii() and not text[1].isalnum():
        return text
    raise PatternError(f"the subset has no {text!r}")


def _class(text: str) -> str:
    opening = "[^" if text.startswith("[^") else "["
    body = text[len(opening) : -1]
    items: list[str] = []
    at = 0
    while at < len(body):
        match = _ITEM.match(body, at)
        assert match is not None
        first, last = match[1], match[2]
        if first == "-" and 0 < at < len(body) - 1:
            raise PatternError("write a literal '-' first or last in a class")
        if last is not None and any(_is_class(one) for one in (first, last)):
            raise PatternError("a range between classes")
        items += [_class_item(first), *(("-", _class_item(last)) if last is not None else ())]
        at = match.end()
    return f"{opening}{''.join(items)}]"


def _is_class(item: str) -> bool:
    return item in (r"\d", r"\D", r"\w", r"\W", r"\s", r"\S")


def _class_item(item: str) -> str:
    if item == r"\s":
        return _SPACE
    if item in (r"\S", r"\A", r"\z"):
        raise PatternError(f"the subset has no {item!r} in a class")
    if item[0] == "\\":
        return _escape(item)
    # Python warns of these, which may get a meaning one day.
    return f"\\{item}" if item in "[]&~|-^" else item
