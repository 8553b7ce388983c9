"""Valid objects of every kind. The first of a kind is the least one; between them they set every field there is."""

from __future__ import annotations

import copy
from typing import Any

from rota.api import KINDS

Object = dict[str, Any]

TIME = "2024-05-06T07:08:09Z"
DIGEST = "sha256:" + "0123456789abcdef" * 4


def example(kind: str, spec: Object | None = None, status: Object | None = None, **more: Any) -> Object:
    """An object of a kind, in the namespace `default` if it has one."""
    metadata = {"name": "example", "namespace": "default"} if KINDS[kind].namespaced else {"name": "example"}
    out: Object = {"apiVersion": KINDS[kind].api_version, "kind": kind, "metadata": metadata, **more}
    if spec is not None:
        out["spec"] = spec
    if status is not None:
        out["status"] = status
    return copy.deepcopy(out)


AMOUNTS: Object = {"cpu": "500m", "memory": "1Gi"}
CAPACITY: Object = {**AMOUNTS, "instances": 3}
QUOTA_OWNER: Object = {"kind": "WorkerPool", "name": "web", "uid": "web-uid"}
BUDGET: Object = {**CAPACITY, "storage": "10Gi"}
USED: Object = {"instances": 3, "cpu": "500m", "memory": "1073741824", "storage": "10737418240"}
RESOURCES: Object = {"requests": AMOUNTS, "limits": {"cpu": 2, "memory": 2147483648, "pids": 100}}
TIMING: Object = {"periodSeconds": 5, "timeoutSeconds": 2, "failureThreshold": 4, "initialDelaySeconds": 1}
ENV: list[Object] = [
    {"name": "PLAIN", "value": "one"},
    {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "secret", "key": "key"}}},
    {"name": "CONFIG", "valueFrom": {"configMapKeyRef": {"name": "config", "key": "key"}}},
]
CONTAINER: Object = {
    "name": "main",
    "image": "registry.example/main:1",
    "command": ["run"],
    "args": ["-v"],
    "workingDir": "/srv",
    "env": ENV,
    "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}, {"name": "dns", "protocol": "UDP"}],
    "resources": RESOURCES,
    "readinessProbe": {"httpGet": {"path": "/healthz", "port": 8080}, **TIMING},
    "livenessProbe": {"exec": {"command": ["true"]}, **TIMING},
}
SIDE_CONTAINERS: list[Object] = [
    {
        "name": "proxy",
        "readinessProbe": {"tcpSocket": {"port": 9}},
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": 9}},
    },
    {"name": "cron", "readinessProbe": {"exec": {"command": ["true"]}}, "livenessProbe": {"tcpSocket": {"port": 9}}},
]
ROLE: Object = {
    "type": "custom",
    "entrypoint": ["agent"],
    "credentials": {"type": "api-key", "secretRef": {"name": "secret"}},
    "model": "large",
    "effort": "high",
    "agentConfigRefs": [{"name": "base"}, {"name": "base"}],
}
HANDLER: Object = {
    "function": "sum",
    "runtime": "python",
    "entrypoint": "app:handler",
    "command": ["./answer"],
    "code": f"sha256:{'a' * 64}",
    "packages": "b" * 64,
    "concurrency": 2,
}
EGRESS: list[Object] = [{"host": "*.example.com", "ports": [80, 443]}, {"cidr": "192.0.2.0/24"}]
TEMPLATE: Object = {
    "runtime": "container",
    "containers": [CONTAINER, *SIDE_CONTAINERS],
    "volumes": [
        {"name": "config", "configMap": {"name": "config"}, "mountPath": "/etc/config"},
        {"name": "secret", "secret": {"name": "secret"}, "mountPath": "/etc/secret"},
    ],
    "instanceType": "d1-standard-2",
    "requests": AMOUNTS,
    "storage": {"size": "10Gi", "path": "/data"},
    "worker": ROLE,
    "workspaceRef": {"name": "workspace"},
    "restartPolicy": "OnFailure",
    "terminationGracePeriodSeconds": 60,
    "isolation": "sandbox",
    "network": "egress",
    "egress": EGRESS,
}
LEAST_TEMPLATE: Object = {"containers": [{"name": "main"}]}
WORKLOAD_TEMPLATE: Object = {
    "metadata": {"labels": {"app": "web"}, "annotations": {"note": "all"}},
    "spec": TEMPLATE,
}

WORKER: Object = {
    **ROLE,
    "image": "registry.example/worker:1",
    "workspaceRef": {"name": "workspace"},
    "env": ENV,
    "resources": RESOURCES,
    "isolation": "sandbox",
    "network": "egress",
    "egress": EGRESS,
    "podOverrides": {"nodeSelector": {"disk": "ssd"}, "list": [1, None, {"deep": None}]},
}
TASK_COMMON: Object = {
    "dependsOn": ["first", "second"],
    "branch": "main",
    "priority": -5,
    "holder": "alice",
    "timeoutSeconds": 600,
    "ttlSecondsAfterFinished": 0,
    "retry": {"limit": 3, "backoffSeconds": 1, "reasons": ["Failed", "Timeout"]},
}
CALL: Object = {"function": {"name": "resize", "payload": {"width": 10, "none": None}}}
COMMAND: Object = {"command": ["make", "test"], "stdin": "yes", "worker": WORKER, **TASK_COMMON}
PROMPT: Object = {"prompt": "Fix the bug.", "workerPoolRef": {"name": "agents"}, "affinity": {"key": "repo"}}

CONDITION: Object = {
    "type": "Ready",
    "status": "True",
    "reason": "Fine",
    "message": "It works.",
    "lastTransitionTime": TIME,
    "observedGeneration": 1,
}
OBSERVED: Object = {"observedGeneration": 1, "conditions": [CONDITION, {"type": "Available", "status": "Unknown"}]}
ADDRESS: Object = {"name": "http", "host": "10.0.0.1", "port": 8080}
COUNTS: Object = {
    "replicas": 5,
    "currentReplicas": 4,
    "updatedReplicas": 3,
    "desiredReplicas": 5,
    "readyReplicas": 2,
}

ABOUT: Object = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "namespace": "default",
    "name": "example",
    "uid": "u-1",
    "resourceVersion": "1",
    "fieldPath": "data",
}

_ALL: list[Object] = [
    example("AgentConfig", {}),
    example(
        "AgentConfig",
        {
            "instructions": "Be brief.",
            "mcpServers": [
                {"name": "local", "type": "stdio", "command": ["serve"], "secretRef": {"name": "secret"}},
                {"name": "remote", "type": "http", "url": "https://tools.example", "headers": {"X-Team": "a"}},
            ],
            "skills": [{"name": "review", "content": "How to review."}],
        },
        OBSERVED,
    ),
    example("Cell", {"cityCode": "ams"}),
    example(
        "Cell",
        {"cityCode": "ams", "weight": 50, "cordoned": True, "drain": True, "capacity": CAPACITY},
        {
            **OBSERVED,
            "lastHeartbeatTime": TIME,
            "version": "1.0",
            "allocated": {"instances": 2, "cpu": "1500m", "memory": "1073741824", "storage": "0"},
            "instances": 2,
            "identity": "b0a3c1e2-0000-4000-8000-000000000001",
            "hubID": "b0a3c1e2-0000-4000-8000-000000000002",
            "orphans": ["shop/web-all-ams-1-0123456789ab"],
        },
    ),
    example("Claim", {"poolRef": {"name": "pool"}}),
    example(
        "Claim",
        {
            "poolRef": {"name": "pool"},
            "holder": "alice",
            "priority": 7,
            "waitSeconds": 10,
            "leaseSeconds": 60,
            "renewTime": TIME,
            "release": False,
            "images": {"main": "registry.example/main:2"},
            "env": ENV,
            "labels": {"team": "a"},
            "annotations": {"why": "test"},
        },
        {
            **OBSERVED,
            "phase": "Bound",
            "arrival": TIME,
            "instanceName": "pool-0",
            "addresses": [ADDRESS],
            "boundTime": TIME,
            "expiresAt": TIME,
            "endTime": TIME,
            "reason": "Bound",
            "message": "It got one.",
        },
    ),
    example("Function", {"entrypoint": "app:main", "source": {"inline": "def main(event): pass"}}),
    example(
        "Function",
        {
            "runtime": "python",
            "entrypoint": "app.web:main",
            "source": {"digest": DIGEST},
            "requirements": ["httpx>=0.27"],
            "public": True,
            "timeoutSeconds": 60,
            "concurrency": 8,
            "env": ENV,
            "resources": RESOURCES,
            "isolation": "sandbox",
            "network": "egress",
            "egress": EGRESS,
            "scale": {"min": 1, "max": 8, "idleSeconds": 60},
            "regions": ["ams", "fra"],
        },
        {
            **OBSERVED,
            "url": "https://edge.example/f",
            "version": "0123456789abcdef",
            "lastLoaded": {
                "version": "fedcba9876543210",
                "time": TIME,
                "template": {"containers": [{"name": "worker"}]},
            },
            "digest": DIGEST,
            "region": "ams",
            "readyWorkers": 1,
            "lastCallTime": TIME,
            "calls": {"succeeded": 10, "failed": 1},
        },
    ),
    example(
        "Function",
        {"runtime": "command", "command": ["./handle", "-x"], "source": {"workspaceRef": {"name": "workspace"}}},
    ),
    example("Instance", {**LEAST_TEMPLATE, "templateHash": "abc", "ordinal": 0}),
    example(
        "Instance",
        {
            **TEMPLATE,
            "handler": HANDLER,
            "cellName": "ams-1",
            "schedulingGates": [{"name": "quota"}, {"name": "workspace"}],
            "templateHash": "abc",
            "ordinal": 3,
            "assignment": {
                "id": "a-1",
                "kind": "Claim",
                "name": "mine",
                "uid": "u-1",
                "since": TIME,
                "options": {"env": {"A": "b"}, "none": None},
            },
        },
        {
            **OBSERVED,
            "phase": "Running",
            "observedTemplateHash": "abc",
            "grantedRequestsHash": "def",
            "runtimeID": "123@456",
            "startTime": TIME,
            "restarts": 1,
            "lastExit": {"code": 1, "signal": 9, "reason": "Killed", "time": TIME},
            "addresses": [ADDRESS],
            "assignment": {"id": "a-1", "phase": "Accepted"},
        },
    ),
    example("InstanceType", {"cpu": 1, "memory": "2Gi"}),
    example("InstanceType", {"cpu": "1500m", "memory": "2Gi", "state": "Deprecated"}, OBSERVED),
    example("Location", {"cityCode": "ams"}),
    example(
        "Location",
        {"cityCode": "ams", "displayName": "Amsterdam", "region": "Europe", "latitude": 52.37, "longitude": 4},
        OBSERVED,
    ),
    example("Quota", {"hard": {}}),
    example(
        "Quota",
        {"hard": BUDGET},
        {
            **OBSERVED,
            "used": USED,
            "sequence": 4,
            "holders": [{**QUOTA_OWNER, "hash": "0123456789abcdef", "count": 3, "requests": USED}],
            "waiting": [{**QUOTA_OWNER, "hash": "fedcba9876543210", "count": 1, "message": "it is short of cpu"}],
            "waitingInstances": 1,
        },
    ),
    example("QuotaClaim", {"owner": QUOTA_OWNER}),
    example(
        "QuotaClaim",
        {
            "owner": {"kind": "WorkloadDeployment", "name": "web", "uid": "web-uid"},
            "slots": [{"hash": "0123456789abcdef", "count": 3, "requests": USED}],
        },
        {**OBSERVED, "granted": [{"hash": "0123456789abcdef", "count": 2}]},
    ),
    example("Schedule", {"cron": "*/5 * * * *", "target": {"functionRef": {"name": "resize"}}}),
    example(
        "Schedule",
        {
            "cron": "@daily",
            "timeZone": "Europe/Amsterdam",
            "enabled": False,
            "target": {"taskTemplate": COMMAND},
            "regions": ["ams"],
            "overlap": "Replace",
            "catchUp": "All",
            "catchUpWithinSeconds": 60,
            "jitterSeconds": 10,
            "history": {"succeeded": 1, "failed": 2},
        },
        {
            **OBSERVED,
            "nextRunTime": TIME,
            "lastScheduledTime": TIME,
            "observedCron": "@daily",
            "lastStartedTime": TIME,
            "lastCompletedTime": TIME,
            "lastError": "boom",
            "runCount": 3,
            "skippedCount": 1,
            "region": "ams",
            "active": ["example-1", "example-2"],
        },
    ),
    example(
        "Schedule",
        {"cron": "0 1 * * 1", "target": {"taskTemplate": CALL}, "payload": {"size": 1.5, "none": None}},
    ),
    example("Schedule", {"cron": "0 1 * * 1", "target": {"taskTemplate": PROMPT}}),
    example("Task", CALL),
    example(
        "Task",
        {**COMMAND, "cancel": False},
        {
            **OBSERVED,
            "phase": "Succeeded",
            "reason": "Done",
            "message": "It is over.",
            "arrival": TIME,
            "instanceName": "pool-0",
            "instanceUID": "an-instance",
            "tries": 2,
            "losses": 1,
            "attempts": [
                {
                    "instance": "pool-0",
                    "start": TIME,
                    "end": TIME,
                    "exitCode": 0,
                    "reason": "Succeeded",
                    "commit": "0" * 40,
                    "note": "the origin could not be reached",
                },
                {"instance": "pool-0"},
            ],
            "dependencies": [
                {"name": "first", "uid": "u-1", "phase": "Succeeded", "outputs": {"a": "b"}, "retryOf": "zeroth"}
            ],
            "commit": "0" * 40,
            "startTime": TIME,
            "completionTime": TIME,
            "exitCode": 0,
            "result": {"any": ["thing", None, 1.5]},
            "outputs": {"url": "https://example"},
            "usage": {"tokens": 10, "none": None},
        },
    ),
    example("Task", PROMPT),
    example("TaskSpawner", {"source": {"github": {"repo": "acme/app"}}, "taskTemplate": PROMPT}),
    example(
        "TaskSpawner",
        {
            "source": {
                "webhook": {
                    "secretRef": {"name": "hook"},
                    "filters": [{"path": "action", "values": ["opened"]}],
                    "map": {"title": "issue.title"},
                }
            },
            "taskTemplate": COMMAND,
            "maxConcurrency": 3,
            "maxTotal": 100,
            "suspend": True,
        },
        {
            **OBSERVED,
            "discovered": 5,
            "created": 4,
            "active": 1,
            "lastPollTime": TIME,
            "lastError": "boom",
            "items": ["0123456789ab"],
        },
    ),
    example(
        "TaskSpawner",
        {
            "source": {
                "github": {
                    "apiURL": "https://github.example/api/v3",
                    "repo": "acme/app",
                    "kind": "pulls",
                    "labels": ["bug", "agent"],
                    "excludeLabels": ["wip"],
                    "state": "all",
                    "secretRef": {"name": "token"},
                    "pollSeconds": 30,
                }
            },
            "taskTemplate": CALL,
        },
    ),
    example("WorkerPool", {"worker": {}}),
    example(
        "WorkerPool",
        {
            "worker": WORKER,
            "replicas": 3,
            "storage": {"size": "5Gi"},
            "reset": "Keep",
            "update": {"maxUnavailable": 2, "drainSeconds": 60},
            "queue": {"limit": 10, "defaultWaitSeconds": 5},
        },
        {
            **OBSERVED,
            "phase": "Ready",
            "replicas": 3,
            "readyReplicas": 3,
            "idle": 1,
            "busy": 2,
            "waiting": 0,
            "updatedReplicas": 3,
            "tasksCompleted": 9,
            "selector": "rota.dev/pool=example",
        },
    ),
    example(
        "WorkerPool",
        {"template": TEMPLATE, "scale": {"min": 0, "max": 10, "targetIdle": 2, "scaleDownSeconds": 60}},
    ),
    example(
        "Workload",
        {"template": {"spec": LEAST_TEMPLATE}, "placements": [{"name": "eu", "cityCodes": ["ams"]}]},
    ),
    example(
        "Workload",
        {
            "template": WORKLOAD_TEMPLATE,
            "placements": [
                {
                    "name": "eu",
                    "cityCodes": ["ams", "fra"],
                    "scale": {"min": 2, "max": 5, "metric": {"cpuPercent": 60}},
                    "onCellLost": "Keep",
                    "leaseSeconds": 30,
                    "restartedAt": {"ams": TIME},
                },
                {"name": "us", "cityCodes": ["iad"]},
            ],
            "revisionHistoryLimit": 3,
        },
        {
            **OBSERVED,
            **COUNTS,
            "deployments": 2,
            "cities": "ams,fra",
            "ready": "2/5",
            "placements": [
                {
                    "name": "eu",
                    **COUNTS,
                    "available": "False",
                    "reason": "Starting",
                    "message": "2 of 5 ready",
                    "unplaced": 1,
                    "cities": [{"cityCode": "ams", "cells": [{"name": "ams-1", "replicas": 2, "ready": 1}]}],
                }
            ],
        },
    ),
    example(
        "WorkloadDeployment",
        {
            "workloadRef": {"name": "web"},
            "placementName": "eu",
            "cityCode": "ams",
            "cellName": "ams-1",
            "replicas": 0,
            "template": {"spec": LEAST_TEMPLATE},
        },
    ),
    example(
        "WorkloadDeployment",
        {
            "workloadRef": {"name": "web"},
            "placementName": "eu",
            "cityCode": "ams",
            "cellName": "ams-1",
            "replicas": 2,
            "template": WORKLOAD_TEMPLATE,
            "onCellLost": "Move",
            "leaseSeconds": 30,
            "term": 2,
            "metric": {"cpuPercent": 60},
        },
        {
            **OBSERVED,
            **COUNTS,
            "selector": "rota.dev/workload=web",
            "templateHash": "0123456789abcdef",
            "cpuPercent": 40,
        },
    ),
    example(
        "Revision",
        {
            "workloadRef": {"name": "web"},
            "number": 1,
            "templateHash": "0123456789abcdef",
            "template": {"spec": LEAST_TEMPLATE},
        },
    ),
    example(
        "Revision",
        {
            "workloadRef": {"name": "web"},
            "number": 2,
            "templateHash": "fedcba9876543210",
            "template": WORKLOAD_TEMPLATE,
        },
        OBSERVED,
    ),
    example("Workspace", {"repo": "https://git.example/app"}),
    example(
        "Workspace",
        {
            "repo": "ssh://git@git.example/app",
            "ref": "main",
            "depth": 1,
            "secretRef": {"name": "secret"},
            "remotes": [{"name": "fork", "url": "https://git.example/fork"}],
            "files": [
                {"path": "etc/config", "content": "a=b", "mode": "0644"},
                {"path": "run.sh", "content": "true"},
            ],
            "setup": ["make", "setup"],
        },
        OBSERVED,
    ),
    example("Namespace"),
    example("Secret"),
    example("Secret", type="Opaque", data={"key": "dmFsdWU="}, immutable=True),
    example("Secret", stringData={"key": "value"}),
    example("ConfigMap"),
    example("ConfigMap", data={"key": "value"}, binaryData={"bytes": "AAE="}, immutable=True),
    example("Lease"),
    example(
        "Lease",
        {
            "holderIdentity": "a",
            "leaseDurationSeconds": 15,
            "acquireTime": "2024-05-06T07:08:09.000001Z",
            "renewTime": "2024-05-06T07:08:09.000001Z",
            "leaseTransitions": 2,
        },
    ),
    example("Role"),
    example(
        "Role",
        rules=[
            {"verbs": ["get", "list"], "apiGroups": ["rota.dev", ""], "resources": ["tasks", "tasks/log"]},
            {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*/log"], "resourceNames": ["a"]},
        ],
    ),
    example("Event", involvedObject={"namespace": "default"}),
    example(
        "Event",
        involvedObject=ABOUT,
        reason="Made",
        message="It was made.",
        source={"component": "maker", "host": "laptop"},
        firstTimestamp=TIME,
        lastTimestamp=TIME,
        count=1,
        type="Normal",
        eventTime="2024-05-06T07:08:09.000001Z",
        series={"count": 2, "lastObservedTime": "2024-05-06T07:08:09.000001Z"},
        action="Make",
        related={**ABOUT, "kind": "Secret"},
        reportingComponent="example.com/maker",
        reportingInstance="maker-1",
    ),
]


def examples(kind: str) -> list[Object]:
    """The examples of a kind, each a fresh copy."""
    return [copy.deepcopy(obj) for obj in _ALL if obj["kind"] == kind]
