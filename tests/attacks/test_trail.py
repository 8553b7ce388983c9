"""To leave no trace, or to wash one's traces away."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from rota.registry import ApiError
from rota.server import audit as audit_module
from rota.server.audit import NOBODY, Audit
from rota.server.auth import User
from rota.store import create_key
from tests.attacks.conftest import API, TENANT, Deployer, deployer
from tests.cli.test_commands import run
from tests.server.conftest import Server, served
from tests.until import until_so

SECRETS = f"/api/v1/namespaces/{TENANT}/secrets"


def lines(home: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (home / "audit.log").read_text().splitlines()]


def last(home: Path, **wanted: Any) -> dict[str, Any]:
    """The last line that says this."""
    found = [line for line in lines(home) if wanted.items() <= line.items()]
    assert found, f"nothing in the trail says {wanted}"
    return found[-1]


async def token_id(server: Server, name: str) -> str:
    listed = (await server.ask("GET", "/v1/tokens")).json["tokens"]
    return str(next(one["id"] for one in listed if one["name"] == name))


async def test_to_read_secrets_unseen(bare: Server, attacker: Deployer) -> None:
    await bare.ask("POST", SECRETS, {"metadata": {"name": "s"}, "stringData": {"password": "correct-horse"}})
    own = await token_id(bare, f"deployer-of-{TENANT}")
    await attacker.ask("GET", f"{SECRETS}/s")
    about = {"resource": "secrets", "namespace": TENANT, "token": own, "code": 200}
    assert last(bare.home, verb="get", name="s", **about)["user"] == f"deployer-of-{TENANT}"
    await attacker.ask("GET", SECRETS)
    last(bare.home, verb="list", **about)
    reader, writer = await bare.connect()
    writer.write(
        f"GET {SECRETS}?watch=1 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {attacker.token}\r\n\r\n".encode()
    )
    await reader.readuntil(b"\r\n\r\n")
    writer.transport.abort()
    writer.close()
    last(bare.home, verb="watch", **about)
    trail = (bare.home / "audit.log").read_text()
    assert "correct-horse" not in trail and attacker.token not in trail and bare.token not in trail


PASSWORD = "aHVudGVyMi1zdXBlcg=="
PLACES = ("labels/x", "uid", "name", "namespace", "finalizers/0", "annotations/x", "resourceVersion", "generateName")


@pytest.mark.parametrize("op", ["copy", "move"])
@pytest.mark.parametrize("source", ["/data/password", "/metadata/annotations/applied", "/data"])
async def test_to_have_a_refusal_say_what_is_in_a_secret(
    bare: Server, attacker: Deployer, op: str, source: str
) -> None:
    meta = {"name": "s", "annotations": {"applied": PASSWORD}, "labels": {"x": "y"}, "finalizers": ["a.b/c"]}
    await bare.ask("POST", SECRETS, {"metadata": meta, "data": {"password": PASSWORD}})
    kind = {"Content-Type": "application/json-patch+json"}
    for place in (*(f"/metadata/{one}" for one in PLACES), "/type", "/kind", "/immutable", "/data", "/none"):
        patch = [{"op": op, "from": source, "path": place}]
        refused = await attacker.ask("PATCH", f"{SECRETS}/s?dryRun=All", patch, headers=kind)
        assert refused.status == 422, place
        assert PASSWORD not in refused.body.decode() + str(refused.headers), place
    inside = [{"op": op, "from": "/data/password", "path": "/data/other"}]
    assert (await attacker.ask("PATCH", f"{SECRETS}/s", inside, headers=kind)).status == 200


async def test_to_look_into_a_secret_by_a_batch_that_fails(bare: Server, attacker: Deployer) -> None:
    for name in ("s", "t"):
        await bare.ask("POST", SECRETS, {"metadata": {"name": name}, "data": {"password": PASSWORD}})
    about = {"apiVersion": "v1", "kind": "Secret", "namespace": TENANT, "verb": "patch", "patchType": "json"}
    guess = [{"op": "test", "path": "/data/password", "value": "bm9uZQ=="}]
    operations: list[dict[str, Any]] = [{**about, "name": "t", "body": []}, {**about, "name": "s", "body": guess}]
    for dry_run in (False, True):
        sent = [{**one, "dryRun": dry_run} for one in operations]
        assert (await attacker.ask("POST", "/v1/batch", {"operations": sent})).status == 422
    found = [line for line in lines(bare.home) if line["resource"] == "secrets" and line.get("code") == 422]
    assert [line["name"] for line in found] == ["t", "s", "t", "s"]
    assert (await attacker.ask("POST", "/v1/batch", {"atomic": False, "operations": operations})).status == 200
    found = [line for line in lines(bare.home) if line["resource"] == "secrets" and line["verb"] == "patch"]
    assert [(line["name"], line["code"]) for line in found[4:]] == [("t", 200), ("s", 422)]
    assert {line["verb"] for line in found} == {"patch"}


async def test_to_look_into_a_secret_while_refusals_are_only_counted(bare: Server, attacker: Deployer) -> None:
    await bare.ask("POST", SECRETS, {"metadata": {"name": "s"}, "data": {"password": PASSWORD}})
    guess = [{"op": "test", "path": "/data/password", "value": "bm9uZQ=="}]
    kind = {"Content-Type": "application/json-patch+json"}
    many = 3 * audit_module.REFUSALS_PER_SECOND_MAX
    for _ in range(many):
        assert (await attacker.ask("DELETE", f"{SECRETS}/none")).status == 404
        assert (await attacker.ask("PATCH", f"{SECRETS}/s", guess, headers=kind)).status == 422
    trail = [line for line in lines(bare.home) if line["resource"] == "secrets"]
    assert sum(line["code"] == 422 for line in trail) == many
    assert sum(line["code"] == 404 for line in trail) < many


@pytest.mark.parametrize("maker", ["", "m"])
def test_what_has_a_line_after_all_is_not_counted_as_well(tmp_path: Path, maker: str) -> None:
    trail = Audit(tmp_path / "audit.log", clock=lambda: 1000.0)
    user = User("u", "deployer", token_id="t", maker=maker)
    for _ in range(audit_module.REFUSALS_PER_SECOND_MAX):
        trail.record(user, "delete", "configmaps", "n", "none", code=404)
    trail.record(user, "patch", "secrets", "n", "s", code=422)
    trail.record(user, "delete", "configmaps", "n", "none", code=404)
    trail.close()
    written = [json.loads(line) for line in (tmp_path / "audit.log").read_text().splitlines()]
    assert [line["resource"] for line in written[-2:]] == ["secrets", "requests"]
    assert written[-1]["count"] == 1


async def test_to_take_everything_by_a_backup_unseen(bare: Server, attacker: Deployer) -> None:
    assert (await bare.ask("GET", "/v1/backup")).status == 200
    admin = await token_id(bare, "rota-admin")
    last(bare.home, verb="get", resource="backup", code=200, token=admin)
    assert (await attacker.ask("GET", "/v1/backup")).status == 403
    last(bare.home, verb="get", resource="backup", code=403, user=f"deployer-of-{TENANT}")


async def test_to_put_back_what_was_revoked_unseen(tmp_path: Path) -> None:
    """A Role that was deleted, and what its tokens may do, is there again after a restore."""
    home, key, other = tmp_path / "home", tmp_path / "key", tmp_path / "other"
    create_key(key)
    create_key(other)
    async with served(home, with_controllers=False, key_file=key) as server:
        (tmp_path / "backup").write_bytes((await server.ask("GET", "/v1/backup")).body)
    done = run("restore", str(tmp_path / "backup"), "--yes", home=home)
    assert done.returncode == 0, done.stderr
    put_back = last(home, verb="restore", resource="backup", user="local", code=200)
    assert put_back["revision"] > 10**15
    done = run("key", "rotate", str(key), str(other), home=home)
    assert done.returncode == 0, done.stderr
    last(home, verb="rotate", resource="key", user="local", code=200)
    # What did not come about has no line.
    assert run("key", "rotate", str(key), str(other), home=home).returncode == 1
    assert [line["verb"] for line in lines(home)].count("rotate") == 1


async def test_to_try_doors_unseen(bare: Server, attacker: Deployer) -> None:
    pool = {"metadata": {"name": "p"}, "spec": {"worker": {"type": "shell"}}}
    assert (await attacker.ask("POST", f"{API}/other/workerpools", pool)).status == 403
    about = {"resource": "workerpools.rota.dev", "code": 403, "user": f"deployer-of-{TENANT}"}
    last(bare.home, verb="create", namespace="other", **about)
    operation = {"verb": "create", "apiVersion": "rota.dev/v1alpha1", "kind": "WorkerPool", "namespace": "batched"}
    assert (await attacker.ask("POST", "/v1/batch", {"operations": [{**operation, "body": pool}]})).status == 403
    last(bare.home, verb="create", namespace="batched", **about)
    assert (await attacker.ask("GET", "/v1/exec/other/it")).status == 403
    last(bare.home, verb="create", resource="instances.rota.dev", subresource="exec", namespace="other", code=403)
    assert (await attacker.ask("POST", "/v1/tokens", {"name": "a", "scope": "admin"})).status == 403
    last(bare.home, verb="create", resource="tokens", code=403)
    assert (await attacker.ask("GET", "/api/v1/namespaces/other/secrets/s")).status == 403
    last(bare.home, verb="get", resource="secrets", namespace="other", name="s", code=403)


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_to_try_to_act_for_somebody_else_unseen(bare: Server, attacker: Deployer, method: str) -> None:
    path, body = "/api/v1/namespaces/tenant/configmaps", {"metadata": {"name": "c"}} if method == "POST" else None
    who = {"Impersonate-User": "admin", "Impersonate-Group": "system:masters"}
    assert (await attacker.ask(method, path, body, headers=who)).status == 403
    about = {"user": f"deployer-of-{TENANT}", "token": await token_id(bare, f"deployer-of-{TENANT}")}
    last(bare.home, verb="impersonate", resource="users", name="admin", code=403, **about)


async def test_to_guess_tokens_unseen(bare: Server) -> None:
    guess = "rota-guessed-token-of-somebody"
    assert (await bare.ask("GET", SECRETS, token=guess)).status == 401
    line = last(bare.home, verb="authenticate", code=401, reason="unknown token")
    assert guess not in json.dumps(line)
    assert (await bare.ask("GET", SECRETS, token=None)).status == 401
    last(bare.home, verb="authenticate", code=401, reason="no credential")
    made = await bare.ask("POST", "/v1/tokens", {"name": "brief", "scope": "viewer", "expiresSeconds": 1})
    await until_so(
        lambda: bare.ask("GET", "/version", token=made.json["token"]),
        lambda reply: reply.status == 401,
        "a token that has expired",
    )
    last(bare.home, verb="authenticate", reason="expired token", token=made.json["id"])


async def test_a_function_key_that_is_none_is_in_the_trail(tmp_path: Path) -> None:
    async with served(tmp_path / "home") as server:
        edge = (await server.ask("GET", "/v1/status")).json["edge"]
        host, _, port = edge.removeprefix("http://").rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        head = "GET /default/secret HTTP/1.1\r\nHost: localhost\r\nX-Rota-Key: rota-guess\r\nConnection: close\r\n\r\n"
        writer.write(head.encode())
        assert b" 401 " in await reader.read(-1)
        writer.close()
        line = last(server.home, verb="authenticate", resource="functions", namespace="default", name="secret")
        assert "rota-guess" not in json.dumps(line)


def test_to_wash_traces_away_by_being_refused(tmp_path: Path) -> None:
    moments = [100.0]
    audit = Audit(tmp_path / "audit.log", clock=lambda: moments[0])
    for _ in range(5000):
        audit.refused(NOBODY, "authenticate", "requests", code=401)
    audit.refused(User("somebody", "viewer", "", "id"), "create", "pods")
    written = lines(tmp_path)
    assert len(written) == audit_module.REFUSALS_PER_SECOND_MAX + 1 and written[-1]["user"] == "somebody"
    moments[0] += 1
    audit.refused(NOBODY, "authenticate", "requests", code=401)
    assert lines(tmp_path)[-1]["count"] == 5000 - audit_module.REFUSALS_PER_SECOND_MAX
    for number in range(audit_module.REFUSED_KEYS_MAX + 1000):
        audit.refused(User("many", "viewer", "", str(number)), "create", "pods")
    assert len(lines(tmp_path)) < 20_000
    audit.close()
    assert lines(tmp_path)[-1]["count"] > 0


class Full:
    """A file on a disk that is full."""

    closed = False

    def write(self, text: bytes) -> int:
        raise OSError(28, "No space left on device")

    def close(self) -> None:
        """There is nothing to close."""


def test_what_cannot_be_recorded_is_done_unless_that_is_required(tmp_path: Path) -> None:
    for required in (False, True):
        audit = Audit(tmp_path / f"{required}.log", required=required)
        whole, audit._file = audit._file, Full()  # type: ignore[assignment]
        if required:
            with pytest.raises(ApiError) as refused:
                audit.begin(NOBODY, "POST", "/v1/batch")
            assert (refused.value.code, refused.value.details) == (503, {"retryAfterSeconds": 5})
            with pytest.raises(ApiError):
                audit.check()
        else:
            audit.begin(NOBODY, "POST", "/v1/batch")
            audit.record(NOBODY, "create", "pods")
        assert audit.trouble
        audit._file = whole
        audit.record(NOBODY, "create", "pods")
        assert not audit.trouble
        audit.close()


async def test_to_act_while_nothing_can_be_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(tmp_path / "home", with_controllers=False, audit_required=True) as server:
        attacker = await deployer(server)
        pool = {"apiVersion": "rota.dev/v1alpha1", "kind": "WorkerPool", "metadata": {"name": "p"}}
        pool["spec"] = {"worker": {"type": "shell"}, "replicas": 0}
        pools = f"{API}/{TENANT}/workerpools"

        def full(self: Audit, text: bytes) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(Audit, "_append", full)
            refused = await attacker.ask("POST", pools, pool)
            assert (refused.status, refused.json["reason"]) == (503, "ServiceUnavailable")
            assert "--audit-required" in refused.json["message"] and refused.headers["retry-after"] == "5"
            for method, path in (("GET", pools), ("GET", f"{SECRETS}/s"), ("GET", "/v1/backup"), ("GET", "/version")):
                assert (await server.ask(method, path)).status == 503, path
            assert (await server.ask("GET", "/readyz", token=None)).status == 500
            assert (await server.ask("GET", "/livez", token=None)).status == 200
        assert (await attacker.ask("GET", f"{pools}/p")).status == 404
        assert (await attacker.ask("POST", pools, pool)).status == 201
        assert (await server.ask("GET", "/readyz", token=None)).status == 200
        begun = last(server.home, stage="RequestReceived", verb="post", resource=pools)
        assert begun["user"] == f"deployer-of-{TENANT}"


async def test_to_wash_traces_away_with_long_names(bare: Server, attacker: Deployer) -> None:
    """Names of what is not there, as long as a path can be, in requests that are allowed and fail."""
    before = (bare.home / "audit.log").stat().st_size
    long = "x" * 30_000
    for number in range(2 * audit_module.REFUSALS_PER_SECOND_MAX):
        missing = await attacker.ask("DELETE", f"{API}/{TENANT}/workerpools/{number}-{long}")
        assert missing.status == 404
        assert (await attacker.ask("PUT", f"/v1/blobs/{long}", b"")).status in (400, 404)
    assert (bare.home / "audit.log").stat().st_size - before < len(long)
    assert last(bare.home, verb="delete", code=404)["name"].endswith("x" * 100)


def test_to_wash_traces_away_by_failing(tmp_path: Path) -> None:
    moments = [3600.0]
    audit = Audit(tmp_path / "audit.log", required=True, clock=lambda: moments[0])
    somebody, other = User("somebody", "deployer", "a", "id"), User("other", "deployer", "b", "other")
    audit.record(other, "create", "pods", code=201)
    for _ in range(3000):
        moments[0] += 1
        audit.record(somebody, "create", "pods", "a", "x" * 60_000, code=409)
    failures = [line for line in lines(tmp_path) if line["code"] == 409]
    assert len(failures) == audit_module.REFUSALS_PER_HOUR_MAX
    assert max(map(len, (tmp_path / "audit.log").read_text().splitlines())) < 1000
    audit.begin(somebody, "POST", f"/{'y' * 60_000}")
    assert len((tmp_path / "audit.log").read_text().splitlines()[-1]) < 1000
    # What is done is written down, and so is what failed for others; what was not written is counted.
    audit.record(somebody, "create", "pods", "a", "done", code=201)
    audit.record(other, "create", "pods", "b", "failed", code=409)
    assert [line["name"] for line in lines(tmp_path)[-2:]] == ["done", "failed"]
    moments[0] += 3600
    audit.record(somebody, "create", "pods", code=409)
    assert lines(tmp_path)[-1]["count"] == 3000 - audit_module.REFUSALS_PER_HOUR_MAX
    audit.close()
