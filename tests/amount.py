"""How much is tried: what every change can afford, or what takes long (`make long`)."""

from __future__ import annotations

import os

LONG = bool(os.environ.get("ROTA_LONG"))


def amount(short: int, long: int) -> int:
    return long if LONG else short
