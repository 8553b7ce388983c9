"""The audit trail: one line for each write, each read of a Secret or of a backup, and each refused permission.

A line has the user, the act, the object with its revision, and the id of the token; never content of the object, nor a
token. Failures and refusals in large numbers are counted instead of written one by one, and every text of a line is
bounded, so that refused requests cannot push older lines out of the trail.
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
"""A full file is renamed once, so the trail has at most two files."""
ROOM_BYTES = 1024 * 1024
"""Disk space that is reserved for further lines, so that nobody can act unrecorded by filling the disk."""
REFUSALS_PER_SECOND_MAX = 10
"""Lines per second for refusals of one credential. The next line has the number of omitted ones."""
REFUSALS_PER_HOUR_MAX = 1000
"""Lines per hour, so that a credential that is always refused takes days to fill a file."""
REFUSED_KEYS_MAX = 10_000
"""Credentials whose refusals are counted separately; those of all others are counted together."""
RETRY_SECONDS = 5
HOUR_SECONDS = 3600
TEXT_LENGTH_MAX = 253
"""Characters of each text in a long line. Longer texts are cut."""
LINE_BYTES_USUAL = 512
FAILURE = 400
"""The lowest status code of a failure."""
NOT_FOUND = 404
NOBODY = User("", "")
"""The user of an unauthenticated request."""
_encode = msgspec.json.Encoder().encode
log = logging.getLogger(__name__)


class Entry(msgspec.Struct, omit_defaults=True, rename="camel"):
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
    """The id of the token; for the token of a claim or a runner, the uid of its object."""
    reason: str = ""
    count: int = 0
    """The number of similar lines that were omitted."""
    role: str = ""
    """The namespace and name of the token's Role, if it has one."""
    stage: str = ""
    """`RequestReceived` for a line that is written before the act, where recording is required."""


def _cut(line: Entry) -> Entry:
    return msgspec.structs.replace(line, **{name: getattr(line, name)[:TEXT_LENGTH_MAX] for name in TEXTS})


TEXTS = tuple(field.name for field in msgspec.structs.fields(Entry) if field.type is str)


class Audit:
    """The trail, in a file that only the server's user can read."""

    def __init__(self, path: Path, *, required: bool = False, clock: Callable[[], float] = time.time) -> None:
        """`required`: refuse requests that cannot be recorded."""
        self._path = path
        self.required = required
        self._clock = clock
        self.trouble = ""
        """The reason why the last line could not be written; empty if it could."""
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
        """Record an act or its failure. A failure that depended on a Secret's content is never only counted."""
        count = self._count(user) if code >= FAILURE else 0
        if count is None:
            if not _looked_into_secret(verb, resource, code):
                return
            self._uncount(user)
            count = 0
        about = (self._now(), user.name, user.scope, verb, resource, namespace, name, subresource, code, revision)
        self._write(Entry(*about, dry_run, user.token_id, count=count, role=user.role_path))

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
        """Record a refused permission, or count it if there are many."""
        count = self._count(user)
        if count is None:
            return
        about = (self._now(), user.name, user.scope, verb, resource, namespace, name, subresource, code)
        self._write(Entry(*about, token=user.token_id, reason=reason, count=count, role=user.role_path))

    def _count(self, user: User) -> int | None:
        """Return the number of refusals omitted since the last line, or None to omit this one, too."""
        now = self._clock()
        if int(now) // HOUR_SECONDS != self._hour:
            self._hour = int(now) // HOUR_SECONDS
            self._refused = {id_: one for id_, one in self._refused.items() if one.held_back}
        key = user.share_key
        if key not in self._refused and len(self._refused) >= REFUSED_KEYS_MAX:
            key = "*"
        return self._refused.setdefault(key, _Refusals()).take(now)

    def _uncount(self, user: User) -> None:
        """Take the last refusal out of the count, because it gets a line."""
        self._refused[user.share_key if user.share_key in self._refused else "*"].held_back -= 1

    def begin(self, user: User, method: str, path: str) -> None:
        """Record an act before it is done, if recording is required. Raises ApiError if that fails."""
        if self.required:
            self._write(
                Entry(
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
        """Raise ApiError if recording is required and the last line could not be written."""
        if self.required and self.trouble:
            self._write(Entry(self._now(), "", "", "resume", "audit"))

    def _write(self, line: Entry) -> None:
        text = _encode(line) + b"\n"
        if len(text) > LINE_BYTES_USUAL:
            text = _encode(_cut(line)) + b"\n"
        if self._lost:
            text = _encode(Entry(line.time, "rota", "server", "lose", "audit", name=str(self._lost))) + b"\n" + text
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
            # A part of a line would spoil the next one.
            os.ftruncate(self._file.fileno(), self._size)
            raise OSError(f"{written} of {len(text)} bytes were written")
        self._size += len(text)

    def close(self) -> None:
        """Write a line with the number of omitted refusals, and close the file."""
        left = sum(one.held_back for one in self._refused.values())
        if left:
            with contextlib.suppress(ApiError):
                self._write(Entry(self._now(), "", "", "refused", "requests", count=left))
        self._file.close()

    def _now(self) -> str:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._clock()))


class _Refusals:
    """The refusals of one credential in the current second and hour."""

    __slots__ = ("held_back", "hour", "second", "written", "written_in_hour")

    def __init__(self) -> None:
        self.second = self.hour = 0
        self.written = self.written_in_hour = 0
        self.held_back = 0

    def take(self, now: float) -> int | None:
        """Return the number of refusals omitted since the last line, or None to omit this one, too."""
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
    """Record what was done to a home while its server was stopped."""
    audit = Audit(path)
    try:
        audit.record(User("local", "admin"), verb, resource, code=200, revision=revision)
    finally:
        audit.close()


def _looked_into_secret(verb: str, resource: str, code: int) -> bool:
    """Report whether a failure depended on the content of a Secret. It did not if the Secret does not exist."""
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
    """The parts of a line that are known only at the end of the act."""

    name: str
    code: int = 500


@contextlib.contextmanager
def noting(
    audit: Audit, user: User, verb: str, resource: str, namespace: str, name: str = "", what: str = ""
) -> Iterator[Note]:
    """Record a request at the end, however it ends."""
    note = Note(name)
    try:
        yield note
    except ApiError as error:
        note.code = error.code
        raise
    finally:
        audit.record(user, verb, resource, namespace, note.name, what, note.code)
