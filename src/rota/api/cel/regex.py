"""The regular expressions of `matches`, in time linear in the text.

A kube-apiserver runs RE2, which never backtracks; Python's `re` does, and a few nested stars let a short string hold up
the server. So the pattern becomes an automaton here, whose deterministic states are built as texts need them, and kept.

Only syntax that means the same to everyone is in: literals, classes, groups, alternatives, repetitions, `^` and `$`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

REPEAT_MAX: Final = 1000
"""Of `a{n,m}`, and of nested ones multiplied; RE2 has the same bound."""
TRANSITIONS_KEPT_MAX: Final = 10_000
"""Transitions remembered for one pattern before it starts afresh."""

_CHAR_MAX: Final = "\U0010ffff"
_DIGIT: Final = (("0", "9"),)
_WORD: Final = (("0", "9"), ("A", "Z"), ("_", "_"), ("a", "z"))
_SPACE: Final = (("\t", "\n"), ("\f", "\r"), (" ", " "))
_CLASSES: Final = {"d": _DIGIT, "w": _WORD, "s": _SPACE}
_CONTROLS: Final = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}

Ranges = tuple[tuple[str, str], ...]


class RegexError(ValueError):
    """The pattern is not in the subset."""


@dataclass(frozen=True, slots=True)
class Chars:
    """One character out of the ranges."""

    ranges: Ranges

    def __contains__(self, char: str) -> bool:
        return any(low <= char <= high for low, high in self.ranges)


@dataclass(frozen=True, slots=True)
class Edge:
    """`^` or `$`."""

    is_end: bool


@dataclass(frozen=True, slots=True)
class Sequence:
    """One after the other; none is the empty text."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Alternatives:
    """Any one of them."""

    branches: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """So many times; `most` is None when unbounded."""

    part: Node
    least: int
    most: int | None


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
        case Sequence(parts):
            return max(map(_repeats, parts), default=1)
        case Alternatives(branches):
            return max(map(_repeats, branches))
        case Repeat(part, least, most):
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
        if isinstance(node, Edge):
            raise RegexError("the subset has no repeated '^' or '$'")
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


@dataclass(slots=True)
class _Program:
    """The automaton: each step takes a character, stands at an edge, or goes on elsewhere; past the last it accepts."""

    steps: list[Chars | Edge | tuple[int, ...]] = field(default_factory=list)

    def add(self, node: Node) -> None:
        steps = self.steps
        match node:
            case Chars() | Edge():
                steps.append(node)
            case Sequence(parts):
                for part in parts:
                    self.add(part)
            case Alternatives(branches):
                self._add_alternatives(branches)
            case Repeat(part, least, most):
                for _ in range(least):
                    self.add(part)
                if most is None:
                    fork = len(steps)
                    steps.append(())
                    self.add(part)
                    steps.append((fork,))
                    steps[fork] = (fork + 1, len(steps))
                else:
                    forks = []
                    for _ in range(most - least):
                        forks.append(len(steps))
                        steps.append(())
                        self.add(part)
                    for fork in forks:
                        steps[fork] = (fork + 1, len(steps))

    def _add_alternatives(self, branches: tuple[Node, ...]) -> None:
        steps = self.steps
        fork = len(steps)
        steps.append(())
        starts: list[int] = []
        exits: list[int] = []
        for branch in branches:
            starts.append(len(steps))
            self.add(branch)
            exits.append(len(steps))
            steps.append(())
        steps[fork] = tuple(starts)
        for place in exits:
            steps[place] = (len(steps),)


class _State:
    """A deterministic state: the places the automaton may be at."""

    __slots__ = ("accepts", "accepts_at_end", "is_dead", "next", "places")

    def __init__(self, places: frozenset[int], accepting: int, *, accepts_at_end: bool) -> None:
        self.places = places
        self.accepts = accepting in places
        self.accepts_at_end = accepts_at_end
        self.is_dead = not places
        self.next: dict[str, _State] = {}


class Regex:
    """A pattern, ready to search."""

    __slots__ = ("_first", "_kept", "_states", "_steps")

    def __init__(self, pattern: str) -> None:
        program = _Program()
        program.add(parse_regex(pattern))
        self._steps = program.steps
        self._forget()

    def _forget(self) -> None:
        self._states: dict[frozenset[int], _State] = {}
        self._kept = 0
        self._first = self._state(self._reach({0}, at_begin=True))

    def search(self, text: str) -> bool:
        """Whether the pattern matches anywhere in the text."""
        state = self._first
        for char in text:
            if state.accepts:
                return True
            following = state.next.get(char)
            if following is None:
                if state.is_dead:
                    return False
                following = self._follow(state, char)
            state = following
        return state.accepts or state.accepts_at_end

    def _follow(self, state: _State, char: str) -> _State:
        if self._kept >= TRANSITIONS_KEPT_MAX:
            self._forget()
        taken = {
            place + 1
            for place in state.places
            if place < len(self._steps) and isinstance(step := self._steps[place], Chars) and char in step
        }
        # A match may also begin here.
        following = self._state(self._reach(taken | {0}))
        state.next[char] = following
        self._kept += 1
        return following

    def _state(self, places: frozenset[int]) -> _State:
        state = self._states.get(places)
        if state is None:
            accepting = len(self._steps)
            ends = {place for place in places if place < accepting and isinstance(self._steps[place], Edge)}
            at_end = accepting in self._reach({place + 1 for place in ends}, at_end=True)
            state = self._states[places] = _State(places, accepting, accepts_at_end=at_end)
        return state

    def _reach(self, places: set[int], *, at_begin: bool = False, at_end: bool = False) -> frozenset[int]:
        """The places where the automaton waits: for a character, for the end, or no more."""
        seen: set[int] = set()
        waiting: set[int] = set()
        ahead = list(places)
        while ahead:
            place = ahead.pop()
            if place in seen:
                continue
            seen.add(place)
            step = self._steps[place] if place < len(self._steps) else None
            if isinstance(step, tuple):
                ahead.extend(step)
            elif isinstance(step, Edge):
                if at_end if step.is_end else at_begin:
                    ahead.append(place + 1)
                if step.is_end:
                    waiting.add(place)
            else:
                waiting.add(place)
        return frozenset(waiting)
