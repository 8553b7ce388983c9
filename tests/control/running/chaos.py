"""A home with two pools under fire: what can be killed there, and what is left in the end."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import stat
import subprocess
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rota.runtime import sandbox
from tests.runtime.homes import groups_of, keepers_of
from tests.server.live import ROTA, Live
from tests.until import until
from tests.workspace.conftest import Repo

API = "rota.dev/v1alpha1"
PATIENCE_SECONDS = 60.0
REST_SECONDS = 4.0
REPLICAS_MAX = 3
HOLD_SECONDS = 1.0
"""The patience of a holder with a worker that may be just being killed."""
SCRIPT = (
    # Locks end with whoever has them: one that cannot be had is another instance in the same storage.
    "exec 9>>lock; flock -n 9 || echo $$ >> twice; "
    "test -s mark || (cat /proc/sys/kernel/random/uuid > new; mv new mark); "
    ": {turn}; trap 'exit 0' TERM; while :; do sleep 0.2; done"
)
Sort = Literal["instance", "runner", "box", "agent", "keeper", "server"]


class Process(NamedTuple):
    """One that is alive, as /proc has it."""

    pid: int
    command: str
    environment: str
    group: str

    @property
    def is_runner(self) -> bool:
        return "ROTA_RUN=" in self.environment and self.command.endswith("rota.runtime.runner")

    @property
    def is_agent(self) -> bool:
        return self.command.endswith("rota.runtime.runner.agent") and "bwrap" not in self.command

    @property
    def is_box(self) -> bool:
        return "bwrap" in self.command and "rota.runtime.runner.agent" in self.command

    @property
    def is_main(self) -> bool:
        return self.command.startswith("sh -c exec 9>>lock")


class World:
    """A pool of plain instances with storage, a pool of workers, and what happens to them."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self._began = time.monotonic()
        self.home = folder / "home"
        self.mark = uuid.uuid4().hex
        """In the environment of everything that runs here."""
        self.repo = Repo(folder / "origin")
        self.repo.commit("file", "content\n")
        self.live = Live(self.home)
        self.replicas = {"box": 2, "crew": 2}
        self.turns = {"box": "first", "crew": "first"}
        self.kills: Counter[Sort] = Counter()
        self.dirtied = 0
        """The number of times that a holder left something behind."""
        self.marks: dict[str, str] = {}
        """The content of each storage when it was first looked at."""
        self._is_brief_there = False
        self.ordinals = dict(self.replicas)
        """The largest number of instances that each pool ever had."""

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    # What is asked for.

    def apply(self) -> None:
        env = [{"name": "CHAOS", "value": self.mark}]
        script = SCRIPT.format(turn=self.turns["box"])
        main = {"name": "main", "command": ["sh", "-c", script], "env": env}
        template = {"containers": [main], "terminationGracePeriodSeconds": 1}
        workspace = {"repo": self.repo.url, "setup": ["sh", "-c", "echo set > set"]}
        worker = {"workspaceRef": {"name": "code"}, "env": [*env, {"name": "TURN", "value": self.turns["crew"]}]}
        storage = {"storage": {"size": "1Gi"}}
        update = {"update": {"maxUnavailable": 2, "drainSeconds": 0}}
        items = [
            _object("Workspace", "code", workspace),
            _object("WorkerPool", "box", {"replicas": self.replicas["box"], "template": template, **storage, **update}),
            _object("WorkerPool", "crew", {"replicas": self.replicas["crew"], "worker": worker, **storage, **update}),
        ]
        if self._is_brief_there:
            items.append(_object("WorkerPool", "brief", {"replicas": 2, "template": template, **storage}))
        for pool, count in self.replicas.items():
            self.ordinals[pool] = max(self.ordinals[pool], count)
        whole = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        self.live.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=whole)

    def scale(self) -> None:
        self.replicas[self.chance.choice(("box", "crew"))] = self.chance.randint(1, REPLICAS_MAX)
        self.apply()

    def roll(self) -> None:
        self.turns[self.chance.choice(("box", "crew"))] = uuid.uuid4().hex
        self.apply()

    def come_or_go(self) -> None:
        """A pool that is there now and then, and of which nothing is to be left."""
        self._is_brief_there = not self._is_brief_there
        if self._is_brief_there:
            self.apply()
        else:
            self.live.kubectl("delete", "wp", "brief", "--wait=false", "--ignore-not-found")

    def rest(self) -> None:
        """Let things come up, if they do."""
        with contextlib.suppress(AssertionError):
            self.until(self.is_settled, REST_SECONDS)

    def hold(self) -> None:
        """Somebody has a worker, and leaves something behind in it, if it is there to be had."""
        name = f"crew-{self.chance.randrange(self.replicas['crew'])}"
        held = {"id": uuid.uuid4().hex, "kind": "Claim", "name": "c", "uid": "u", "since": "2026-01-01T00:00:00Z"}
        agent = self._agent_of(name)
        if agent is None or not self._assign(name, held):
            return
        with contextlib.suppress(AssertionError):
            self.until(lambda: self._assignment(name) == {"id": held["id"], "phase": "Accepted"}, HOLD_SECONDS)
            # By way of the box as it was before: what is there after a loss of it is nobody's to make dirty.
            with contextlib.suppress(OSError):
                Path(f"/proc/{agent}/root/workspace/repo/.git/dirty").touch()
                self.dirtied += 1

    def _agent_of(self, name: str) -> int | None:
        for note in (self.home / "instances" / "default").glob(f"{name}-*/box"):
            with contextlib.suppress(OSError, ValueError):
                return sandbox.main_process(int(note.read_text().partition("@")[0]))
        return None

    def _assignment(self, name: str) -> Any:
        found = [one for one in self.live.read("inst")["items"] if one["metadata"]["name"] == name]
        return found[0].get("status", {}).get("assignment") if found else None

    def release(self, ordinal: int | None = None) -> None:
        ordinal = self.chance.randrange(self.replicas["crew"]) if ordinal is None else ordinal
        self._assign(f"crew-{ordinal}", None)

    def _assign(self, name: str, held: dict[str, Any] | None) -> bool:
        patch = json.dumps({"spec": {"assignment": held}})
        argv = ("kubectl", "patch", "inst", name, "--type", "merge", "-p", patch)
        env = {**os.environ, "KUBECONFIG": str(self.live.kubeconfig)}
        done = subprocess.run(argv, env=env, capture_output=True, timeout=30, check=False)
        return done.returncode == 0  # it may just not be there

    def restart(self) -> None:
        """The server is told to end, and with it everything; then it is started again."""
        self.live.kill(signal.SIGTERM)
        self.live.start()

    # What is killed.

    def kill(self, sort: Sort) -> None:
        if sort == "server":
            self.live.kill()
            self.kills["server"] += 1
            while self.chance.random() < 0.5:
                self._kill_one(self.chance.choice(("instance", "runner", "agent", "keeper")))
            self.live.start()
        else:
            self._kill_one(sort)

    def _kill_one(self, sort: Sort) -> None:
        found = self._candidates(sort)
        if found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.chance.choice(sorted(found)), signal.SIGKILL)
                self.kills[sort] += 1

    def _candidates(self, sort: Sort) -> list[int]:
        if sort == "keeper":
            return self.keepers()
        chosen: dict[str, Callable[[Process], bool]] = {
            "runner": lambda one: one.is_runner,
            "agent": lambda one: one.is_agent,
            "box": lambda one: one.is_box,
            "instance": lambda one: not (one.is_agent or one.is_box or one.is_runner),
        }
        return [one.pid for one in self.processes() if chosen[sort](one)]

    # What there is.

    def processes(self) -> Iterator[Process]:
        """Everything that runs for this home, but its server and its keeper."""
        for name in filter(str.isdigit, os.listdir("/proc")):
            entry = Path("/proc", name)
            try:
                environment = (entry / "environ").read_bytes().decode(errors="replace")
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                group = (entry / "cgroup").read_text()
            except OSError:
                continue
            is_known = self.mark in environment or f"ROTA_HOME={self.home}\0" in environment
            is_known |= str(self.home) in command and " up --home " not in command
            if command and is_known and "rota.runtime.keeper" not in command:
                yield Process(int(name), command, environment, group)

    def keepers(self) -> list[int]:
        return keepers_of(self.home)

    def groups(self) -> list[str]:
        """The groups of this home's instances, wherever they are; and others that have none."""
        every = groups_of(self.home)
        return sorted(one for one in every if not any(other.startswith(f"{one}/") for other in every))

    def mounts(self) -> list[str]:
        return [line for line in Path("/proc/mounts").read_text().splitlines() if str(self.home) in line]

    def sockets(self) -> set[str]:
        found = set()
        for folder, _, files in os.walk(self.home):
            for name in files:
                with contextlib.suppress(OSError):
                    if stat.S_ISSOCK(os.lstat(Path(folder, name)).st_mode):
                        found.add(name)
        return found

    def names(self, *folder: str) -> set[str]:
        path = self.home.joinpath(*folder)
        return {one.name for one in path.iterdir()} if path.is_dir() else set()

    def look(self) -> None:
        """Note what is in storage that was not seen before, and that what was seen is as it was."""
        for mark in (self.home / "storage" / "default").glob("box-*/mark"):
            with contextlib.suppress(OSError):
                assert self.marks.setdefault(mark.parent.name, mark.read_text()) == mark.read_text(), mark

    def instances(self) -> dict[str, str]:
        """Their names, with their uids."""
        return {one["metadata"]["name"]: one["metadata"]["uid"] for one in self.live.read("inst")["items"]}

    def wanted(self) -> set[str]:
        return {f"{pool}-{ordinal}" for pool, count in self.replicas.items() for ordinal in range(count)}

    # The end.

    def settle(self) -> None:
        """Roll everything a last time, so that nothing waits for its turn, and return when it is as it should be."""
        self.turns = {"box": "last", "crew": "last"}
        if self._is_brief_there:
            self.come_or_go()
        for ordinal in range(self.replicas["crew"]):
            self.release(ordinal)
        self.apply()
        for ordinal in range(self.replicas["crew"]):
            self.release(ordinal)
        self.until(self.is_settled)

    def is_settled(self) -> bool:
        found = [one for one in self.live.read("wp")["items"] if one["metadata"]["name"] != "brief"]
        wanted = {name: ("Ready", count, count, count) for name, count in self.replicas.items()}
        fields = ("phase", "replicas", "readyReplicas", "updatedReplicas")
        status = {one["metadata"]["name"]: one.get("status", {}) for one in found}
        there = {name: tuple(one.get(each) for each in fields) for name, one in status.items()}
        is_newest = all(
            one.get("status", {}).get("observedGeneration") == one["metadata"]["generation"] for one in found
        )
        others = set() if not self._is_brief_there else {"brief-0", "brief-1"}
        return there == wanted and is_newest and self.instances().keys() - others == self.wanted()

    def until(self, what: Callable[[], object], seconds: float = PATIENCE_SECONDS) -> None:
        until(what, self.told, seconds=seconds)

    def told(self) -> str:
        """Everything that helps to find out what is wrong."""
        said = self.live.kubectl("get", "wp,inst,events", "-o", "yaml")
        return "\n".join([said, *(f"{one.pid} {one.command} {one.group}" for one in self.processes())])

    def stop(self) -> float:
        """Stop the server. Returns the seconds that `rota stop` took."""
        began = time.monotonic()
        argv = (ROTA, "stop", "--home", str(self.home))
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        self.live.process.wait(1)
        return time.monotonic() - began


def _object(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name, "namespace": "default"}, "spec": spec}
