"""Time spans as people write them: `30s`, `5m`, `1h30m`, `7d`, or plain seconds."""

from __future__ import annotations

import re

from rota.cli.session import bad_usage

UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
SECONDS_MAX = 10 * 365 * 86400


def seconds(text: str) -> float:
    """Return the seconds of a time span."""
    whole = re.fullmatch(r"\d+(\.\d+)?", text)
    total = float(text) if whole else sum(float(amount) * UNITS[unit] for amount, unit in PART.findall(text))
    if not whole and not re.fullmatch(f"({PART.pattern})+", text):
        raise bad_usage(f'"{text}" is no time span; write 30s, 5m, 1h30m or 7d')
    if total > SECONDS_MAX:
        raise bad_usage(f'"{text}" is longer than ten years')
    return total
