"""`rota apply`, `diff`, `edit` and `delete`: what people change."""

from __future__ import annotations

import io
import os
import stat
from pathlib import Path

import pytest

from rota import Client
from rota.api import WorkerPool
from tests.cli.conftest import Terminal, pool, until

POOL = """\
apiVersion: rota.dev/v1alpha1
kind: WorkerPool
metadata: {name: agents}
spec:
  worker: {type: shell}
  replicas: 2
"""
TEAM = """\
apiVersion: rota.dev/v1alpha1
kind: WorkerPool
metadata: {name: builders, namespace: team}
spec: {worker: {type: shell}}
---
apiVersion: v1
kind: Namespace
metadata: {name: team}
"""


def test_apply_says_what_became_of_each_object(rota: Terminal) -> None:
    file = rota.write("pool.yaml", POOL)
    assert rota("apply", "-f", file).out == "workerpool.rota.dev/agents created\n"
    assert rota("apply", "-f", file).out == "workerpool.rota.dev/agents unchanged\n"
    rota.write("pool.yaml", POOL.replace("2", "3"))
    assert rota("apply", "-f", file).out == "workerpool.rota.dev/agents configured\n"
    assert rota.stored("WorkerPool", "agents")["spec"]["replicas"] == 3


def test_a_namespace_is_made_before_what_is_in_it(rota: Terminal) -> None:
    ran = rota("apply", "-f", rota.write("team.yaml", TEAM))
    assert ran.out == "namespace/team created\nworkerpool.rota.dev/builders created\n"
    assert rota.stored("WorkerPool", "builders", "team")


def test_folders_files_and_standard_input_go_together(rota: Terminal) -> None:
    rota.write("all/team.yaml", TEAM)
    ran = rota("apply", "-f", str(rota.folder / "all"), "-f", "-", stdin=POOL)
    assert ran.out.count("created") == 3


def test_a_dry_run_changes_nothing(rota: Terminal) -> None:
    file = rota.write("team.yaml", TEAM)
    assert rota("apply", "--dry-run", "-f", file).out == (
        "namespace/team created (dry run)\nworkerpool.rota.dev/builders created (dry run)\n"
    )
    assert rota("get", "ns", "-o", "name").out == "namespace/default\n"


def test_an_invalid_manifest_keeps_the_valid_ones_from_being_applied(rota: Terminal) -> None:
    good, bad = rota.write("good.yaml", POOL), rota.write("bad.yaml", POOL.replace("replicas", "replcas"))
    ran = rota("apply", "-f", good, "-f", bad)
    assert ran.code == 2 and ran.out == ""
    assert ran.err == (
        f"error: {bad}:6:3: spec.replcas: unknown field; did you mean replicas?\n"
        "  nothing was changed: correct it first\n"
    )
    assert rota("get", "wp").err == "nothing found in namespace default\n"


def test_what_only_the_server_refuses_keeps_the_rest_from_being_applied(rota: Terminal) -> None:
    lost = POOL.replace("{name: agents}", "{name: lost, namespace: nowhere}")
    ran = rota("apply", "-f", rota.write("both.yaml", f"{POOL}---\n{lost}"))
    assert ran.code == 1 and ran.out == ""
    assert 'both.yaml:8: namespaces "nowhere" not found' in ran.err and "nothing was changed" in ran.err
    assert rota("get", "wp").err == "nothing found in namespace default\n"


def test_fields_of_others_are_taken_over_by_force_only(rota: Terminal) -> None:
    async def as_other(client: Client) -> None:
        await Client(client.backend, manager="other").apply(pool(replicas=5))

    rota.act(as_other)
    file = rota.write("pool.yaml", POOL)
    refused = rota("apply", "-f", file)
    assert refused.code == 1
    assert 'conflict with "other"' in refused.err and "--force" in refused.err
    assert rota("apply", "--force", "-f", file).out == "workerpool.rota.dev/agents configured\n"


def test_a_manifest_of_another_namespace_than_the_one_that_was_said_is_refused(rota: Terminal) -> None:
    ran = rota("apply", "-n", "other", "-f", rota.write("team.yaml", TEAM))
    assert ran.code == 2 and "team.yaml:1: WorkerPool builders is in namespace team" in ran.err


def test_what_was_printed_can_be_applied(rota: Terminal) -> None:
    rota("apply", "-f", rota.write("pool.yaml", POOL))
    printed = rota("get", "wp", "-o", "yaml").out
    assert rota("apply", "-f", "-", stdin=printed).out == "workerpool.rota.dev/agents unchanged\n"


def test_apply_without_files_says_what_is_missing(rota: Terminal) -> None:
    ran = rota("apply")
    assert ran.code == 2 and "name what to read with -f" in ran.err


# Diff.


def test_no_differences_are_0_and_silent(rota: Terminal) -> None:
    file = rota.write("pool.yaml", POOL)
    rota("apply", "-f", file)
    assert rota("diff", "-f", file) == (0, "", "")


def test_differences_are_1_and_shown(rota: Terminal) -> None:
    file = rota.write("pool.yaml", POOL)
    rota("apply", "-f", file)
    rota.write("pool.yaml", POOL.replace("2", "3"))
    ran = rota("diff", "-f", file)
    assert ran.code == 1
    assert ran.out.startswith("--- live/workerpool.rota.dev/agents\n+++ new/workerpool.rota.dev/agents\n")
    changed = [line for line in ran.out.splitlines()[2:] if line[0] in "+-"]
    assert changed == ["-  replicas: 2", "+  replicas: 3"]
    assert rota.stored("WorkerPool", "agents")["spec"]["replicas"] == 2


def test_a_new_object_is_all_difference(rota: Terminal) -> None:
    ran = rota("diff", "-f", rota.write("team.yaml", TEAM))
    assert ran.code == 1 and "+  name: builders\n" in ran.out


def test_a_diff_that_cannot_be_made_is_2(rota: Terminal) -> None:
    assert rota("diff", "-f", rota.write("pool.yaml", POOL.replace("2", "many"))).code == 2
    assert rota("diff", "-f", rota.write("lost.yaml", POOL.replace("agents", "a, namespace: nowhere"))).code == 2


def test_a_diff_does_not_show_secrets(rota: Terminal) -> None:
    secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {kept: a, changed: b}\n"
    file = rota.write("secret.yaml", secret)
    rota("apply", "-f", file)
    rota.write("secret.yaml", secret.replace("b}", "c}"))
    ran = rota("diff", "-f", file)
    changed = [line for line in ran.out.splitlines()[2:] if line[0] in "+-"]
    assert changed == ["-  changed: '*** (before)'", "+  changed: '*** (after)'"]


# Edit.


def editor(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str) -> None:
    """An editor that does this to the file `$1`."""
    program = folder / "editor"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", str(program))


def test_what_is_edited_is_written(rota: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    rota("apply", "-f", rota.write("pool.yaml", POOL))
    editor(monkeypatch, rota.folder, 'sed -i "s/replicas: 2/replicas: 4/" "$1"')
    assert rota("edit", "wp", "agents").out == "workerpool.rota.dev/agents edited\n"
    assert rota.stored("WorkerPool", "agents")["spec"]["replicas"] == 4


def test_an_untouched_file_changes_nothing(rota: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    rota("apply", "-f", rota.write("pool.yaml", POOL))
    editor(monkeypatch, rota.folder, "true")
    assert rota("edit", "wp/agents") == (0, "", "nothing was changed\n")


def test_what_is_refused_is_opened_again_with_the_reason_on_top(
    rota: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    rota("apply", "-f", rota.write("pool.yaml", POOL))
    seen = rota.folder / "seen"
    script = f'cp "$1" {seen}.$(ls {seen}.* 2>/dev/null | wc -l)\n'
    script += 'if grep -q many "$1"; then sed -i "s/replicas: many/replicas: 7/" "$1"\n'
    script += 'else sed -i "s/replicas: 2/replicas: many/" "$1"; fi'
    editor(monkeypatch, rota.folder, script)
    assert rota("edit", "wp/agents").out == "workerpool.rota.dev/agents edited\n"
    assert rota.stored("WorkerPool", "agents")["spec"]["replicas"] == 7
    second = Path(f"{seen}.1").read_text().splitlines()
    number = next(i for i, line in enumerate(second, 1) if "replicas: many" in line)
    assert f"# line {number}: spec.replicas: Invalid value" in second[1]


def test_what_stays_refused_is_kept_in_a_file(rota: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    rota("apply", "-f", rota.write("pool.yaml", POOL))
    editor(monkeypatch, rota.folder, 'sed -i "s/replicas: 2/replicas: many/" "$1"')
    ran = rota("edit", "wp/agents")
    assert ran.code == 1 and "spec.replicas" in ran.err
    kept = Path(ran.err.split("what you wrote is in ")[1].strip())
    assert "replicas: many" in kept.read_text()
    kept.unlink()


def test_a_name_cannot_be_edited(rota: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    rota("apply", "-f", rota.write("pool.yaml", POOL))
    editor(monkeypatch, rota.folder, 'sed -i "s/name: agents/name: other/" "$1"')
    ran = rota("edit", "wp/agents")
    assert ran.code == 1 and "its kind and name cannot be changed" in ran.err
    os.unlink(ran.err.split("what you wrote is in ")[1].strip())


@pytest.mark.parametrize(("script", "says"), [("exit 3", "failed with code 3"), (None, "cannot be started")])
def test_an_editor_that_fails_changes_nothing(
    rota: Terminal, monkeypatch: pytest.MonkeyPatch, script: str | None, says: str
) -> None:
    rota("apply", "-f", rota.write("pool.yaml", POOL))
    editor(monkeypatch, rota.folder, script or "")
    if script is None:
        monkeypatch.setenv("EDITOR", str(rota.folder / "nowhere"))
    ran = rota("edit", "wp/agents")
    assert ran.code == 1 and says in ran.err


# Delete.


@pytest.fixture
def three(rota: Terminal) -> Terminal:
    async def make(client: Client) -> None:
        for name in ("a", "b", "c"):
            labels = {"app": "x"} if name != "c" else {}
            await client.create({**pool(name), "metadata": {"name": name, "labels": labels}})

    rota.act(make)
    return rota


def names(rota: Terminal) -> list[str]:
    return [line.rpartition("/")[2] for line in rota("get", "wp", "-o", "name").out.splitlines()]


def test_objects_are_deleted_by_name(three: Terminal) -> None:
    assert three("delete", "wp", "a", "b").out == "workerpool.rota.dev/a deleted\nworkerpool.rota.dev/b deleted\n"
    assert names(three) == ["c"]


def test_objects_are_deleted_by_label_and_all_together(three: Terminal) -> None:
    three("delete", "wp", "-l", "app=x")
    assert names(three) == ["c"]
    three("delete", "wp", "--all")
    assert names(three) == []


def test_objects_are_deleted_as_manifests_name_them(rota: Terminal) -> None:
    file = rota.write("team.yaml", TEAM)
    rota("apply", "-f", file)
    ran = rota("delete", "-f", file)
    assert ran.code == 0
    assert ran.out.splitlines() == ["workerpool.rota.dev/builders deleted", "namespace/team deleted"]


def test_deleting_a_whole_kind_must_be_said(three: Terminal) -> None:
    ran = three("delete", "wp")
    assert ran.code == 2 and "--all" in ran.err
    assert len(names(three)) == 3


def test_what_is_not_there_fails_unless_that_is_fine(three: Terminal) -> None:
    ran = three("delete", "wp", "nobody", "a")
    assert (ran.code, ran.out) == (1, "workerpool.rota.dev/a deleted\n")
    assert three("delete", "wp", "nobody", "--ignore-not-found").code == 0


def test_a_deletion_is_waited_for(three: Terminal) -> None:
    held = {"metadata": {"finalizers": ["rota.dev/test"]}}
    three.act(lambda client: client.patch(WorkerPool.api, "a", held))

    async def meanwhile(client: Client, screen: io.StringIO) -> None:
        async for change in client.watch(WorkerPool.api, fields="metadata.name=a"):
            if change.object and change.object["metadata"].get("deletionTimestamp"):
                break
        assert screen.getvalue() == ""
        await client.patch(WorkerPool.api, "a", {"metadata": {"finalizers": None}})
        await until(screen, "deleted")

    assert three("delete", "wp", "a", meanwhile=meanwhile).out == "workerpool.rota.dev/a deleted\n"


def test_a_deletion_is_not_waited_for_when_that_is_said(three: Terminal) -> None:
    held = {"metadata": {"finalizers": ["rota.dev/test"]}}
    three.act(lambda client: client.patch(WorkerPool.api, "a", held))
    assert three("delete", "wp", "a", "--no-wait").out == "workerpool.rota.dev/a is being deleted\n"


def test_what_belongs_to_an_object_stays_when_that_is_said(three: Terminal) -> None:
    async def own(client: Client) -> None:
        uid = (await client.get(WorkerPool.api, "a"))["metadata"]["uid"]
        owner = {"apiVersion": "rota.dev/v1alpha1", "kind": "WorkerPool", "name": "a", "uid": uid}
        await client.patch(WorkerPool.api, "b", {"metadata": {"ownerReferences": [owner]}})

    three.act(own)
    assert three("delete", "wp", "a", "--cascade", "orphan").code == 0
    assert names(three) == ["b", "c"]
