"""Pools under fire with a stream of tasks: what they are, what happens to them, and what each attempt left behind."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from rota.runtime.runner.journal import AcknowledgedRecord, EndRecord, Record
from tests.control.running.chaos import API, World

WAVE_TASKS = 6
"""Tasks that come at once."""
KEPT_RUNNING_MAX = 40
"""With so many that are not over, no more come."""
SETTLE_SECONDS = 150.0
LABEL = "chaos"
MODULE = """\
import os, time

def write(path, seconds):
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(file, f"{os.environ['ROTA_ATTEMPT']}\\n".encode())
    os.close(file)
    time.sleep(seconds)
    print(f"::rota output attempt={os.environ['ROTA_ATTEMPT']}")
"""
OVER = ("Succeeded", "Failed", "Cancelled")
CANCEL = '{"spec": {"cancel": true}}'
ALL_REASONS = ["Failed", "Timeout", "WorkerLost"]


class Effects:
    """The effects of attempts: a line each in a file, where they can write one, else a line in the task's log."""

    def __init__(self, folder: Path, logs: Path) -> None:
        self.file = folder / "effects"
        self._logs = logs

    def script(self, *, inside: bool, seconds: float = 0.0, code: int = 0) -> str:
        """It leaves its line, takes its time, says which attempt it was, and ends."""
        line = 'echo "effect $ROTA_ATTEMPT"' if inside else f"printf '%s\\n' \"$ROTA_ATTEMPT\" >> {self.file}"
        return f'{line}; sleep {seconds}; echo "::rota output attempt=$ROTA_ATTEMPT"; exit {code}'

    def count(self) -> Counter[str]:
        """Return how many effects each attempt has left."""
        found = Counter(self.file.read_text().split()) if self.file.exists() else Counter()
        for log in self._logs.glob("*.log"):
            lines = log.read_text(errors="replace").splitlines()
            found.update(line.removeprefix("effect ") for line in lines if line.startswith("effect "))
        return found


class Storm(World):
    """Three pools, and tasks that never stop coming until `settle`."""

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(folder, seed)
        self.repo.commit("effects.py", MODULE)
        self.effects = Effects(folder, self.home / "tasks" / "default")
        self.replicas = {"plain": 3, "boxed": 2, "py": 1}
        self.turns = dict.fromkeys(self.replicas, "first")
        self.made: list[str] = []
        """The names of all tasks that there ever were."""
        self.brief: set[str] = set()
        """Tasks that were deleted, or will be when they are over."""
        self.done: Counter[str] = Counter()
        """Events other than kills."""

    # What is asked for.

    def apply(self) -> None:
        pools: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
            "plain": ({"isolation": "none"}, {"reset": "Keep"}),
            "boxed": ({}, {"reset": "Clean"}),
            "py": ({"type": "python", "isolation": "none", "workspaceRef": {"name": "code"}}, {"reset": "Keep"}),
        }
        items = [_object("Workspace", "code", {"repo": self.repo.url})]
        for name, (worker, more) in pools.items():
            env = [{"name": "CHAOS", "value": self.mark}, {"name": "TURN", "value": self.turns[name]}]
            update = {"maxUnavailable": 2, "drainSeconds": self.chance.choice((0, 2, 3600))}
            spec = {"replicas": self.replicas[name], "worker": {**worker, "env": env}, "update": update, **more}
            items.append(_object("WorkerPool", name, spec))
        whole = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        self.live.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=whole)

    def scale(self) -> None:
        self.replicas[self.chance.choice(("plain", "boxed"))] = self.chance.randint(1, 3)
        self.apply()
        self.done["scaled"] += 1

    def roll(self) -> None:
        self.turns[self.chance.choice(sorted(self.turns))] = uuid.uuid4().hex
        self.apply()
        self.done["rolled"] += 1

    def submit(self) -> None:
        """A few tasks of all sorts."""
        if len(self.unfinished()) > KEPT_RUNNING_MAX:
            return
        items = [self._task() for _ in range(WAVE_TASKS)]
        whole = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        self.live.kubectl("create", "-f", "-", stdin=whole)

    def _task(self) -> dict[str, Any]:
        chance = self.chance
        where = chance.choice(("plain", "plain", "boxed", "py"))
        spec: dict[str, Any] = {"workerPoolRef": {"name": where}, "priority": chance.randint(-2, 2)}
        sort = chance.choice(("quick", "quick", "slow", "slow", "fails", "hangs", "own"))
        seconds, code = {"slow": (0.5, 0), "fails": (0.1, 3), "hangs": (300, 0)}.get(sort, (0, 0))
        spec["retry"] = {"limit": 2, "backoffSeconds": 0, "reasons": ALL_REASONS}
        if sort == "hangs":
            spec["timeoutSeconds"] = chance.randint(1, 2)
        if sort == "own" and where != "py":
            del spec["workerPoolRef"]
            isolation = {} if where == "boxed" else {"isolation": "none"}
            spec["worker"] = {**isolation, "env": [{"name": "CHAOS", "value": self.mark}]}
        if chance.random() < 0.2:
            spec["retry"] = {"reasons": chance.choice(([], ["Failed"], ["WorkerLost"]))}
        if chance.random() < 0.3:
            spec["branch"] = chance.choice("abc")
        if chance.random() < 0.3:
            spec["holder"] = chance.choice("xyz")
        if "worker" not in spec and chance.random() < 0.2:
            spec["affinity"] = {"key": chance.choice("kl")}
        if chance.random() < 0.1:
            spec["ttlSecondsAfterFinished"] = chance.randint(0, 3)
        if self.made and chance.random() < 0.25:
            spec["dependsOn"] = sorted(set(chance.choices(self.made[-10:], k=chance.randint(1, 2))))
        if where == "py":
            spec["command"] = ["effects:write", json.dumps(str(self.effects.file)), str(seconds)]
        else:
            spec["command"] = ["sh", "-c", self.effects.script(inside=where == "boxed", seconds=seconds, code=code)]
        name = f"{sort}-{len(self.made)}"
        if "ttlSecondsAfterFinished" in spec:
            self.brief.add(name)
        self.made.append(name)
        return _object("Task", name, spec)

    # What is done to them.

    def cancel(self) -> None:
        for name in self._some(self.unfinished()):
            self._try("patch", "task", name, "--type", "merge", "-p", CANCEL)
            self.done["cancelled"] += 1

    def delete_task(self) -> None:
        for name in self._some(sorted(self.tasks())):
            self.brief.add(name)
            self._try("delete", "task", name, "--wait=false")
            self.done["tasks deleted"] += 1

    def delete_instance(self) -> None:
        for name in self._some(sorted(self.instances())):
            self._try("delete", "inst", name, "--wait=false")
            self.done["instances deleted"] += 1

    def _some(self, names: list[str]) -> list[str]:
        return [self.chance.choice(names)] if names else []

    def _try(self, *arguments: str) -> None:
        with contextlib.suppress(AssertionError):  # It may just not be there any more.
            self.live.kubectl(*arguments)

    # What there is.

    def tasks(self) -> dict[str, Any]:
        return {one["metadata"]["name"]: one for one in self.live.read("task")["items"]}

    def unfinished(self) -> list[str]:
        return sorted(name for name, one in self.tasks().items() if not is_over(one))

    def commands(self) -> list[str]:
        """Return the commands of running tasks, without the agents, boxes and runners around them."""
        return [
            one.command
            for one in self.processes()
            if not (one.is_agent or one.is_box or one.is_runner) and "rota interpreter" not in one.command
        ]

    def pending(self) -> list[str]:
        """Outcomes that a runner has still to tell."""
        found: list[str] = []
        for log in (self.home / "instances").glob("*/*/journal/log"):
            pending: dict[str, None] = {}
            for line in log.read_bytes().splitlines():
                match msgspec.json.decode(line.partition(b" ")[2], type=Record):
                    case EndRecord(outcome):
                        pending[outcome.id] = None
                    case AcknowledgedRecord(id_):
                        pending.pop(id_, None)
                    case _:
                        pass
            found += pending
        return found

    def logs(self) -> set[str]:
        """The uids of tasks of which something is kept beside the store."""
        return {name.partition("@")[2].partition(".")[0] for name in self.names("tasks", "default")}

    # The end.

    def settle(self) -> None:
        """No more tasks; new workers, so that none waits because it died too often; and everything comes to its end."""
        self.turns = dict.fromkeys(self.turns, "last")
        self.apply()
        self._try("delete", "inst", "--all", "--wait=false")
        self.until(self._are_all_over, SETTLE_SECONDS)
        self.until(self.is_settled, SETTLE_SECONDS)

    def _are_all_over(self) -> bool:
        """Return whether all tasks are over. A task that waits for a deleted one would never end: it is cancelled."""
        tasks = self.tasks()
        for name, one in tasks.items():
            if one.get("status", {}).get("reason") == "DependencyNotFound" and not is_over(one):
                assert any(other in self.brief for other in one["spec"]["dependsOn"]), one
                self._try("patch", "task", name, "--type", "merge", "-p", CANCEL)
        return all(map(is_over, tasks.values()))

    def told(self) -> str:
        said = self.live.kubectl("get", "task,wp,inst", "-o", "wide")
        stuck = [json.dumps(one) for one in self.tasks().values() if not is_over(one)]
        instances = [json.dumps(one) for one in self.live.read("inst")["items"]]
        return "\n".join([said, *stuck, *instances, *(f"{one.pid} {one.command}" for one in self.processes())])


def is_over(task: Any) -> bool:
    return task.get("status", {}).get("phase") in OVER


def _object(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    labels = {LABEL: "yes"}
    metadata = {"name": name, "namespace": "default", "labels": labels}
    return {"apiVersion": API, "kind": kind, "metadata": metadata, "spec": spec}
