"""Limits for unread answers of users."""

from __future__ import annotations

from rota.registry.errors import too_busy
from rota.server.auth import User
from rota.server.memory import Payer
from rota.server.shares import Shares


def payer_of(user: User) -> Payer:
    return Payer(user.share_key or user.name, user.scope == "admin")


def check_room(answers: Shares, user: User, size: int = 1) -> None:
    """Raise 429 for a user with so many unread answers that there is no room for another one."""
    key, may_use_reserve = payer_of(user)
    if not answers.has_room(key, size, may_use_reserve=may_use_reserve):
        raise too_busy(
            f"{answers.of(key)} bytes of answers to you are not read yet, and there is no room for {size} more: all "
            f"answers have {answers.used} of {answers.total}; read them, and ask for large lists in parts (limit=500)"
        )
