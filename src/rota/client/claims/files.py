"""Read and write the files of an instance."""

from __future__ import annotations

import os
import stat
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar
from urllib.parse import quote, unquote, urlencode

import msgspec

from rota.client.connection import header
from rota.client.http import HttpBackend
from rota.registry import ApiError

READ_BYTES_MAX = 64 * 1024 * 1024
"""Bytes of a file that is read into memory."""
R = TypeVar("R")


class Call(Protocol):
    """Sends a request that may be repeated, and checks that the instance is still held."""

    def __call__(self, call: Callable[[], Awaitable[R]], /) -> Awaitable[R]: ...


class Entry(msgspec.Struct, frozen=True, rename="camel"):
    """An entry of a folder, or the target of a path."""

    type: str
    """file, directory, link or other."""
    size: int
    mode: str
    """In octal."""
    modified: float
    """In seconds since 1970."""
    name: str = ""
    """The name in a folder. Bytes that are not UTF-8 are lone surrogates, as in Python's own file names."""
    target: str = ""
    """The target of a link in a folder, where it is known."""


class _WireEntry(msgspec.Struct, rename="camel"):
    type: str
    size: int
    mode: str
    modified: float
    name: str = ""
    target: str = ""
    name_encoded: str = ""
    target_encoded: str = ""

    def entry(self) -> Entry:
        name, target = (
            unquote(encoded, errors="surrogateescape") if encoded else text
            for text, encoded in ((self.name, self.name_encoded), (self.target, self.target_encoded))
        )
        return Entry(self.type, self.size, self.mode, self.modified, name, target)


class _Listing(msgspec.Struct):
    entries: list[_WireEntry]
    truncated: bool = False


class Files:
    """Files of an instance. A relative path begins in its working directory.

    Raises FileNotFoundError, PermissionError, and ApiError for other errors.
    """

    def __init__(self, backend: HttpBackend, namespace: str, instance: str, call: Call, container: str = "") -> None:
        self._backend = backend
        self._of = namespace, instance
        self._base = f"/v1/instances/{quote(namespace, safe='')}/{quote(instance, safe='')}"
        self._call = call
        self._container = container

    def of(self, container: str) -> Files:
        """Return the files of another container than the first."""
        return Files(self._backend, *self._of, self._call, container)

    async def read(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        """Return the content of a file, or a part of it. Download a file that is too large for memory."""
        url = self._url("files", path, offset=offset, limit=READ_BYTES_MAX + 1 if limit is None else limit)

        async def read() -> bytes:
            data = bytearray()
            async with self._backend.stream("GET", url) as stream:
                if header(stream.headers, "content-type").startswith("application/json"):
                    raise IsADirectoryError(f"{path}: it is a folder; list it, or download it")
                async for piece in stream:
                    data += piece
                    if len(data) > READ_BYTES_MAX:
                        raise OverflowError(
                            f"{path}: it has more than {READ_BYTES_MAX} bytes; download it, or read a part"
                        )
            return bytes(data)

        return await self._asked(path, read)

    async def read_text(self, path: str, *, encoding: str = "utf-8") -> str:
        return (await self.read(path)).decode(encoding)

    async def write(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        """Replace a file, entirely or not at all. Missing parent folders are created."""
        url = self._url("files", path, mode=f"{mode & 0o777:03o}")
        headers = {"Content-Type": "application/octet-stream"}
        await self._asked(path, lambda: self._backend.raw("PUT", url, data, headers))

    async def write_text(self, path: str, text: str, *, encoding: str = "utf-8", mode: int = 0o644) -> None:
        await self.write(path, text.encode(encoding), mode=mode)

    async def list(self, path: str = ".") -> list[Entry]:
        """Return the entries of a folder, by name. Raises OverflowError if there are too many for one answer."""
        url = self._url("files", path, list="true")
        response = await self._asked(path, lambda: self._backend.raw("GET", url))
        listing = msgspec.json.decode(response.body, type=_Listing)
        if listing.truncated:
            raise OverflowError(f"{path}: it holds more than the {len(listing.entries)} that are listed at most")
        return [one.entry() for one in listing.entries]

    async def stat(self, path: str) -> Entry:
        """Return the entry that a path leads to."""
        url = self._url("files", path, stat="true")
        response = await self._asked(path, lambda: self._backend.raw("GET", url))
        return msgspec.json.decode(response.body, type=_WireEntry).entry()

    async def remove(self, path: str, *, recursive: bool = False) -> None:
        """Remove a file, a link or an empty folder; with `recursive` a full one."""
        url = self._url("files", path, recursive="true" if recursive else "false")
        await self._asked(path, lambda: self._backend.raw("DELETE", url))

    async def upload(self, source: str | os.PathLike[str], path: str) -> None:
        """Copy a local file to a path, or the content of a local folder below it. Links that lead out are left out."""
        from rota.client.claims import trees

        here = os.fspath(source)
        status = os.stat(here)
        if stat.S_ISDIR(status.st_mode):
            url = self._url("archive", path)
            await self._asked(path, lambda: trees.upload_folder(self._backend, url, here))
            return
        url = self._url("files", path, mode=f"{status.st_mode & 0o777:03o}")
        await self._asked(path, lambda: trees.upload_file(self._backend, url, here))

    async def download(self, path: str, target: str | os.PathLike[str]) -> None:
        """Copy a file, or the content of a folder, to `target` on this host.

        Nothing is created outside of it. Links that lead out of it are left out.
        """
        from rota.client.claims import trees

        here = os.fspath(target)
        found = await self.stat(path)
        if found.type == "directory":
            url = self._url("archive", path)
            await self._asked(path, lambda: trees.download_folder(self._backend, url, here))
        else:
            url = self._url("files", path)
            await self._asked(path, lambda: trees.download_file(self._backend, url, here))

    async def _asked(self, path: str, call: Callable[[], Awaitable[R]]) -> R:
        try:
            return await self._call(call)
        except ApiError as error:
            if (error.details or {}).get("kind") == "files":
                if error.code == 404:
                    raise FileNotFoundError(error.message) from None
                if error.code == 403:
                    raise PermissionError(error.message) from None
            raise

    def _url(self, what: str, path: str, **more: Any) -> str:
        asked = {"path": path, **({"container": self._container} if self._container else {}), **more}
        return f"{self._base}/{what}?{urlencode(asked, quote_via=quote, errors='surrogateescape')}"
