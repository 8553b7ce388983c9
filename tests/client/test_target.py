"""The choice of the server, and the credentials of the client there."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from rota import Client
from rota.api import ConfigMap
from rota.client import HttpBackend, KubeconfigError, NoServer
from rota.client.credentials import Credential
from rota.client.target import IN_CLUSTER, Target, find, in_cluster

PEM = "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n"


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The machine's own settings are none of these tests' business."""
    for name in ("KUBECONFIG", "ROTA_CONTEXT", "ROTA_HOME", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "user"))


def config(path: Path, *, name: str = "one", user: Any = None, cluster: Any = None, current: str | None = None) -> Path:
    """A kubeconfig with one context."""
    said: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": f"https://{name}.example:6443", **(cluster or {})}}],
        "users": [{"name": name, "user": user or {}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": f"in-{name}"}}],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump({**said, "current-context": current} if current else said))
    return path


def read(path: Path, context: str | None = None) -> Target:
    return find(None, path, context)


async def shown(target: Target) -> Credential:
    return await target.credentials.current()


# Which server.


def test_without_a_word_it_is_the_local_server(tmp_path: Path) -> None:
    assert find(None, None, None).endpoint.socket_path == str(tmp_path / "user/.rota/rota.sock")


def test_the_local_server_is_where_its_home_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTA_HOME", "/from/environment")
    assert find(None, None, None).endpoint.socket_path == "/from/environment/rota.sock"
    assert find("/said", None, None).endpoint.socket_path == "/said/rota.sock"


def test_a_kubeconfig_that_is_set_for_other_tools_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(config(tmp_path / "config", current="one")))
    assert find(None, None, None).endpoint.socket_path


def test_a_context_is_looked_up_in_the_kubeconfigs_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first, second = config(tmp_path / "1", name="one"), config(tmp_path / "2", name="two")
    monkeypatch.setenv("KUBECONFIG", f"{first}:{tmp_path / 'missing'}:{second}")
    assert find(None, None, "two").endpoint.host == "two.example"
    monkeypatch.setenv("ROTA_CONTEXT", "one")
    assert find(None, None, None).endpoint.host == "one.example"


def test_a_context_is_looked_up_in_the_users_kubeconfig(tmp_path: Path) -> None:
    config(tmp_path / "user/.kube/config")
    assert find(None, None, "one").namespace == "in-one"


def test_what_is_said_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ROTA_CONTEXT", "nowhere")
    assert find("/said", None, None).endpoint.socket_path == "/said/rota.sock"
    assert read(config(tmp_path / "config", current="one")).endpoint.host == "one.example"


def test_a_home_and_a_context_exclude_each_other() -> None:
    with pytest.raises(KubeconfigError, match="either home"):
        find("/said", None, "one")


def test_of_several_files_the_first_that_says_something_wins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first = config(tmp_path / "1", cluster={"server": "https://first.example"})
    second = config(tmp_path / "2", cluster={"server": "https://second.example"}, current="one")
    monkeypatch.setenv("KUBECONFIG", f"{first}:{second}")
    assert find(None, None, "one").endpoint.host == "first.example"


def test_a_pod_finds_its_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    for name, text in (("ca.crt", PEM), ("namespace", "mine\n"), ("token", "abc")):
        (tmp_path / name).write_text(text)
    target = in_cluster(tmp_path)
    assert (target.endpoint.url, target.namespace) == ("https://[fd00::1]:443", "mine")
    assert target.tls is not None and target.tls.authority == PEM


def test_what_is_no_pod_says_so() -> None:
    with pytest.raises(KubeconfigError, match="no pod"):
        find(None, None, IN_CLUSTER)


# What a kubeconfig says.


def test_a_cluster_says_where_its_server_is(tmp_path: Path) -> None:
    cluster = {"server": "https://host:8443/prefix/", "tls-server-name": "other", "insecure-skip-tls-verify": True}
    target = read(config(tmp_path / "config", cluster=cluster), "one")
    endpoint = target.endpoint
    assert (endpoint.host, endpoint.port, endpoint.server_name) == ("host", 8443, "other")
    assert target.path == "/prefix"
    assert target.tls is not None and target.tls.insecure


def test_a_server_without_tls_has_none(tmp_path: Path) -> None:
    target = read(config(tmp_path / "config", cluster={"server": "http://[::1]"}), "one")
    assert target.tls is None
    assert (target.endpoint.host, target.endpoint.port) == ("::1", 80)


def test_certificates_are_in_the_file_or_beside_it(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text(PEM)
    beside = read(config(tmp_path / "1", cluster={"certificate-authority": "ca.pem"}), "one")
    within = {"certificate-authority-data": base64.b64encode(PEM.encode()).decode()}
    inside = read(config(tmp_path / "2", cluster=within), "one")
    assert beside.tls == inside.tls
    assert beside.tls is not None and beside.tls.authority == PEM


async def test_a_user_has_a_token_a_certificate_or_a_password(tmp_path: Path) -> None:
    assert await shown(read(config(tmp_path / "1", user={"token": "abc"}), "one")) == Credential("abc")
    data = base64.b64encode(PEM.encode()).decode()
    both = read(config(tmp_path / "2", user={"client-certificate-data": data, "client-key-data": data}), "one")
    assert (await shown(both)).certificate == f"{PEM}\n{PEM}\n"
    basic = read(config(tmp_path / "3", user={"username": "u", "password": "p"}), "one")
    assert (await shown(basic)).headers == (("Authorization", "Basic dTpw"),)


async def test_a_user_may_act_as_another(tmp_path: Path) -> None:
    user = {"token": "abc", "as": "she", "as-uid": "7", "as-groups": ["a", "b"], "as-user-extra": {"scope": ["x"]}}
    target = read(config(tmp_path / "config", user=user), "one")
    assert (await shown(target)).headers == (
        ("Impersonate-User", "she"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Extra-scope", "x"),
    )


def test_json_is_read_as_well(tmp_path: Path) -> None:
    path = config(tmp_path / "config", current="one")
    path.write_text(json.dumps(yaml.safe_load(path.read_text())))
    assert read(path).endpoint.host == "one.example"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"user": {"auth-provider": {"name": "gcp"}}}, "use the provider's exec plugin"),
        ({"user": {"client-certificate-data": "YQ=="}}, "needs its key"),
        ({"user": {"client-certificate-data": "?"}}, "not PEM in base64"),
        ({"user": {"client-certificate": "missing.pem"}}, "cannot read missing.pem"),
        ({"user": {"token": 7}}, "Expected `str`"),
        ({"user": {"exec": {"command": "c", "apiVersion": "v0"}}}, "speaks 'v0'"),
        ({"cluster": {"server": "ftp://x"}}, "no address of a server"),
        ({"cluster": {"server": "https://x:port"}}, "no address of a server"),
        ({"cluster": {"proxy-url": "http://x"}}, "proxy-url is not supported"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(KubeconfigError, match=message) as caught:
        read(config(tmp_path / "config", **change), "one")
    assert "config" in str(caught.value)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    path = config(tmp_path / "config")
    with pytest.raises(KubeconfigError, match="no current context: say which of one is meant"):
        read(path)
    with pytest.raises(KubeconfigError, match="has no context 'two', only one"):
        read(path, "two")
    with pytest.raises(KubeconfigError, match="cannot read the kubeconfig"):
        read(tmp_path / "missing")


@pytest.mark.parametrize("text", ["{", "- a", "contexts: 7", "a: b: c"])
def test_what_is_no_kubeconfig_is_told_as_such(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").write_text(text)
    with pytest.raises(KubeconfigError, match="is no kubeconfig"):
        read(tmp_path / "config")


# Without a server.


@pytest.mark.parametrize("left_over", [False, True], ids=["never started", "died"])
async def test_that_no_server_runs_is_told_with_what_to_do(tmp_path: Path, left_over: bool) -> None:
    if left_over:
        import socket

        with socket.socket(socket.AF_UNIX) as sock:
            sock.bind(str(tmp_path / "rota.sock"))
    with pytest.raises(NoServer, match=r"no Rota server is running at .*rota\.sock: start one with `rota start`"):
        await Client.connect(home=tmp_path).get(ConfigMap, "a")


async def test_a_client_without_a_backend_is_one_of_the_local_server() -> None:
    client = Client()
    assert isinstance(client.backend, HttpBackend)
    with pytest.raises(NoServer):
        await client.get(ConfigMap, "a")


def test_a_client_is_in_the_namespace_of_its_context_unless_it_is_said(tmp_path: Path) -> None:
    path = config(tmp_path / "config", current="one")
    assert Client.connect(kubeconfig=path).namespace == "in-one"
    assert Client.connect(kubeconfig=path, namespace="said").namespace == "said"
    assert Client.connect(home=tmp_path).namespace == "default"
