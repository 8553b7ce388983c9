"""`/v1/instances/NAMESPACE/NAME/files` and `…/archive`: the files of an Instance, and whole trees of them as tar."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote

import msgspec

from rota.api import Instance
from rota.engine.objects import Objects
from rota.registry.errors import ApiError, bad_request, conflict, too_busy
from rota.runtime.files.model import FileEntry, Files, Listing
from rota.runtime.files.program import files_of
from rota.runtime.interface import HasFiles, NotRunning, Refused, Runtime, Subject
from rota.runtime.keeper.client import KeeperError
from rota.server.audit import Audit, noting
from rota.server.auth import User
from rota.server.entering import Absent, authorise, place, present
from rota.server.http import QUERY_PARAMETERS_MAX, Answer, Request, Response, Stream
from rota.server.shares import Shares
from rota.trees.bounds import ARCHIVE_STREAM_BYTES_MAX, FILE_BYTES_MAX, PATH_BYTES_MAX
from rota.trees.failing import FileFailed

VERBS = {"GET": "get", "PUT": "update", "DELETE": "delete"}
AT_ONCE_MAX = 64
"""Operations under way, of all instances together: each is a process."""
AT_ONCE_RESERVED = 8
"""Operations among them that are reserved for admins."""
AT_ONCE_OF_ONE_MAX = 8
AT_ONCE_LEAST = 8
"""Operations that each namespace may have under way, if there are any left."""
UPLOAD_SECONDS_MAX = 3600.0
MODE = 0o644
"""The default mode of a written file."""
BYTES, TAR = "application/octet-stream", "application/x-tar"
CODES = {
    "BadPath": (400, "BadRequest"),
    "BadArchive": (400, "BadRequest"),
    "NotADirectory": (400, "BadRequest"),
    "IsADirectory": (400, "BadRequest"),
    "NotAFile": (400, "BadRequest"),
    "Forbidden": (403, "Forbidden"),
    "NotFound": (404, "NotFound"),
    "NotEmpty": (409, "Conflict"),
    "TooLarge": (413, "RequestEntityTooLarge"),
    "ToolMissing": (501, "ToolMissing"),
    "NoSpace": (507, "NoSpace"),
}
"""The status of each reason for a failure. All others are faults of the instance, or of the server."""
_TARGET = re.compile(rb"/v1/instances/[^/?]+/[^/?]+/(files|archive)(\?|$)")
_NUMBER = re.compile(r"[0-9]{1,15}")
_MODE = re.compile(r"0?[0-7]{3}")
_encode = msgspec.json.Encoder().encode


def streams_body(target: bytes) -> bool:
    """Report whether the body of a request to this target is handed over in pieces."""
    return target.startswith(b"/v1/instances/") and _TARGET.match(target) is not None


class FileParameters(NamedTuple):
    """The parameters of a request."""

    path: str
    container: str
    offset: int
    limit: int
    mode: int
    lists: bool
    stats: bool
    recursive: bool


class FileRequests:
    """Answers requests for files, a bounded number at once."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit
        self._under_way: dict[Subject, int] = {}
        self._shares = Shares(AT_ONCE_MAX, AT_ONCE_RESERVED, least=AT_ONCE_LEAST)

    async def __call__(
        self,
        runtime: Runtime | Absent,
        objects: Objects,
        request: Request,
        user: User,
        namespace: str,
        name: str,
        what: str,
    ) -> Answer:
        """Answer one request; of a stream, up to its beginning."""
        verb = VERBS[request.method]
        with noting(self._audit, user, verb, Instance.api.bucket, namespace, name, what) as note:
            note.code = 499  # If the client goes away before the end, in the convention of web servers.
            try:
                async with asyncio.timeout(user.seconds_left or None):
                    answer = await self._answer(runtime, objects, request, user, namespace, name, what)
            except TimeoutError:
                raise ApiError(401, "Unauthorized", "the credential is no longer good") from None
            note.code = answer.status
            return answer

    async def _answer(
        self,
        runtime: Runtime | Absent,
        objects: Objects,
        request: Request,
        user: User,
        namespace: str,
        name: str,
        what: str,
    ) -> Response | Stream:
        authorise(user, objects, namespace, name, VERBS[request.method], "files")
        runtime = present(runtime)
        if not isinstance(runtime, HasFiles):
            raise ApiError(501, "NotImplemented", f"the runtime {runtime.name} has no way to the files of an instance")
        asked = _asked(request.query_text)
        _, subject, container = place(objects, namespace, name, asked.container)
        leave = self._enter(subject, user)
        try:
            files = files_of(runtime, subject, container)
            answer = await _done(files, request, asked, what)
        except (NotRunning, ProcessLookupError) as error:
            raise conflict(Instance.api, name, str(error)) from None
        except FileFailed as error:
            raise _failed(error, asked.path) from None
        except ConnectionResetError:
            raise ApiError(400, "BadRequest", "the body ended too early") from None
        except (KeeperError, Refused, OSError) as error:
            raise ApiError(500, "InternalError", f"the files of {name} cannot be had: {error}") from None
        else:
            if isinstance(answer, Stream):
                end, leave = leave, _nothing
                return msgspec.structs.replace(answer, on_end=end)
            return answer
        finally:
            leave()

    def _enter(self, subject: Subject, user: User) -> Callable[[], None]:
        shares, tenant = self._shares, subject.namespace
        if not shares.has_room(tenant, may_use_reserve=user.scope == "admin"):
            own = shares.of(tenant)
            raise too_busy(f"{shares.used} requests for files are under way already, {own} of them of {tenant}")
        count = self._under_way.get(subject, 0)
        if count >= AT_ONCE_OF_ONE_MAX:
            raise too_busy(f"{AT_ONCE_OF_ONE_MAX} requests for files of {subject.name} are under way already")
        self._under_way[subject] = count + 1
        shares.take(tenant)

        def leave() -> None:
            shares.give_back(tenant)
            self._under_way[subject] -= 1
            if not self._under_way[subject]:
                del self._under_way[subject]

        return leave


def _nothing() -> None:
    """Do nothing: the stream gives the place back."""


async def _done(files: Files, request: Request, asked: FileParameters, what: str) -> Response | Stream:
    match request.method, what:
        case "GET", "files":
            return await _read(files, asked)
        case "PUT", "files":
            body = _bounded(request, FILE_BYTES_MAX)
            async with asyncio.timeout(UPLOAD_SECONDS_MAX):
                entry = await files.write(asked.path, body, asked.mode)
            return Response(200, _encode(_shown(entry)))
        case "DELETE", "files":
            await files.remove(asked.path, recursive=asked.recursive)
            return Response(200, _encode({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}))
        case "GET", "archive":
            return Stream(await files.pack(asked.path), TAR)
        case "PUT", "archive":
            body = _bounded(request, ARCHIVE_STREAM_BYTES_MAX)
            async with asyncio.timeout(UPLOAD_SECONDS_MAX):
                tree = await files.unpack(asked.path, body)
            return Response(200, _encode(tree))
    raise ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")


async def _read(files: Files, asked: FileParameters) -> Response | Stream:
    if asked.stats:
        return Response(200, _encode(_shown(await files.stat(asked.path))))
    found = await files.list(asked.path) if asked.lists else await files.read(asked.path, asked.offset, asked.limit)
    if isinstance(found, Listing):
        return Response(200, _encode({"entries": [_shown(one) for one in found.entries], "truncated": found.truncated}))
    headers = (("Rota-Mode", f"{found.entry.mode:04o}"), ("Rota-Length", str(found.length)))
    return Stream(found.bytes, BYTES, headers=headers)


def _bounded(request: Request, bytes_max: int) -> AsyncIterator[bytes]:
    """Return the body. Raises FileFailed at once if its declared length is too large."""
    assert request.pieces is not None
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > bytes_max:
        raise _too_large(bytes_max)
    return _counted(request.pieces, bytes_max)


async def _counted(pieces: AsyncIterator[bytes], bytes_max: int) -> AsyncIterator[bytes]:
    total = 0
    async for piece in pieces:
        total += len(piece)
        if total > bytes_max:
            raise _too_large(bytes_max)
        yield piece


def _too_large(bytes_max: int) -> FileFailed:
    return FileFailed("TooLarge", f"the request's body is larger than {bytes_max} bytes")


def _shown(entry: FileEntry) -> dict[str, Any]:
    out: dict[str, Any] = msgspec.to_builtins(entry) | {"mode": f"{entry.mode:04o}"}
    for field in ("name", "target"):
        text = out.get(field, "")
        if not text.isascii() and text != (readable := text.encode("utf-8", "replace").decode()):
            # The encoded name is for requests.
            out |= {field: readable, f"{field}Encoded": quote(text, errors="surrogateescape")}
    return out


def _failed(error: FileFailed, path: str) -> ApiError:
    code, reason = CODES.get(error.reason, (500, "InternalError"))
    # The message may contain a file name that is not UTF-8.
    message = error.message.encode("utf-8", "replace").decode()
    return ApiError(code, reason, message, details={"name": path.encode("utf-8", "replace").decode(), "kind": "files"})


def _asked(query: str) -> FileParameters:
    if query.count("&") >= QUERY_PARAMETERS_MAX:
        raise bad_request(f"a request has at most {QUERY_PARAMETERS_MAX} query parameters")
    given = dict(parse_qsl(query, keep_blank_values=True, errors="surrogateescape"))
    path = given.get("path", "")
    if not path:
        raise bad_request("path: say which file or folder, such as path=/workspace/notes.txt")
    if "\0" in path or len(path.encode("utf-8", "surrogateescape")) > PATH_BYTES_MAX:
        raise bad_request(f"path: a path has at most {PATH_BYTES_MAX} bytes, and no zero byte")
    mode = given.get("mode") or f"{MODE:o}"
    if not _MODE.fullmatch(mode):
        raise bad_request(f"mode: {mode!r} is no mode; write three octal digits, such as 644")
    offset, limit = _number(given, "offset", 0), _number(given, "limit", -1)
    flags = (given.get(flag) in ("true", "1") for flag in ("list", "stat", "recursive"))
    # Without a limit, one byte more shows that the file is too large.
    limit = FILE_BYTES_MAX + 1 if limit < 0 else limit
    return FileParameters(path, given.get("container", ""), offset, limit, int(mode, 8), *flags)


def _number(given: dict[str, str], name: str, otherwise: int) -> int:
    text = given.get(name, "")
    if text and not _NUMBER.fullmatch(text):
        raise bad_request(f"{name}: {text!r} is no number of bytes")
    return int(text) if text else otherwise
