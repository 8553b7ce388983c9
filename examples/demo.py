"""A server with something to look at: what `make run` shows.

Starts `rota up`, has workers and processes run, changes and kills some, and prints everything that it sees happen.
Ctrl-C ends all of it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import yaml
from agents.start import start

from rota import ApiError, Client
from rota.api import Instance, Namespace, ObjectMeta, WorkerPool, Workspace
from rota.client import Cache, Update

ROTA = Path(sys.executable).parent / "rota"
HOME = Path(os.environ.get("ROTA_HOME") or Path.home() / ".rota")
NAMESPACE = "demo"
PAUSE_SECONDS = float(os.environ.get("ROTA_DEMO_PAUSE", "2"))


_said: dict[str, str] = {}


def say(name: str, what: str) -> None:
    """A line for everything that is new."""
    if _said.get(name) != what:
        _said[name] = what
        print(f"  watch  {name}: {what}", flush=True)


def show_pool(update: Update[WorkerPool]) -> None:
    status = update.new.status if update.new else None
    what = f"{status.phase}, {status.ready_replicas} of {status.replicas} ready" if status else "made"
    say(f"pool {update.key.name}", what if update.new else "gone")


def show_instance(update: Update[Instance]) -> None:
    status = update.new.status if update.new else None
    process = status.runtime_id.partition("@")[0] if status and status.runtime_id else ""
    what = (f"{status.phase}, process {process}" if status else "made") if update.new else "gone"
    say(update.key.name, what)


async def show(client: Client) -> None:
    try:
        await client.create(Namespace(metadata=ObjectMeta(name=NAMESPACE)))
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise
    async with (
        Cache(client, WorkerPool, namespace=NAMESPACE) as pools,
        Cache(client, Instance, namespace=NAMESPACE) as instances,
    ):
        pools.subscribe(show_pool)
        instances.subscribe(show_instance)
        await run_workers(client)
        print("start  examples/agents: three workers on a repository, twenty tasks that need each other", flush=True)
        await start(client, HOME, NAMESPACE)
        await run_boxes(client)
        await wait_for_a_secret(client)
        print(
            f"\nThe server goes on until Ctrl-C. In another terminal:\n"
            f"  {ROTA} get wp,inst -n {NAMESPACE}\n"
            f"  {ROTA} logs -f wp/boxes -n {NAMESPACE}\n"
            f"  {ROTA} run --pool agents -n {NAMESPACE} --follow -- echo hello\n"
            f"  {ROTA} get tasks -n {NAMESPACE}\n"
            f"  {ROTA} exec -it wp/agents -n {NAMESPACE} -- sh\n"
            f"  {ROTA} plan -f examples/plan\n"
            f"  KUBECONFIG={HOME}/kubeconfig kubectl -n {NAMESPACE} scale wp/agents --replicas=4\n",
            flush=True,
        )
        await asyncio.Event().wait()


def declared(name: str) -> dict[str, Any]:
    """A manifest of the examples, for the namespace of the demo."""
    found: dict[str, Any] = next(yaml.safe_load_all((Path(__file__).parent / name).read_text()))
    found["metadata"]["namespace"] = NAMESPACE
    return found


async def is_ready(client: Client, name: str) -> None:
    """Returns when a pool is as its newest template has it."""
    while True:
        pool = await client.get(WorkerPool, name, namespace=NAMESPACE)
        if pool.readiness().state == "Ready" and pool.status and pool.status.updated_replicas == pool.status.replicas:
            return
        await asyncio.sleep(PAUSE_SECONDS / 10)


async def run_workers(client: Client) -> None:
    """Workers that wait for tasks: they come up, roll to another template and back, and one is killed."""
    pool = declared("pool.yaml")
    print("apply  examples/pool.yaml: two warm workers, each in a sandbox where the host can make one", flush=True)
    await client.apply(pool, manager="alice", force=True)
    await is_ready(client, "agents")
    print("apply  another template: one at a time is replaced", flush=True)
    rolled = {**pool, "spec": {**pool["spec"], "worker": {"type": "shell", "env": [{"name": "TURN", "value": "2"}]}}}
    await client.apply(rolled, manager="alice", force=True)
    await is_ready(client, "agents")
    print("apply  the first one again", flush=True)
    await client.apply(pool, manager="alice", force=True)
    await is_ready(client, "agents")
    worker = await client.get(Instance, "agents-0", namespace=NAMESPACE)
    pid = int(worker.status.runtime_id.partition("@")[0]) if worker.status and worker.status.runtime_id else 0
    print(f"kill   -9 {pid}", flush=True)
    os.kill(pid, signal.SIGKILL)
    await asyncio.sleep(PAUSE_SECONDS)


async def run_boxes(client: Client) -> None:
    """Processes of one's own that are kept running."""
    print("apply  examples/boxes.yaml: three processes that are kept running", flush=True)
    await client.apply(declared("boxes.yaml"), manager="alice", force=True)
    await is_ready(client, "boxes")
    print("scale  to two", flush=True)
    await client.set_scale(WorkerPool, "boxes", 2, namespace=NAMESPACE)
    await asyncio.sleep(PAUSE_SECONDS)


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
            "metadata": {"name": "books", **where},
            "spec": {"repo": "https://git.example/books", "secretRef": {"name": "git-token"}},
        },
        manager="alice",
    )
    async with Cache(client, Workspace, namespace=NAMESPACE) as cache:
        cache.subscribe(show_ready)
        print("ask    rota why workspace/books", flush=True)
        asked = (ROTA, "why", "workspace/books", "-n", NAMESPACE, "--home", HOME)
        await (await asyncio.create_subprocess_exec(*asked)).wait()
        await asyncio.sleep(PAUSE_SECONDS)
        print("create the Secret that it waits for", flush=True)
        await client.apply(
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "git-token", **where}}, manager="alice"
        )
        await asyncio.sleep(PAUSE_SECONDS)


async def main() -> int:
    server = await asyncio.create_subprocess_exec(ROTA, "up", *sys.argv[1:], stdout=asyncio.subprocess.PIPE)
    assert server.stdout is not None
    said = await server.stdout.readline()
    print(said.decode(), end="", flush=True)
    if b"https://" not in said:
        return await server.wait()
    client = Client.connect(home=HOME, manager="demo")
    showing = asyncio.create_task(show(client))
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
