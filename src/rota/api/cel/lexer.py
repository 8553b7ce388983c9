"""A rule's text as tokens."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from rota.api.cel.errors import CelSyntaxError
from rota.api.quantity import INT_MAX


class Token(NamedTuple):
    """`kind` is `name`, `text`, `int`, `end`, or the operator itself."""

    kind: str
    value: str
    position: int


_TOKEN = re.compile(
    r"""
    (?P<space>[\t\n\f\r ]+)
  | (?P<text>[rR](?:"[^"\n\r]*" | '[^'\n\r]*') | "(?:[^"\\\n\r]|\\.)*" | '(?:[^'\\\n\r]|\\.)*')
  | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<int>[0-9]+)
  | (?P<operator>&&|\|\||[=!<>]=|[-+*/%!<>?:.,()\[\]{}])
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_ESCAPE: Final = r"(?s:\\(?:([abfnrtv\\?\"'`])|[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|(.)))"
_ESCAPED: Final = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "?": "?", '"': '"', "'": "'", "`": "`",
}  # fmt: skip


def tokenize(source: str) -> list[Token]:
    """Return all tokens of a text, closed by one of kind `end`."""
    tokens: list[Token] = []
    position, length = 0, len(source)
    while position < length:
        match = _TOKEN.match(source, position)
        if match is None:
            raise CelSyntaxError(f"unexpected {source[position]!r}", source, position)
        kind, value = match.lastgroup or "", match.group()
        if kind == "operator":
            tokens.append(Token(value, value, position))
        elif kind != "space":
            _refuse_lookalikes(source, kind, value, position)
            tokens.append(Token(kind, value, position))
        position = match.end()
    tokens.append(Token("end", "", length))
    return tokens


def _refuse_lookalikes(source: str, kind: str, value: str, position: int) -> None:
    """Refuse what CEL reads as one token of a kind that the subset lacks."""
    end = position + len(value)
    follower = source[end : end + 1]
    if kind == "int" and follower and (follower.isalnum() or follower in "_."):
        what = "the subset has no numbers but decimal integers"
    elif kind == "name" and follower and follower in "\"'" and value.lower() in ("b", "br", "rb"):
        what = "the subset has no byte strings"
    elif kind == "text" and value[-2:] in ('""', "''") and follower == value[-1]:
        what = "the subset has no strings in three quotes"
    else:
        return
    raise CelSyntaxError(what, source, position)


def text_value(token: Token, source: str) -> str:
    """Return the string that a `text` token denotes."""
    if token.value[0] in "rR":
        return token.value[2:-1]
    body = token.value[1:-1]
    if "\\" not in body:
        return body

    def unescape(match: re.Match[str]) -> str:
        plain, hexadecimal, short, other = match.groups()
        if plain is not None:
            return _ESCAPED[plain]
        if other is not None:
            raise CelSyntaxError(f"the subset has no escape \\{other}", source, token.position)
        code = int(hexadecimal or short, 16)
        if 0xD800 <= code <= 0xDFFF:
            raise CelSyntaxError("an escape that is no Unicode character", source, token.position)
        return chr(code)

    return re.sub(_ESCAPE, unescape, body)


def int_value(token: Token, source: str) -> int:
    """Return the number that an `int` token denotes."""
    value = int(token.value)
    if value > INT_MAX:
        raise CelSyntaxError("an integer beyond 64 bits", source, token.position)
    return value
