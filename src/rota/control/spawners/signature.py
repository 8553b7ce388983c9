"""Whether a delivery is signed by one who knows the Secret. The answer takes as long whatever it is."""

from __future__ import annotations

import hmac
import os
from collections.abc import Mapping, Sequence

HEADERS = ("x-rota-signature", "x-hub-signature-256")
SCHEME = "sha256="
KEY = "secret"
FORMER_KEY = "former-secret"
"""Signs as well, while a Secret is being replaced."""
KEYS_MAX = 2

_NOBODY = os.urandom(32)
"""Signs nothing: nobody knows it."""


def keys_of(secret: Mapping[str, bytes]) -> list[bytes]:
    """The values of a Secret that sign: `secret` and `former-secret`, or the only one. None that is empty."""
    named = [secret[name] for name in (KEY, FORMER_KEY) if name in secret]
    if not named and len(secret) == 1:
        named = list(secret.values())
    return [one for one in named if one][:KEYS_MAX]


def is_signed(headers: Mapping[str, str], body: bytes, keys: Sequence[bytes]) -> bool:
    """Whether one of the keys signs this body. Without keys, none does."""
    given = [headers[name].strip().lower().encode("utf-8", "replace") for name in HEADERS if name in headers]
    given += [b""] * (len(HEADERS) - len(given))
    matches = False
    # As much is done for a spawner that does not exist, or has no key, as for any other.
    for index in range(KEYS_MAX):
        real = index < len(keys)
        digest = hmac.digest(keys[index] if real else _NOBODY, body, "sha256").hex()
        for one in given:
            matches |= hmac.compare_digest(one, f"{SCHEME}{digest}".encode()) and real
    return matches
