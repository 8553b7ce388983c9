"""By names, through to what runs: strings of every kind that has something run, under a server with its controllers."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from rota.api import KINDS
from rota.registry import ApiError, Registry
from rota.runtime.code.cache import CodeCache, CodeRefused
from rota.store import SqliteStore, Write
from tests.attacks import hostile
from tests.attacks.test_names import INSTANCE, IS_LONG, home, tried, victim
from tests.examples import example
from tests.server.conftest import Server, served
from tests.workspace.conftest import Repo

__all__ = ["home", "victim"]

AT_ONCE = 7
"""Strings of each kind that are tried at once. The short form has one such lot, from all over each kind."""
SECONDS = 8.0
"""The time of a lot: many of its objects wait for ever for the objects that they name."""
LOOK_SECONDS = 0.1
Object = dict[str, Any]

TEMPLATE = {key: value for key, value in INSTANCE.items() if key not in ("templateHash", "ordinal", "restartPolicy")}
WORKER: Object = {
    "type": "shell",
    "env": [{"name": "A", "value": "text"}],
    "secrets": ["secret"],
    "workspaceRef": {"name": "workspace"},
    "agentConfigRefs": [{"name": "agent"}],
}
SPECS: dict[str, list[Object]] = {
    "WorkerPool": [{"replicas": 1, "template": TEMPLATE}, {"replicas": 1, "worker": WORKER}],
    "Function": [
        {
            "entrypoint": "app:main",
            "source": {"inline": "def main(event): pass"},
            "env": [{"name": "A", "value": "text"}],
            "secrets": ["secret"],
            "scale": {"min": 1},
        },
        {"runtime": "command", "command": ["./run"], "source": {"workspaceRef": {"name": "workspace"}}},
    ],
    "Workspace": [
        {
            "repo": "REPO",
            "ref": "trunk",
            "remotes": [{"name": "fork", "url": "REPO"}],
            "files": [{"path": "folder/file", "content": "text", "mode": "0755"}],
            "setup": [["true"]],
        }
    ],
    "AgentConfig": [
        {
            "instructions": "text",
            "skills": [{"name": "skill", "content": "text"}],
            "mcpServers": [{"name": "tool", "type": "stdio", "command": ["true"]}],
        }
    ],
    "Task": [
        {
            "command": ["true", "argument"],
            "stdin": "text",
            "worker": WORKER,
            "artifacts": ["*.txt"],
            "branch": "branch",
            "holder": "holder",
            "affinity": {"key": "key"},
        }
    ],
    "Claim": [{"poolRef": {"name": "boxes"}, "holder": "holder", "env": [{"name": "A", "value": "text"}]}],
    "Schedule": [
        {
            "cron": "* * * * *",
            "timeZone": "UTC",
            "target": {"taskTemplate": {"command": ["true"], "worker": {"type": "shell"}, "artifacts": ["*.txt"]}},
        }
    ],
    "Workload": [
        {
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": TEMPLATE},
            "placements": [{"name": "here", "cityCodes": ["local"], "scale": {"min": 1}}],
        }
    ],
}


class Try(NamedTuple):
    """A string of an object, and the object with hostile ones: the first that can be read is taken."""

    place: str
    objects: list[Object]


def lots(kind: str, victim: Path, repo: str) -> Iterator[list[Try]]:
    """As many as are tried at once."""
    every: list[Try] = []
    for spec in SPECS[kind]:
        whole = msgspec.json.decode(msgspec.json.encode(spec).replace(b"REPO", repo.encode()))
        places = [place for place in hostile.places(example(kind, whole)) if place.steps[0] == "spec"]
        for place in places:
            found = [hostile.changed(example(kind, whole), place, name) for name in tried(victim, place)]
            every += [Try(str(place), [one]) for one in found] if IS_LONG else [Try(str(place), found)]
    for lot in _batched(every, AT_ONCE):
        yield lot if IS_LONG else every[:: max(1, -(-len(every) // AT_ONCE))]


def _batched(every: list[Try], size: int) -> Iterator[list[Try]]:
    for start in range(0, len(every), size):
        yield every[start : start + size]


async def put(registry: Registry, kind: str, name: str, obj: Object) -> bool:
    """Have it admitted, or else put it into the store as it is. Returns whether it can be read at all."""
    api = KINDS[kind]
    obj["metadata"] = {"name": name, "namespace": "default"}
    with contextlib.suppress(ApiError):
        await registry.create(api, "default", obj)
        return True
    meta = {**obj["metadata"], "uid": str(uuid.uuid4()), "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"}
    try:
        api.type.decode(msgspec.json.encode({**obj, "metadata": {**meta, "resourceVersion": "1"}}))
    except (msgspec.MsgspecError, ValueError):
        return False
    await registry.store.room()
    await registry.store.commit([
        Write(
            api.key("default", name),
            0,
            lambda revision: msgspec.json.encode({**obj, "metadata": {**meta, "resourceVersion": str(revision)}}),
        )
    ])  # fmt: skip
    return True


def using(kind: str, name: str) -> Object | None:
    """A task that has what does not run by itself prepared for it."""
    if kind not in ("Workspace", "AgentConfig"):
        return None
    used = {"workspaceRef": {"name": name}} if kind == "Workspace" else {"agentConfigRefs": [{"name": name}]}
    return example("Task", {"command": ["true"], "worker": {"type": "shell", **used}})


async def planted(home: Path, lots: dict[str, list[Try]], repo: str) -> int:
    """Fill a home's store, as an admin or a backup would. Returns how many objects are in it."""
    registry = Registry(SqliteStore(home / "rota.db"))
    await registry.start()
    await registry.ensure_namespace("default")
    plain: list[Object] = [
        example("ConfigMap", data={"file": "text"}),
        example("Secret", stringData={"KEY": "text"}),
        example("Workspace", {"repo": repo}),
        example("AgentConfig", {"instructions": "text"}),
        example("WorkerPool", {"replicas": 1, "worker": {"type": "shell"}}),
    ]
    for obj, name in zip(plain, ("config", "secret", "workspace", "agent", "boxes"), strict=True):
        assert await put(registry, obj["kind"], name, obj)
    count = 0
    for kind, lot in lots.items():
        for number, each in enumerate(lot):
            name = f"{kind.lower()}-{number}"
            for obj in each.objects:
                if await put(registry, kind, name, obj):
                    break
            else:
                continue
            count += 1
            if (task := using(kind, name)) is not None:
                await put(registry, "Task", f"uses-{name}", task)
    await registry.stop()
    await registry.store.close()
    return count


async def ran(server: Server, wanted: int) -> int:
    """Wait until so many instances have been made, and nothing is written any more. Returns how many there were."""
    seen: set[str] = set()
    last, quiet_since = "", time.monotonic()
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        found = (await server.ask("GET", "/apis/rota.dev/v1alpha1/namespaces/default/instances")).json
        seen |= {one["metadata"]["uid"] for one in found["items"] if one.get("status", {}).get("startTime")}
        if found["metadata"]["resourceVersion"] != last:
            last, quiet_since = found["metadata"]["resourceVersion"], time.monotonic()
        elif len(seen) >= wanted and time.monotonic() - quiet_since > 1:
            break
        await asyncio.sleep(LOOK_SECONDS)
    return len(seen)


@pytest.mark.timeout(3600 if IS_LONG else 120)
async def test_to_reach_the_disk_by_a_string_of_anything_that_has_something_run(
    tmp_path: Path, victim: Path, home: Path
) -> None:
    repo = Repo(tmp_path / "repo")
    repo.commit("run", "#!/bin/sh\n")
    before = hostile.seen(tmp_path, home)
    waiting = {kind: lots(kind, victim, repo.url) for kind in SPECS}
    while waiting:
        lot = {kind: found for kind, each in waiting.items() if (found := next(each, None)) is not None}
        waiting = {kind: waiting[kind] for kind in lot} if IS_LONG else {}
        if not lot:
            break
        count = await planted(home, lot, repo.url)
        async with served(home) as server:
            started = await ran(server, count // 2)
        assert IS_LONG or (count > len(SPECS) and started > 5), (count, started)
        assert hostile.seen(tmp_path, home) == before, {
            kind: [place for place, _ in each] for kind, each in lot.items()
        }
        for left in home.glob("rota.db*"):
            left.unlink()


@pytest.mark.parametrize(
    "entrypoint", ["{victim}/file:main", "..:main", "a/../../b:main", "a\0b:main", f"{'n' * 300}:main"]
)
def test_to_write_a_file_of_the_host_by_the_entrypoint_of_a_function(
    tmp_path: Path, victim: Path, home: Path, entrypoint: str
) -> None:
    """As from a store that was restored, or from a version that was less strict."""
    before = hostile.seen(tmp_path, home)
    with pytest.raises(CodeRefused, match="the entrypoint names no module"):
        CodeCache(home).put_inline("code", entrypoint.format(victim=victim))
    assert hostile.seen(tmp_path, home) == before
    assert not list((home / "code").glob("*/**/*.py"))
