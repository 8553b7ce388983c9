"""GitHub's API as far as spawners need it: requests, responses, and the filter of items.

Lists are sorted by the last change, so that an unchanged first page means that all pages are unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from email.utils import parsedate_to_datetime
from typing import Any, Literal, NamedTuple
from urllib.parse import urlencode, urljoin, urlsplit

import msgspec

from rota.api.spawner import GitHubSource
from rota.client.connection import Response
from rota.control.spawners.apis import Api, api_of
from rota.control.spawners.items import Item

PAGE_ITEMS = 100
"""The largest page that GitHub offers."""
WAIT_SECONDS_MAX = 7200.0
"""The longest pause that an API can ask for: GitHub's rate limits are by the hour."""
SAID_LENGTH_MAX = 200
"""Characters of an API's message that are shown."""

_PATH = re.compile(r"/[!-~]*")
_NEXT = re.compile(r'<([^<>]*)>\s*;[^,<]*\brel="?next\b')


class _Named(msgspec.Struct):
    name: str = ""
    login: str = ""


class _Ref(msgspec.Struct):
    ref: str = ""
    sha: str = ""


class Issue(msgspec.Struct):
    """The fields of an issue or a pull request that items have."""

    number: int
    title: str | None = None
    body: str | None = None
    state: str | None = None
    html_url: str | None = None
    user: _Named | None = None
    labels: list[_Named | str] | None = None
    created_at: str | None = None
    updated_at: str | None = None
    draft: bool | None = None
    head: _Ref | None = None
    base: _Ref | None = None
    pull_request: Any = None

    @property
    def label_names(self) -> list[str]:
        return [one if isinstance(one, str) else one.name for one in self.labels or ()]


_issues = msgspec.json.Decoder(list[Issue])


class PollError(Exception):
    """A poll failed."""

    def __init__(self, reason: str, message: str, retry_seconds: float | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.retry_seconds = retry_seconds
        """The pause that the API asks for, if any."""


class Page(NamedTuple):
    issues: list[Issue]
    next: str
    """The path of the next page; empty on the last one."""
    etag: str
    again_seconds: float
    """The pause that the API asks for."""


class Redirect(NamedTuple):
    """A redirect to another path of the same API."""

    path: str


def first_page(api: Api, source: GitHubSource) -> str:
    """Return the path of the first page. Raises PollError."""
    if not {".", ".."}.isdisjoint(source.repo.split("/")):
        raise PollError("NoSuchRepository", f"{source.repo} is no repository")
    query: dict[str, str | int] = {
        "state": source.state,
        "sort": "updated",
        "direction": "desc",
        "per_page": PAGE_ITEMS,
    }
    # The API does not filter pulls by label, and a comma in the query separates labels.
    labels = [label for label in source.labels if "," not in label] if source.kind == "issues" else []
    if labels:
        query["labels"] = ",".join(labels)
    return f"{api.path}/repos/{source.repo}/{source.kind}?{urlencode(query)}"


def answer_of(api: Api, path: str, response: Response, now: float) -> Page | Redirect | Literal["NotModified"]:
    """Interpret a response. `now` is in seconds since 1970. Raises PollError."""
    status = response.status
    if status == 304:
        return "NotModified"
    if status in (301, 302, 307, 308):
        return Redirect(_path_within(api, path, response.header("location"), "it redirects"))
    if status != 200:
        raise _refusal(api, response, now)
    try:
        issues = _issues.decode(response.body)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise PollError("BadAnswer", f"{api.url} did not answer with a list of issues: {error}") from None
    link = _NEXT.search(response.header("link"))
    following = _path_within(api, path, link[1], "its next page is") if link is not None else ""
    spent = response.header("x-ratelimit-remaining").strip() == "0"
    return Page(issues, following, response.header("etag"), _reset_seconds(response, now) if spent else 0.0)


def wanted(source: GitHubSource, issue: Issue) -> bool:
    """Report whether an issue passes the filters of a source. Labels are compared without case, as GitHub does."""
    if source.kind == "issues" and issue.pull_request is not None:
        return False
    if source.state != "all" and issue.state not in (None, source.state):
        return False
    labels = _folded(issue.label_names)
    return _folded(source.labels) <= labels and labels.isdisjoint(_folded(source.exclude_labels))


def item_of(source: GitHubSource, issue: Issue) -> Item:
    """Return the item of an issue. Its number is its key: a new title, label or state does not make another item."""
    fields = {
        "kind": source.kind,
        "repo": source.repo,
        "number": issue.number,
        "title": issue.title or "",
        "body": issue.body or "",
        "state": issue.state or "",
        "url": issue.html_url or "",
        "author": issue.user.login if issue.user else "",
        "labels": issue.label_names,
        "createdAt": issue.created_at or "",
        "updatedAt": issue.updated_at or "",
        "draft": bool(issue.draft),
        "branch": issue.head.ref if issue.head else "",
        "base": issue.base.ref if issue.base else "",
        "sha": issue.head.sha if issue.head else "",
    }
    return Item(api_of(source.api_url).url, (source.repo.lower(), source.kind, str(issue.number)), fields)


def _folded(labels: Iterable[str]) -> set[str]:
    return {label.casefold() for label in labels}


def _path_within(api: Api, path: str, url: str, what: str) -> str:
    """Return the path of a link or redirect, if it is within this API. Raises PollError."""
    there = urlsplit(urljoin(f"{api.scheme}://{api.authority}{path}", url))
    found = there.path + (f"?{there.query}" if there.query else "")
    try:
        same = api_of(f"{there.scheme}://{there.netloc}").origin == api.origin
    except ValueError:
        same = False
    if not url or not same or not f"{there.path}/".startswith(f"{api.path}/") or not _PATH.fullmatch(found):
        raise PollError(
            "LedElsewhere", f"{api.url} leads to another address, which is not followed: {what} {url[:200]!r}"
        )
    return found


def _refusal(api: Api, response: Response, now: float) -> PollError:
    status, said = response.status, _said(response)
    answered = f"{api.url} answered {status}{said}"
    retry = _retry_seconds(response, now)
    if status in (403, 429) and (retry is not None or response.header("x-ratelimit-remaining").strip() == "0"):
        pause = retry if retry is not None else _reset_seconds(response, now)
        return PollError("RateLimited", f"{api.url} has a rate limit, which is used up{said}", max(pause, 1.0))
    if status == 401:
        return PollError("CredentialsRefused", f"{answered}; is the token in the Secret still good?", retry)
    if status == 403:
        return PollError("Forbidden", f"{answered}; the token may not see this repository", retry)
    if status in (404, 410):
        return PollError("NoSuchRepository", f"{answered}; is the name right, and may the token see it?", retry)
    return PollError("PollFailed", answered, retry)


def _said(response: Response) -> str:
    """Return the message in the body of a refusal."""
    try:
        message = msgspec.json.decode(response.body, type=dict[str, Any]).get("message")
    except (msgspec.DecodeError, RecursionError, ValueError):
        message = None
    return f": {message[:SAID_LENGTH_MAX]}" if isinstance(message, str) and message else ""


def _retry_seconds(response: Response, now: float) -> float | None:
    value = response.header("retry-after").strip()
    if not value:
        return None
    if value.isascii() and value.isdigit():
        return min(WAIT_SECONDS_MAX, float(value))
    try:
        until = parsedate_to_datetime(value).timestamp()
    except (ValueError, OverflowError):
        return None
    return max(0.0, min(WAIT_SECONDS_MAX, until - now))


def _reset_seconds(response: Response, now: float) -> float:
    """Return the seconds until the rate limit is reset."""
    value = response.header("x-ratelimit-reset").strip()
    if not (value.isascii() and value.isdigit()):
        return 0.0
    return max(0.0, min(WAIT_SECONDS_MAX, float(value) - now))
