"""The right to call a function, and the view that a function has of the system."""

from __future__ import annotations

import pytest

from rota.cli.gateway import call
from rota.registry import ApiError
from tests.functions.town import API, Town

ONE = "def handler(event, context):\n    return event['headers']"


async def test_a_function_that_is_not_public_takes_a_key_of_its_namespace(town: Town) -> None:
    await town.deploy("private", ONE, public=False)
    key = await made_key(town, "default")
    assert (await town.call("/default/private")).status == 401
    good = await town.call("/default/private", headers={"Authorization": f"Bearer {key}", "X-Mine": "1"})
    assert good.status == 200 and good.json["x-mine"] == "1"
    # The function never sees what let the request in.
    assert "authorization" not in good.json
    other = await town.call("/default/private", headers={"X-Rota-Key": key})
    assert other.status == 200 and "x-rota-key" not in other.json


async def test_a_key_of_another_namespace_or_of_another_scope_is_no_key(town: Town) -> None:
    await town.deploy("private", ONE, public=False)
    for secret in (await made_key(town, "other"), await made_key(town, "default", "deployer"), "nonsense"):
        assert (await town.call("/default/private", headers={"X-Rota-Key": secret})).status == 401


async def test_who_has_no_key_is_not_told_whether_there_is_a_function(town: Town) -> None:
    await town.deploy("private", ONE, public=False)
    there, nowhere = await town.call("/default/private"), await town.call("/elsewhere/nothing")
    assert (there.status, there.headers, there.body) == (nowhere.status, nowhere.headers, nowhere.body)
    key = await made_key(town, "default")
    assert (await town.call("/default/nothing", headers={"X-Rota-Key": key})).status == 404


async def made_key(town: Town, namespace: str, scope: str = "function") -> str:
    body = {"name": "key", "scope": scope, "namespace": namespace}
    return str((await call(town.client, "POST", "/v1/tokens", body))["token"])


async def test_a_public_function_sees_the_authorization_that_is_meant_for_it(town: Town) -> None:
    await town.deploy("open", ONE)
    assert (await town.call("/default/open", headers={"Authorization": "Basic eA=="})).json["authorization"]


async def test_a_function_sees_neither_the_home_nor_other_functions(town: Town) -> None:
    await town.deploy("other", "SECRET = 'a secret of the other'\ndef handler(event, context):\n    return 1")
    code = f"""
        import os, pathlib
        def handler(event, context):
            found = []
            for top, folders, files in os.walk("/"):
                if top.startswith(("/proc", "/sys", "/dev", "/usr", "/lib")):
                    folders[:] = []
                    continue
                for name in files:
                    if name in ("rota.db", "tokens.json", "kubeconfig", "rota.sock"):
                        found.append(os.path.join(top, name))
            code = [path.read_text() for path in pathlib.Path("/rota/code").iterdir()]
            try:
                pathlib.Path("/rota/code/app.py").write_text("changed")
                found.append("written")
            except OSError:
                pass
            return {{"found": found, "home": os.path.exists({str(town.home)!r}), "code": code,
                    "environ": sorted(os.environ), "processes": [p for p in os.listdir("/proc") if p.isdigit()]}}
    """
    assert (await town.call("/default/other")).json == 1
    await town.deploy("spy", code, env=[{"name": "MINE", "value": "1"}])
    seen = (await town.call("/default/spy")).json
    assert seen["found"] == [] and seen["home"] is False
    assert len(seen["code"]) == 1 and "a secret of the other" not in seen["code"][0]
    assert "MINE" in seen["environ"] and not [name for name in seen["environ"] if name.startswith("ROTA")]
    assert len(seen["processes"]) < 8


async def test_what_is_about_the_whole_origin_is_not_a_tenants_to_say(town: Town) -> None:
    code = """
        def handler(event, context):
            return {"statusCode": 200, "body": "x", "headers": {"Service-Worker-Allowed": "/", "X-Rota-Call": "mine",
                    "Strict-Transport-Security": "max-age=1", "Clear-Site-Data": "*", "X-Fine": "1"}}
    """
    await town.deploy("greedy", code)
    reply = await town.call("/default/greedy")
    assert reply.headers["x-fine"] == "1" and reply.headers["x-rota-call"].startswith("greedy-")
    assert not {"service-worker-allowed", "strict-transport-security", "clear-site-data"} & reply.headers.keys()


async def test_a_key_that_is_sent_to_a_public_function_is_not_shown_to_it(town: Town) -> None:
    await town.deploy("open", ONE)
    key = await made_key(town, "default")
    reply = await town.call("/default/open", headers={"Authorization": f"Bearer {key}", "X-Rota-Key": key})
    assert reply.status == 200 and key not in reply.body.decode()


async def test_a_pool_cannot_be_shown_another_folder_as_its_code(town: Town) -> None:
    handler = {"function": "f", "runtime": "python", "entrypoint": "app:handler", "code": "../../.."}
    template = {"containers": [{"name": "worker"}], "handler": handler}
    body = {"apiVersion": API, "kind": "WorkerPool", "metadata": {"name": "sly"}, "spec": {"template": template}}
    with pytest.raises(ApiError, match=r'unknown field "spec\.template\.handler"'):
        await town.client.create(body)


async def test_a_function_without_a_sandbox_is_for_who_may_have_the_host(town: Town) -> None:
    await town.deploy("bare", "import os\ndef handler(event, context):\n    return os.getcwd()", isolation="none")
    assert (await town.call("/default/bare")).json.startswith(str(town.home))


async def test_a_function_can_be_without_a_network(town: Town) -> None:
    code = """
        import socket
        def handler(event, context):
            try:
                socket.create_connection(("127.0.0.1", int(event["query"]["port"])), 2)
            except OSError as error:
                return type(error).__name__
    """
    await town.deploy("alone", code, network="none")
    assert (await town.call(f"/default/alone?port={town.port}")).json == "ConnectionRefusedError"
