"""The patterns of `matches`: what they match, what is refused, and that those in use end on any text."""

from __future__ import annotations

import re
from typing import Any

import pytest

from rota.api import KINDS
from rota.api.cel.patterns import PatternError, compile_pattern
from rota.api.schema import object_schema

TEXT_CHARS_MAX = 4096
"""Longer than any field that a pattern is for."""


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "web-1", True),
        ("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "web-", False),
        ("a$", "a\n", False),
        (r"^\s$", "\v", False),
        (r"^[\s]$", "\v", False),
        (r"^\S$", "\v", True),
        (r"^[^\s]$", "\v", True),
        (r"^\d$", "٣", False),
        (r"^\w$", "é", False),
        (r"^\W$", "é", True),
        ("^.$", "\n", False),
        ("^[^a]$", "\n", True),
        ("^[]a]+$", "a]", True),
        ("[[]", "[", True),
        (r"^[a\]-]+$", "a]-", True),
        (r"^[~^:?*\[\\]+$", r"~^:?*[\\"[:-1], True),
        (r"\Aa|b\z", "xb", True),
        ("", "", True),
        ("$^", "", True),
        ("$^", "a", False),
        ("a||b", "x", True),
        ("^(|a)+$", "aa", True),
        ("^a{2,3}$", "aaa", True),
        ("^a{2,}?$", "aaaa", True),
        ("}", "}", True),
    ],
)
def test_a_pattern_means_what_it_means_to_re2(pattern: str, text: str, matches: bool) -> None:
    assert (compile_pattern(pattern).search(text) is not None) is matches


@pytest.mark.parametrize(
    "pattern",
    [
        "(?=a)", "(?!a)", "(?<=a)", "(?i)a", "(?P<n>a)", r"(a)\1", r"\b", r"\pL", r"\Q", r"\Z", r"\x41", "[[:alpha:]]",
        "*a", "a**", "a{2}{3}", "a{", "a{x}", "a{1001}", "a{2,1}", "(a", "a)", "[a", "[b-a]", r"[\w-a]", r"[a-\w]",
        "[a-c-e]", "\\", "a++", "^*", "(?:*a)", r"[\S]",
    ],
)  # fmt: skip
def test_a_pattern_that_others_read_differently_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        compile_pattern(pattern)


def in_use() -> list[str]:
    found: set[str] = set()

    def walk(schema: Any) -> None:
        if isinstance(schema, dict):
            for rule in schema.get("x-kubernetes-validations", ()):
                for raw, text in re.findall(r"""matches\((r?)'((?:[^'\\]|\\.)*)'\)""", rule["rule"]):
                    found.add(text if raw else text.encode().decode("unicode_escape"))
            for inner in schema.values():
                walk(inner)
        elif isinstance(schema, list):
            for inner in schema:
                walk(inner)

    for kind in KINDS.values():
        walk(object_schema(kind))
    return sorted(found)


def test_the_patterns_in_use_are_found() -> None:
    assert len(in_use()) >= 20


@pytest.mark.parametrize("pattern", in_use())
def test_a_pattern_in_use_ends_on_texts_made_to_have_it_backtrack(pattern: str) -> None:
    """A pattern that takes exponential time does not end before the time-out of a test."""
    compiled = compile_pattern(pattern)
    pieces = [
        "a",
        "0",
        ".",
        "-",
        "_",
        "/",
        "a.",
        "a-",
        "0-0,",
        "*/1,",
        "a/",
        "a:",
        "@",
        " ",
        "0 ",
        "\\",
        "L",
        "[",
        ":0",
        "a@",
    ]
    for start in ("", "https://", "ssh://a@", "file:///", "/", "a:0/", "0 0 ", "* * * ", "JAN-"):
        for piece in pieces:
            for end in ("", "!", "\n", " !", "é"):
                text = start + piece * (TEXT_CHARS_MAX // len(piece)) + end
                assert compiled.search(text) is None or True
