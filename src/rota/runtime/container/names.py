"""What a container is called."""

from __future__ import annotations

import hashlib

from rota.runtime.interface import Subject

NAME_CHARS_MAX = 63
HASH_CHARS = 16
PREFIX = "rota"


def container_name(subject: Subject, container: str) -> str:
    """Always the same for a container of an Instance, and no other's: a namesake that is made later has another uid."""
    tail = hashlib.sha256("/".join((*subject, container)).encode()).hexdigest()[:HASH_CHARS]
    readable = f"{PREFIX}-{subject.name}-{container}"[: NAME_CHARS_MAX - HASH_CHARS - 1]
    return f"{readable}-{tail}"
