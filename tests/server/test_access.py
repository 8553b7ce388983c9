"""The rights of every scope, for each verb and kind, in one's own namespace and in others."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import signal
import stat
import threading
from typing import Any

import pytest

from rota.api import KINDS, Kind
from rota.server import auth, tls
from rota.server.auth import READ, SCOPES, Tokens, User, allows
from rota.server.home import Home
from rota.server.main import run
from tests.examples import examples
from tests.server.conftest import POOLS, Server, pool

VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
ALL_KINDS = sorted(KINDS.values(), key=lambda kind: kind.name)


def expected(scope: str, own: bool, verb: str, kind: Kind) -> bool:
    """The access rules, written down a second time, by scope. `own`: in the place that the credential is for."""
    reading = verb in READ
    if scope == "admin":
        return True
    if scope == "deployer":
        if kind.namespaced:
            return own and (reading or not (kind.made or kind.name in ("Quota", "Role")))
        return reading
    if scope == "viewer":
        return reading and kind.name != "Secret" and (own or not kind.namespaced)
    if scope == "cell":
        return reading and (own if kind.namespaced else kind.name == "InstanceType")
    return False


@pytest.mark.parametrize("namespace", ["", "rota-cell-here"])
@pytest.mark.parametrize("scope", ["deployer", "viewer", "worker", "function"])
def test_what_is_bound_to_a_cell_is_for_the_cell_and_admins(scope: Any, namespace: str) -> None:
    user = User("someone", scope, namespace)
    kinds = [kind for kind in ALL_KINDS if kind.namespaced]
    assert not [
        (verb, kind.name) for verb in VERBS for kind in kinds if allows(user, verb, kind, "rota-cell-here", "name")
    ]


@pytest.mark.parametrize("own", [True, False], ids=["own", "other"])
@pytest.mark.parametrize("scope", SCOPES)
def test_the_matrix_of_scopes_verbs_and_kinds(scope: Any, own: bool) -> None:
    mine = "rota-cell-here" if scope == "cell" else "mine"
    namespace = "" if scope == "admin" else mine
    user = User("someone", scope, namespace)
    where, name = (mine, "here") if own else ("elsewhere", "there")
    wrong = [
        f"{verb} {kind.name}"
        for verb in VERBS
        for kind in ALL_KINDS
        if allows(user, verb, kind, where if kind.namespaced else "", name) != expected(scope, own, verb, kind)
    ]
    # A Namespace of that name is another than the one of the token.
    assert wrong == (["get Namespace"] if scope in ("deployer", "viewer") else [])


@pytest.mark.parametrize("scope", ["deployer", "viewer", "cell"])
def test_a_credential_for_one_namespace_does_not_list_all(scope: Any) -> None:
    user = User("someone", scope, "rota-cell-here")
    listed = [k.name for k in ALL_KINDS if k.namespaced and allows(user, "list", k, "")]
    assert not listed


def test_a_deployer_for_all_namespaces_may_make_one() -> None:
    assert allows(User("d", "deployer"), "create", KINDS["Namespace"], "")
    assert not allows(User("d", "deployer"), "delete", KINDS["Namespace"], "", "default")
    assert not allows(User("d", "deployer", "shop"), "create", KINDS["Namespace"], "")


async def make(server: Server, scope: str, **more: Any) -> str:
    made = await server.ask("POST", "/v1/tokens", {"name": f"a-{scope}", "scope": scope, **more})
    assert made.status == 201, made.body
    return str(made.json["token"])


def requests(kind: Kind) -> list[tuple[str, str, str, Any]]:
    """A real request for each verb: (verb, method, path, body)."""
    base = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    place = f"{base}/namespaces/default/{kind.plural}" if kind.namespaced else f"{base}/{kind.plural}"
    body = examples(kind.name)[0]
    return [
        ("get", "GET", f"{place}/nothing", None),
        ("list", "GET", place, None),
        ("watch", "GET", f"{place}?watch=1&timeoutSeconds=1&resourceVersion=1", None),
        ("create", "POST", f"{place}?dryRun=All", body),
        ("update", "PUT", f"{place}/nothing", body),
        ("patch", "PATCH", f"{place}/nothing", {}),
        ("delete", "DELETE", f"{place}/nothing", None),
        ("deletecollection", "DELETE", f"{place}?labelSelector=no=body", None),
    ]


@pytest.mark.parametrize("scope", SCOPES)
async def test_the_server_holds_every_request_to_the_matrix(server: Server, scope: str) -> None:
    token = await make(server, scope, **({"namespace": "rota-cell-here"} if scope == "cell" else {}))
    own = scope not in ("cell", "worker", "function")
    wrong = []
    for kind in ALL_KINDS:
        for verb, method, path, body in requests(kind):
            if verb == "watch" and expected(scope, own, verb, kind) and kind.name != "Task":
                continue  # it is allowed, so it would last a second: once is enough
            headers = {"Authorization": f"Bearer {token}"}
            if verb == "patch":
                headers["Content-Type"] = "application/merge-patch+json"
            reply = await server.ask(method, path, body, unix=True, headers=headers)
            allowed = expected(scope, own, verb, kind)
            if verb == "create" and kind.name == "Namespace" and scope == "deployer":
                allowed = True
            if (reply.status == 403 and reply.json["reason"] == "Forbidden") == allowed:
                wrong.append((verb, kind.name, reply.status, reply.body[:200]))
    assert not wrong


async def test_nothing_but_health_is_open_without_a_credential(server: Server) -> None:
    for path in ("/healthz", "/livez", "/readyz"):
        assert (await server.ask("GET", path, token=None)).status == 200
    for path in ("/", "/version", "/api", "/apis", "/openapi/v3", "/v1/status", POOLS, "/nowhere"):
        for token in (None, "rota-wrong"):
            refused = await server.ask("GET", path, token=token)
            assert (refused.status, refused.json["reason"]) == (401, "Unauthorized"), path


async def test_forbidden_is_worded_as_in_kubernetes(server: Server) -> None:
    token = await make(server, "viewer")
    refused = await server.ask("POST", POOLS, pool("a"), token=token)
    assert refused.json["message"] == (
        'workerpools.rota.dev is forbidden: User "a-viewer" cannot create resource "workerpools" '
        'in API group "rota.dev" in the namespace "default"'
    )


async def test_the_gateway_of_the_server_is_the_admins(server: Server) -> None:
    for scope in ("deployer", "viewer", "worker", "function"):
        token = await make(server, scope)
        for method, path in (
            ("GET", "/v1/tokens"),
            ("POST", "/v1/tokens"),
            ("GET", "/v1/backup"),
            ("GET", "/v1/status"),
        ):
            assert (await server.ask(method, path, {}, token=token)).status == 403


async def test_a_batch_is_held_to_the_same_rules(server: Server) -> None:
    operation = {"verb": "create", "apiVersion": "rota.dev/v1alpha1", "kind": "WorkerPool", "namespace": "default"}
    batch = {"operations": [{**operation, "body": pool("a")}]}
    assert (await server.ask("POST", "/v1/batch", batch, token=await make(server, "viewer"))).status == 403
    assert (await server.ask("POST", "/v1/batch", batch, token=await make(server, "deployer"))).status == 200


async def test_a_revoked_token_is_dead_at_once(server: Server) -> None:
    token = await make(server, "viewer")
    assert (await server.ask("GET", POOLS, token=token)).status == 200
    listed = (await server.ask("GET", "/v1/tokens")).json["tokens"]
    (found,) = [t["id"] for t in listed if t["name"] == "a-viewer"]
    assert (await server.ask("DELETE", f"/v1/tokens/{found}")).status == 200
    assert (await server.ask("GET", POOLS, token=token)).status == 401
    assert (await server.ask("DELETE", f"/v1/tokens/{found}")).status == 404


def test_a_token_ends_when_it_expires(tmp_path: Any) -> None:
    now = [1000.0]
    tokens = Tokens(tmp_path / "tokens.json", clock=lambda: now[0])
    secret, _ = tokens.create("short", "viewer", expires_seconds=60)
    assert tokens.user(secret) is not None
    now[0] += 60
    assert tokens.user(secret) is None


def test_tokens_that_have_expired_make_room_for_others(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "TOKENS_MAX", 3)
    now = [1000.0]
    tokens = Tokens(tmp_path / "tokens.json", clock=lambda: now[0])
    kept, _ = tokens.create("kept", "viewer")
    for number in range(10):
        now[0] += 60
        tokens.create(f"short-{number}", "viewer", expires_seconds=60)
    assert len(tokens.list()) <= 3 and tokens.user(kept) is not None
    tokens.create("another", "viewer")
    with pytest.raises(ValueError, match="there are 3 tokens already"):
        tokens.create("one-too-many", "viewer")


async def test_tokens_are_kept_only_as_hashes_and_survive_a_restart(tmp_path: Any) -> None:
    path = tmp_path / "tokens.json"
    tokens = Tokens(path)
    secret, _ = tokens.create("one", "viewer")
    await tokens.save()
    assert secret not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    found = Tokens(path).user(secret)
    assert found is not None and found.name == "one"


async def test_tokens_are_stored_in_order_while_the_server_goes_on(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, sync = tmp_path / "tokens.json", os.fsync
    began, goes_on = threading.Event(), threading.Event()

    def slow(descriptor: int) -> None:
        began.set()
        assert goes_on.wait(20)
        sync(descriptor)

    tokens = Tokens(path)
    monkeypatch.setattr(os, "fsync", slow)
    first, made = tokens.create("first", "viewer")
    left = asyncio.create_task(tokens.save())
    assert await asyncio.to_thread(began.wait, 20)
    second, _ = tokens.create("second", "viewer")
    assert tokens.revoke(made.id) and tokens.user(first) is None
    saving = asyncio.create_task(tokens.save())
    left.cancel()
    await asyncio.wait((left, saving), timeout=0.05, return_when=asyncio.ALL_COMPLETED)
    assert left.cancelled() and not saving.done() and not path.exists()
    goes_on.set()
    await saving
    again = Tokens(path)
    assert again.user(first) is None and again.user(second) is not None
    assert {one.name for one in tmp_path.iterdir()} == {"token.key", "tokens.json"}


@pytest.mark.parametrize("brief", [False, True], ids=["stored", "signed"])
async def test_a_token_that_could_not_be_revoked_on_a_full_disk_is_revoked_when_it_is_asked_for_again(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, brief: bool
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "no space")

    tokens = Tokens(tmp_path / "tokens.json")
    secret, token = tokens.sign("a", "viewer", seconds=60) if brief else tokens.create("a", "viewer")
    await tokens.save()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        assert tokens.revoke(token.id)
        with pytest.raises(OSError, match="no space"):
            await tokens.save()
    assert tokens.user(secret) is None and Tokens(tmp_path / "tokens.json").user(secret) is not None
    await tokens.save()
    assert Tokens(tmp_path / "tokens.json").user(secret) is None


async def test_tokens_that_make_no_sense_are_refused(server: Server) -> None:
    for wrong in (
        {"name": "x", "scope": "king"},
        {"name": "x", "scope": "cell", "namespace": "default"},
        {"name": "x", "scope": "admin", "namespace": "default"},
        {"scope": "viewer"},
        {"name": "", "scope": "viewer"},
        {"name": "a\nb", "scope": "viewer"},
        {"name": "x", "scope": "viewer", "expiresSeconds": -5},
        {"name": "x", "scope": "viewer", "expiresSeconds": 10**20},
    ):
        assert (await server.ask("POST", "/v1/tokens", wrong)).status == 400


async def test_files_in_the_home_are_for_its_user_only(server: Server) -> None:
    assert stat.S_IMODE(server.home.stat().st_mode) == 0o700
    for name in ("ca.key", "server.key", "tokens.json", "kubeconfig", "audit.log", "rota.sock"):
        assert stat.S_IMODE((server.home / name).stat().st_mode) == 0o600, name


async def test_the_socket_knows_its_user_without_a_token(server: Server) -> None:
    assert (await server.ask("GET", POOLS, unix=True)).status == 200


async def test_a_foreign_host_or_origin_is_refused(server: Server) -> None:
    assert (await server.ask("GET", POOLS, headers={"Host": "evil.example"})).status == 403
    assert (await server.ask("GET", POOLS, headers={"Origin": "https://evil.example"})).status == 403
    own = f"https://127.0.0.1:{server.port}"
    assert (await server.ask("GET", POOLS, headers={"Origin": own})).status == 200


async def test_every_write_leaves_an_audit_line_without_its_content(server: Server) -> None:
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s"},
        "stringData": {"password": "correct-horse-battery"},
    }
    made = await server.ask("POST", "/api/v1/namespaces/default/secrets", secret)
    await server.ask("DELETE", "/api/v1/namespaces/default/secrets/s")
    await server.ask("DELETE", "/api/v1/namespaces/default/secrets/s")
    text = (server.home / "audit.log").read_text()
    assert "correct-horse" not in text and made.json["data"]["password"] not in text
    lines = [json.loads(line) for line in text.splitlines()]
    assert [(line["verb"], line["resource"], line["name"], line["code"]) for line in lines] == [
        ("create", "secrets", "s", 201),
        ("delete", "secrets", "s", 200),
        ("delete", "secrets", "s", 404),
    ]
    assert lines[0]["user"] == "rota-admin"
    assert lines[0]["revision"] == int(made.json["metadata"]["resourceVersion"])


async def test_a_backup_comes_whole_and_can_be_opened(server: Server, tmp_path: Any) -> None:
    from rota.store import SqliteStore

    await server.ask("POST", POOLS, pool("a"))
    backup = await server.ask("GET", "/v1/backup")
    path = tmp_path / "backup.db"
    path.write_bytes(backup.body)
    store = SqliteStore(path)
    assert store.get("workerpools.rota.dev/default/a")
    await store.close()


async def test_a_cell_writes_no_object_not_even_its_own_status(server: Server) -> None:
    cell = {
        "apiVersion": "rota.dev/v1alpha1",
        "kind": "Cell",
        "metadata": {"name": "here"},
        "spec": {"cityCode": "par"},
    }
    await server.ask("POST", "/apis/rota.dev/v1alpha1/cells", cell)
    token = await make(server, "cell", namespace="rota-cell-here")
    path = "/apis/rota.dev/v1alpha1/cells/here"
    merge = {"Content-Type": "application/merge-patch+json"}
    assert (await server.ask("PATCH", path, {"spec": {"weight": 1}}, token=token, headers=merge)).status == 403
    status = {"status": {"instances": 1}}
    assert (await server.ask("PATCH", f"{path}/status", status, token=token, headers=merge)).status == 403
    inside = "/apis/rota.dev/v1alpha1/namespaces/rota-cell-here/workerpools"
    assert (await server.ask("POST", inside, pool("mine"), token=token)).status == 403
    assert (await server.ask("GET", inside, token=token)).status == 200


async def test_a_revoked_token_ends_its_watches(server: Server) -> None:
    token = await make(server, "viewer")
    reader, writer = await server.connect()
    head = f"GET {POOLS}?watch=1 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"
    writer.write(head.encode())
    await reader.readuntil(b"\r\n\r\n")
    listed = (await server.ask("GET", "/v1/tokens")).json["tokens"]
    (found,) = [t["id"] for t in listed if t["name"] == "a-viewer"]
    await server.ask("DELETE", f"/v1/tokens/{found}")
    assert await asyncio.wait_for(reader.read(-1), 10) == b"0\r\n\r\n"
    writer.close()


async def test_batches_tokens_and_dry_runs_are_in_the_audit_trail(server: Server) -> None:
    operation = {"verb": "create", "apiVersion": "rota.dev/v1alpha1", "kind": "WorkerPool", "namespace": "default"}
    await server.ask("POST", "/v1/batch", {"operations": [{**operation, "body": pool(n)} for n in "ab"]})
    await server.ask("DELETE", f"{POOLS}/a", {"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"]})
    await make(server, "viewer")
    await server.ask("DELETE", POOLS)
    lines = [json.loads(line) for line in (server.home / "audit.log").read_text().splitlines()]
    seen = [(line["verb"], line["resource"], line.get("name"), line.get("dryRun", False)) for line in lines]
    pools = "workerpools.rota.dev"
    assert seen[:3] == [("create", pools, "a", False), ("create", pools, "b", False), ("delete", pools, "a", True)]
    assert seen[3][:2] == ("create", "tokens")
    assert seen[4:] == [("deletecollection", pools, "a", False), ("deletecollection", pools, "b", False)]


async def test_a_batch_that_is_not_atomic_answers_each_operation_by_itself(server: Server) -> None:
    operation = {"verb": "create", "apiVersion": "rota.dev/v1alpha1", "kind": "WorkerPool", "namespace": "default"}
    operations = [{**operation, "body": pool("a")}, {**operation, "body": pool("a")}, {**operation, "kind": "None"}]
    answer = await server.ask("POST", "/v1/batch", {"atomic": False, "operations": operations})
    made, exists, unknown = answer.json["results"]
    assert (made["code"], made["object"]["metadata"]["name"]) == (201, "a")
    assert (exists["code"], exists["status"]["reason"]) == (409, "AlreadyExists")
    assert (unknown["code"], unknown["status"]["kind"]) == (404, "Status")


async def test_each_operation_of_a_batch_that_is_not_atomic_is_authorised_by_itself(server: Server) -> None:
    operation = {"verb": "create", "apiVersion": "v1", "kind": "ConfigMap"}
    operations = [
        {**operation, "namespace": name, "body": {"metadata": {"name": "a"}}} for name in ("other", "default")
    ]
    await server.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "other"}})
    token = await make(server, "deployer", namespace="default")
    answer = await server.ask("POST", "/v1/batch", {"atomic": False, "operations": operations}, token=token)
    assert [result["code"] for result in answer.json["results"]] == [403, 201]
    lines = [json.loads(line) for line in (server.home / "audit.log").read_text().splitlines()]
    seen = [(line["namespace"], line["code"]) for line in lines if line["resource"] == "configmaps"]
    assert seen == [("other", 403), ("default", 200)]


async def test_a_batch_that_is_not_atomic_has_a_bound(server: Server) -> None:
    operation = {"verb": "delete", "apiVersion": "v1", "kind": "ConfigMap", "namespace": "default", "name": "a"}
    answer = await server.ask("POST", "/v1/batch", {"atomic": False, "operations": [operation] * 1001})
    assert (answer.status, answer.json["message"]) == (400, "a batch has at most 1000 operations, not 1001")


async def test_a_batch_without_a_body_is_refused(server: Server) -> None:
    operation = {"verb": "create", "apiVersion": "v1", "kind": "ConfigMap", "namespace": "default"}
    assert (await server.ask("POST", "/v1/batch", {"operations": [operation]})).status == 400


@pytest.mark.parametrize(
    ("spec", "code"), [({}, 422), ({"nonResourceAttributes": [1]}, 400), ({"resourceAttributes": 1}, 400)]
)
async def test_reviews_that_ask_nothing_are_refused(server: Server, spec: Any, code: int) -> None:
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    assert (await server.ask("POST", path, {"spec": spec})).status == code


async def test_certificates_are_kept_over_a_restart_and_made_anew_when_they_are_no_good(tmp_path: Any) -> None:
    hosts = ["localhost", "127.0.0.1", "::1"]
    tls.ensure(tmp_path, hosts)
    first = {name: (tmp_path / name).read_bytes() for name in ("ca.crt", "server.crt", "server.key")}
    tls.ensure(tmp_path, hosts)
    assert {name: (tmp_path / name).read_bytes() for name in first} == first
    (tmp_path / "server.crt").write_text("garbage")
    tls.ensure(tmp_path, hosts)
    assert (tmp_path / "ca.crt").read_bytes() == first["ca.crt"]
    (tmp_path / "ca.crt").write_text("garbage")
    tls.ensure(tmp_path, hosts)
    assert (tmp_path / "ca.crt").read_bytes() != first["ca.crt"]


async def test_a_kubeconfig_that_kubectl_rewrote_keeps_its_token(server: Server) -> None:
    tokens = Tokens(server.home / "tokens.json")
    server.kubeconfig.write_text(f"apiVersion: v1\nusers:\n- name: x\n  user:\n    token: {server.token}\n")
    await Home(server.home).write_kubeconfig(tokens, server.url)
    assert len(tokens.list()) == 1
    assert json.loads(server.kubeconfig.read_text())["users"][0]["user"]["token"] == server.token


async def test_a_backup_that_is_cut_off_does_not_look_whole(server: Server) -> None:
    for i in range(30):
        body = pool(f"p{i}") | {"metadata": {"name": f"p{i}", "annotations": {"a": "x" * 200_000}}}
        await server.ask("POST", POOLS, body)
    reader, writer = await server.connect(unix=True)
    writer.write(b"GET /v1/backup HTTP/1.1\r\nHost: localhost\r\n\r\n")
    try:
        await reader.readuntil(b"\r\n\r\n")
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait({server.running}, timeout=20)  # nobody reads: so it cannot be whole by then
        rest = b""
        with contextlib.suppress(ConnectionError):
            rest = await asyncio.wait_for(reader.read(-1), 10)
        assert not rest.endswith(b"0\r\n\r\n")
    finally:
        writer.close()


async def test_a_damaged_or_impossible_home_is_told_with_what_to_do(tmp_path: Any) -> None:
    (tmp_path / "tokens.json").write_text("garbage")
    with pytest.raises(OSError, match=r"tokens\.json is damaged .* remove it"):
        await run(tmp_path, port=0)
    with pytest.raises(OSError, match="choose a shorter home"):
        await run(tmp_path / ("x" * 120), port=0)


@pytest.mark.parametrize(
    ("plural", "kind", "spec"),
    [
        ("workerpools", "WorkerPool", {"worker": {"isolation": "none"}}),
        ("workerpools", "WorkerPool", {"template": {"isolation": "none", "containers": [{"name": "main"}]}}),
        ("workspaces", "Workspace", {"repo": "file:///srv/repo"}),
        (
            "workspaces",
            "Workspace",
            {"repo": "https://git.example/a", "remotes": [{"name": "x", "url": "file:///srv"}]},
        ),
    ],
)
async def test_what_reaches_the_host_is_for_admins(server: Server, plural: str, kind: str, spec: Any) -> None:
    made = await server.ask("POST", "/v1/tokens", {"name": "dep", "scope": "deployer", "namespace": "default"})
    token = made.json["token"]
    where = f"/apis/rota.dev/v1alpha1/namespaces/default/{plural}"
    body = {"apiVersion": "rota.dev/v1alpha1", "kind": kind, "metadata": {"name": "a"}, "spec": spec}
    refused = await server.ask("POST", where, body, token=token)
    assert refused.status == 403 and "this takes a token of scope admin" in refused.json["message"]
    assert (await server.ask("POST", where, body)).status == 201, "an admin may"
    label = {"metadata": {"labels": {"a": "b"}}}
    merge = {"Content-Type": "application/merge-patch+json"}
    changed = await server.ask("PATCH", f"{where}/a", label, headers=merge, token=token)
    assert changed.status == 403, "whatever is to change of it"
