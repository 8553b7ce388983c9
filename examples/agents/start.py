"""Run twenty tasks on three warm workers with a git repository: `python examples/agents/start.py`.

Makes the repository in the server's home, declares the pool and the tasks, and prints their progress. The server must
run.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from rota import Client
from rota.api import Task
from rota.client import Cache, Update
from rota.client.failures import ConnectionFailed

HOME = Path(os.environ.get("ROTA_HOME") or Path.home() / ".rota")
HERE = Path(__file__).parent
FEATURES = ("search", "basket", "login", "export")
LABELS = {"example": "agents"}


def make_repository(folder: Path) -> str:
    """Make a repository with the agent in it. Returns its URL."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shutil.copy(HERE / "agent.py", folder)
    (folder / "README.md").write_text("# A shop\n", encoding="utf-8")
    author = ["-c", "user.name=rota", "-c", "user.email=rota@rota.example"]
    for command in (
        ["init", "--quiet", "--initial-branch=main"],
        ["add", "."],
        [*author, "commit", "--quiet", "-m", "a shop"],
    ):
        subprocess.run(["git", *command], cwd=folder, check=True)
    return f"file://{folder}"


def declared(kind: str, name: str, namespace: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "labels": LABELS}
    return {"apiVersion": "rota.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}


def pool(namespace: str, repository: str) -> list[dict[str, Any]]:
    worker = {"type": "custom", "entrypoint": ["python3", "agent.py"], "workspaceRef": {"name": "shop"}}
    return [
        declared("Workspace", "shop", namespace, {"repo": repository, "ref": "main"}),
        declared("WorkerPool", "coders", namespace, {"worker": worker, "replicas": 3, "reset": "Clean"}),
    ]


def tasks(namespace: str, run: str) -> list[dict[str, Any]]:
    """Return the tasks of a release.

    For each feature: a plan; then code and documents on one branch, one at a time; then a test. The release follows all
    of them.
    """
    found = []

    def add(name: str, prompt: str, *needs: str, branch: str = "") -> str:
        spec: dict[str, Any] = {"prompt": prompt, "workerPoolRef": {"name": "coders"}, "dependsOn": list(needs)}
        if branch:
            spec["branch"] = branch
        found.append(declared("Task", f"{name}-{run}", namespace, spec))
        return f"{name}-{run}"

    tests = []
    for feature in FEATURES:
        plan = add(f"plan-{feature}", f"Plan the {feature}.")
        commit = f"{{{{ tasks.{plan}.outputs.commit }}}}"
        code = add(f"code-{feature}", f"Write the {feature}, as planned in {commit}.", plan, branch=feature)
        text = add(f"docs-{feature}", f"Document the {feature}, as planned in {commit}.", plan, branch=feature)
        tests.append(add(f"test-{feature}", f"Test the {feature}.", code, text))
    merge = add("merge", "Merge everything.", *tests)
    log = add("changelog", "Write the changelog.", merge)
    publish = add("publish", f"Publish {{{{ tasks.{merge}.outputs.commit }}}}.", merge, log)
    add("announce", "Tell everybody.", publish)
    return found


def show(update: Update[Task]) -> None:
    task = update.new
    if task is None or task.metadata.labels.get("example") != LABELS["example"] or task.status is None:
        return
    before = update.old.status.phase if update.old is not None and update.old.status is not None else None
    if task.status.phase not in (before, "Waiting", "Queued"):
        where = f"on {task.status.instance_name}" if task.status.instance_name else ""
        print(
            f"  task   {task.metadata.name}: {task.status.phase} {where} {task.status.message or ''}".rstrip(),
            flush=True,
        )


async def start(client: Client, home: Path, namespace: str = "default") -> bool:
    """Submit the tasks and wait until all are over. Returns True if all have succeeded."""
    repository = await asyncio.to_thread(make_repository, home / "examples" / "shop")
    for one in pool(namespace, repository):
        await client.apply(one, manager="example", force=True)
    wanted = tasks(namespace, os.urandom(2).hex())
    names = {one["metadata"]["name"] for one in wanted}
    over: dict[str, str] = {}
    done = asyncio.Event()

    def on_update(update: Update[Task]) -> None:
        show(update)
        if update.key.name in names and update.new is not None and update.new.over():
            over[update.key.name] = update.new.status.phase or "" if update.new.status is not None else ""
            if len(over) == len(names):
                done.set()

    async with Cache(client, Task, namespace=namespace) as cache:
        cache.subscribe(on_update)
        for one in wanted:
            await client.create(one)
        await done.wait()
    return set(over.values()) == {"Succeeded"}


async def main() -> None:
    client = Client.connect(home=HOME, manager="example")
    try:
        succeeded = await start(client, HOME)
    except ConnectionFailed as error:
        raise SystemExit(str(error)) from None
    finally:
        await client.close()
    print("all 20 tasks are done" if succeeded else "not all went succeeded: rota get tasks -l example=agents")
    raise SystemExit(0 if succeeded else 1)


if __name__ == "__main__":
    asyncio.run(main())
