"""The amount that tests try: as much as every change can afford, or more, which takes long (`make long`)."""

from __future__ import annotations

import os

LONG = bool(os.environ.get("ROTA_LONG"))


def amount(short: int, long: int) -> int:
    return long if LONG else short
