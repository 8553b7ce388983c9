"""Requests to an API, and the meaning of its answers: proper ones, and others."""

from __future__ import annotations

import asyncio
import gzip
import ssl
import time
from email.utils import formatdate
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rota.api.spawner import GitHubSource
from rota.client.connection import Limits
from rota.control.spawners import listing as listing_module
from rota.control.spawners.apis import Apis, api_of
from rota.control.spawners.github import WAIT_SECONDS_MAX, PollError
from rota.control.spawners.items import Item, task_name
from rota.control.spawners.listing import Listing, ListRequest, read
from rota.server.tls import ensure
from tests.spawners.tracker import Reply, Tracker, issue, pull, tracker

IMPATIENT = Limits(connections=1, connect_seconds=2.0, read_seconds=0.1, response_bytes=64 * 1024)
NOW = 1_700_000_000.0
UNTRUSTED = "unable to get local issuer certificate"


def asked(
    github: Tracker, *, token: str = "", etag: str = "", made: frozenset[int] = frozenset(), **source: Any
) -> ListRequest:
    given = msgspec.convert({"apiURL": github.url, "repo": "acme/app", **source}, GitHubSource)
    names = {_name(Item(given.api_url, ("acme/app", given.kind, str(number)), None)) for number in made}
    return ListRequest(api_of(github.url), given, token, etag, NOW, _name, lambda name: name in names)


def _name(item: Item) -> str:
    return task_name("s", item)


async def listing(github: Tracker, **more: Any) -> Listing:
    found = await read(asked(github, **more), limits=IMPATIENT)
    assert found is not None
    return found


async def numbers(github: Tracker, **more: Any) -> list[int]:
    return [item.fields["number"] for item in (await listing(github, **more)).waiting]


async def trouble(github: Tracker, *script: Any, **more: Any) -> PollError:
    github.script = list(script)
    with pytest.raises(PollError) as caught:
        await read(asked(github, **more), limits=IMPATIENT)
    return caught.value


# What is asked for.


async def test_items_come_oldest_first_with_what_they_say(github: Tracker) -> None:
    github.items = [issue(9, "bug"), issue(3)]
    found = await listing(github)
    assert [item.key for item in found.waiting] == [("acme/app", "issues", "3"), ("acme/app", "issues", "9")]
    fields = found.waiting[1].fields
    assert (fields["title"], fields["author"], fields["labels"]) == ("Issue 9", "ann", ["bug"])
    assert fields["url"].endswith("/issues/9") and len(found.listed) == 2


async def test_what_is_asked_for_is_what_changed_last(github: Tracker) -> None:
    await read(asked(github, labels=["bug", "p1"], state="all"), limits=IMPATIENT)
    (one,) = github.asked
    assert one.query == {"state": "all", "sort": "updated", "direction": "desc", "per_page": "100", "labels": "bug,p1"}
    assert one.headers["host"] == api_of(github.url).authority


async def test_pull_requests_are_no_issues(github: Tracker) -> None:
    github.items = [issue(1), issue(2, pull=True)]
    assert await numbers(github) == [1]


async def test_pulls_have_branches_and_their_labels_are_looked_at_here(github: Tracker) -> None:
    github.items = [pull(1, "agent"), pull(2)]
    (item,) = (await listing(github, kind="pulls", labels=["agent"])).waiting
    assert github.asked[0].path.endswith("/pulls") and "labels" not in github.asked[0].query
    assert (item.fields["branch"], item.fields["base"], item.fields["sha"]) == ("fix-1", "main", "abc")


async def test_labels_are_all_needed_and_those_excluded_are_not(github: Tracker) -> None:
    github.items = [issue(1, "bug"), issue(2, "Bug", "agent"), issue(3, "bug", "agent", "WIP"), issue(4)]
    assert await numbers(github, labels=["bug", "Agent"], excludeLabels=["wip"]) == [2]


async def test_a_label_with_a_comma_is_one_label(github: Tracker) -> None:
    github.items = [issue(1, "a,b"), issue(2, "a", "b")]
    assert await numbers(github, labels=["a,b"]) == [1] and "labels" not in github.asked[0].query


async def test_an_api_that_does_not_filter_is_not_trusted_to(github: Tracker) -> None:
    github.script = [Reply(200, body=msgspec.json.encode([issue(1, state="closed"), issue(2)]))]
    assert await numbers(github) == [2]


async def test_every_page_is_read_and_what_shifts_between_them_counts_once(github: Tracker) -> None:
    github.items = [issue(number) for number in range(250, 0, -1)]
    github.items.insert(100, issue(250))
    assert await numbers(github) == list(range(1, 251)) and github.pages == [1, 2, 3]


async def test_the_token_is_in_a_header_and_nowhere_else(github: Tracker) -> None:
    await read(asked(github, token="t0ken"), limits=IMPATIENT)
    (one,) = github.asked
    assert one.headers.pop("authorization") == "Bearer t0ken" and "t0ken" not in str(one)


async def test_a_token_that_would_end_the_header_is_not_sent(github: Tracker) -> None:
    error = await trouble(github, token="t\r\nX-Evil: 1")
    assert error.reason == "CredentialsRefused" and not github.asked and "Evil" not in error.message


async def test_a_repository_that_climbs_is_not_asked_for(github: Tracker) -> None:
    assert (await trouble(github, repo="../user")).reason == "NoSuchRepository" and not github.asked


# What has not changed.


async def test_what_has_not_changed_is_not_sent_again(github: Tracker) -> None:
    github.items = [issue(1)]
    etag = (await listing(github)).etag
    assert await read(asked(github, etag=etag), limits=IMPATIENT) is None
    github.items.insert(0, issue(2))
    assert await numbers(github, etag=etag) == [1, 2]


async def test_an_api_without_etags_is_read_each_time(github: Tracker) -> None:
    github.has_etags = False
    github.items = [issue(1)]
    assert (await listing(github)).etag == "" and await numbers(github) == [1]


async def test_what_is_made_already_is_listed_and_does_not_wait(github: Tracker) -> None:
    github.items = [issue(2), issue(1)]
    found = await listing(github, made=frozenset((1,)))
    assert [item.fields["number"] for item in found.waiting] == [2] and len(found.listed) == 2


# Bounds.


async def test_a_listing_has_a_bound(github: Tracker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing_module, "PAGES_MAX", 2)
    github.items = [issue(number) for number in range(201)]
    found = await listing(github)
    assert found.is_cut and len(found.waiting) == 200 and github.pages == [1, 2]


async def test_what_items_say_has_a_bound_and_the_oldest_go_first(
    github: Tracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing_module, "KEPT_CHARACTERS_MAX", 2_500)
    github.items = [issue(number, body="x" * 1000) for number in range(110, 0, -1)]
    roomy = Limits(connections=1)
    found = await read(asked(github, made=frozenset((1,))), limits=roomy)
    assert found is not None
    assert [item.fields["number"] for item in found.waiting] == [2, 3] and found.unread == 107


async def test_an_answer_that_is_too_large_is_not_taken(github: Tracker) -> None:
    github.items = [issue(1, body="x" * 100_000)]
    error = await trouble(github)
    assert error.reason == "BadAnswer" and "larger than 65536 bytes" in error.message


async def test_an_answer_that_unpacks_to_too_much_is_not_taken(github: Tracker) -> None:
    bomb = gzip.compress(b"[" + b" " * 5_000_000 + b"]")
    error = await trouble(github, Reply(200, {"Content-Encoding": "gzip"}, bomb))
    assert error.reason == "BadAnswer"


async def test_a_packed_answer_is_unpacked(github: Tracker) -> None:
    github.script = [Reply(200, {"Content-Encoding": "gzip"}, gzip.compress(msgspec.json.encode([issue(5)])))]
    assert await numbers(github) == [5]


async def hang(writer: asyncio.StreamWriter) -> None:
    await asyncio.get_running_loop().create_future()


async def test_one_that_says_nothing_is_given_up(github: Tracker) -> None:
    assert (await trouble(github, hang)).reason == "TimedOut"


async def test_all_pages_together_have_their_time(github: Tracker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing_module, "POLL_SECONDS_MAX", 0.1)
    github.script = [hang]
    with pytest.raises(PollError, match=r"did not give all pages within 0\.1 s") as caught:
        await read(asked(github), limits=Limits())
    assert caught.value.reason == "TimedOut"


async def test_one_that_hangs_up_is_told_of(github: Tracker) -> None:
    async def hang_up(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n[")

    assert (await trouble(github, hang_up)).reason == "BadAnswer"


async def test_one_that_is_not_there_is_told_of(github: Tracker) -> None:
    nobody = asked(github)._replace(api=api_of("http://127.0.0.1:1/api/v3"))
    with pytest.raises(PollError) as caught:
        await read(nobody, limits=IMPATIENT)
    assert caught.value.reason == "Unreachable"


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"{}", b"null", b"[1]", b'[{"title": "x"}]', b'[{"number": "1"}]', b"[" * 100_000]
)
async def test_rubbish_is_told_of(github: Tracker, body: bytes) -> None:
    assert (await trouble(github, Reply(200, {}, body))).reason == "BadAnswer"


# Refusals.


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (401, "CredentialsRefused"),
        (403, "Forbidden"),
        (404, "NoSuchRepository"),
        (500, "PollFailed"),
        (418, "PollFailed"),
    ],
)
async def test_a_refusal_says_what_the_api_said(github: Tracker, status: int, reason: str) -> None:
    error = await trouble(github, Reply(status, {}, b'{"message": "because"}'))
    assert error.reason == reason and f"answered {status}: because" in error.message and error.retry_seconds is None


async def test_a_refusal_that_is_no_json_is_told_too(github: Tracker) -> None:
    assert (await trouble(github, Reply(502, {}, b"<html>proxy"))).message.endswith("answered 502")


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "17"}, 17.0),
        ({"Retry-After": "999999"}, WAIT_SECONDS_MAX),
        ({"Retry-After": formatdate(NOW + 30, usegmt=True)}, 30.0),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(NOW) + 90)}, 90.0),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(NOW) - 90)}, 1.0),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "soon"}, 1.0),
    ],
)
@pytest.mark.parametrize("status", [403, 429])
async def test_a_rate_limit_says_when_to_come_back(
    github: Tracker, status: int, headers: dict[str, str], seconds: float
) -> None:
    error = await trouble(github, Reply(status, headers))
    assert (error.reason, error.retry_seconds) == ("RateLimited", seconds)


async def test_the_last_request_that_is_granted_says_when_to_come_back(github: Tracker) -> None:
    github.always = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(NOW) + 90)}
    assert (await listing(github)).again_seconds == 90.0


async def test_that_nothing_changed_is_no_answer_to_who_did_not_ask(github: Tracker) -> None:
    assert (await trouble(github, Reply(304, {}, b""))).reason == "BadAnswer"


# Where it leads.


async def test_a_redirect_within_the_api_is_followed(github: Tracker) -> None:
    github.items = [issue(4)]
    path = "/api/v3/repos/acme/app/issues?state=open&per_page=100"
    github.script = [Reply(301, {"Location": path})]
    assert await numbers(github, token="t") == [4]
    assert [one.headers["authorization"] for one in github.asked] == ["Bearer t"] * 2


@pytest.mark.parametrize(
    "location",
    [
        "https://evil.example/repos",
        "//evil.example/x",
        "http://127.0.0.1:1/api/v3/x",
        "/elsewhere",
        "/api/v3evil",
        "",
        "gopher://x",
        "http://user@127.0.0.1/api/v3",
    ],
)
async def test_a_redirect_to_elsewhere_is_not_followed(github: Tracker, location: str) -> None:
    error = await trouble(github, Reply(302, {"Location": location}), token="t0ken")
    assert error.reason == "LedElsewhere" and len(github.asked) == 1 and "t0ken" not in error.message


async def test_a_next_page_elsewhere_is_not_gone_to(github: Tracker) -> None:
    reply = Reply(200, {"Link": '<https://evil.example/p2>; rel="next"'}, b"[]")
    assert (await trouble(github, reply)).reason == "LedElsewhere"


async def test_redirects_have_an_end(github: Tracker) -> None:
    github.script = [Reply(302, {"Location": "/api/v3/loop"})] * 10
    with pytest.raises(PollError, match="redirects more than 3 times"):
        await read(asked(github), limits=IMPATIENT)
    assert len(github.asked) == 4


async def test_no_header_takes_long() -> None:
    from rota.client.connection import Response
    from rota.control.spawners.github import answer_of

    began = time.perf_counter()
    for link in (b"<" * 60_000, b"<a>;" * 15_000, b"<a>" + b" " * 60_000, b"<a>;" + b"rel" * 20_000):
        answer_of(api_of("https://x.example"), "/", Response(200, [(b"link", link)], b"[]"), NOW)
    assert time.perf_counter() - began < 2.0


# Over TLS.


async def test_an_api_over_tls_is_asked_when_its_certificate_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with tracker(ensure(tmp_path, ["127.0.0.1"])) as github:
        github.items = [issue(1)]
        assert (await trouble(github)).message == f"the certificate of {github.url} is not trusted: {UNTRUSTED}"
        trusting = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
        monkeypatch.setattr(listing_module, "_tls", lambda: trusting)
        assert await numbers(github) == [1]


# The list of what may be dialled.


@pytest.mark.parametrize(
    "url",
    [
        "https://api.github.com",
        "https://api.github.com/",
        "https://API.github.com:443",
        "http://git.example:3000/api/v1",
        "http://git.example:3000/api/v1/",
    ],
)
def test_what_is_on_the_list_may_be_dialled_however_it_is_written(url: str) -> None:
    assert Apis(["http://git.example:3000/api/v1"]).find(url) is not None


@pytest.mark.parametrize(
    "url",
    [
        "http://api.github.com",
        "https://api.github.com.evil.example",
        "https://api.github.com@evil.example",
        "https://evil@api.github.com",
        "https://api.github.com:8443",
        "https://api.github.com/other",
        "https://api.github.com?x",
        "https://api.github.com#x",
        "https://api.github.com/..",
        "https://api.github.com\n",
        "https://api.github.com:x",
        "ftp://api.github.com",
        "http://169.254.169.254",
        "http://git.example:3000/api/v1/../../",
        "http://[",
        "",
    ],
)
def test_nothing_else_may_be_dialled(url: str) -> None:
    assert Apis(["http://git.example:3000/api/v1"]).find(url) is None


def test_a_list_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(ValueError, match="is no address of an API"):
        Apis(["git.example"])


def test_an_address_with_colons_is_written_in_brackets() -> None:
    assert api_of("http://[::1]:3000/api").url == "http://[::1]:3000/api"
