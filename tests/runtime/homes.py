"""A home with a real keeper, and what is left of it afterwards, found without asking the keeper."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rota.runtime.keeper import protocol
from rota.runtime.keeper.client import Keeper, Limits, LogSpec, Record, Snapshot
from tests.until import until_async

DAEMON = "setsid sh -c 'echo $$ > {fifo}; exec sleep 1000' &"
"""A grandchild in a session of its own, whose parent is gone."""


class Home:
    def __init__(self, path: Path, tree: str | None = None) -> None:
        self.path = path
        self.options = ["--die-with", str(os.getpid()), "--orphan-seconds", "60"]
        if tree:
            self.options += ["--tree", tree]
        self.mark = uuid.uuid4().hex

    def keeper(self) -> Keeper:
        return Keeper.connect(self.path, self.options)

    def log(self, key: str) -> Path:
        return self.path / f"{key}.log"

    async def start(
        self,
        keeper: Keeper,
        key: str,
        script: str,
        *,
        run: str = "1",
        env: Mapping[str, str] | None = None,
        **more: Any,
    ) -> Record:
        more.setdefault("log", LogSpec(str(self.path / key)))
        more.setdefault("limits", Limits())
        environment = {"MARK": self.mark, **(env or {})}
        return await keeper.start(key, run, ["sh", "-c", script], env=environment, cwd="/", **more)

    def processes(self) -> list[int]:
        """All that have this home's mark in their environment, wherever they are."""
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                if f"MARK={self.mark}".encode() in Path(f"/proc/{name}/environ").read_bytes():
                    found.append(int(name))
            except OSError:
                continue
        return found

    async def until_alive(self, count: int) -> list[int]:
        """Returns when so many are there. One that is just being executed has no environment to be seen by."""
        await until_async(lambda: len(self.processes()) >= count, self.processes)
        return self.processes()

    def groups(self) -> list[str]:
        return groups_of(self.path)

    def fifo(self, name: str = "fifo") -> Path:
        path = self.path / name
        os.mkfifo(path)
        return path

    def dial(self) -> socket.socket:
        """A bare connection to its keeper."""
        stream = socket.socket(socket.AF_UNIX)
        stream.settimeout(20)
        folder = os.open(self.path / "keeper", os.O_PATH)
        stream.connect(f"/proc/self/fd/{folder}/keeper.sock")
        os.close(folder)
        return stream


async def told(fifo: Path) -> str:
    """Return everything that was written to a fifo, once its writer has closed it."""
    return (await asyncio.to_thread(fifo.read_text)).strip()


async def exit_of(keeper: Keeper, key: str, run: str | None = None) -> Record:
    """Its record, when it has exited."""
    return await until(keeper, lambda record: record.key == key and run in (None, record.run) and not record.is_running)


async def until(keeper: Keeper, wanted: Callable[[Record], bool]) -> Record:
    async for event in keeper.events():
        records = event.records if isinstance(event, Snapshot) else [event.record]
        for record in records:
            if wanted(record):
                return record
    raise AssertionError("the events ended")


async def gone(pid: int) -> None:
    """Wait for the end of a process that is not ours."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        ended = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().add_reader(descriptor, lambda: None if ended.done() else ended.set_result(None))
        await asyncio.wait_for(ended, 20)
    finally:
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)


def keepers_of(home: Path) -> list[int]:
    """Return the keepers of a home. A fork of one, on its way to be something else, looks like it and is none."""
    found: dict[int, int] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if f"rota.runtime.keeper\0{home}\0".encode() in Path("/proc", name, "cmdline").read_bytes():
                found[int(name)] = int(Path("/proc", name, "stat").read_text().rpartition(")")[2].split()[1])
    return [pid for pid, parent in found.items() if parent not in found]


def unsearchable(folder: Path) -> str:
    """Make folders that nobody can search, for a path: one that is locked, and, for root, one that leads to itself."""
    locked, loop = folder / "locked", folder / "loop"
    locked.mkdir(mode=0)
    loop.symlink_to("loop")
    return f"{locked}:{loop}"


def groups_of(home: Path) -> list[str]:
    """Return the cgroups of a home's processes, once each however often the hierarchy is mounted."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    tops = {os.stat(fields[1]).st_dev: fields[1] for fields in mounts if fields[2] == "cgroup2"}
    name = protocol.name_of(home)
    return [path for top in tops.values() for path, _, _ in os.walk(top) if f"/{name}" in path]


def ask(stream: socket.socket, **request: Any) -> Any:
    stream.sendall(json.dumps(request).encode() + b"\n")
    return answer(stream)


def answer(stream: socket.socket) -> Any:
    line = b""
    while not line.endswith(b"\n"):
        data = stream.recv(1)
        if not data:
            return None
        line += data
    return json.loads(line)
