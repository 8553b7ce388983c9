"""The differences that are known and documented, each told by what it looks like. Whatever is not here must not be."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

from tests.kubernetes.verdict import Verdict

seen: Counter[str] = Counter()
"""How often each was met."""


def explains(theirs: Verdict, mine: Verdict) -> bool:
    """Whether a documented difference accounts for two verdicts."""
    for name, matches in KNOWN.items():
        if matches(theirs, mine):
            seen[name] += 1
            return True
    return False


def _list_for_a_time(theirs: Verdict, mine: Verdict) -> bool:
    """The array is the only thing wrong, and Kubernetes finds nothing wrong with it."""
    only = {field for reason, field, message in mine.causes - theirs.causes if message.endswith('string: "array"')}
    return bool(only) and all(TIME_FIELD.search(field) for field in only)


def _last_instant(theirs: Verdict, mine: Verdict) -> bool:
    return theirs.accepted and any('"9999-12-31T23:59:59.9999999Z"' in message for _, _, message in mine.causes)


def _whole_fraction_in_a_rule(theirs: Verdict, mine: Verdict) -> bool:
    return any("invalid data, expected int, got float64" in message for _, _, message in theirs.causes)


TIME_FIELD = re.compile(r"(Time|since|arrival|expiresAt|boundTime|start|end|time|restartedAt\.[^.]*|nextRunTime)$")

KNOWN: dict[str, Callable[[Verdict, Verdict], bool]] = {
    "A list where a time is wanted": _list_for_a_time,
    "The last instant of the year 9999": _last_instant,
    "Whole numbers with a fraction, read by a rule": _whole_fraction_in_a_rule,
}
