"""Every cross-field rule: broken, and kept."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from rota.api import KINDS
from rota.api.schema import Schema, object_schema
from tests.corpus import Path, at
from tests.examples import CALL, COMMAND, ENV, LEAST_TEMPLATE, PROMPT, TEMPLATE, WORKER, example, examples
from tests.kubernetes.comparison import Both
from tests.refusals import REFUSED, TAKEN

Changes = dict[Path, Any]
GONE: Any = object()

REF = {"name": "a"}
METRIC = {"cpuPercent": 50}
PLACE: Path = ("spec", "placements", 0, "scale")
PATHS = ("a/../b", "..", "../a", "a/..", "..a", "a..", "a/..b", ".git", ".git/a", ".gitignore", "a/.git", "a\n..")
CRONS: list[Changes] = [
    {("spec", "cron"): cron}
    for cron in (
        *("60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8", "61 25 32 0 9", "* * * FOO BAR"),
        *("1-5/2,7 */3 LW jan-Mar 5l", "0 0 * * MON#2", "@daily", "@never", "* * * *", "5-1 * * * *", "0 0 30 2 *"),
    )
]
PROBE: Path = ("spec", "containers", 0, "readinessProbe")


def _tasks(*at: str) -> list[Changes]:
    """Return changes, below a path, each of which makes a task that must be refused."""
    path: Path = ("spec", *at)
    return [
        {path: {**COMMAND, "worker": {**WORKER, "entrypoint": []}}},
        {path: {k: v for k, v in COMMAND.items() if k != "worker"}},
        {path: {**COMMAND, "workerPoolRef": REF}},
        {path: {**COMMAND, "prompt": "a"}},
        {path: {**COMMAND, "worker": {}}},
        {path: {**COMMAND, "worker": {"entrypoint": ["a"]}}},
        {path: {**COMMAND, "worker": {"type": "custom"}}},
        {path: {**COMMAND, "worker": {"credentials": {"type": "none"}}}},
        {path: {**COMMAND, "worker": {"credentials": {"type": "none", "secretRef": REF}}}},
        {path: {**COMMAND, "worker": {"credentials": {"type": "oauth"}}}},
        {path: {**PROMPT, "stdin": "a"}},
        {path: {**PROMPT, "worker": {}}},
        *({path: {**PROMPT, "prompt": text}} for text in ("a\0", "\0", "a\n")),
        *({path: {**COMMAND, "command": argv}} for argv in ([""], ["", "a"], ["a", ""], ["a\0"], ["a", "b\0c"], [])),
        *({path: {**COMMAND, "stdin": text}} for text in ("\0", "a\0", "\\0")),
        *({path: {**COMMAND, "worker": {"env": [{"name": "A", "value": text}]}}} for text in ("a\0", "a")),
        *(
            {path: {**COMMAND, "dependsOn": [name]}}
            for name in ("a.b-c", "A", "a b", "a.", "-a", "a..b", "a\n", "\u00e4")
        ),
        {path: {**CALL, "workerPoolRef": REF}},
        {path: {**CALL, "worker": {}}},
        {path: {**CALL, "prompt": "a"}},
        {path: {"stdin": "a"}},
        {path: {}},
    ]


CASES: dict[str, list[Changes]] = {
    "AgentConfig": [
        {("spec", "mcpServers"): [{"name": "a", "type": type_, **more}]}
        for type_ in ("stdio", "http", "sse")
        for more in ({}, {"url": "https://a"}, {"command": ["a"]}, {"url": "https://a", "command": ["a"]})
    ],
    "Cell": [],
    "Claim": [
        {("spec", "env"): env}
        for env in (
            [{"name": "A"}],
            [{"name": "A", "value": ""}],
            [{"name": "A", "value": "", "valueFrom": {}}],
            [{"name": "A", "valueFrom": {}}],
            [{"name": "A", "valueFrom": {"secretKeyRef": {**REF, "key": "a"}, "configMapKeyRef": {**REF, "key": "a"}}}],
            [*ENV, {"name": "A"}, {"name": "B", "valueFrom": {}}],
        )
    ],
    "Function": [
        {("spec", "entrypoint"): GONE},
        {("spec", "command"): ["a"]},
        {("spec", "runtime"): "command"},
        {("spec", "runtime"): "command", ("spec", "command"): ["a"]},
        {("spec", "runtime"): "command", ("spec", "command"): ["a"], ("spec", "entrypoint"): GONE},
        {("spec", "runtime"): "command", ("spec", "command"): [], ("spec", "entrypoint"): GONE},
        {("spec", "source"): {}},
        {("spec", "source"): {"inline": ""}},
        {("spec", "source"): {"inline": "", "workspaceRef": REF}},
        {("spec", "scale"): {"min": 5}},
        {("spec", "scale"): {"min": 4}},
        {("spec", "scale"): {"min": 1000, "max": 1000}},
        {("spec", "scale"): {"max": 0}},
    ],
    "Instance": [
        {("spec", "volumes"): [{"name": "a", "mountPath": "/a"}]},
        {("spec", "volumes"): [{"name": "a", "mountPath": "/a", "secret": REF, "configMap": REF}]},
        {PROBE: {}},
        {PROBE: {"exec": {"command": ["a"]}, "tcpSocket": {"port": 1}}},
        {PROBE: {"exec": {"command": ["a"]}, "tcpSocket": {"port": 1}, "httpGet": {"port": 1}}},
        {PROBE: {"httpGet": {"port": 1}}},
    ],
    "InstanceType": [],
    "Location": [],
    "Quota": [],
    "QuotaClaim": [],
    "Revision": [],
    "Schedule": [
        *CRONS,
        {("spec", "target"): {}},
        {("spec", "target"): {"functionRef": REF, "taskTemplate": CALL}},
        *_tasks("target", "taskTemplate"),
    ],
    "Task": [
        *_tasks(),
        {("spec", "dependsOn"): ["example"]},
        {("spec", "dependsOn"): ["other", "example"]},
        {("spec", "dependsOn"): []},
    ],
    "TaskSpawner": [
        {("spec", "source"): {}},
        {("spec", "source"): {"github": {"repo": "a/b"}, "webhook": {"secretRef": REF}}},
        *_tasks("taskTemplate"),
    ],
    "WorkerPool": [
        {("spec", "worker"): GONE},
        {("spec", "template"): LEAST_TEMPLATE},
        {("spec", "worker"): GONE, ("spec", "template"): TEMPLATE},
        {("spec", "replicas"): 1, ("spec", "scale"): {"min": 1, "max": 1}},
        {("spec", "scale"): {"min": 2, "max": 1}},
        {("spec", "scale"): {"min": 1, "max": 1}},
        {("spec", "worker"): {"type": "custom"}},
    ],
    "Workload": [
        {PLACE: {"max": 1}},
        {PLACE: {"min": 2, "max": 1}},
        {PLACE: {"min": 2, "max": 2}},
        {PLACE: {"metric": METRIC}},
        {PLACE: {"metric": METRIC, "max": 1}},
        {PLACE: {"metric": METRIC, "min": 3, "max": 2}},
    ],
    "WorkloadDeployment": [],
    "Workspace": [{("spec", "files"): [{"path": path, "content": ""}]} for path in PATHS],
}
"""Per kind, changes of its least example."""


def changed(obj: dict[str, Any], changes: Changes) -> dict[str, Any]:
    out = copy.deepcopy(obj)
    for path, value in changes.items():
        parent = at(out, path[:-1])
        if value is GONE:
            parent.pop(path[-1], None)
        else:
            parent[path[-1]] = copy.deepcopy(value)
    return out


def messages(schema: Schema, *, of_changes: bool) -> Iterator[str]:
    """The messages of all rules within a schema: of those on what is, or on how it changes."""
    for rule in schema.get("x-kubernetes-validations", ()):
        if ("oldSelf" in rule["rule"]) is of_changes:
            yield rule["message"]
    for inner in schema.get("properties", {}).values():
        yield from messages(inner, of_changes=of_changes)
    for name in ("items", "additionalProperties"):
        if name in schema:
            yield from messages(schema[name], of_changes=of_changes)


async def test_every_rule_on_what_an_object_is(both: Both) -> None:
    broken: set[str] = set()
    rules: set[str] = set()
    for kind, cases in CASES.items():
        rules.update(messages(object_schema(KINDS[kind]), of_changes=False))
        for changes in cases:
            verdict = await both.create(str(changes), changed(examples(kind)[0], changes))
            broken |= {message.removeprefix("Invalid value: ") for _, _, message in verdict.causes}
    for kind, spec in [(kind, spec) for kind, spec, _ in REFUSED] + TAKEN:
        verdict = await both.create(f"{kind}: {spec}", example(kind, spec))
        broken |= {message.removeprefix("Invalid value: ") for _, _, message in verdict.causes}
    assert rules <= broken


def test_every_kind_of_rota_has_its_cases() -> None:
    assert {kind.name for kind in KINDS.values() if kind.custom} == CASES.keys()
