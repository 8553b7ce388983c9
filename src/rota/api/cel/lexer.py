"""A rule's text as tokens."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from rota.api.cel.errors import CelSyntaxError

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1


class Token(NamedTuple):
    """`kind` is `name`, `text`, `int`, `double`, `end`, or the operator itself."""

    kind: str
    value: str
    position: int


_TOKEN = re.compile(
    r"""
    (?P<space>(?:[\t\n\f\r ]|//[^\n]*)+)
  | (?P<text>[rR]?(?:\"{3}(?:[^\\]|\\.)*?\"{3} | '{3}(?:[^\\]|\\.)*?'{3}
        | "(?:[^"\\\n\r]|\\.)*" | '(?:[^'\\\n\r]|\\.)*'))
  | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<double>[0-9]*\.[0-9]+(?:[eE][+-]?[0-9]+)? | [0-9]+[eE][+-]?[0-9]+)
  | (?P<int>0x[0-9a-fA-F]+ | [0-9]+)
  | (?P<operator>&&|\|\||[=!<>]=|[-+*/%!<>?:.,()\[\]{}])
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
# These are compiled when a rule first needs them; most have neither.
_RAW_TEXT: Final = r"""(?s:[rR](?:"{3}.*?"{3}|'{3}.*?'{3}|"[^"\n\r]*"|'[^'\n\r]*'))"""
_ESCAPE: Final = (
    r"(?s:\\(?:([abfnrtv\\?\"'`])|[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.|$)))"
)
_RAW_OPENINGS: Final = ("r'", "R'", 'r"', 'R"')
_ESCAPED: Final = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "?": "?", '"': '"', "'": "'", "`": "`",
}  # fmt: skip


def tokenize(source: str) -> list[Token]:
    """All tokens of the text, closed by one of kind `end`."""
    tokens: list[Token] = []
    position, length = 0, len(source)
    while position < length:
        # A raw string may end in a backslash, so it has a pattern of its own.
        raw = re.match(_RAW_TEXT, source[position:]) if source[position : position + 2] in _RAW_OPENINGS else None
        match = raw or _TOKEN.match(source, position)
        if match is None:
            raise CelSyntaxError(f"unexpected {source[position]!r}", source, position)
        kind = "text" if raw else match.lastgroup or ""
        value = match.group()
        if kind == "operator":
            tokens.append(Token(value, value, position))
        elif kind != "space":
            _refuse_lookalikes(source, kind, value, position + len(value))
            tokens.append(Token(kind, value, position))
        position += len(value)
    tokens.append(Token("end", "", length))
    return tokens


def _refuse_lookalikes(source: str, kind: str, value: str, end: int) -> None:
    follower = source[end : end + 1]
    if kind in ("int", "double") and follower and (follower.isalnum() or follower == "_"):
        what = "the subset has no unsigned integers" if follower in "uU" else "a malformed number"
        raise CelSyntaxError(what, source, end)
    if kind == "name" and follower and follower in "\"'" and value.lower() in ("b", "br", "rb"):
        raise CelSyntaxError("the subset has no byte strings", source, end)


def text_value(token: Token, source: str) -> str:
    """The string a `text` token denotes."""
    body = token.value
    is_raw = body[0] in "rR"
    if is_raw:
        body = body[1:]
    quotes = 3 if len(body) >= 6 and body[:3] in ('"""', "'''") else 1
    body = body[quotes:-quotes]
    if is_raw or "\\" not in body:
        return body

    def unescape(match: re.Match[str]) -> str:
        plain, hexadecimal, short, long, octal, other = match.groups()
        if plain is not None:
            return _ESCAPED[plain]
        if other is not None:
            raise CelSyntaxError(f"unknown escape \\{other}", source, token.position)
        code = int(octal, 8) if octal else int(hexadecimal or short or long, 16)
        if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            raise CelSyntaxError("an escape that is no Unicode character", source, token.position)
        return chr(code)

    return re.sub(_ESCAPE, unescape, body)


def int_value(token: Token, source: str, *, negative: bool) -> int:
    """The number an `int` token denotes, with the sign before it, since only then the least integer fits."""
    text = token.value
    value = int(text, 16) if text[:2] == "0x" else int(text)
    value = -value if negative else value
    if not INT_MIN <= value <= INT_MAX:
        raise CelSyntaxError("an integer beyond 64 bits", source, token.position)
    return value


def double_value(token: Token, source: str, *, negative: bool) -> float:
    """The number a `double` token denotes."""
    value = float(token.value)
    if value == float("inf"):
        raise CelSyntaxError("a number beyond a double", source, token.position)
    return -value if negative else value
