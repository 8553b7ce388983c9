"""Every field of a worker is honoured on this machine, or refused, or reported."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.live import ROTA
from tests.workers.farm import API, Farm, farm, pool, workspace
from tests.workspace.conftest import Repo

CUSTOM = {"type": "custom", "entrypoint": ["sh", "-c", 'read -r said; echo "$said $ROTA_MODEL $ROTA_EFFORT"']}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    with farm(tmp_path_factory.mktemp("honoured") / "home") as found:
        yield found


def obj(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name}, "spec": spec}


def condition(made: Farm, kind: str, name: str, type_: str) -> dict[str, Any]:
    found = made.read(kind, name).get("status", {}).get("conditions", [])
    return next((one for one in found if one["type"] == type_), {})


def told(made: Farm, kind: str, name: str, type_: str, reason: str) -> str:
    """The message of a condition, once it has the reason."""
    found = made.until(lambda: one if (one := condition(made, kind, name, type_)).get("reason") == reason else None)
    assert found["status"] == "False"
    return str(found["message"])


def rota(made: Farm, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "ROTA_HOME": str(made.home)}
    return subprocess.run([ROTA, *arguments], capture_output=True, text=True, timeout=60, check=False, env=env)


def ended(made: Farm, name: str) -> Any:
    """The status of a task that is over."""
    return made.until(
        lambda: (
            status
            if (status := made.read("task", name).get("status", {})).get("phase") in ("Succeeded", "Failed")
            else None
        )
    )


def test_a_pool_of_agents_is_not_ready_without_its_program_and_is_when_that_comes(made: Farm, tmp_path: Path) -> None:
    # A path on which no host has it, whatever is installed.
    path = {"name": "PATH", "value": "bin:/nowhere"}
    made.apply(pool("agents", worker={"type": "claude-code", "env": [path]}))
    said = told(made, "wp", "agents", "Ready", "ConfigurationError")
    assert "ProgramNotFound: a worker finds no program claude in bin:/nowhere: install it there for all users" in said
    repo = Repo(tmp_path / "origin")
    repo.commit("file", "content\n")
    program = {"path": "bin/claude", "content": "#!/bin/sh\n", "mode": "0755"}
    made.apply(
        workspace("code", f"file://{repo.path}", files=[program]),
        pool("agents", worker={"type": "claude-code", "env": [path], "workspaceRef": {"name": "code"}}),
    )
    made.ready("agents", 1)


def test_a_program_of_ones_own_that_is_not_in_the_tree_is_told(made: Farm) -> None:
    made.apply(pool("own", worker={"type": "custom", "entrypoint": ["./missing"]}))
    assert "finds no program ./missing in its tree" in told(made, "wp", "own", "Ready", "ConfigurationError")


def test_a_program_of_ones_own_is_told_the_model_and_the_effort(made: Farm) -> None:
    made.apply(pool("custom", worker={**CUSTOM, "model": "acme/big", "effort": "high"}))
    made.apply(obj("Task", "asked", prompt="hello", workerPoolRef={"name": "custom"}))
    assert ended(made, "asked")["phase"] == "Succeeded"
    assert "hello acme/big high" in rota(made, "logs", "task/asked").stdout


def test_an_image_and_the_overrides_of_a_pod_are_told_where_there_are_none(made: Farm) -> None:
    overrides = {"nodeSelector": {"disk": "fast"}}
    made.apply(pool("imaged", worker={"image": "python:3.12", "podOverrides": overrides}))
    made.ready("imaged", 1)
    said = told(made, "wp", "imaged", "Honoured", "NotHonoured")
    assert "spec.worker.image changes nothing here" in said and "spec.worker.podOverrides changes nothing here" in said
    assert "spec.containers[0].image" in told(made, "inst", "imaged-0", "Honoured", "NotHonoured")
    made.until(
        lambda: any(
            one["reason"] == "NotHonoured" and one["involvedObject"]["name"] == "imaged"
            for one in made.read("events")["items"]
        )
    )
    made.apply(pool("imaged", worker={}))
    made.until(lambda: condition(made, "wp", "imaged", "Honoured").get("status") == "True")


def test_a_task_with_an_image_of_its_own_says_that_it_ran_without(made: Farm) -> None:
    made.apply(obj("Task", "imaged", command=["true"], worker={"image": "python:3.12"}))
    assert ended(made, "imaged")["phase"] == "Succeeded"
    assert "spec.worker.image" in condition(made, "task", "imaged", "Honoured")["message"]


def test_a_cell_that_nobody_has_joined_as_says_so(made: Farm) -> None:
    made.apply(obj("Cell", "nobodys", cityCode="local"))
    assert "nobody has joined under this name" in told(made, "cell", "nobodys", "Ready", "NotJoined")


BAD = {
    "spec.cron": obj("Schedule", "bad", cron="99 * * * *", target={"functionRef": {"name": "f"}}),
    "spec.timeZone": obj("Schedule", "bad", cron="@daily", timeZone="Mars/X", target={"functionRef": {"name": "f"}}),
    "spec.command[1]": obj("Task", "bad", command=["echo", "{{ tasks.other.outputs.x }}"], workerPoolRef={"name": "p"}),
    "spec.remotes[0].name": obj(
        "Workspace", "bad", repo="https://git.example/x", remotes=[{"name": "origin", "url": "https://git.example/y"}]
    ),
}


@pytest.mark.parametrize("field", BAD)
def test_what_makes_no_sense_is_refused_whichever_way_it_comes(made: Farm, field: str, tmp_path: Path) -> None:
    manifest = tmp_path / "bad.yaml"
    manifest.write_text(json.dumps(BAD[field]))
    for command in ("plan", "apply"):
        ran = rota(made, command, "-f", str(manifest))
        assert ran.returncode == 2 and field in ran.stderr and f"{manifest}:" in ran.stderr, ran
    refused = made.kubectl("apply", "-f", str(manifest), check=False)
    assert field in refused and "is invalid" in refused, refused


def test_a_chain_that_is_applied_in_one_go_is_never_said_to_lack_anything(made: Farm) -> None:
    """The last one comes first, as people write it down."""
    names, on = [f"link{i}" for i in range(8)], {"command": ["true"], "workerPoolRef": {"name": "links"}}
    links = [
        obj("Task", name, **on, **({"dependsOn": [after]} if after else {}))
        for name, after in zip(names, [*names[1:], ""], strict=True)
    ]
    nightly = obj("Schedule", "links", cron="@yearly", target={"taskTemplate": on})
    made.apply(*links, nightly, pool("links", worker={}))
    assert ended(made, names[0])["phase"] == "Succeeded"
    told_of = [one for one in made.read("events")["items"] if one["involvedObject"]["name"] in (*names, "links")]
    assert not [one["reason"] for one in told_of if one["type"] == "Warning"]
    assert "DependencyNotFound" not in made.kubectl("get", "tasks,schedules", "-o", "yaml")
