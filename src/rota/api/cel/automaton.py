"""Searches a text for a pattern, in time linear in the text.

A kube-apiserver runs RE2, which never backtracks; Python's `re` does, and a few nested stars let a short string hold up
the server. So the pattern becomes an automaton, whose deterministic states are built as texts need them, and kept.
"""

from __future__ import annotations

from typing import Final

from rota.api.cel.regex import Alternatives, Chars, Edge, Node, Repeat, Sequence, parse_regex

TRANSITIONS_KEPT_MAX: Final = 10_000
"""Transitions remembered for one pattern before it starts afresh."""


class _Program:
    """The automaton: each step takes a character, stands at an edge, or goes on elsewhere; past the last it accepts."""

    def __init__(self) -> None:
        self.steps: list[Chars | Edge | tuple[int, ...]] = []

    def add(self, node: Node) -> None:
        steps = self.steps
        match node:
            case Chars() | Edge():
                steps.append(node)
            case Sequence(parts=parts):
                for part in parts:
                    self.add(part)
            case Alternatives(branches=branches):
                self._add_alternatives(branches)
            case Repeat(part=part, least=least, most=most):
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

    __slots__ = ("_first", "_kept", "_matches_empty", "_states", "_steps")

    def __init__(self, pattern: str) -> None:
        program = _Program()
        program.add(parse_regex(pattern))
        self._steps = program.steps
        # Only the empty text begins where it ends, so no state has to know whether it is at both edges.
        self._matches_empty = len(self._steps) in self._reach({0}, at_begin=True, at_end=True)
        self._forget()

    def _forget(self) -> None:
        self._states: dict[frozenset[int], _State] = {}
        self._kept = 0
        self._first = self._state(self._reach({0}, at_begin=True))

    def search(self, text: str) -> bool:
        """Whether the pattern matches anywhere in the text."""
        if not text:
            return self._matches_empty
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
