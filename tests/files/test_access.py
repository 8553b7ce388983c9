"""The right to the files of an instance, the instances that have some, and the audit of it."""

from __future__ import annotations

import json

from tests.files.conftest import Farm, manifest, template
from tests.server.conftest import Server, server  # noqa: F401 - the same server
from tests.until import until

FILES = "/v1/instances/default/bare-0/files?path=x"


async def _token(server: Server, scope: str, namespace: str = "") -> str:  # noqa: F811
    made = await server.ask("POST", "/v1/tokens", {"name": "t", "scope": scope, "namespace": namespace})
    token: str = made.json["token"]
    return token


async def test_only_who_may_run_commands_may_have_files(server: Server) -> None:  # noqa: F811
    for scope, namespace, status in [
        ("viewer", "", 403),
        ("function", "", 403),
        ("worker", "", 403),
        ("deployer", "other", 403),
        ("deployer", "default", 404),
    ]:
        token = await _token(server, scope, namespace)
        for method in ("GET", "PUT", "DELETE"):
            body = b"content" if method == "PUT" else None
            assert (await server.ask(method, FILES, body, token=token)).status == status, (scope, method)
    assert (await server.ask("PUT", FILES, b"content", token=None)).status == 401


async def test_what_was_done_is_written_down_without_the_bytes(server: Server) -> None:  # noqa: F811
    await server.ask("PUT", FILES, b"a-secret")
    text = (server.home / "audit.log").read_text()
    line = json.loads(text.splitlines()[-1])
    assert (line["verb"], line["subresource"], line["name"], line["code"]) == ("update", "files", "bare-0", 404)
    assert "a-secret" not in text


async def test_a_refused_upload_is_answered_though_its_body_goes_on(server: Server) -> None:  # noqa: F811
    """The client has not read anything before all is sent."""
    token = await _token(server, "viewer")
    answer = await server.ask("PUT", FILES, b"x" * 4_000_000, token=token)
    assert answer.status == 403


def test_an_instance_that_does_not_run_has_no_files(farm: Farm) -> None:
    broken = template("none")
    broken["containers"][0]["command"] = ["false"]
    farm.live.kubectl("apply", "--server-side", "-f", "-", stdin=manifest("broken", template=broken))
    until(lambda: "broken-0" in farm.live.kubectl("get", "inst"))
    answer = until(lambda: (found := farm.get("broken", "x")).status == 409 and found)
    assert "not running" in answer.json["message"]
    farm.live.kubectl("delete", "wp", "broken")
