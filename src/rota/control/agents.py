"""The table of agent programs: command, variables of credentials, and the files that each reads from its home."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rota.api.pool import AgentConfigSpec, MCPServer
from rota.api.worker import WorkerRole
from rota.runtime.runner.jobs import Parse

Secrets = Mapping[str, Mapping[str, str]]
Server = dict[str, Any]


class AgentFiles(NamedTuple):
    """The paths of an agent's files, below its home."""

    instructions: str
    skill: str
    """{} stands for the skill's name."""
    servers: str
    write_servers: Callable[[dict[str, Server]], str]


class Agent(NamedTuple):
    """An agent program. It reads the prompt from standard input, since other users can see arguments."""

    files: AgentFiles
    argv: Sequence[str]
    parse: Parse
    """The parser of the program's output."""
    model: Sequence[str]
    """Arguments that set the model; {} stands for its name."""
    effort: Sequence[str]
    """Arguments that set the effort; {} stands for it."""
    credentials: Mapping[str, str]
    """The variable of its credentials, by their type."""


def _as_json(servers: dict[str, Server]) -> str:
    return json.dumps({"mcpServers": servers}, indent=2, sort_keys=True) + "\n"


def _as_toml(servers: dict[str, Server]) -> str:
    """Write TOML, in which strings, lists and tables of strings are those of JSON, except for the headers of tables."""
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
    # TOML has all escapes of JSON, and demands one for a character that JSON leaves as it is.
    return json.dumps(value).replace("\x7f", "\\u007f")


AGENTS: Mapping[str, Agent] = {
    "claude-code": Agent(
        AgentFiles(".claude/CLAUDE.md", ".claude/skills/{}/SKILL.md", ".claude.json", _as_json),
        ("claude", "--print", "--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions"),
        "claude-code",
        ("--model", "{}"),
        ("--effort", "{}"),
        {"api-key": "ANTHROPIC_API_KEY", "oauth": "CLAUDE_CODE_OAUTH_TOKEN"},
    ),
    "codex": Agent(
        AgentFiles(".codex/AGENTS.md", ".codex/skills/{}/SKILL.md", ".codex/config.toml", _as_toml),
        ("codex", "exec", "--json", "--dangerously-bypass-approvals-and-sandbox", "--skip-git-repo-check", "-"),
        "codex",
        ("--model", "{}"),
        ("--config", "model_reasoning_effort={}"),
        {"api-key": "CODEX_API_KEY", "oauth": "CODEX_ACCESS_TOKEN"},
    ),
}
OTHER = AgentFiles(".rota/instructions.md", ".rota/skills/{}/SKILL.md", ".rota/mcp.json", _as_json)
"""The files of workers of types that are not in the table."""


def agent_program(role: WorkerRole) -> str:
    """Return the program that takes the prompts of a worker; empty: it takes none."""
    if role.type in AGENTS:
        return AGENTS[role.type].argv[0]
    return role.entrypoint[0] if role.entrypoint else ""


def agent_files(type_: str, configs: Sequence[AgentConfigSpec], secrets: Secrets) -> dict[str, str]:
    """Return the files of a home, by path. Instructions are joined; of servers and skills, the last of a name wins."""
    agent = AGENTS[type_].files if type_ in AGENTS else OTHER
    files: dict[str, str] = {}
    instructions = [config.instructions.strip() for config in configs if config.instructions]
    if instructions:
        files[agent.instructions] = "\n\n".join(instructions) + "\n"
    for config in configs:
        files.update({agent.skill.format(skill.name): skill.content for skill in config.skills})
    servers = {server.name: _server(server, secrets) for config in configs for server in config.mcp_servers}
    if servers:
        files[agent.servers] = agent.write_servers(servers)
    return files


def _server(server: MCPServer, secrets: Secrets) -> Server:
    """Return an MCP server in an agent's format. The keys of its Secret become headers, or variables of its command."""
    kept = dict(secrets.get(server.secret_ref.name, {})) if server.secret_ref is not None else {}
    if server.type == "stdio":
        found: Server = {"type": server.type, "command": server.command[0], "args": server.command[1:]}
        return {**found, "env": kept} if kept else found
    headers = {**server.headers, **kept}
    return {"type": server.type, "url": server.url, **({"headers": headers} if headers else {})}
