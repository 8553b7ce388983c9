"""Asking an API for everything that a source is for. Every answer, and all of it together, has a bound."""

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
from rota.control.spawners.github import PAGE_ITEMS, Elsewhere, Page, Trouble, answer_of, first_page, item_of, wanted
from rota.control.spawners.items import Item

POLL_SECONDS_MAX = 120.0
"""For all pages together."""
PAGES_MAX = ITEMS_MAX // PAGE_ITEMS
REDIRECTS_MAX = 3
KEPT_CHARACTERS_MAX = 4 * 1024 * 1024
"""What the items of one listing say, in all. Beyond that the newest are only counted, and read again when it is their
turn."""
LIMITS = Limits(connections=1, connect_seconds=10.0, read_seconds=20.0, response_bytes=8 * 1024 * 1024)

_TOKEN = re.compile(r"[!-~]{1,4096}")


class Listing(NamedTuple):
    """What an API has of what a source is for."""

    listed: frozenset[str]
    """The names of the Tasks of all items."""
    waiting: list[Item]
    """Those that have none yet, the oldest first."""
    unread: int
    """How many more of these there are, whose content was not kept."""
    etag: str
    again_seconds: float = 0.0
    """It wants not to be asked before this."""
    is_cut: bool = False
    """Whether there are more items than are read."""


class Asked(NamedTuple):
    """What is asked for, and by whom."""

    api: Api
    source: GitHubSource
    token: str
    etag: str
    """Of the last answer; empty: tell all, whether it has changed or not."""
    now: float
    """In seconds since 1970."""
    name: Callable[[Item], str]
    """The name of an item's Task."""
    is_made: Callable[[str], bool]


async def read(asked: Asked, *, limits: Limits = LIMITS) -> Listing | None:
    """All items that a source is for; None when nothing has changed since. Raises Trouble."""
    api = asked.api
    if asked.token and not _TOKEN.fullmatch(asked.token):
        raise Trouble("CredentialsRefused", "the token in the Secret holds characters that no token has")
    pool = Pool(Endpoint(api.url, api.host, api.port), _tls() if api.scheme == "https" else None, limits)
    try:
        async with asyncio.timeout(POLL_SECONDS_MAX):
            return await _read(pool, asked)
    except TimedOut as error:
        raise Trouble("TimedOut", str(error)) from None
    except TimeoutError:
        raise Trouble("TimedOut", f"{api.url} did not give all pages within {POLL_SECONDS_MAX:g} s") from None
    except ConnectionFailed as error:
        raise _explained(api, error) from None
    finally:
        await pool.close()


async def _read(pool: Pool, asked: Asked) -> Listing | None:
    listed: set[str] = set()
    waiting: dict[int, Item] = {}
    path, etag, again, pages = first_page(asked.api, asked.source), "", 0.0, 0
    while path and pages < PAGES_MAX:
        page = await _page(pool, asked, path, "" if pages else asked.etag)
        if page is None:
            return None
        etag = etag if pages else page.etag
        again = max(again, page.again_seconds)
        for issue in page.issues:
            if not wanted(asked.source, issue):
                continue
            item = item_of(asked.source, issue)
            name = asked.name(item)
            listed.add(name)
            if not asked.is_made(name):
                waiting.setdefault(issue.number, item)
        _drop_excess(waiting)
        pages += 1
        path = page.next
    kept = [waiting[number] for number in sorted(waiting) if waiting[number].fields is not None]
    return Listing(frozenset(listed), kept, len(waiting) - len(kept), etag, again, bool(path))


async def _page(pool: Pool, asked: Asked, path: str, etag: str) -> Page | None:
    """One page, wherever the API has it; None when it is as it was."""
    api = asked.api
    for _ in range(REDIRECTS_MAX + 1):
        response: Response = await pool.request(_request(api, path, asked.token, etag))
        answer = answer_of(api, path, response, asked.now)
        if isinstance(answer, Page):
            return answer
        if isinstance(answer, Elsewhere):
            path = answer.path
        elif etag:
            return None
        else:
            raise Trouble("BadAnswer", f"{api.url} says that nothing has changed, which it was not asked")
    raise Trouble("LedElsewhere", f"{api.url} redirects more than {REDIRECTS_MAX} times")


def _request(api: Api, path: str, token: str, etag: str) -> bytes:
    said = {
        "Host": api.authority,
        "User-Agent": "rota",
        "Accept": "application/vnd.github+json",
        "Accept-Encoding": "gzip",
        "X-GitHub-Api-Version": "2022-11-28",
        **({"Authorization": f"Bearer {token}"} if token else {}),
        # An API's own word, which may be none that can be said back.
        **({"If-None-Match": etag} if etag and etag.isascii() and etag.isprintable() else {}),
    }
    return f"{head('GET', path, said.items())}\r\n".encode("ascii")


def _drop_excess(waiting: dict[int, Item]) -> None:
    """Keep what the oldest items say, as far as there is room for it."""
    left = KEPT_CHARACTERS_MAX
    for number in sorted(waiting):
        item = waiting[number]
        if item.fields is not None:
            left -= sum(len(value) for value in item.fields.values() if isinstance(value, str))
            if left < 0:
                waiting[number] = item._replace(fields=None)


def _explained(api: Api, error: ConnectionFailed) -> Trouble:
    cause = error.__cause__
    if isinstance(cause, ssl.SSLCertVerificationError):
        return Trouble("Unreachable", f"the certificate of {api.url} is not trusted: {cause.verify_message}")
    reason = "Unreachable" if isinstance(error, Unreachable) else "BadAnswer"
    return Trouble(reason, str(error))


@cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()
