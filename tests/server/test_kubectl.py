"""Stock kubectl against `rota up`, with the kubeconfig that it writes."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.api import KINDS
from tests.examples import examples
from tests.server.live import Live, live

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl on this machine")

POOL = """
apiVersion: rota.dev/v1alpha1
kind: WorkerPool
metadata: {name: demo}
spec: {worker: {type: shell}, replicas: 2}
"""


@pytest.fixture(scope="module")
def rota(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live(tmp_path_factory.mktemp("kubectl"), "--no-controllers") as server:
        yield server


@pytest.fixture
def namespace(rota: Live, request: pytest.FixtureRequest) -> str:
    """A namespace of its own for each test."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())[:50].strip("-")
    rota.kubectl("create", "namespace", name)
    return name


def test_api_resources_lists_every_kind(rota: Live) -> None:
    listed = rota.kubectl("api-resources", "--no-headers")
    assert {line.split()[-1] for line in listed.splitlines()} >= set(KINDS)
    assert re.search(r"^workerpools +wp +rota.dev/v1alpha1 +true +WorkerPool$", listed, re.MULTILINE)


def test_explain_shows_the_fields_with_their_documentation(rota: Live) -> None:
    said = rota.kubectl("explain", "workerpool.spec.queue", "--recursive")
    assert re.search(r"limit\s+<integer>", said)
    assert "Maximum number of waiting Claims." in rota.kubectl("explain", "workerpool.spec.queue.limit")
    assert "-required-" in rota.kubectl("explain", "schedule.spec")


def test_client_side_apply_creates_then_configures(rota: Live, namespace: str) -> None:
    n = ("-n", namespace)
    assert "created" in rota.kubectl("apply", *n, "-f", "-", stdin=POOL)
    assert "unchanged" in rota.kubectl("apply", *n, "-f", "-", stdin=POOL)
    changed = POOL.replace("replicas: 2", "replicas: 3")
    assert "configured" in rota.kubectl("apply", *n, "-f", "-", stdin=changed)
    assert rota.json("get", "wp", "demo", *n)["spec"]["replicas"] == 3


def test_server_side_apply_meets_a_conflict_and_takes_over(rota: Live, namespace: str) -> None:
    n = ("-n", namespace)
    rota.kubectl("apply", "--server-side", *n, "-f", "-", stdin=POOL)
    rota.kubectl("scale", *n, "wp/demo", "--replicas=7")
    refused = rota.kubectl("apply", "--server-side", *n, "-f", "-", stdin=POOL, check=False)
    assert "Apply failed with 1 conflict" in refused
    assert ".spec.replicas" in refused
    rota.kubectl("apply", "--server-side", "--force-conflicts", *n, "-f", "-", stdin=POOL)
    assert rota.kubectl("get", *n, "wp/demo", "-o", "jsonpath={.spec.replicas}") == "2"


def test_get_prints_tables_and_paths(rota: Live, namespace: str) -> None:
    n = ("-n", namespace)
    rota.kubectl("apply", *n, "-f", "-", stdin=POOL)
    wide = rota.kubectl("get", *n, "wp,task", "-o", "wide")
    assert wide.splitlines()[0].split()[:3] == ["NAME", "PHASE", "READY"]
    assert "REASON" in wide.splitlines()[0]
    assert rota.kubectl("get", *n, "wp", "demo", "-o", "jsonpath={.spec.worker.type}") == "shell"
    assert rota.kubectl("get", *n, "wp", "-o", "name") == "workerpool.rota.dev/demo\n"
    assert rota.kubectl("get", *n, "wp", "-l", "app=none", "-o", "name") == ""


def test_get_sorts_by_any_field(rota: Live, namespace: str) -> None:
    for name, replicas in (("a", 3), ("b", 1), ("c", 2)):
        manifest = POOL.replace("demo", name).replace("replicas: 2", f"replicas: {replicas}")
        rota.kubectl("apply", "-n", namespace, "-f", "-", stdin=manifest)
    listed = rota.kubectl("get", "-n", namespace, "wp", "--sort-by=.spec.replicas", "--no-headers")
    assert [line.split()[0] for line in listed.splitlines()] == ["b", "c", "a"]


def test_get_watches(rota: Live, namespace: str) -> None:
    command = ["kubectl", "--kubeconfig", str(rota.kubeconfig), "get", "-n", namespace, "wp", "-w", "--no-headers"]
    watching = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert watching.stdout is not None
        rota.kubectl("apply", "-n", namespace, "-f", "-", stdin=POOL)
        assert watching.stdout.readline().split()[0] == "demo"
        rota.kubectl("label", "-n", namespace, "wp/demo", "a=b")
        assert watching.stdout.readline().split()[0] == "demo"
    finally:
        watching.kill()
        watching.communicate()


def test_patch_of_every_type(rota: Live, namespace: str) -> None:
    n = ("-n", namespace)
    rota.kubectl("apply", *n, "-f", "-", stdin=POOL)
    rota.kubectl("patch", *n, "wp/demo", "--type=merge", "-p", '{"spec":{"replicas":4}}')
    rota.kubectl("patch", *n, "wp/demo", "--type=json", "-p", '[{"op":"test","path":"/spec/replicas","value":4}]')
    failed = rota.kubectl(
        "patch", *n, "wp/demo", "--type=json", "-p", '[{"op":"test","path":"/spec/replicas","value":5}]', check=False
    )
    assert "the server rejected our request" in failed.lower() or "test" in failed
    rota.kubectl("create", *n, "configmap", "settings", "--from-literal=a=1")
    rota.kubectl("patch", *n, "configmap/settings", "--type=strategic", "-p", '{"data":{"b":"2"}}')
    assert rota.json("get", *n, "cm", "settings")["data"] == {"a": "1", "b": "2"}
    rota.kubectl("patch", *n, "wp/demo", "--subresource=status", "--type=merge", "-p", '{"status":{"phase":"Ready"}}')
    assert rota.json("get", *n, "wp", "demo")["status"]["phase"] == "Ready"


def test_edit_saves_what_the_editor_left(rota: Live, namespace: str, tmp_path: Path) -> None:
    n = ("-n", namespace)
    rota.kubectl("apply", *n, "-f", "-", stdin=POOL)
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nsed -i 's/replicas: 2/replicas: 6/' \"$1\"\n")
    editor.chmod(0o755)
    assert "edited" in rota.kubectl("edit", *n, "wp/demo", EDITOR=str(editor), KUBE_EDITOR=str(editor))
    assert rota.json("get", *n, "wp", "demo")["spec"]["replicas"] == 6


def test_replace_with_a_stale_version_is_refused(rota: Live, namespace: str) -> None:
    n = ("-n", namespace)
    rota.kubectl("apply", *n, "-f", "-", stdin=POOL)
    stale = rota.json("get", *n, "wp", "demo")
    rota.kubectl("label", *n, "wp/demo", "a=b")
    refused = rota.kubectl("replace", "-f", "-", stdin=json.dumps(stale), check=False)
    assert "the object has been modified; please apply your changes to the latest version and try again" in refused
    fresh = rota.json("get", *n, "wp", "demo")
    assert "replaced" in rota.kubectl("replace", "-f", "-", stdin=json.dumps(fresh))


def test_scale_label_annotate_and_wait(rota: Live, namespace: str) -> None:
    n = ("-n", namespace)
    rota.kubectl("apply", *n, "-f", "-", stdin=POOL)
    assert "scaled" in rota.kubectl("scale", *n, "wp/demo", "--replicas=3")
    rota.kubectl("label", *n, "wp/demo", "team=infra")
    rota.kubectl("annotate", *n, "wp/demo", "note=hello")
    meta = rota.json("get", *n, "wp", "demo")["metadata"]
    assert meta["labels"]["team"] == "infra" and meta["annotations"]["note"] == "hello"
    condition = {"type": "Ready", "status": "True", "reason": "Up", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    status = json.dumps({"status": {"conditions": [condition]}})
    rota.kubectl("patch", *n, "wp/demo", "--subresource=status", "--type=merge", "-p", status)
    assert "condition met" in rota.kubectl("wait", *n, "wp/demo", "--for=condition=Ready", "--timeout=10s")
    assert "condition met" in rota.kubectl("wait", *n, "wp/demo", "--for=jsonpath={.spec.replicas}=3", "--timeout=10s")
    assert "timed out" in rota.kubectl("wait", *n, "wp/demo", "--for=condition=Never", "--timeout=1s", check=False)


@pytest.mark.parametrize("cascade", ["background", "foreground", "orphan"])
def test_delete_cascades(rota: Live, namespace: str, cascade: str) -> None:
    n = ("-n", namespace)
    rota.kubectl("create", *n, "configmap", "owner")
    uid = rota.json("get", *n, "cm", "owner")["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid, "blockOwnerDeletion": True}
    owned = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owned", "ownerReferences": [owner]}}
    rota.kubectl("create", *n, "-f", "-", stdin=json.dumps(owned))
    assert "deleted" in rota.kubectl("delete", *n, "cm/owner", f"--cascade={cascade}")
    if cascade == "orphan":
        assert "ownerReferences" not in rota.json("get", *n, "cm", "owned")["metadata"]
    else:
        rota.kubectl("wait", *n, "--for=delete", "cm/owned", "--timeout=10s")


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_is_created_listed_and_deleted(rota: Live, kind: str) -> None:
    if kind == "Namespace":
        rota.kubectl("create", "ns", "one-of-its-kind")
        assert "deleted" in rota.kubectl("delete", "ns", "one-of-its-kind")
        return
    obj = json.loads(json.dumps(examples(kind)[0]))
    obj["metadata"]["name"] = "one-of-its-kind"
    obj["metadata"].pop("namespace", None)
    rota.kubectl("create", "-f", "-", stdin=json.dumps(obj))
    plural = KINDS[kind].bucket
    assert "one-of-its-kind" in rota.kubectl("get", plural, "-o", "name")
    assert "deleted" in rota.kubectl("delete", plural, "one-of-its-kind")


def test_auth_can_i_answers_for_this_token(rota: Live) -> None:
    assert rota.kubectl("auth", "can-i", "delete", "workerpools") == "yes\n"
    assert "workerpools" in rota.kubectl("auth", "can-i", "--list")


def test_raw_paths_and_diff(rota: Live, namespace: str) -> None:
    n = ("-n", namespace)
    assert rota.kubectl("get", "--raw", "/readyz") == "ok"
    assert json.loads(rota.kubectl("get", "--raw", "/version"))["rotaVersion"]
    rota.kubectl("apply", *n, "-f", "-", stdin=POOL)
    rota.kubectl("diff", *n, "-f", "-", stdin=POOL)
    changed = rota.kubectl("diff", *n, "-f", "-", stdin=POOL.replace("replicas: 2", "replicas: 9"), check=False)
    assert "+  replicas: 9" in changed


def test_a_namespace_goes_with_its_contents(rota: Live) -> None:
    rota.kubectl("create", "ns", "doomed")
    rota.kubectl("apply", "-n", "doomed", "-f", "-", stdin=POOL)
    assert "deleted" in rota.kubectl("delete", "ns", "doomed", "--timeout=20s")
    assert "not found" in rota.kubectl("get", "ns", "doomed", check=False).lower()
    assert "No resources found" in rota.kubectl("get", "wp", "-n", "doomed")


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        (POOL.replace("replicas: 2", "replicas: many"), 'must be of type integer: "string"'),
        (POOL.replace("replicas: 2", "replicas: 5000"), "should be less than or equal to 1000"),
        (POOL.replace("replicas", "replcas"), 'unknown field "spec.replcas"'),
        (POOL.replace("name: demo", "name: De_mo"), "a lowercase RFC 1123 subdomain must consist of"),
        (POOL.replace("{worker: {type: shell}, replicas: 2}", "{}"), "exactly one of worker, template must be set"),
        (POOL.replace("WorkerPool", "WorkerPond"), 'no matches for kind "WorkerPond"'),
    ],
    ids=["type", "bound", "unknown", "name", "rule", "kind"],
)
def test_bad_manifests_are_refused_in_the_words_of_kubernetes(rota: Live, manifest: str, words: str) -> None:
    assert words in rota.kubectl("apply", "-f", "-", stdin=manifest, check=False)


def test_objects_survive_kill_nine_and_the_kubeconfig_stays_good(tmp_path: Path) -> None:
    with live(tmp_path) as server:
        server.kubectl("apply", "-f", "-", stdin=POOL)
        token = server.kubeconfig.read_text()
        server.kill()
        server.start()
        assert server.kubectl("get", "wp", "-o", "name") == "workerpool.rota.dev/demo\n"
        credentials = [json.loads(text)["users"] for text in (token, server.kubeconfig.read_text())]
        assert credentials[0] == credentials[1]
        assert server.kill(signal.SIGTERM) == 0, "a stop in good order"
