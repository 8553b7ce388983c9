"""A server that speaks as much of GitHub's API as spawners need, and can misbehave."""

from __future__ import annotations

import asyncio
import hashlib
import json
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit


class Asked(NamedTuple):
    """A request that came in."""

    path: str
    query: dict[str, str]
    headers: dict[str, str]


class Reply(NamedTuple):
    """An answer that is given whatever is asked."""

    status: int
    headers: Mapping[str, str] = MappingProxyType({})
    body: bytes = b"{}"


Misbehaviour = Callable[[asyncio.StreamWriter], Any]


def issue(number: int, *labels: str, state: str = "open", pull: bool = False, **more: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "number": number,
        "title": f"Issue {number}",
        "body": f"Body of {number}",
        "state": state,
        "html_url": f"https://git.example/acme/app/issues/{number}",
        "user": {"login": "ann", "id": 1},
        "labels": [{"id": 1, "name": label, "color": "red"} for label in labels],
        "created_at": "2024-01-01T00:00:00Z",
        "updated_at": "2024-01-01T00:00:00Z",
    }
    if pull:
        made["pull_request"] = {"url": "x"}
    return made | more


def pull(number: int, *labels: str, **more: Any) -> dict[str, Any]:
    made = issue(number, *labels, head={"ref": f"fix-{number}", "sha": "abc"}, base={"ref": "main"}, draft=False)
    return made | more


class Tracker:
    """The repository acme/app, at `/api/v3`."""

    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = []
        """As they are listed: what changed last comes first."""
        self.asked: list[Asked] = []
        self.script: list[Reply | Misbehaviour] = []
        """The first answers, one for each request; after them it behaves."""
        self.has_etags = True
        self.always: dict[str, str] = {}
        """Headers of every proper answer."""
        self.url = ""

    @property
    def pages(self) -> list[int]:
        return [int(one.query.get("page", "1")) for one in self.asked]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                asked = _parsed(head)
                self.asked.append(asked)
                if self.script:
                    one = self.script.pop(0)
                    if not isinstance(one, Reply):
                        await one(writer)
                        return
                    reply = one
                else:
                    reply = self._answer(asked)
                writer.write(_encoded(reply))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def _answer(self, asked: Asked) -> Reply:
        if asked.path not in ("/api/v3/repos/acme/app/issues", "/api/v3/repos/acme/app/pulls"):
            return Reply(404, body=b'{"message": "Not Found"}')
        page, size = int(asked.query.get("page", "1")), int(asked.query["per_page"])
        found = [one for one in self.items if asked.query["state"] in ("all", one["state"])]
        body = json.dumps(found[(page - 1) * size : page * size]).encode()
        headers = dict(self.always)
        if self.has_etags:
            headers["ETag"] = etag = f'W/"{hashlib.sha256(body).hexdigest()}"'
            if asked.headers.get("if-none-match") == etag:
                return Reply(304, headers, b"")
        if page * size < len(found):
            query = "&".join(f"{key}={value}" for key, value in {**asked.query, "page": page + 1}.items())
            url = f"{self.url}/repos/acme/app/{asked.path.rpartition('/')[2]}?{query}"
            headers["Link"] = f'<{url}>; rel="next", <{url}>; rel="last"'
        return Reply(200, headers, body)


def _parsed(head: bytes) -> Asked:
    first, *lines = head.decode("latin-1").strip().split("\r\n")
    url = urlsplit(first.split(" ")[1])
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Asked(url.path, dict(parse_qsl(url.query)), headers)


def _encoded(reply: Reply) -> bytes:
    headers = {"Content-Type": "application/json", "Content-Length": str(len(reply.body)), **reply.headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {reply.status} Said\r\n{head}\r\n".encode() + reply.body


@asynccontextmanager
async def tracker(tls: ssl.SSLContext | None = None) -> AsyncIterator[Tracker]:
    made = Tracker()
    connections: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(made.serve(reader, writer))
        connections.add(task)
        task.add_done_callback(connections.discard)

    server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls)
    made.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{server.sockets[0].getsockname()[1]}/api/v3"
    try:
        yield made
    finally:
        server.close()
        for task in tuple(connections):
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
