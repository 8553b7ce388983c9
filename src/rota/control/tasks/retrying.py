"""Retries of tasks as new tasks. Pure: tasks in, tasks to create out.

A name stands for one execution for ever, so a retry is a new task: NAME-retry-1, NAME-retry-2 and so on. Within a
graph, the new tasks depend on each other as the old ones do. A task that has succeeded is not run again: new tasks
depend on it, or on a retry of it that has succeeded.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rota.api import Task
from rota.api.task import RETRY_OF
from rota.control.instances.names import tailed
from rota.control.tasks.templating import renamed
from rota.engine.references import FAILED as DEPENDENCY_FAILED
from rota.registry import privileges

Object = dict[str, Any]

OWN_LABELS = "rota.dev/"
"""Prefix of labels that belong to one task and are not copied to its retry."""
FIRST_LENGTH_MAX = 63 - len("-retry-1234")
"""The longest name to which the number of a retry is appended, so that the result fits a label."""
GRAPH_TASKS_MAX = 1_000
"""The most tasks of one retry."""
UNSUCCESSFUL = ("Failed", "Cancelled")


class RetryError(Exception):
    """The tasks cannot be retried. The message says why, and what to do."""


def first_of(task: Object) -> str:
    """Return the name of the first try of a task, which may be its own; shortened if it would not fit a label."""
    meta = task["metadata"]
    first: str = meta.get("labels", {}).get(RETRY_OF) or meta["name"]
    return first if len(first) <= FIRST_LENGTH_MAX else tailed(first, length_max=FIRST_LENGTH_MAX)


def retried(task: Object, others: Iterable[Object], names: Mapping[str, str] | None = None) -> Object:
    """Return the retry of a task. `names`: the new names of its dependencies.

    `others`: existing tasks, for a name that none of them has.
    """
    names = names or {}
    spec = {field: value for field, value in task["spec"].items() if field != "cancel"}
    if "dependsOn" in spec:
        spec["dependsOn"] = list(dict.fromkeys(names.get(one, one) for one in spec["dependsOn"]))
    kept = {key: value for key, value in task["metadata"].get("labels", {}).items() if not key.startswith(OWN_LABELS)}
    first = first_of(task)
    marks = privileges.inherited(task["metadata"].get("annotations", {}))
    return {
        "apiVersion": Task.api.api_version,
        "kind": Task.api.name,
        "metadata": {
            "name": _next_name(first, others),
            "labels": {**kept, RETRY_OF: first},
            **({"annotations": marks} if marks else {}),
        },
        "spec": _renamed(spec, names),
    }


def failed_graph(tasks: Sequence[Object], wanted: Sequence[str]) -> list[Object]:
    """Return the retries of these tasks, of failed tasks that they depend on, and of tasks that failed because of them.

    Dependencies come first. Raises RetryError.
    """
    return _Graph(tasks).again(wanted)


class _Graph:
    def __init__(self, tasks: Sequence[Object]) -> None:
        self._tasks = {task["metadata"]["name"]: task for task in tasks}
        self._dependents: defaultdict[str, list[str]] = defaultdict(list)
        self._succeeded: dict[str, str] = {}
        """The newest successful try of each task, by the name of the first try."""
        for name, task in self._tasks.items():
            for dependency in _depends_on(task):
                self._dependents[dependency].append(name)
            if _phase(task) == "Succeeded":
                known = self._succeeded.get(first_of(task))
                if known is None or _completed(task) > _completed(self._tasks[known]):
                    self._succeeded[first_of(task)] = name

    def again(self, wanted: Sequence[str]) -> list[Object]:
        for name in wanted:
            if _phase(self._tasks[name]) == "Succeeded":
                raise RetryError(f"task/{name} has succeeded; `rota retry task/{name}` runs it alone once more")
        chosen = self._chosen(wanted)
        if cycle := self._cycle(chosen):
            raise RetryError(
                f"{', '.join(f'task/{name}' for name in cycle)} depend on each other in a cycle, and would never run; "
                "create them anew without it"
            )
        names: dict[str, str] = {}
        made: list[Object] = []
        for name in self._ordered(chosen):
            found = {one: self._replacement(name, one) for one in _depends_on(self._tasks[name]) if one not in chosen}
            task = self._without(name, [one for one, other in found.items() if not other])
            new = retried(task, [*self._tasks.values(), *made], {**found, **names})
            names[name] = new["metadata"]["name"]
            made.append(new)
        return made

    def _chosen(self, wanted: Sequence[str]) -> set[str]:
        chosen: set[str] = set()
        work = list(wanted)
        while work:
            name = work.pop()
            if name in chosen:
                continue
            chosen.add(name)
            if len(chosen) > GRAPH_TASKS_MAX:
                raise RetryError(f"more than {GRAPH_TASKS_MAX} tasks would run again; name tasks further down")
            work += [one for one in _depends_on(self._tasks[name]) if self._must_run_again(one)]
            work += [one for one in self._dependents[name] if self._failed_by_dependency(one)]
        return chosen

    def _cycle(self, chosen: set[str]) -> list[str]:
        """Return the tasks of a dependency cycle among those to retry, in order; empty: there is none."""
        waiting = {name: [one for one in _depends_on(self._tasks[name]) if one in chosen] for name in chosen}
        while ready := [name for name, before in waiting.items() if not any(one in waiting for one in before)]:
            for name in ready:
                del waiting[name]
        if not waiting:
            return []
        path = [min(waiting)]
        while (following := next(one for one in waiting[path[-1]] if one in waiting)) not in path:
            path.append(following)
        cycle = path[path.index(following) :]
        begin = cycle.index(min(cycle))
        return [*cycle[begin:], *cycle[:begin]]

    def _must_run_again(self, name: str) -> bool:
        task = self._tasks.get(name)
        return task is not None and _phase(task) in UNSUCCESSFUL and first_of(task) not in self._succeeded

    def _failed_by_dependency(self, name: str) -> bool:
        status = self._tasks[name].get("status") or {}
        return status.get("reason") == DEPENDENCY_FAILED and self._must_run_again(name)

    def _replacement(self, name: str, dependency: str) -> str:
        """Return what a retry depends on instead of a dependency that is not retried; empty: nothing."""
        task = self._tasks.get(dependency)
        if task is not None:
            return dependency if _phase(task) not in UNSUCCESSFUL else self._succeeded[first_of(task)]
        status = self._tasks[name].get("status") or {}
        known = next((one for one in status.get("dependencies", ()) if one["name"] == dependency), None)
        if known is None or known.get("phase") != "Succeeded":
            raise RetryError(f"task/{dependency}, on which task/{name} depends, is not there; create it first")
        if known.get("outputs"):
            raise RetryError(
                f"task/{dependency}, whose outputs task/{name} may use, is no longer there; run it again first, and"
                f" then task/{name} as a new task that depends on it"
            )
        return ""

    def _without(self, name: str, dropped: Sequence[str]) -> Object:
        task = self._tasks[name]
        left = [one for one in _depends_on(task) if one not in dropped]
        return {**task, "spec": {**task["spec"], "dependsOn": left}} if dropped else task

    def _ordered(self, chosen: set[str]) -> list[str]:
        out: dict[str, None] = {}
        entered: set[str] = set()
        work = sorted(chosen, reverse=True)
        while work:
            name = work.pop()
            if name in entered:
                out.setdefault(name)
                continue
            entered.add(name)
            first = [one for one in _depends_on(self._tasks[name]) if one in chosen and one not in entered]
            work += [name, *reversed(first)]
        return list(out)


def _depends_on(task: Object) -> list[str]:
    found: list[str] = task["spec"].get("dependsOn") or []
    return found


def _phase(task: Object) -> str:
    return (task.get("status") or {}).get("phase") or ""


def _completed(task: Object) -> str:
    return (task.get("status") or {}).get("completionTime") or ""


def _renamed(spec: Object, names: Mapping[str, str]) -> Object:
    """Return a spec whose templates refer to tasks by their new names."""
    out = dict(spec)
    if "command" in spec:
        out["command"] = [renamed(one, names) for one in spec["command"]]
    out |= {field: renamed(spec[field], names) for field in ("stdin", "prompt") if field in spec}
    if env := (spec.get("worker") or {}).get("env"):
        fresh = [{**one, "value": renamed(one["value"], names)} if "value" in one else one for one in env]
        out["worker"] = {**spec["worker"], "env": fresh}
    if payload := (spec.get("function") or {}).get("payload"):
        out["function"] = {**spec["function"], "payload": _renamed_in(payload, names)}
    return out


def _renamed_in(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _renamed_in(one, names) for key, one in value.items()}
    if isinstance(value, list):
        return [_renamed_in(one, names) for one in value]
    return renamed(value, names) if isinstance(value, str) else value


def _next_name(first: str, others: Iterable[Object]) -> str:
    numbered = re.compile(rf"{re.escape(first)}-retry-([0-9]{{1,4}})")
    found = (numbered.fullmatch(other["metadata"]["name"]) for other in others)
    number = max((int(one[1]) for one in found if one is not None), default=0) + 1
    return f"{first}-retry-{number}"
