"""The patterns of `matches`: what they match, what is refused, and that no text takes long."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.api.cel.automaton import TRANSITIONS_KEPT_MAX, Regex
from rota.api.cel.regex import RegexError, parse_regex
from tests.amount import amount

ATOMS = st.sampled_from(
    ["a", "b", "-", ".", "[ab]", "[^a]", r"\d", r"\w", "[a-]", "[0-9_]", r"\.", "é", "^", "$", r"\A", "()"]
)


def grow(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    repeats = st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{1,}", "*?", "+?", "??"])
    return st.one_of(
        st.builds("{}{}".format, inner, inner),
        st.builds("{}|{}".format, inner, inner),
        st.builds("({})".format, inner),
        st.builds("(?:{}){}".format, inner, repeats),
    )


PATTERNS = st.recursive(ATOMS, grow, max_leaves=8)
TEXTS = st.text(alphabet="ab-.09_é\n", max_size=8)


@settings(max_examples=amount(500, 5_000), deadline=None)
@given(pattern=PATTERNS, text=TEXTS)
def test_a_pattern_matches_what_pythons_does(pattern: str, text: str) -> None:
    # Python's `$` also stands before a last newline.
    expected = re.search(pattern.replace("$", r"\Z"), text, re.ASCII) is not None
    assert Regex(pattern).search(text) is expected


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "web-1", True),
        ("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "web-", False),
        ("a$", "a\n", False),
        (r"^\s$", "\v", False),
        (r"^\d$", "٣", False),
        (r"^\w$", "é", False),
        (r"^\W$", "é", True),
        ("^.$", "\n", False),
        ("^[^a]$", "\n", True),
        ("^[]a]+$", "a]", True),
        ("[[]", "[", True),
        (r"\Aa|b\z", "xb", True),
        ("", "", True),
        ("$^", "", True),
        ("$^", "a", False),
        ("a||b", "x", True),
        ("^(|a)+$", "aa", True),
        ("}", "}", True),
    ],
)
def test_a_pattern_means_what_it_means_to_re2(pattern: str, text: str, matches: bool) -> None:
    assert Regex(pattern).search(text) is matches


@pytest.mark.parametrize(
    "pattern",
    [
        "(?=a)", "(?!a)", "(?<=a)", "(?i)a", "(?P<n>a)", r"(a)\1", r"\b", r"\pL", r"\Q", r"\Z", r"\x41", "[[:alpha:]]",
        "*a", "a**", "a{2}{3}", "a{", "a{x}", "a{1001}", "a{2,1}", "(a{100}){100}", "(a", "a)", "[a", "[b-a]",
        r"[\w-a]", "[a-c-e]", "\\", "a++",
    ],
)  # fmt: skip
def test_a_pattern_that_others_read_differently_is_refused(pattern: str) -> None:
    with pytest.raises(RegexError):
        parse_regex(pattern)


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a|a)*$", "^(a*)*b$", "a*a*a*a*a*b", "^(a|aa)+$"])
def test_no_text_takes_longer_than_its_length_explains(pattern: str) -> None:
    start = time.process_time()
    assert Regex(pattern).search("a" * 50_000 + "c") is False
    assert time.process_time() - start < 2


def test_a_pattern_forgets_what_it_learnt_before_that_grows_large() -> None:
    regex = Regex("^.*b$")
    text = "".join(map(chr, range(0x4E00, 0x4E00 + TRANSITIONS_KEPT_MAX + 10)))
    assert regex.search(text + "b") is True
    assert regex.search(text) is False
    assert regex._kept <= TRANSITIONS_KEPT_MAX
