"""A server with something to look at: what `make run` shows.

Starts `rota up`, declares a pool, changes it now and then as two people would, and prints every change that it sees.
Ctrl-C ends all of it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import yaml

from rota import ApiError, Client
from rota.api import Instance, Namespace, ObjectMeta, WorkerPool, Workspace
from rota.client import Cache, Update

ROTA = Path(sys.executable).parent / "rota"
HOME = Path(os.environ.get("ROTA_HOME") or Path.home() / ".rota")
NAMESPACE = "demo"
CHANGES = 6
PAUSE_SECONDS = 2.0


def pool(replicas: int) -> dict[str, object]:
    return {
        "apiVersion": "rota.dev/v1alpha1",
        "kind": "WorkerPool",
        "metadata": {"name": "agents", "namespace": NAMESPACE, "labels": {"app": "demo"}},
        "spec": {"worker": {"type": "shell"}, "replicas": replicas},
    }


def show(update: Update[WorkerPool]) -> None:
    found = update.new
    what = f"replicas {found.spec.replicas}, generation {found.metadata.generation}" if found else "gone"
    print(f"  watch  {update.key.name}: {what}", flush=True)


async def declare(client: Client) -> None:
    try:
        await client.create(Namespace(metadata=ObjectMeta(name=NAMESPACE)))
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise
    async with Cache(client, WorkerPool, namespace=NAMESPACE) as cache:
        cache.subscribe(show)
        for turn in range(CHANGES):
            if turn % 3 == 1:
                print("scale  as someone with kubectl would", flush=True)
                await client.set_scale(WorkerPool, "agents", turn + 3, namespace=NAMESPACE)
            else:
                print(f"apply  {turn + 1} replicas, as alice", flush=True)
                try:
                    await client.apply(pool(turn + 1), manager="alice")
                except ApiError as error:
                    print(f"       refused: {error}")
                    await client.apply(pool(turn + 1), manager="alice", force=True)
            await asyncio.sleep(PAUSE_SECONDS)
        await wait_for_a_secret(client)
        await run_boxes(client)
        print(
            f"\nThe server goes on until Ctrl-C. In another terminal:\n"
            f"  {ROTA} get wp -n {NAMESPACE} -w\n"
            f"  {ROTA} logs -f wp/boxes -n {NAMESPACE}\n"
            f"  {ROTA} plan -f examples/plan\n"
            f"  KUBECONFIG={HOME}/kubeconfig kubectl -n {NAMESPACE} scale wp/agents --replicas=9\n",
            flush=True,
        )
        await asyncio.Event().wait()


def show_ready(update: Update[Workspace]) -> None:
    status = update.new.status if update.new else None
    ready = status.condition("Ready") if status else None
    if ready:
        print(f"  watch  {update.key.name}: ready {ready.status}, {ready.message or ready.reason}", flush=True)


async def wait_for_a_secret(client: Client) -> None:
    """A workspace whose Secret comes later: the controllers say what it waits for, and see at once that it came."""
    where = {"namespace": NAMESPACE}
    await client.apply(
        {
            "apiVersion": "rota.dev/v1alpha1",
            "kind": "Workspace",
            "metadata": {"name": "shop", **where},
            "spec": {"repo": "https://git.example/shop", "secretRef": {"name": "git-token"}},
        },
        manager="alice",
    )
    async with Cache(client, Workspace, namespace=NAMESPACE) as cache:
        cache.subscribe(show_ready)
        print("ask    rota why workspace/shop", flush=True)
        asked = (ROTA, "why", "workspace/shop", "-n", NAMESPACE, "--home", HOME)
        await (await asyncio.create_subprocess_exec(*asked)).wait()
        await asyncio.sleep(PAUSE_SECONDS)
        print("create the Secret that it waits for", flush=True)
        await client.apply(
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "git-token", **where}}, manager="alice"
        )
        await asyncio.sleep(PAUSE_SECONDS)


def show_instance(update: Update[Instance]) -> None:
    status = update.new.status if update.new else None
    what = (f"{status.phase}, process {status.runtime_id}" if status else "made") if update.new else "gone"
    print(f"  watch  {update.key.name}: {what}", flush=True)


async def run_boxes(client: Client) -> None:
    """A pool whose instances really run: sandboxed processes, where the host can make a sandbox."""
    boxes = next(yaml.safe_load_all((Path(__file__).parent / "boxes.yaml").read_text()))
    boxes["metadata"]["namespace"] = NAMESPACE
    async with Cache(client, Instance, namespace=NAMESPACE) as cache:
        cache.subscribe(show_instance)
        print("apply  examples/boxes.yaml: three processes that are kept running", flush=True)
        await client.apply(boxes, manager="alice", force=True)
        await asyncio.sleep(PAUSE_SECONDS)
        print("scale  to two", flush=True)
        await client.set_scale(WorkerPool, "boxes", 2, namespace=NAMESPACE)
        await asyncio.sleep(PAUSE_SECONDS)


async def main() -> int:
    server = await asyncio.create_subprocess_exec(ROTA, "up", *sys.argv[1:], stdout=asyncio.subprocess.PIPE)
    assert server.stdout is not None
    said = await server.stdout.readline()
    print(said.decode(), end="", flush=True)
    if b"https://" not in said:
        return await server.wait()
    client = Client.connect(home=HOME, manager="demo")
    showing = asyncio.create_task(declare(client))
    ending = asyncio.create_task(server.wait())
    for one in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(one, showing.cancel)
    await asyncio.wait((showing, ending), return_when=asyncio.FIRST_COMPLETED)
    showing.cancel()
    results = await asyncio.gather(showing, return_exceptions=True)
    await client.close()
    if server.returncode is None:
        server.terminate()
    code = await ending
    if isinstance(results[0], Exception):
        raise results[0]
    return code


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
