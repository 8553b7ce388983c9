"""Health, as Kubernetes' probes and people ask for it. Nobody needs a credential."""

from __future__ import annotations

import pytest

from rota.server.health import Health
from rota.server.http import Request
from tests.server.conftest import Server


def asked(health: Health, target: str) -> tuple[int, str]:
    answer = health(Request("GET", target.encode(), {}, b"", None))
    return (404, "") if answer is None else (answer.status, answer.body.decode())


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/healthz", "/livez/ping", "/readyz/store", "/readyz/startup"])
async def test_a_server_that_is_up_is_well(server: Server, path: str) -> None:
    answer = await server.ask("GET", path, token=None)
    assert (answer.status, answer.body, answer.headers["content-type"]) == (200, b"ok", "text/plain; charset=utf-8")


async def test_verbose_names_every_check(server: Server) -> None:
    said = (await server.ask("GET", "/readyz?verbose", token=None)).body.decode()
    assert said == "[+]ping ok\n[+]store ok\n[+]startup ok\n[+]disk ok\nreadyz check passed\n"
    said = (await server.ask("GET", "/livez?verbose=1&exclude=store", token=None)).body.decode()
    assert said == "[+]ping ok\n[+]store excluded: ok\nlivez check passed\n"


async def test_a_check_that_there_is_not_is_not_found(server: Server) -> None:
    for path in ("/livez/other", "/livez/startup", "/livez/ping/other", "/livezz"):
        assert (await server.ask("GET", path)).status == 404


def test_what_fails_is_named_and_why_is_not() -> None:
    health = Health(live={"ping": lambda: ""}, ready={"disk": lambda: "secret reason", "net": lambda: ""})
    said = "[+]ping ok\n[-]disk failed: reason withheld\n[+]net ok\nreadyz check failed\n"
    assert asked(health, "/readyz") == (500, said)
    assert asked(health, "/livez") == (200, "ok")
    assert asked(health, "/readyz?exclude=disk") == (200, "ok")
    assert asked(health, "/readyz/disk") == (500, "internal server error: reason withheld\n")
    assert asked(health, "/readyz/net") == (200, "ok")


def test_several_checks_are_left_out_and_unknown_ones_warned_of() -> None:
    health = Health(live={"ping": lambda: "", "disk": lambda: "full"}, ready={})
    code, said = asked(health, "/livez?verbose&exclude=disk&exclude=ping&exclude=b&exclude=a")
    assert (code, said) == (
        200,
        "[+]ping excluded: ok\n[+]disk excluded: ok\n"
        'warn: some health checks cannot be excluded: no matches for "a", "b"\nlivez check passed\n',
    )
