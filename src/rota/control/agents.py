"""Kinds of agents, each a row of a table: how it is run, and the files in which it looks for what it is told."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rota.api.pool import AgentConfigSpec, MCPServer
from rota.api.worker import WorkerRole
from rota.runtime.runner.jobs import Parse

Secrets = Mapping[str, Mapping[str, str]]
Server = dict[str, Any]


class Told(NamedTuple):
    """Where an agent looks for what it is told, below its home."""

    instructions: str
    skill: str
    """With the skill's name in the place of {}."""
    servers: str
    write_servers: Callable[[dict[str, Server]], str]


class Agent(NamedTuple):
    """A kind of agent. It reads the prompt from its standard input: arguments can be seen by others."""

    told: Told
    argv: Sequence[str]
    parse: Parse
    """How its output is read."""
    model: Sequence[str]
    """Arguments that name a model, with its name in the place of {}."""
    effort: Sequence[str]
    """Likewise."""
    credentials: Mapping[str, str]
    """The variable for what it signs in with, by the type of the credentials."""


def _as_json(servers: dict[str, Server]) -> str:
    return json.dumps({"mcpServers": servers}, indent=2, sort_keys=True) + "\n"


def _as_toml(servers: dict[str, Server]) -> str:
    """Strings, lists and tables of strings in TOML are what they are in JSON, but for how tables are headed."""
    blocks = []
    for name, server in sorted(servers.items()):
        plain = {key: each for key, each in server.items() if not isinstance(each, dict) and key != "type"}
        lines = [f"[mcp_servers.{json.dumps(name)}]", *(f"{key} = {_toml(each)}" for key, each in plain.items())]
        for key, table in server.items():
            if isinstance(table, dict):
                header = f"[mcp_servers.{json.dumps(name)}.{'http_headers' if key == 'headers' else key}]"
                lines += [header, *(f"{json.dumps(each)} = {_toml(table[each])}" for each in sorted(table))]
        blocks.append("\n".join(lines) + "\n")
    return "\n".join(blocks)


def _toml(value: Any) -> str:
    # JSON's escapes are all TOML's, but for the one character that JSON leaves as it is.
    return json.dumps(value).replace("\x7f", "\\u007f")


AGENTS: Mapping[str, Agent] = {
    "claude-code": Agent(
        Told(".claude/CLAUDE.md", ".claude/skills/{}/SKILL.md", ".claude.json", _as_json),
        ("claude", "--print", "--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions"),
        "claude-code",
        ("--model", "{}"),
        ("--effort", "{}"),
        {"api-key": "ANTHROPIC_API_KEY", "oauth": "CLAUDE_CODE_OAUTH_TOKEN"},
    ),
    "codex": Agent(
        Told(".codex/AGENTS.md", ".codex/skills/{}/SKILL.md", ".codex/config.toml", _as_toml),
        ("codex", "exec", "--json", "--dangerously-bypass-approvals-and-sandbox", "--skip-git-repo-check", "-"),
        "codex",
        ("--model", "{}"),
        ("--config", "model_reasoning_effort={}"),
        {"api-key": "CODEX_API_KEY", "oauth": "CODEX_ACCESS_TOKEN"},
    ),
}
OTHER = Told(".rota/instructions.md", ".rota/skills/{}/SKILL.md", ".rota/mcp.json", _as_json)
"""Where a program of one's own finds it."""


def agent_program(role: WorkerRole) -> str:
    """The program that prompts are given to; empty: the worker takes none."""
    if role.type in AGENTS:
        return AGENTS[role.type].argv[0]
    return role.entrypoint[0] if role.entrypoint else ""


def agent_files(type_: str, configs: Sequence[AgentConfigSpec], secrets: Secrets) -> dict[str, str]:
    """The files of a home, by path. Instructions follow one another; of servers and skills the last of a name wins."""
    agent = AGENTS[type_].told if type_ in AGENTS else OTHER
    files: dict[str, str] = {}
    told = [config.instructions.strip() for config in configs if config.instructions]
    if told:
        files[agent.instructions] = "\n\n".join(told) + "\n"
    for config in configs:
        files.update({agent.skill.format(skill.name): skill.content for skill in config.skills})
    servers = {server.name: _server(server, secrets) for config in configs for server in config.mcp_servers}
    if servers:
        files[agent.servers] = agent.write_servers(servers)
    return files


def _server(server: MCPServer, secrets: Secrets) -> Server:
    """A server as agents write it down. The keys of its Secret become headers, or the environment of its command."""
    kept = dict(secrets.get(server.secret_ref.name, {})) if server.secret_ref is not None else {}
    if server.type == "stdio":
        found: Server = {"type": server.type, "command": server.command[0], "args": server.command[1:]}
        return {**found, "env": kept} if kept else found
    headers = {**server.headers, **kept}
    return {"type": server.type, "url": server.url, **({"headers": headers} if headers else {})}
