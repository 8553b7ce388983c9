"""The preparation of workers, without a credential anywhere that does not need it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rota.runtime import sandbox
from tests.workers.farm import API, Farm, environments, farm, pool, secret, workspace
from tests.workspace.conftest import Repo, Server

pytestmark = pytest.mark.skipif(not sandbox.available().ok, reason="no sandbox can be made here")

PASSWORD = "Kennwort-4711"
HEADER = "Bearer-Schluessel-4712"
SETUP = [
    "sh",
    "-c",
    "env > /workspace/home/environment; cat /proc/*/environ /proc/*/cmdline >> ~/seen 2>/dev/null; true",
]


class Prepared(NamedTuple):
    farm: Farm
    origin: Server


def agent_config(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": API, "kind": "AgentConfig", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


CONFIGS = (
    agent_config(
        "first",
        instructions="Be brief.",
        skills=[{"name": "dance", "content": "slow"}, {"name": "sing", "content": "low"}],
        mcpServers=[{"name": "tools", "type": "http", "url": "https://first.example/mcp"}],
    ),
    agent_config(
        "second",
        instructions="Be kind.",
        skills=[{"name": "dance", "content": "fast"}],
        mcpServers=[
            {
                "name": "tools",
                "type": "http",
                "url": "https://second.example/mcp",
                "headers": {"X-Plain": "yes"},
                "secretRef": {"name": "header"},
            }
        ],
    ),
)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prepared]:
    """Workers on a repository that asks for a password, with agents that are told two things."""
    folder = tmp_path_factory.mktemp("prepared")
    repo = Repo(folder / "origin" / "repo")
    repo.commit("file", "content\n")
    origin = Server(repo.path.parent, folder / "server")
    origin.password = f"somebody:{PASSWORD}"
    refs = [{"name": "first"}, {"name": "second"}]
    types = ("claude-code", "codex", "shell")
    # The agents themselves are never run here, but have to be there.
    agents = [{"path": f"bin/{name}", "content": "#!/bin/sh\n", "mode": "0755"} for name in ("claude", "codex")]
    path = {"name": "PATH", "value": "bin:/usr/local/bin:/usr/bin:/bin"}
    worker = {"workspaceRef": {"name": "code"}, "agentConfigRefs": refs, "env": [path]}
    try:
        with farm(folder / "home") as made:
            made.apply(
                secret("sign-in", username="somebody", password=PASSWORD, **{"ca.crt": origin.authority}),
                secret("header", Authorization=HEADER),
                workspace("code", f"{origin.url}/repo", secretRef={"name": "sign-in"}, setup=SETUP, files=agents),
                *CONFIGS,
                *(pool(f"p-{name}", worker={"type": name, **worker}, storage={"size": "1Gi"}) for name in types),
            )
            for name in types:
                made.ready(f"p-{name}", 1)
            yield Prepared(made, origin)
    finally:
        origin.close()


def home_of(made: Farm, type_: str) -> Path:
    [found] = [path / "home" for path in (made.home / "storage" / "default").glob(f"p-{type_}-*") if path.is_dir()]
    return found


def test_a_repository_that_asks_for_a_password_is_there(prepared: Prepared) -> None:
    assert (home_of(prepared.farm, "shell").parent / "repo" / "file").read_text() == "content\n"
    assert any(prepared.origin.authorizations)


INSTRUCTIONS = {"claude-code": ".claude/CLAUDE.md", "codex": ".codex/AGENTS.md", "shell": ".rota/instructions.md"}


@pytest.mark.parametrize(("type_", "path"), INSTRUCTIONS.items())
def test_instructions_follow_one_another_where_each_agent_looks_for_them(
    prepared: Prepared, type_: str, path: str
) -> None:
    assert (home_of(prepared.farm, type_) / path).read_text() == "Be brief.\n\nBe kind.\n"


def test_of_skills_of_one_name_the_last_wins(prepared: Prepared) -> None:
    skills = home_of(prepared.farm, "claude-code") / ".claude" / "skills"
    assert {one.name: (one / "SKILL.md").read_text() for one in skills.iterdir()} == {"dance": "fast", "sing": "low"}


def test_of_servers_of_one_name_the_last_wins_with_the_headers_of_its_secret(prepared: Prepared) -> None:
    found = json.loads((home_of(prepared.farm, "claude-code") / ".claude.json").read_text())
    headers = {"Authorization": HEADER, "X-Plain": "yes"}
    assert found == {"mcpServers": {"tools": {"type": "http", "url": "https://second.example/mcp", "headers": headers}}}


@pytest.mark.parametrize(
    ("type_", "path"), [("claude-code", ".claude.json"), ("codex", ".codex/config.toml"), ("shell", ".rota/mcp.json")]
)
def test_a_file_with_a_secret_is_the_workers_alone(prepared: Prepared, type_: str, path: str) -> None:
    file = home_of(prepared.farm, type_) / path
    assert HEADER in file.read_text() and file.stat().st_mode & 0o777 == 0o600
    assert file.stat().st_uid == home_of(prepared.farm, type_).stat().st_uid


def test_the_password_is_in_no_file_of_the_home_but_the_store(prepared: Prepared) -> None:
    """Neither in a tree, a mirror, a log, the audit nor a note of the keeper."""
    found = [path for path, content in prepared.farm.whole() if PASSWORD.encode() in content]
    assert found == []


def test_a_header_is_where_it_is_told_and_nowhere_else(prepared: Prepared) -> None:
    found = {Path(path).name for path, content in prepared.farm.whole() if HEADER.encode() in content}
    assert found == {".claude.json", "config.toml", "mcp.json"}


def test_the_setup_command_saw_nothing_of_it(prepared: Prepared) -> None:
    home = home_of(prepared.farm, "shell")
    seen = (home / "environment").read_bytes() + (home / "seen").read_bytes()
    assert b"HOME=/workspace/home" in seen and PASSWORD.encode() not in seen


def test_the_password_is_in_no_argument_while_it_is_used(prepared: Prepared) -> None:
    assert prepared.origin.arguments_seen
    assert not any(PASSWORD.encode() in arguments for arguments in prepared.origin.arguments_seen)


def test_the_password_is_in_no_environment_of_what_goes_on_running(prepared: Prepared) -> None:
    assert not [pid for pid, text in environments().items() if PASSWORD in text]


def test_the_password_is_in_no_object_but_its_secret_nor_in_an_event(prepared: Prepared) -> None:
    made = prepared.farm
    assert PASSWORD not in made.kubectl("get", "wp,inst,ws,events,agentconfigs", "-o", "yaml")


def test_a_wrong_password_is_told_without_it(prepared: Prepared) -> None:
    made = prepared.farm
    wrong = "falsch-4713"
    address = f"{prepared.origin.url}/repo"
    made.apply(
        secret("wrong", username="somebody", password=wrong, **{"ca.crt": prepared.origin.authority}),
        workspace("closed", address, secretRef={"name": "wrong"}),
        pool("shut", worker={"type": "shell", "workspaceRef": {"name": "closed"}}),
    )
    made.until(lambda: "AuthenticationFailed" in made.kubectl("get", "wp", "shut", "-o", "yaml"))
    assert wrong not in made.kubectl("get", "wp,inst,ws,events", "-o", "yaml")
    assert [path for path, content in made.whole() if wrong.encode() in content] == []


def test_a_password_that_is_put_right_is_used_without_anybody_being_restarted(prepared: Prepared) -> None:
    made = prepared.farm
    made.until(lambda: "shut-0" in made.runners())
    before = made.runners()["shut-0"]
    made.apply(secret("wrong", username="somebody", password=PASSWORD, **{"ca.crt": prepared.origin.authority}))
    made.ready("shut", 1)
    assert made.runners()["shut-0"] == before
