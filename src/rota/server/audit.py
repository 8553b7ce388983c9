"""The audit trail: one line for each write, each read of a Secret or of a backup, and each refusal for want of a right.

A line says who did what to which object and with which token, by its id, and at which revision; never what is in the
object, nor a token. What failed and what was refused in masses is counted instead of written one by one, and no text
of a line is long, so that nobody can push older lines out of the trail by being refused.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from rota.api import Secret
from rota.registry.errors import ApiError
from rota.room import keep_room
from rota.server.auth import User

log = logging.getLogger(__name__)

FILE_BYTES_MAX = 16 * 1024 * 1024
"""A full file is put aside once, so the trail has at most two of them."""
ROOM_BYTES = 1024 * 1024
"""Space that the file holds for lines to come: whoever fills the disk does not act unseen."""
REFUSALS_PER_SECOND_MAX = 10
"""Lines for refusals of one credential in a second. The next line after those says how many more there were."""
REFUSALS_PER_HOUR_MAX = 1000
"""And in an hour: a credential that is always refused takes days to fill a file."""
REFUSED_KEYS_MAX = 10_000
"""Credentials whose refusals are counted apart; all others are counted together."""
RETRY_SECONDS = 5
HOUR_SECONDS = 3600
TEXT_LENGTH_MAX = 253
"""Of each text of a line that is longer than most."""
LINE_BYTES_USUAL = 512
FAILURE = 400
"""The code from which on something was not done."""
NOT_FOUND = 404
NOBODY = User("", "")
"""Somebody who has not said who they are."""
_encode = msgspec.json.Encoder().encode
log = logging.getLogger(__name__)


class Line(msgspec.Struct, omit_defaults=True, rename="camel"):
    """A line of the trail."""

    time: str
    user: str
    scope: str
    verb: str
    resource: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    code: int = 0
    revision: int = 0
    dry_run: bool = False
    token: str = ""
    """The id of the token; of a claim's or a runner's, the uid of what it is of."""
    reason: str = ""
    count: int = 0
    """So many like this were not written down one by one."""
    role: str = ""
    """The namespace and the name of the Role of the token, if it has one."""
    stage: str = ""
    """`RequestReceived`: written before it is done, where nothing is done that cannot be recorded."""


def _cut(line: Line) -> Line:
    return msgspec.structs.replace(line, **{name: getattr(line, name)[:TEXT_LENGTH_MAX] for name in TEXTS})


TEXTS = tuple(field.name for field in msgspec.structs.fields(Line) if field.type is str)


class Audit:
    """The trail, in a file that only the server's user can read."""

    def __init__(self, path: Path, *, required: bool = False, clock: Callable[[], float] = time.time) -> None:
        """`required`: serve nothing that cannot be recorded."""
        self._path = path
        self.required = required
        self._clock = clock
        self.trouble = ""
        """Why the last line could not be written; empty if it could."""
        self._lost = 0
        """Lines that could not be written since the last one that could."""
        self._refused: dict[str, _Refusals] = {}
        self._hour = 0
        self._open()

    def _open(self) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._file = os.fdopen(descriptor, "ab", buffering=0)
        self._size = self._path.stat().st_size
        self._room_end = 0

    # Recording.

    def record(
        self,
        user: User,
        verb: str,
        resource: str,
        namespace: str = "",
        name: str = "",
        subresource: str = "",
        code: int = 0,
        revision: int = 0,
        dry_run: bool = False,
    ) -> None:
        """Write down what was done, or failed. Each failure that looked into a Secret has a line."""
        count = self._count(user) if code >= FAILURE else 0
        if count is None:
            if not _looked_into_secret(verb, resource, code):
                return
            self._uncount(user)
            count = 0
        about = (self._now(), user.name, user.scope, verb, resource, namespace, name, subresource, code, revision)
        self._write(Line(*about, dry_run, user.token_id, count=count, role=user.role_path))

    def refused(
        self,
        user: User,
        verb: str,
        resource: str,
        namespace: str = "",
        name: str = "",
        subresource: str = "",
        code: int = 403,
        reason: str = "",
    ) -> None:
        """Write down that something was refused for want of a right, or count it if there are many."""
        count = self._count(user)
        if count is None:
            return
        about = (self._now(), user.name, user.scope, verb, resource, namespace, name, subresource, code)
        self._write(Line(*about, token=user.token_id, reason=reason, count=count, role=user.role_path))

    def _count(self, user: User) -> int | None:
        """The number of refusals of somebody that were only counted before this one; None: so is this."""
        now = self._clock()
        if int(now) // HOUR_SECONDS != self._hour:
            self._hour = int(now) // HOUR_SECONDS
            self._refused = {id_: one for id_, one in self._refused.items() if one.held_back}
        key = user.party
        if key not in self._refused and len(self._refused) >= REFUSED_KEYS_MAX:
            key = "*"
        return self._refused.setdefault(key, _Refusals()).take(now)

    def _uncount(self, user: User) -> None:
        """The last one that was only counted has a line after all."""
        self._refused[user.party if user.party in self._refused else "*"].held_back -= 1

    def begin(self, user: User, method: str, path: str) -> None:
        """Where recording is required, write down what is about to be done. Raises ApiError if that cannot be."""
        if self.required:
            self._write(
                Line(
                    self._now(),
                    user.name,
                    user.scope,
                    method.lower(),
                    path,
                    token=user.token_id,
                    role=user.role_path,
                    stage="RequestReceived",
                )
            )

    def check(self) -> None:
        """Raise ApiError where recording is required, and the last line could not be written."""
        if self.required and self.trouble:
            self._write(Line(self._now(), "", "", "resume", "audit"))

    def _write(self, line: Line) -> None:
        text = _encode(line) + b"\n"
        if len(text) > LINE_BYTES_USUAL:
            text = _encode(_cut(line)) + b"\n"
        if self._lost:
            text = _encode(Line(line.time, "rota", "server", "lose", "audit", name=str(self._lost))) + b"\n" + text
        try:
            self._append(text)
        except (OSError, ValueError) as error:
            if not self.trouble:
                log.error("the audit trail %s cannot be written: %s", self._path, error)
            self.trouble = str(error) or type(error).__name__
            if self.required:
                raise _not_recorded() from None
            self._lost += 1
        else:
            if self.trouble:
                log.warning("the audit trail %s can be written again", self._path)
            self.trouble, self._lost = "", 0

    def _append(self, text: bytes) -> None:
        if self._file.closed:
            self._open()
        if self._size + len(text) > FILE_BYTES_MAX:
            self._file.close()
            self._path.replace(self._path.with_suffix(".log.1"))
            self._open()
        if self._size + ROOM_BYTES > self._room_end and keep_room(self._path, self._size + 2 * ROOM_BYTES):
            self._room_end = self._size + 2 * ROOM_BYTES
        written = self._file.write(text)
        if written != len(text):
            # A part of a line is of no use, and would spoil the next.
            os.ftruncate(self._file.fileno(), self._size)
            raise OSError(f"{written} of {len(text)} bytes were written")
        self._size += len(text)

    def close(self) -> None:
        """Write down what was only counted, and close the file."""
        left = sum(one.held_back for one in self._refused.values())
        if left:
            with contextlib.suppress(ApiError):
                self._write(Line(self._now(), "", "", "refused", "requests", count=left))
        self._file.close()

    def _now(self) -> str:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._clock()))


class _Refusals:
    """Refusals of one credential in the current second, and in the current hour."""

    __slots__ = ("held_back", "hour", "second", "written", "written_in_hour")

    def __init__(self) -> None:
        self.second = self.hour = 0
        self.written = self.written_in_hour = 0
        self.held_back = 0

    def take(self, now: float) -> int | None:
        """The number of those that were held back before this one; None if this one is to be as well."""
        if int(now) != self.second:
            self.second, self.written = int(now), 0
        if int(now) // HOUR_SECONDS != self.hour:
            self.hour, self.written_in_hour = int(now) // HOUR_SECONDS, 0
        if self.written >= REFUSALS_PER_SECOND_MAX or self.written_in_hour >= REFUSALS_PER_HOUR_MAX:
            self.held_back += 1
            return None
        self.written += 1
        self.written_in_hour += 1
        count, self.held_back = self.held_back, 0
        return count


def record_offline(path: Path, verb: str, resource: str, revision: int = 0) -> None:
    """Write down in the trail of a home what somebody did to it while its server was stopped."""
    audit = Audit(path)
    try:
        audit.record(User("local", "admin"), verb, resource, code=200, revision=revision)
    finally:
        audit.close()


def _looked_into_secret(verb: str, resource: str, code: int) -> bool:
    """Whether something that failed was decided by what a Secret has in it. Of one that is not there nothing is."""
    return resource == Secret.api.bucket and verb != "create" and code != NOT_FOUND


def _not_recorded() -> ApiError:
    return ApiError(
        503,
        "ServiceUnavailable",
        "the audit trail cannot be written, and this server does nothing that it cannot record (--audit-required); "
        "its log says why",
        details={"retryAfterSeconds": RETRY_SECONDS},
    )


class Note(msgspec.Struct):
    """What is not known of a line before it is over."""

    name: str
    code: int = 500


@contextlib.contextmanager
def noting(
    audit: Audit, user: User, verb: str, resource: str, namespace: str, name: str = "", what: str = ""
) -> Iterator[Note]:
    """Write down that something was asked for, however it ends."""
    note = Note(name)
    try:
        yield note
    except ApiError as error:
        note.code = error.code
        raise
    finally:
        audit.record(user, verb, resource, namespace, note.name, what, note.code)
