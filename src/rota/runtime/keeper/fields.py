"""Fields of a request, validated one by one."""

from __future__ import annotations

import ipaddress
import os
from typing import Any

from rota.runtime.keeper import protocol
from rota.runtime.keeper.closed_addresses import Nets

_TEXT_CHARS_MAX = 131072
_LIMITS = ("memory", "pids", "cpu", "nofile")
_CLOSED_MAX = 16


class RequestRefused(Exception):  # noqa: N818
    """A refused request: a reason for programs, and a message for people."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message


class Fields:
    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values

    def _typed(self, name: str, kind: type | tuple[type, ...], value: Any) -> Any:
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise RequestRefused("BadRequest", f"{name}: missing or of the wrong type")
        return value

    def text(self, name: str, chars_max: int = _TEXT_CHARS_MAX) -> str:
        return self._text(name, self.values.get(name), chars_max)

    def _text(self, name: str, value: Any, chars_max: int = _TEXT_CHARS_MAX) -> str:
        text: str = self._typed(name, str, value)
        if not text or len(text) > chars_max or not _is_plain(text):
            raise RequestRefused("BadRequest", f"{name}: must have 1 to {chars_max} characters, none of them NUL")
        return text

    def optional_text(self, name: str) -> str | None:
        return None if self.values.get(name) is None else self.text(name)

    def integer(self, name: str) -> int:
        number: int = self._typed(name, int, self.values.get(name))
        return number

    def optional_integer(self, name: str) -> int | None:
        number = None if self.values.get(name) is None else self.integer(name)
        if number is not None and not 0 <= number < 2**32 - 1:
            raise RequestRefused("BadRequest", f"{name}: out of range")
        return number

    def number(self, name: str, default: float) -> float:
        number = float(self._typed(name, (int, float), self.values.get(name, default)))
        if not 0 <= number <= protocol.STOP_GRACE_SECONDS_MAX:
            raise RequestRefused("BadRequest", f"{name}: must be from 0 to {protocol.STOP_GRACE_SECONDS_MAX:g}")
        return number

    def optional_number(self, name: str) -> float | None:
        return None if self.values.get(name) is None else self.number(name, 0)

    def leases(self) -> dict[str, float | None]:
        """Return the lease of each key in seconds, or None for no lease."""
        given: dict[Any, Any] = self._typed("leases", dict, self.values.get("leases"))
        return {key: Fields(given).optional_number(key) for key in given}

    def flag(self, name: str) -> bool:
        flag: bool = self._typed(name, bool, self.values.get(name, False))
        return flag

    def group(self, name: str) -> Fields:
        return Fields(self._typed(name, dict, self.values.get(name)))

    def user(self) -> tuple[int, int] | None:
        """Return the uid and gid to run as, or neither: with one alone, the other would be the keeper's."""
        uid, gid = self.optional_integer("uid"), self.optional_integer("gid")
        if uid is None and gid is None:
            return None
        if uid is None or gid is None:
            raise RequestRefused("BadRequest", "uid and gid: give both or none")
        if os.geteuid() != 0:
            raise RequestRefused("NotAllowed", "uid and gid: only a keeper that runs as root can give them")
        return uid, gid

    def argv(self) -> list[str]:
        words: list[Any] = self._typed("argv", list, self.values.get("argv"))
        if not words:
            raise RequestRefused("BadRequest", "argv: must name a program")
        for word in words[1:]:
            if not isinstance(word, str) or not _is_plain(word):
                raise RequestRefused("BadRequest", "argv: must be strings without NUL")
        return [self._text("argv", words[0]), *words[1:]]

    def env(self) -> dict[str, str]:
        env: dict[Any, Any] = self._typed("env", dict, self.values.get("env"))
        for name, value in env.items():
            if not isinstance(value, str) or not name or "=" in name or not _is_plain(name + value):
                raise RequestRefused("BadRequest", f"env: {name!r} cannot be in an environment")
        return env

    def limits(self) -> dict[str, float]:
        given: dict[Any, Any] = self._typed("limits", dict, self.values.get("limits") or {})
        limits = {name: given[name] for name in _LIMITS if given.get(name) is not None}
        for name, value in limits.items():
            if self._typed(f"limits.{name}", (int, float), value) <= 0 or value >= 2**63:
                raise RequestRefused("BadRequest", f"limits.{name}: out of range")
        return limits

    def unmet(self) -> list[str]:
        names: list[Any] = self._typed("unmet", list, self.values.get("unmet", []))
        if not all(name in _LIMITS for name in names):
            raise RequestRefused("BadRequest", f"unmet: must be of {', '.join(_LIMITS)}")
        return names

    def closed(self) -> Nets:
        """Return the ranges of addresses that are closed to a child."""
        given: list[Any] = self._typed("closed", list, self.values.get("closed", []))
        if len(given) > _CLOSED_MAX:
            raise RequestRefused("BadRequest", f"closed: has more than {_CLOSED_MAX} ranges")
        try:
            return tuple(ipaddress.ip_network(self._text("closed", one)) for one in given)
        except ValueError as error:
            raise RequestRefused("BadRequest", f"closed: {error}") from None

    def log(self) -> tuple[str, int, int]:
        prefix = self.text("path_prefix", protocol.LOG_PATH_CHARS_MAX)
        bytes_max = self._typed("bytes_max", int, self.values.get("bytes_max", protocol.LOG_BYTES_MAX))
        files_max = self._typed("files_max", int, self.values.get("files_max", protocol.LOG_FILES_MAX))
        if not os.path.isabs(prefix) or bytes_max < 1 or not 1 <= files_max <= protocol.LOG_FILES_LIMIT:
            raise RequestRefused("BadRequest", "log: wants an absolute path_prefix, bytes_max and files_max above 0")
        return prefix, bytes_max, files_max


def _is_plain(text: str) -> bool:
    """Report whether the kernel accepts a string: it has no NUL and no half of a surrogate pair."""
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False
