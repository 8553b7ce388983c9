"""List the items of a source from its API. Each response, and all of them together, have a bound."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from rota.api.spawner import ITEMS_MAX, GitHubSource
from rota.client import ConnectionFailed
from rota.client.connection import Limits, Response
from rota.client.failures import TimedOut, Unreachable
from rota.client.heads import head
from rota.client.pool import Endpoint, Pool
from rota.control.spawners.apis import Api
from rota.control.spawners.github import PAGE_ITEMS, Page, PollError, Redirect, answer_of, first_page, item_of, wanted
from rota.control.spawners.items import Item

POLL_SECONDS_MAX = 120.0
"""Time limit for all pages together."""
PAGES_MAX = ITEMS_MAX // PAGE_ITEMS
REDIRECTS_MAX = 3
KEPT_CHARACTERS_MAX = 4 * 1024 * 1024
"""Characters of the items of one listing whose content is kept. Newer items are counted only, and read again later."""
LIMITS = Limits(connections=1, connect_seconds=10.0, read_seconds=20.0, response_bytes=8 * 1024 * 1024)

_TOKEN = re.compile(r"[!-~]{1,4096}")


class Listing(NamedTuple):
    """The items of a source at one moment."""

    listed: frozenset[str]
    """The names of the Tasks of all items."""
    waiting: list[Item]
    """Items without a Task, the oldest first."""
    unread: int
    """The number of further items without a Task, whose content was not kept."""
    etag: str
    again_seconds: float = 0.0
    """The pause that the API asks for."""
    is_cut: bool = False
    """True: there are more items than PAGES_MAX pages hold."""


class ListRequest(NamedTuple):
    api: Api
    source: GitHubSource
    token: str
    etag: str
    """The ETag of the last listing; empty: read everything, changed or not."""
    now: float
    """In seconds since 1970."""
    name: Callable[[Item], str]
    """The name of an item's Task."""
    is_made: Callable[[str], bool]


async def read(request: ListRequest, *, limits: Limits = LIMITS) -> Listing | None:
    """Read all items of a source; None: nothing has changed since the last listing. Raises PollError."""
    api = request.api
    if request.token and not _TOKEN.fullmatch(request.token):
        raise PollError("CredentialsRefused", "the token in the Secret holds characters that no token has")
    pool = Pool(Endpoint(api.url, api.host, api.port), _tls() if api.scheme == "https" else None, limits)
    try:
        async with asyncio.timeout(POLL_SECONDS_MAX):
            return await _read(pool, request)
    except TimedOut as error:
        raise PollError("TimedOut", str(error)) from None
    except TimeoutError:
        raise PollError("TimedOut", f"{api.url} did not give all pages within {POLL_SECONDS_MAX:g} s") from None
    except ConnectionFailed as error:
        raise _explained(api, error) from None
    finally:
        await pool.close()


async def _read(pool: Pool, request: ListRequest) -> Listing | None:
    listed: set[str] = set()
    waiting: dict[int, Item] = {}
    path, etag, again, pages = first_page(request.api, request.source), "", 0.0, 0
    while path and pages < PAGES_MAX:
        page = await _page(pool, request, path, "" if pages else request.etag)
        if page is None:
            return None
        etag = etag if pages else page.etag
        again = max(again, page.again_seconds)
        for issue in page.issues:
            if not wanted(request.source, issue):
                continue
            item = item_of(request.source, issue)
            name = request.name(item)
            listed.add(name)
            if not request.is_made(name):
                waiting.setdefault(issue.number, item)
        _drop_excess(waiting)
        pages += 1
        path = page.next
    kept = [waiting[number] for number in sorted(waiting) if waiting[number].fields is not None]
    return Listing(frozenset(listed), kept, len(waiting) - len(kept), etag, again, bool(path))


async def _page(pool: Pool, request: ListRequest, path: str, etag: str) -> Page | None:
    """Read one page, and follow redirects; None: it has not changed."""
    api = request.api
    for _ in range(REDIRECTS_MAX + 1):
        response: Response = await pool.request(_request(api, path, request.token, etag))
        answer = answer_of(api, path, response, request.now)
        if isinstance(answer, Page):
            return answer
        if isinstance(answer, Redirect):
            path = answer.path
        elif etag:
            return None
        else:
            raise PollError("BadAnswer", f"{api.url} answered 304 to a request without an ETag")
    raise PollError("LedElsewhere", f"{api.url} redirects more than {REDIRECTS_MAX} times")


def _request(api: Api, path: str, token: str, etag: str) -> bytes:
    said = {
        "Host": api.authority,
        "User-Agent": "rota",
        "Accept": "application/vnd.github+json",
        "Accept-Encoding": "gzip",
        "X-GitHub-Api-Version": "2022-11-28",
        **({"Authorization": f"Bearer {token}"} if token else {}),
        # An ETag comes from the API, and may not be valid in a request.
        **({"If-None-Match": etag} if etag and etag.isascii() and etag.isprintable() else {}),
    }
    return f"{head('GET', path, said.items())}\r\n".encode("ascii")


def _drop_excess(waiting: dict[int, Item]) -> None:
    """Drop the content of the newest items, beyond KEPT_CHARACTERS_MAX."""
    left = KEPT_CHARACTERS_MAX
    for number in sorted(waiting):
        item = waiting[number]
        if item.fields is not None:
            left -= sum(len(value) for value in item.fields.values() if isinstance(value, str))
            if left < 0:
                waiting[number] = item._replace(fields=None)


def _explained(api: Api, error: ConnectionFailed) -> PollError:
    cause = error.__cause__
    if isinstance(cause, ssl.SSLCertVerificationError):
        return PollError("Unreachable", f"the certificate of {api.url} is not trusted: {cause.verify_message}")
    reason = "Unreachable" if isinstance(error, Unreachable) else "BadAnswer"
    return PollError(reason, str(error))


@cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()
