"""The patterns of `matches`, as trees.

Only syntax that means the same to everyone is in: literals, classes, groups, alternatives, repetitions, `^` and `$`.
"""

from __future__ import annotations

from typing import Final

REPEAT_MAX: Final = 1000
"""Of `a{n,m}`, and of nested ones multiplied; RE2 has the same bound."""
_CHAR_MAX: Final = "\U0010ffff"
_DIGIT: Final = (("0", "9"),)
_WORD: Final = (("0", "9"), ("A", "Z"), ("_", "_"), ("a", "z"))
_SPACE: Final = (("\t", "\n"), ("\f", "\r"), (" ", " "))
_CLASSES: Final = {"d": _DIGIT, "w": _WORD, "s": _SPACE}
_CONTROLS: Final = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}

Ranges = tuple[tuple[str, str], ...]


class RegexError(ValueError):
    """The pattern is not in the subset."""


class Chars:
    """One character out of the ranges."""

    __slots__ = ("ranges",)

    def __init__(self, ranges: Ranges) -> None:
        self.ranges = ranges

    def __contains__(self, char: str) -> bool:
        return any(low <= char <= high for low, high in self.ranges)


class Edge:
    """`^` or `$`."""

    __slots__ = ("is_end",)

    def __init__(self, is_end: bool) -> None:
        self.is_end = is_end


class Sequence:
    """One after the other; none is the empty text."""

    __slots__ = ("parts",)

    def __init__(self, parts: tuple[Node, ...]) -> None:
        self.parts = parts


class Alternatives:
    """Any one of them."""

    __slots__ = ("branches",)

    def __init__(self, branches: tuple[Node, ...]) -> None:
        self.branches = branches


class Repeat:
    """So many times; `most` is None when unbounded."""

    __slots__ = ("least", "most", "part")

    def __init__(self, part: Node, least: int, most: int | None) -> None:
        self.part = part
        self.least = least
        self.most = most


Node = Chars | Edge | Sequence | Alternatives | Repeat

_ANY_BUT_NEWLINE: Final = Chars((("\0", "\t"), ("\v", _CHAR_MAX)))


def complement(ranges: Ranges) -> Ranges:
    """Every character outside the ranges."""
    outside: list[tuple[str, str]] = []
    low = 0
    for first, last in sorted(ranges):
        if low < ord(first):
            outside.append((chr(low), chr(ord(first) - 1)))
        low = max(low, ord(last) + 1)
    if low <= ord(_CHAR_MAX):
        outside.append((chr(low), _CHAR_MAX))
    return tuple(outside)


def parse_regex(pattern: str) -> Node:
    """The pattern's tree, or `RegexError`."""
    parser = _Parser(pattern)
    node = parser.alternatives()
    if parser.at < len(pattern):
        raise RegexError("unexpected ')'")
    if _repeats(node) > REPEAT_MAX:
        raise RegexError(f"repetitions multiply beyond {REPEAT_MAX}")
    return node


def _repeats(node: Node) -> int:
    match node:
        case Sequence(parts=parts):
            return max(map(_repeats, parts), default=1)
        case Alternatives(branches=branches):
            return max(map(_repeats, branches))
        case Repeat(part=part, least=least, most=most):
            return max(least, most or 1, 1) * _repeats(part)
        case _:
            return 1


class _Parser:
    """Recursive descent over the characters."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0

    def _peek(self, length: int = 1) -> str:
        return self.pattern[self.at : self.at + length]

    def _take(self) -> str:
        char = self._peek()
        if not char:
            raise RegexError("it ends too early")
        self.at += 1
        return char

    def alternatives(self) -> Node:
        branches = [self._sequence()]
        while self._peek() == "|":
            self.at += 1
            branches.append(self._sequence())
        return branches[0] if len(branches) == 1 else Alternatives(tuple(branches))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while (char := self._peek()) and char not in "|)":
            parts.append(self._repeated(self._atom()))
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _atom(self) -> Node:
        char = self._take()
        match char:
            case "(":
                return self._group()
            case "[":
                return Chars(self._class())
            case ".":
                return _ANY_BUT_NEWLINE
            case "^" | "$":
                return Edge(char == "$")
            case "*" | "+" | "?":
                raise RegexError(f"nothing to repeat before {char!r}")
            case "{":
                raise RegexError("write a literal '{' as '\\{'")
            case "\\":
                if self._peek() in ("A", "z") and self._peek():
                    return Edge(self._take() == "z")
                return Chars(self._escape())
            case _:
                return Chars(((char, char),))

    def _group(self) -> Node:
        if self._peek() == "?":
            if self._peek(2) != "?:":
                raise RegexError("the subset has no look-arounds, flags or named groups")
            self.at += 2
        node = self.alternatives()
        if self._peek() != ")":
            raise RegexError("a group is not closed")
        self.at += 1
        return node

    def _repeated(self, node: Node) -> Node:
        char = self._peek()
        if not char or char not in "*+?{":
            return node
        self.at += 1
        least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(char) or self._counts()
        # Whether a repetition is lazy decides what it captures, never whether the text matches.
        if self._peek() == "?":
            self.at += 1
        if (again := self._peek()) and again in "*+?{":
            raise RegexError(f"{again!r} after a repetition")
        return Repeat(node, least, most)

    def _counts(self) -> tuple[int, int | None]:
        end = self.pattern.find("}", self.at)
        low, comma, high = self.pattern[self.at : max(end, self.at)].partition(",")
        if end < 0 or not (low.isascii() and low.isdecimal()) or (high and not (high.isascii() and high.isdecimal())):
            raise RegexError("write a literal '{' as '\\{'")
        self.at = end + 1
        least = int(low)
        most = (int(high) if high else None) if comma else least
        if least > REPEAT_MAX or (most is not None and (most > REPEAT_MAX or most < least)):
            raise RegexError(f"a repetition beyond {REPEAT_MAX}, or one that ends before it begins")
        return least, most

    def _escape(self) -> Ranges:
        char = self._take()
        if char.lower() in _CLASSES:
            ranges = _CLASSES[char.lower()]
            return ranges if char.islower() else complement(ranges)
        if char in _CONTROLS:
            return ((_CONTROLS[char],) * 2,)
        if char.isascii() and not char.isalnum():
            return ((char, char),)
        if char.isdecimal():
            raise RegexError("the subset has no backreferences")
        raise RegexError(f"the subset has no '\\{char}'")

    def _class(self) -> Ranges:
        negated = self._peek() == "^"
        if negated:
            self.at += 1
        ranges: list[tuple[str, str]] = []
        first = True
        while self._peek() != "]" or first:
            if self._peek() == "-" and not first and self._peek(2) != "-]":
                raise RegexError("write a literal '-' first or last in a class")
            low = self._class_item()
            first = False
            if self._peek() == "-" and self._peek(2) != "-]":
                self.at += 1
                high = self._class_item()
                if len(low) != 1 or len(high) != 1 or low[0][0] != low[0][1] or high[0][0] != high[0][1]:
                    raise RegexError("a range between classes")
                if low[0][0] > high[0][0]:
                    raise RegexError("a range that ends before it begins")
                low = ((low[0][0], high[0][0]),)
            ranges.extend(low)
        self.at += 1
        return complement(tuple(ranges)) if negated else tuple(ranges)

    def _class_item(self) -> Ranges:
        char = self._take()
        if char == "\\":
            return self._escape()
        if char == "[" and self._peek() == ":":
            raise RegexError("the subset has no '[:name:]'")
        return ((char, char),)
