"""Specs that make no sense by themselves, each with the field that is wrong; and neighbours of theirs that do."""

from __future__ import annotations

from typing import Any

POOL = {"workerPoolRef": {"name": "p"}}
REF = {"name": "a"}
TARGET = {"functionRef": REF}


def template(**fields: Any) -> dict[str, Any]:
    return {"template": {"containers": [{"name": "a"}], **fields}}


def container(**fields: Any) -> dict[str, Any]:
    return template(containers=[{"name": "a", **fields}])


def webhook(**fields: Any) -> dict[str, Any]:
    return {"source": {"webhook": {"secretRef": REF, **fields}}, "taskTemplate": {"prompt": "x", **POOL}}


def github(**fields: Any) -> dict[str, Any]:
    return {"source": {"github": {"repo": "a/b", **fields}}, "taskTemplate": {"prompt": "x", **POOL}}


def workspace(**fields: Any) -> dict[str, Any]:
    return {"repo": "https://git.example/app", **fields}


def server(**fields: Any) -> dict[str, Any]:
    return {"mcpServers": [{"name": "a", **fields}]}


def files(*paths: str) -> dict[str, Any]:
    return workspace(files=[{"path": path, "content": ""} for path in paths])


def ports(*each: Any) -> dict[str, Any]:
    return template(containers=[{"name": f"c{i}", "ports": list(some)} for i, some in enumerate(each)])


def volumes(*paths: str, **more: Any) -> dict[str, Any]:
    return template(
        volumes=[{"name": f"v{i}", "secret": REF, "mountPath": path} for i, path in enumerate(paths)], **more
    )


def moving(**template: Any) -> dict[str, Any]:
    """A workload that is moved when its cell is lost."""
    spec = {"containers": [{"name": "main", "command": ["a"], "image": "a:1"}], **template}
    placement = {"name": "all", "cityCodes": ["dfw"], "onCellLost": "Move"}
    return {"template": {"spec": spec}, "placements": [placement]}


def large(size: int) -> list[dict[str, Any]]:
    """Variables of a size in all."""
    return [{"name": f"A{at}", "value": "x" * 50_000} for at in range(size // 50_000)]


def workload(cities: int, count: int, **fields: Any) -> dict[str, Any]:
    names = [f"c{at:02}" for at in range(64)]
    placements = [
        {"name": f"p{at}", "cityCodes": names[: min(64, cities - at)], "scale": {"min": count}}
        for at in range(0, cities, 64)
    ]
    return {"template": {"spec": container(**fields)["template"]}, "placements": placements}


def placed(*cities: str, times: int = 1, **fields: Any) -> dict[str, Any]:
    placements = [{"name": f"p{i}", "cityCodes": list(cities or ("a",)), **fields} for i in range(times)]
    return {"template": {"spec": {"containers": [{"name": "a"}]}}, "placements": placements}


URL = "mcpServers[0].url"
ONE, OTHER = {"name": "a", "port": 1}, {"name": "b", "port": 1}
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    # Workspaces.
    ("Workspace", workspace(remotes=[{"name": "origin", "url": "https://a/b"}]), "remotes[0].name"),
    ("Workspace", workspace(remotes=[{"name": "a..b", "url": "https://a/b"}]), "remotes[0].name"),
    ("Workspace", workspace(remotes=[{"name": "a", "url": "https://"}]), "remotes[0].url"),
    ("Workspace", workspace(repo="https://"), "repo"),
    ("Workspace", workspace(repo="https://host:99999/x"), "repo"),
    ("Workspace", workspace(repo="https://host/with space"), "repo"),
    ("Workspace", workspace(repo="ssh://git@-oProxyCommand/x"), "repo"),
    ("Workspace", workspace(repo="file://relative/path"), "repo"),
    ("Workspace", workspace(ref="a b"), "ref"),
    ("Workspace", workspace(ref="main..next"), "ref"),
    ("Workspace", workspace(ref="HEAD~1"), "ref"),
    ("Workspace", workspace(ref="x.lock"), "ref"),
    ("Workspace", files("a", "a/b"), "files[1].path"),
    ("Workspace", files("./a"), "files[0].path"),
    ("Workspace", files("a//b"), "files[0].path"),
    ("Workspace", files("sub/.GIT/hooks/x"), "files[0].path"),
    ("Workspace", workspace(setup=["", "x"]), "setup"),
    # Agents.
    ("AgentConfig", server(type="http", url="https://"), URL),
    ("AgentConfig", server(type="http", url="https://host:70000/"), URL),
    ("AgentConfig", server(type="stdio", command=["x"], headers={"A": "b"}), "mcpServers[0].headers"),
    ("AgentConfig", server(type="http", url="https://a", headers={"A B": "x"}), "mcpServers[0].headers"),
    ("AgentConfig", server(type="http", url="https://a", headers={"A": "x\ny"}), "mcpServers[0].headers.A"),
    ("AgentConfig", server(type="stdio", command=[""]), "mcpServers[0].command"),
    # Workers.
    ("WorkerPool", {"worker": {"model": "big"}}, "worker.model"),
    ("WorkerPool", {"worker": {"type": "python", "effort": "high"}}, "worker.effort"),
    ("WorkerPool", {"worker": {"type": "codex", "model": "--help"}}, "worker.model"),
    ("WorkerPool", {"worker": {"type": "codex", "effort": "very high"}}, "worker.effort"),
    ("WorkerPool", {"worker": {"type": "custom", "entrypoint": [""]}}, "worker.entrypoint"),
    ("WorkerPool", {"worker": {"image": "Not An Image"}}, "worker.image"),
    ("WorkerPool", {"worker": {"env": [{"name": "ROTA_TASK", "value": "x"}]}}, "worker.env[0].name"),
    ("WorkerPool", {"worker": {"env": [{"name": "A", "value": "x\0y"}]}}, "worker.env[0].value"),
    ("WorkerPool", {"worker": {"resources": {"limits": {"memory": 0}}}}, "worker.resources.limits.memory"),
    ("WorkerPool", {"worker": {"resources": {"limits": {"cpu": "0m"}}}}, "worker.resources.limits.cpu"),
    (
        "WorkerPool",
        {"worker": {"resources": {"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}}}},
        "worker.resources.requests.memory",
    ),
    (
        "WorkerPool",
        {"worker": {"resources": {"requests": {"cpu": 2}, "limits": {"cpu": "1500m"}}}},
        "worker.resources.requests.cpu",
    ),
    ("WorkerPool", {"worker": {"resources": {"limits": {"cpu": "lots"}}}}, "worker.resources.limits.cpu"),
    ("WorkerPool", {**template(storage={"size": "1Gi"}), "storage": {"size": "1Gi"}}, "storage"),
    ("WorkerPool", {"worker": {}, "storage": {"size": "0"}}, "storage.size"),
    # Templates of instances.
    ("WorkerPool", container(name="../../x"), "template.containers[0].name"),
    ("WorkerPool", container(name="A"), "template.containers[0].name"),
    ("WorkerPool", container(image="team/UPPER"), "template.containers[0].image"),
    ("WorkerPool", container(command=[""]), "template.containers[0].command"),
    (
        "WorkerPool",
        container(livenessProbe={"exec": {"command": [""]}}),
        "template.containers[0].livenessProbe.exec.command",
    ),
    ("WorkerPool", ports([{"name": "http", "port": 0}]), "template.containers[0].ports[0].port"),
    ("WorkerPool", ports([{"name": "http", "port": 65536}]), "template.containers[0].ports[0].port"),
    ("WorkerPool", ports([{"name": "http"}], [{"name": "http"}]), "template.containers[1].ports[0].name"),
    (
        "WorkerPool",
        ports([{"name": "a", "port": 1}], [{"name": "b", "port": 1}]),
        "template.containers[1].ports[0].port",
    ),
    ("WorkerPool", {"worker": {"network": "none", "egress": [{"host": "a.example"}]}}, "worker.egress"),
    ("WorkerPool", {"worker": {"network": "egress", "egress": [{"ports": [443]}]}}, "worker.egress[0]"),
    ("WorkerPool", ports([{"name": "a-b"}, {"name": "a_b"}]), "template.containers[0].ports[1].name"),
    ("WorkerPool", volumes("/a", "/a/"), "template.volumes[1].mountPath"),
    ("WorkerPool", volumes("/a", "/a/b"), "template.volumes[1].mountPath"),
    ("WorkerPool", volumes("/data/x", storage={"size": 1, "path": "/data"}), "template.volumes[0].mountPath"),
    ("WorkerPool", volumes("/a/../etc"), "template.volumes[0].mountPath"),
    ("WorkerPool", volumes("//"), "template.volumes[0].mountPath"),
    ("WorkerPool", template(storage={"size": 1, "path": "/.."}), "template.storage.path"),
    ("WorkerPool", template(isolation="gvisor"), "template.isolation"),
    ("WorkerPool", template(isolation="gvisor", runtime="process"), "template.isolation"),
    *(
        ("WorkerPool", template(storage={"size": 1, "path": path}), "template.storage.path")
        for path in ("/usr", "/usr/", "//usr", "/./usr/bin", "/lib64", "/etc", "/etc/ld.so.preload", "/proc/sys")
    ),
    # Copies of templates.
    ("WorkerPool", {"worker": {"env": large(100_000)}, "replicas": 1000}, "worker"),
    ("WorkerPool", {**container(env=large(100_000)), "scale": {"min": 0, "max": 1000}}, "template"),
    ("Function", {"entrypoint": "a:b", "source": {"inline": "x"}, "env": large(600_000), "scale": {"max": 100}}, "env"),
    ("Workload", workload(8, 1000, env=large(50_000)), "template"),
    ("Workload", {**workload(1, 1, env=large(900_000)), "revisionHistoryLimit": 100}, "template"),
    ("Workload", workload(128, 1000), "template"),
    ("WorkerPool", volumes("/data", "/usr/share/x"), "template.volumes"),
    ("WorkerPool", volumes("/etc/ssl/certs", runtime="process"), "template.volumes"),
    # Workloads.
    ("Workload", moving(storage={"size": "1Gi", "path": "/data"}), "template"),
    ("Workload", moving(runtime="container"), "template"),
    # Functions and schedules.
    ("Function", {"entrypoint": "app.handler", "source": {"inline": "x"}}, "entrypoint"),
    ("Function", {"entrypoint": "a..b:c", "source": {"inline": "x"}}, "entrypoint"),
    ("Function", {"entrypoint": "a:b", "source": {"inline": "x"}, "requirements": ["--index-url=x"]}, "requirements"),
    ("Function", {"entrypoint": "a:b", "source": {"inline": "x"}, "requirements": [""]}, "requirements"),
    ("Schedule", {"cron": "@daily", "target": {"taskTemplate": {"command": ["a"], **POOL}}, "payload": {}}, "payload"),
    # Tasks.
    ("Task", {"prompt": "x", "worker": {}}, "worker"),
    ("Task", {"prompt": "x", "worker": {"type": "python"}}, "worker"),
    ("Task", {"command": ["print"], "worker": {"type": "python"}}, "command"),
    ("Task", {"command": ["a"], **POOL, "branch": "a b"}, "branch"),
    ("Task", {"command": ["a"], **POOL, "branch": "a..b"}, "branch"),
    ("Task", {"command": ["a"], "worker": {}, "affinity": {"key": "k"}}, "affinity"),
    ("Task", {"command": ["a"], **POOL, "retry": {"limit": 3}}, "retry.limit"),
    ("Task", {"function": REF, "branch": "main"}, "branch"),
    ("Task", {"function": REF, "holder": "ann"}, "holder"),
    ("Task", {"function": REF, "affinity": {"key": "k"}}, "affinity"),
    ("Task", {"function": REF, "priority": 3}, "priority"),
    # Spawners.
    ("TaskSpawner", github(apiURL="https://"), "source.github.apiURL"),
    ("TaskSpawner", github(apiURL="https://host:0x1f"), "source.github.apiURL"),
    ("TaskSpawner", github(repo="../.."), "source.github.repo"),
    ("TaskSpawner", webhook(filters=[{"path": "a..b", "values": ["x"]}]), "source.webhook.filters[0].path"),
    ("TaskSpawner", webhook(map={"a.b": "x"}), "source.webhook.map"),
    ("TaskSpawner", webhook(map={"a": "x..y"}), "source.webhook.map.a"),
    # The rest.
    ("Workload", placed(restartedAt={"../x": "2026-01-01T00:00:00Z"}), "placements[0].restartedAt"),
    ("Workload", placed(*(f"c{i}" for i in range(64)), times=5), "placements"),
    ("Claim", {"poolRef": REF, "images": {"a": "Not An Image"}}, "images"),
    ("Claim", {"poolRef": REF, "labels": {"-a": "b"}}, "labels"),
    ("Claim", {"poolRef": REF, "labels": {"a": "b c"}}, "labels.a"),
    ("Claim", {"poolRef": REF, "annotations": {"x.rota.dev/a": "b c"}}, "annotations"),
    ("InstanceType", {"cpu": 0, "memory": "1Gi"}, "cpu"),
    ("InstanceType", {"cpu": 1, "memory": "0Gi"}, "memory"),
]
TAKEN: list[tuple[str, dict[str, Any]]] = [
    ("WorkerPool", {"worker": {"env": large(50_000)}, "replicas": 1000}),
    ("WorkerPool", {"worker": {"env": large(900_000)}, "replicas": 10}),
    ("Workload", workload(64, 200)),
    ("WorkerPool", template(isolation="gvisor", runtime="container")),
    ("Workspace", workspace(remotes=[{"name": "upstream", "url": "ssh://git@host:2222/x.git"}], ref="feature/a-1")),
    ("Workspace", workspace(repo="file:///srv/git/app", ref="v1.2.3")),
    ("Workspace", workspace(repo="https://user@host:8443/app.git", ref="0123456789abcdef")),
    ("Workspace", workspace(repo="https://[::1]/app", ref="grün")),
    ("Workspace", files("a/b", "a/c", ".gitignore", "..a", "a.b/c")),
    ("AgentConfig", server(type="sse", url="http://127.0.0.1:8080/sse?x=1", headers={"X-Team": "a b"})),
    ("WorkerPool", {"worker": {"type": "codex", "model": "gpt-5.1:latest", "effort": "high"}}),
    ("WorkerPool", {"worker": {"type": "custom", "entrypoint": ["x"], "model": "acme/big@2"}}),
    ("WorkerPool", {"worker": {"resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": 1, "memory": "64Mi"}}}}),
    ("WorkerPool", {"worker": {"env": [{"name": "MY_ROTA_X", "value": ""}]}}),
    ("WorkerPool", container(image="registry.example:5000/team/app__x:1.0-rc_1@sha256:" + "a" * 64)),
    (
        "WorkerPool",
        ports([ONE, OTHER], [{"name": "c", "port": 1, "protocol": "UDP"}]),
    ),
    (
        "WorkerPool",
        {"template": {**ports([ONE], [OTHER])["template"], "network": "none"}},
    ),
    ("WorkerPool", volumes("/etc/a", "/etc/ab", storage={"size": "1Gi"})),
    ("WorkerPool", volumes("/usr/share/x", runtime="container")),
    ("WorkerPool", volumes("/user", "/etc/hostsome", "/data/usr")),
    ("Function", {"entrypoint": "shop.orders:close", "source": {"inline": "x"}, "requirements": ["a[b]>=1; x > '1'"]}),
    ("Schedule", {"cron": "@daily", "target": TARGET, "payload": {}}),
    ("Task", {"command": ["shop.orders:close", "1"], "worker": {"type": "python"}}),
    ("Task", {"prompt": "x", "worker": {"type": "custom", "entrypoint": ["x"]}}),
    (
        "Task",
        {"command": ["a"], **POOL, "retry": {"limit": 3, "reasons": ["Failed"]}, "branch": "fix/1"},
    ),
    ("Task", {"command": ["a"], **POOL, "retry": {"backoffSeconds": 1}}),
    ("Task", {"function": REF, "retry": {"limit": 1, "reasons": ["Timeout"]}, "dependsOn": ["b"]}),
    ("TaskSpawner", github(apiURL="https://git.example/api/v3", repo="a.b/.github")),
    (
        "TaskSpawner",
        webhook(map={"by_whom": "pusher.name"}, filters=[{"path": "$event", "values": ["x"]}]),
    ),
    ("Workload", placed(*(f"c{i}" for i in range(64)), times=4, restartedAt={"c1": "2026-01-01T00:00:00Z"})),
    ("Claim", {"poolRef": REF, "images": {"a": "b:1"}, "labels": {"example.com/a": "", "b": "c"}}),
]
