"""To get more than a Role gives, and to keep what it no longer gives."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rota.registry import roles
from rota.runtime import sandbox
from rota.server.auth import BRIEF_PREFIX, BRIEF_SECONDS_MAX, HomeDamaged, Tokens
from rota.server.http import Request, Stream
from tests.attacks.conftest import API, TENANT, Deployer
from tests.attacks.test_matrix import Matrix, matrix
from tests.server.conftest import Server, served
from tests.until import until_so

__all__ = ["matrix"]

RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces"
ROLES = f"{RBAC}/{TENANT}/roles"
MAPS = f"/api/v1/namespaces/{TENANT}/configmaps"
SECRETS = f"/api/v1/namespaces/{TENANT}/secrets"
SOON_SECONDS = 10.0
LEASE = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}


def rule(verbs: str, resources: str, *names: str, group: str = "") -> dict[str, Any]:
    return {
        "verbs": verbs.split(),
        "apiGroups": [group],
        "resources": resources.split(),
        **({"resourceNames": list(names)} if names else {}),
    }


@pytest.fixture
async def space(bare: Server) -> Server:
    assert (await bare.ask("POST", "/api/v1/namespaces", {"metadata": {"name": TENANT}})).status == 201
    return bare


async def role(server: Server, name: str, *rules: dict[str, Any], **more: Any) -> Deployer:
    """Somebody with a Role of the tenant's namespace."""
    made = await server.ask("POST", ROLES, {"metadata": {"name": name}, "rules": list(rules)})
    assert made.status == 201, made.json
    wanted = {"name": f"has-{name}", "role": name, "namespace": TENANT, **more}
    return Deployer(server, (await server.ask("POST", "/v1/tokens", wanted)).json["token"])


async def status(one: Deployer, method: str, path: str, body: Any = None, **more: Any) -> int:
    return (await one.ask(method, path, body, **more)).status


def frame(kind: str) -> dict[str, Any]:
    return {"apiVersion": "rota.dev/v1alpha1", "kind": kind}


def named(name: str, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, **more}


# More than the rules say.


async def test_to_do_what_no_rule_names(space: Server) -> None:
    one = await role(space, "reader", rule("get", "configmaps", "mine"), rule("create patch", "configmaps"))
    assert await status(one, "POST", MAPS, named("mine")) == 201
    assert await status(one, "GET", f"{MAPS}/mine") == 200
    for path in (f"{MAPS}/other", MAPS, f"{SECRETS}/mine", "/api/v1/namespaces/other/configmaps/mine"):
        assert await status(one, "GET", path) == 403, path
    for path in ("/api/v1/configmaps", "/api/v1/namespaces", "/apis/rota.dev/v1alpha1/cells", "/v1/status"):
        assert await status(one, "GET", path) == 403, path
    assert await status(one, "DELETE", f"{MAPS}/mine") == 403
    assert await status(one, "DELETE", MAPS) == 403
    assert await status(one, "PUT", f"{MAPS}/mine", named("mine")) == 403


async def test_to_see_others_by_a_list_that_is_for_one_name(space: Server) -> None:
    one = await role(space, "lister", rule("list watch", "configmaps", "mine"))
    for name in ("mine", "other"):
        assert (await space.ask("POST", MAPS, named(name))).status == 201
    found = await one.ask("GET", f"{MAPS}?fieldSelector=metadata.name%3Dmine")
    assert [each["metadata"]["name"] for each in found.json["items"]] == ["mine"]
    for selector in (
        *("", "metadata.name%3Dother", "metadata.name!%3Dother", "metadata.name%3D", "metadata.namespace%3Dmine"),
        *("metadata.name%3Dmine,metadata.name%3Dother", "metadata.name%3Dmine%5C%2Cother"),
    ):
        for watch in ("", "&watch=1"):
            assert await status(one, "GET", f"{MAPS}?fieldSelector={selector}{watch}") == 403, selector


async def test_to_make_what_one_may_only_change(space: Server) -> None:
    """By an apply, by an update of a kind that it makes, and by both in a batch."""
    one = await role(
        space,
        "changer",
        rule("patch update get", "configmaps"),
        rule("patch update get create", "leases", "mine", group="coordination.k8s.io"),
    )
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{TENANT}/leases"
    applied = {"apiVersion": "v1", "kind": "ConfigMap", **named("new")}
    headers = {"Content-Type": "application/apply-patch+yaml"}
    assert await status(one, "PATCH", f"{MAPS}/new?fieldManager=a", applied, headers=headers) == 403
    # `create` with names is none: the name of what is made is for its maker to say.
    assert await status(one, "POST", leases, {**LEASE, **named("mine")}) == 403
    assert await status(one, "PUT", f"{leases}/mine", {**LEASE, **named("mine")}) == 403
    for verb, frame, name in (
        ("apply", {"apiVersion": "v1", "kind": "ConfigMap"}, "new"),
        ("create", {"apiVersion": "v1", "kind": "ConfigMap"}, "new"),
        ("update", LEASE, "mine"),
        ("create", LEASE, "mine"),
    ):
        operation = {"verb": verb, **frame, "namespace": TENANT, "name": name, "body": {**frame, **named(name)}}
        assert await status(one, "POST", "/v1/batch", {"operations": [operation]}) == 403, verb
        assert await codes(one, operation) == [403], verb
    assert (await space.ask("GET", f"{MAPS}/new")).status == 404
    assert (await space.ask("POST", MAPS, named("new"))).status == 201
    assert await status(one, "PATCH", f"{MAPS}/new?fieldManager=a", applied, headers=headers) == 200


async def codes(one: Deployer, *operations: dict[str, Any]) -> list[int]:
    """Return the code of each operation, of which each is decided by itself."""
    answer = await one.ask("POST", "/v1/batch", {"atomic": False, "operations": operations})
    assert answer.status == 200
    return [result["code"] for result in answer.json["results"]]


async def test_to_make_what_one_may_only_change_by_deleting_it_first_in_the_same_batch(space: Server) -> None:
    """The rights of an operation are checked when those before it are done."""
    one = await role(space, "changer", rule("patch delete", "configmaps"))
    of = {"apiVersion": "v1", "kind": "ConfigMap"}
    assert (await space.ask("POST", MAPS, named("new"))).status == 201
    about = {**of, "namespace": TENANT, "name": "new"}
    deletion, applied = {**about, "verb": "delete"}, {**about, "verb": "apply", "body": {**of, **named("new")}}
    assert await codes(one, applied, deletion, applied) == [200, 200, 403]
    assert (await space.ask("GET", f"{MAPS}/new")).status == 404


@pytest.mark.parametrize("resources", ["workerpools/scale", "*/scale", "workerpools/scale workerpools/status"])
async def test_to_make_and_delete_what_one_may_only_scale(space: Server, resources: str) -> None:
    """By a batch that names the part, and means the whole."""
    one = await role(space, "scaler", rule("*", resources, group="rota.dev"))
    pool = {**frame("WorkerPool"), **named("pool", spec={"worker": {}, "replicas": 0})}
    pools = f"{API}/{TENANT}/workerpools"
    about = {**frame("WorkerPool"), "namespace": TENANT, "name": "pool", "body": pool}
    for part in ("scale", "status", ""):
        assert await codes(one, {**about, "verb": "create", "subresource": part}) != [201], part
    assert (await space.ask("GET", f"{pools}/pool")).status == 404
    assert (await space.ask("POST", pools, pool)).status == 201
    for part in ("scale", "status", ""):
        gone = {**about, "verb": "delete", "body": None, "subresource": part}
        assert await codes(one, gone) != [200], part
        assert await status(one, "POST", "/v1/batch", {"operations": [gone]}) in (403, 405), part
    assert (await space.ask("GET", f"{pools}/pool")).status == 200
    scaled = {**about, "verb": "patch", "body": {"spec": {"replicas": 0}}, "subresource": "scale"}
    assert await codes(one, scaled) == [200]


async def test_to_get_by_a_role_what_no_scope_has(space: Server) -> None:
    """A Role that names everything is a deployer's of the namespace, at most."""
    one = await role(space, "all", rule("*", "*", group="*"))
    pool = {**frame("WorkerPool"), **named("pool", spec={"worker": {"isolation": "none"}, "replicas": 0})}
    refused = await one.ask("POST", f"{API}/{TENANT}/workerpools", pool)
    assert (refused.status, "isolation" in refused.json["message"]) == (403, True)
    pool["spec"]["worker"] = {}
    assert await status(one, "POST", f"{API}/{TENANT}/workerpools", pool) == 201
    assert await status(one, "PATCH", f"{API}/{TENANT}/workerpools/pool/status", {"status": {}}) == 403
    assert await status(one, "POST", f"{API}/{TENANT}/instances", {**frame("Instance"), **named("forged")}) == 403
    assert await status(one, "DELETE", f"/api/v1/namespaces/{TENANT}") == 403
    assert await status(one, "GET", f"/api/v1/namespaces/{TENANT}") == 200
    for path in ("/v1/tokens", "/v1/backup", "/v1/status", "/api/v1/namespaces/rota-system/configmaps"):
        assert await status(one, "GET", path) == 403, path
    assert await status(one, "POST", "/v1/tokens", {"name": "a", "scope": "admin"}) == 403


# Handing on what one does not have.


async def test_to_write_a_role_that_has_more_than_oneself(space: Server) -> None:
    one = await role(
        space,
        "delegate",
        rule("*", "roles", group="rbac.authorization.k8s.io"),
        rule("get list", "configmaps"),
        rule("get", "secrets", "one"),
    )
    within = named("less", rules=[rule("get", "configmaps", "a"), rule("get", "secrets", "one")])
    assert await status(one, "POST", ROLES, within) == 201
    beyond = [
        rule("get delete", "configmaps"),
        rule("*", "configmaps"),
        rule("get", "*"),
        rule("get", "configmaps", group="*"),
        rule("get", "configmaps configmaps/status"),
        rule("get", "secrets"),
        rule("get", "secrets", "one", "two"),
    ]
    for each in beyond:
        refused = await one.ask("POST", ROLES, named("more", rules=[within["rules"][0], each]))
        assert (refused.status, "rules[1]" in refused.json["message"]) == (403, True), each
    of = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role"}
    for name in ("less", "delegate"):
        whole = {**of, **named(name, rules=[beyond[0]])}
        for verb, body in (("patch", {"rules": [beyond[0]]}), ("apply", whole), ("update", whole)):
            operation = {"verb": verb, **of, "namespace": TENANT, "name": name, "body": body, "force": True}
            assert await status(one, "POST", "/v1/batch", {"operations": [operation]}) == 403, (verb, name)
    added = [{"op": "add", "path": "/rules/-", "value": beyond[0]}]
    headers = {"Content-Type": "application/json-patch+json"}
    assert await status(one, "PATCH", f"{ROLES}/delegate", added, headers=headers) == 403
    assert (await space.ask("GET", f"{ROLES}/delegate")).json["rules"][1]["verbs"] == ["get", "list"]


async def test_to_keep_everybody_waiting_by_a_role_with_very_many_permissions(
    space: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is compared with each rule of its writer, and those may be as many as a Role may have."""
    own = rule("*", "*", "r", *[f"name-{i}" for i in range(63)], group="*")
    one = await role(space, "delegate", *[own] * 31, rule("*", "roles", group="rbac.authorization.k8s.io"))
    compared, allows = [0], roles._allows

    def counted(*about: Any) -> bool:
        compared[0] += 1
        return allows(*about)

    monkeypatch.setattr(roles, "_allows", counted)
    many = {"verbs": ["get"], "apiGroups": ["a.b"], "resources": [f"many{i}" for i in range(32)]}
    wanted = [many | {"apiGroups": [f"g{i}.{j}" for i in range(8)], "resourceNames": ["r"]} for j in range(32)]
    refused = await one.ask("POST", ROLES, named("less", rules=wanted))
    assert (refused.status, "8192 permissions" in refused.json["message"]) == (403, True)
    again = {"verbs": ["get"] * 16, "apiGroups": ["a.b"] * 8, "resources": ["many"] * 32, "resourceNames": ["r"] * 64}
    assert await status(one, "POST", ROLES, named("less", rules=[again] * 32)) == 201
    assert compared[0] <= roles.COMPARED_MAX * 32


async def test_to_write_roles_as_a_deployer(attacker: Deployer) -> None:
    mine = named("mine", rules=[rule("get", "configmaps")])
    assert await status(attacker, "POST", ROLES, mine) == 403
    assert (await attacker.server.ask("POST", ROLES, mine)).status == 201
    assert await status(attacker, "DELETE", f"{ROLES}/mine") == 403
    assert await status(attacker, "GET", f"{ROLES}/mine") == 200


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ({"role": "absent", "namespace": TENANT}, "make it first"),
        ({"role": "reader"}, "no Role"),
        ({"role": "reader", "scope": "admin", "namespace": TENANT}, "no scope"),
        ({"scope": "role", "namespace": TENANT}, "no scope"),
        ({"role": "../reader", "namespace": TENANT}, "no Role"),
    ],
)
async def test_to_have_a_token_of_a_role_and_of_something_else(space: Server, wanted: Any, why: str) -> None:
    await role(space, "reader")
    made = await space.ask("POST", "/v1/tokens", {"name": "a", **wanted})
    assert (made.status, why in made.json["message"]) == (400, True), made.json


# What it no longer gives.


class Watch:
    """A watch that is open."""

    def __init__(self, one: Deployer, path: str) -> None:
        self._one, self._path = one, path

    async def __aenter__(self) -> asyncio.StreamReader:
        reader, self._writer = await self._one.server.connect()
        head = f"GET {self._path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self._one.token}\r\n\r\n"
        self._writer.write(head.encode())
        assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
        return reader

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()


@pytest.mark.parametrize("change", ["altered", "deleted", "revoked"])
@pytest.mark.parametrize("signed", [True, False])
async def test_to_go_on_watching_with_a_role_that_was_taken_away(space: Server, change: str, signed: bool) -> None:
    one = await role(space, "watcher", rule("watch", "secrets"), **({"ttlSeconds": 600} if signed else {}))
    who = await one.ask("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
    token_id = who.json["status"]["userInfo"]["uid"]
    async with Watch(one, f"{SECRETS}?watch=1") as reader, asyncio.timeout(SOON_SECONDS):
        if change == "altered":
            changed = {"rules": [rule("watch", "configmaps")]}
            headers = {"Content-Type": "application/merge-patch+json"}
            assert (await space.ask("PATCH", f"{ROLES}/watcher", changed, headers=headers)).status == 200
        elif change == "deleted":
            assert (await space.ask("DELETE", f"{ROLES}/watcher")).status == 200
        else:
            assert (await space.ask("DELETE", f"/v1/tokens/{token_id}")).status == 200
        assert (await space.ask("POST", SECRETS, named("new", stringData={"a": "hidden"}))).status == 201
        assert b"hidden" not in await reader.read(-1)
    assert await status(one, "GET", f"{SECRETS}?watch=1") == (401 if change == "revoked" else 403)


async def test_to_act_unseen_with_a_role(space: Server, tmp_path: Path) -> None:
    one = await role(space, "writer", rule("create", "configmaps"), ttlSeconds=600)
    assert await status(one, "POST", MAPS, named("mine")) == 201
    assert await status(one, "DELETE", f"{MAPS}/mine") == 403
    lines = [json.loads(line) for line in (tmp_path / "home" / "audit.log").read_text().splitlines()]
    mine = [line for line in lines if line["user"] == "has-writer"]
    assert [(line["verb"], line["code"], line["role"]) for line in mine] == [
        ("create", 201, f"{TENANT}/writer"),
        ("delete", 403, f"{TENANT}/writer"),
    ]
    [made] = [line for line in lines if line["resource"] == "tokens"]
    assert {line["token"] for line in mine} == {made["name"]}


# What `kubectl auth can-i` says.


async def test_to_be_told_something_else_than_what_is_so(space: Server) -> None:
    one = await role(
        space,
        "told",
        rule("get", "tasks tasks/log", "one", group="rota.dev"),
        rule("create", "instances/exec functions/call", group="rota.dev"),
        rule("create", "instances instances/status", group="rota.dev"),
    )
    expected = {
        ("get", "tasks", "", "one"): True,
        ("get", "tasks", "log", "one"): True,
        ("get", "tasks", "", "two"): False,
        ("get", "tasks", "", ""): False,
        ("create", "instances", "exec", "any"): True,
        ("create", "functions", "call", "any"): True,
        ("create", "functions", "", ""): False,
        # Named, and beyond what a Role gives.
        ("create", "instances", "", ""): False,
    }
    path = "/apis/authorization.k8s.io/v1"
    for (verb, resource, part, name), allowed in expected.items():
        asked = {"verb": verb, "group": "rota.dev", "resource": resource, "subresource": part, "name": name}
        review = {"spec": {"resourceAttributes": {**asked, "namespace": TENANT}}}
        answer = (await one.ask("POST", f"{path}/selfsubjectaccessreviews", review)).json["status"]
        assert answer["allowed"] is allowed, asked
        elsewhere = {"spec": {"resourceAttributes": {**asked, "namespace": "other"}}}
        assert not (await one.ask("POST", f"{path}/selfsubjectaccessreviews", elsewhere)).json["status"]["allowed"]
    listed = await one.ask("POST", f"{path}/selfsubjectrulesreviews", {"spec": {"namespace": TENANT}})
    rules = [each for each in listed.json["status"]["resourceRules"] if each["apiGroups"] == ["rota.dev"]]
    assert {(each["resources"][0], *each["verbs"], *each.get("resourceNames", ())) for each in rules} == {
        ("tasks", "get", "one"),
        ("tasks/log", "get", "one"),
        ("instances/exec", "create"),
        ("functions/call", "create"),
    }


# Signed tokens.


def test_to_use_a_signed_token_after_its_end(tmp_path: Path) -> None:
    now = [1000.0]
    tokens = Tokens(tmp_path / "tokens.json", clock=lambda: now[0])
    secret, token = tokens.sign("ci", "viewer", seconds=60)
    user = tokens.user(secret)
    assert user is not None and (user.token_id, user.seconds_left) == (token.id, 60)
    now[0] += 60
    assert tokens.user(secret) is None and tokens.expired(secret) == token.id
    with pytest.raises(ValueError, match="24h"):
        tokens.sign("ci", "viewer", seconds=BRIEF_SECONDS_MAX + 1)


async def test_to_use_a_signed_token_that_was_revoked_with_another_server(tmp_path: Path) -> None:
    now = [1000.0]
    tokens = Tokens(tmp_path / "tokens.json", clock=lambda: now[0])
    secret, token = tokens.sign("ci", "viewer", seconds=60)
    kept, _ = tokens.sign("ci", "viewer", seconds=60)
    assert tokens.revoke(token.id)
    await tokens.save()
    again = Tokens(tmp_path / "tokens.json", clock=lambda: now[0])
    for one in (tokens, again):
        assert one.user(secret) is None and one.user(kept) is not None
    assert not tokens.list() and (tmp_path / "revoked.json").stat().st_mode & 0o077 == 0
    # What is over is not remembered for ever.
    now[0] += 61
    assert not tokens.revoke(token.id)
    _, other = tokens.sign("ci", "viewer", seconds=60)
    assert tokens.revoke(other.id)
    await tokens.save()
    assert json.loads((tmp_path / "revoked.json").read_text()) == [other.id]


async def test_to_fill_the_disk_with_revocations_of_what_there_never_was(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path / "tokens.json")
    _, token = tokens.sign("ci", "viewer", seconds=60)
    for forged in ("", "a", token.id[:-1], token.id[:-1] + "x", "0" * len(token.id), "é" * 30, token.id.upper()):
        assert not tokens.revoke(forged), forged
    await tokens.save()
    assert not (tmp_path / "revoked.json").exists()


def test_to_sign_a_token_oneself(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path / "tokens.json")
    secret, _ = tokens.sign("ci", "viewer", seconds=60)
    stranger, _ = Tokens(tmp_path / "else.json").sign("ci", "viewer", seconds=60)
    assert tokens.user(stranger) is not None  # The key of the same home.
    (tmp_path / "elsewhere").mkdir()
    stranger, _ = Tokens(tmp_path / "elsewhere" / "tokens.json").sign("ci", "admin", seconds=60)
    said, _, signature = secret.removeprefix(BRIEF_PREFIX).partition(".")
    forged = [
        f"{said}",
        f"{said}.",
        f"{said}A.{signature}",
        f".{signature}",
        "",
        "\udcff.\udcff",
        f"{said}.{signature}0",
    ]
    for one in (stranger, *(f"{BRIEF_PREFIX}{text}" for text in forged)):
        assert tokens.user(one) is None and tokens.expired(one) == "", one


def test_to_have_a_key_that_is_known(tmp_path: Path) -> None:
    (tmp_path / "token.key").write_bytes(b"")
    with pytest.raises(HomeDamaged, match=r"token\.key"):
        Tokens(tmp_path / "tokens.json")
    (tmp_path / "token.key").unlink()
    (tmp_path / "revoked.json").write_text("{")
    with pytest.raises(HomeDamaged, match=r"revoked\.json"):
        Tokens(tmp_path / "tokens.json")


async def test_to_watch_beyond_the_end_of_a_signed_token(matrix: Matrix) -> None:
    headers = {"host": "localhost", **matrix.credentials["brief"].headers}
    answer = matrix.app(Request("GET", f"{SECRETS}?watch=1".encode(), headers, b"", None))
    # It was good for 100 seconds, of which 10 are over.
    assert isinstance(answer, Stream) and answer.seconds_max == 90
    await answer.chunks.aclose()  # type: ignore[attr-defined]


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[Server]:
    async with served(tmp_path / "home") as server:
        yield server


@pytest.mark.skipif(not sandbox.available().ok, reason="no sandbox can be made here")
async def test_to_read_secrets_by_the_variables_of_a_claim(live: Server) -> None:
    await live.ask("POST", "/api/v1/namespaces", {"metadata": {"name": TENANT}})
    secret = {"apiVersion": "v1", "kind": "Secret", **named("bank", stringData={"pin": "1234"})}
    assert (await live.ask("POST", SECRETS, secret)).status == 201
    shared = {"apiVersion": "v1", "kind": "ConfigMap", **named("shared", data={"pin": "none"})}
    assert (await live.ask("POST", MAPS, shared)).status == 201
    pool = named("boxes", spec={"replicas": 1, "worker": {"type": "shell", "isolation": "sandbox"}})
    assert (await live.ask("POST", f"{API}/{TENANT}/workerpools", {**frame("WorkerPool"), **pool})).status == 201
    may = rule("create", "workerpools/claims", "boxes", group="rota.dev")
    one = await role(live, "claimer", may, rule("get", "configmaps", "shared"))
    path = f"/v1/pools/{TENANT}/boxes/claims"

    def asked(**source: Any) -> dict[str, Any]:
        return {"waitSeconds": 20, "env": [{"name": "PIN", "valueFrom": source}]}

    refused = await one.ask("POST", path, asked(secretKeyRef={"name": "bank", "key": "pin"}))
    assert refused.status == 403 and b"1234" not in refused.body
    assert await status(one, "POST", path, asked(configMapKeyRef={"name": "other", "key": "pin"})) == 403
    # What they may read they may have there.
    assert await status(one, "POST", path, asked(configMapKeyRef={"name": "shared", "key": "pin"})) == 201


async def test_to_read_secrets_by_variables_that_a_waiting_claim_is_given_later(space: Server) -> None:
    """Somebody who may claim, and change claims, makes no claim that has more rights."""
    pool = {**frame("WorkerPool"), **named("boxes", spec={"replicas": 0, "worker": {"type": "shell"}})}
    assert (await space.ask("POST", f"{API}/{TENANT}/workerpools", pool)).status == 201
    claims = f"{API}/{TENANT}/claims"
    waiting = {**frame("Claim"), **named("mine", spec={"poolRef": {"name": "boxes"}, "waitSeconds": 600})}
    waiting["spec"]["env"] = [{"name": "A", "value": "a"}]
    assert (await space.ask("POST", claims, waiting)).status == 201
    one = await role(space, "claimer", rule("get update patch", "claims", group="rota.dev"))
    pin = {"name": "PIN", "valueFrom": {"secretKeyRef": {"name": "bank", "key": "pin"}}}
    whole = (await one.ask("GET", f"{claims}/mine")).json
    for method, body, type_ in (
        ("PATCH", {"spec": {"env": [pin]}}, "application/merge-patch+json"),
        ("PATCH", {"spec": {"env": None}}, "application/merge-patch+json"),
        ("PATCH", [{"op": "replace", "path": "/spec/env/0", "value": pin}], "application/json-patch+json"),
        ("PATCH", {**frame("Claim"), "spec": {"env": [pin]}}, "application/apply-patch+yaml"),
        ("PUT", {**whole, "spec": {**whole["spec"], "env": [pin]}}, "application/json"),
    ):
        path = f"{claims}/mine" + ("?fieldManager=a&force=true" if type_.startswith("application/apply") else "")
        refused = await one.ask(method, path, body, headers={"Content-Type": type_})
        assert (refused.status, "spec.env" in refused.json["message"]) == (403, True), type_
    assert (await space.ask("GET", f"{claims}/mine")).json["spec"]["env"] == waiting["spec"]["env"]
    headers = {"Content-Type": "application/merge-patch+json"}
    assert await status(one, "PATCH", f"{claims}/mine", {"spec": {"release": True}}, headers=headers) == 200


@pytest.mark.skipif(not sandbox.available().ok, reason="no sandbox can be made here")
async def test_to_be_told_the_names_of_those_who_have_what_one_waits_for(live: Server) -> None:
    await live.ask("POST", "/api/v1/namespaces", {"metadata": {"name": TENANT}})
    pool = named("boxes", spec={"replicas": 1, "worker": {"type": "shell", "isolation": "sandbox"}})
    assert (await live.ask("POST", f"{API}/{TENANT}/workerpools", {**frame("WorkerPool"), **pool})).status == 201
    claimed = await live.ask("POST", f"/v1/pools/{TENANT}/boxes/claims", {"name": "hidden", "waitSeconds": 20})
    assert claimed.status == 201
    task = {**frame("Task"), **named("mine", spec={"command": ["true"], "workerPoolRef": {"name": "boxes"}})}
    assert (await live.ask("POST", f"{API}/{TENANT}/tasks", task)).status == 201
    why = f"/v1/why/tasks/{TENANT}/mine"
    await until_so(lambda: live.ask("GET", why), lambda reply: b"hidden" in reply.body, "the name of the claim")
    one = await role(live, "asker", rule("get", "tasks", "mine", group="rota.dev"))
    told = await one.ask("GET", why)
    assert (told.status, told.json["step"]["reason"], b"hidden" in told.body) == (200, "Queued", False)
    both = await role(live, "lister", rule("get list", "tasks claims", group="rota.dev"))
    assert b"hidden" in (await both.ask("GET", why)).body
